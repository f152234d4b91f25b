"""A run from settings to a manifest: plan, encode part by part, commit, finish.

The modules in the order of a run:

1. `make_dataset`: the whole run as a list of the stages below.
2. `prepare`: find the inputs, load the tokenizer and the renderer, cut the input into parts.
3. `forecast`: read a small sample of the input; predict tokens, disk, time and memory from it.
   `forecast_run` does this from settings, without making the dataset.
4. `disk_checks`: refuse a file system without what commits need, or without room.
5. `resume`: plan a new run, or continue the one in the directory. It uses `directory` (the files
   that may stand there), `choose_engine` (exact and fastest, measured on the sample), `plan`
   (`plan.json`) and `compare_plans` (same inputs and settings).
6. `part`: read, encode and write one part, from where an earlier attempt stopped. It uses
   `block_pool` (threads that encode blocks ahead), `part_writer` (where a commit ends, commit
   records, checkpoints) and `open_commit` (the shards that are being written).
7. `reject_limits`: stop a run of which too many records are rejected. `unread_input`: stop a run
   whose input breaks off, such as a truncated .gz.
8. `packing`: choose the samples of each packed row (SFT).
9. `finish`: sum up the commit records and write the manifest, last.
"""
