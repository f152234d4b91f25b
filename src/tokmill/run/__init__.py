"""A run from settings to a manifest: plan, encode part by part, commit, finish.

The modules in the order of a run:

1. `whole_run`: the whole run as a list of the stages below. `tasks`: the same for an array.
2. `prepare`: find the inputs, load the tokenizer and the renderer, cut the input into parts.
3. `forecast`: read a small sample of the input; predict tokens, disk, time and memory from it.
4. `begin`: write the plan of a new run into its place, or continue the one that is there. It uses
   `disk_checks` (a file system without what a run needs, or without room), `choose_engine` (exact
   and fastest, on a sample), `plan` and `task_entry` (`plan.json`), `compare_plans` (same
   inputs and settings).
5. `output`: what stands in the place: foreign files, leftovers, parts that are done.
6. `part`: read, encode and write one part. It uses `block_pool` (threads that encode blocks ahead)
   and `part_writer` (shards, rejects and the record of the part).
7. `reject_limits`: stop a run of which too many records are rejected, or whose input breaks off,
   such as a truncated .gz.
8. `finish`: sum up the records of the parts, pack samples, and write the manifest, last.
"""
