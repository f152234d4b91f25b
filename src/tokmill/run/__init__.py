"""A run from settings to its parts: plan, begin, parts, finish.

The modules in the order of a run:

1. `prepare`: find the inputs, load the tokenizer, cut the input into parts; choose the engine, how
   many processes and threads. It uses `readings` (how each group of files is read) and `sample`.
   `imports` does the same for an import, whose files hold tokens.
2. `forecast`: encode a small sample of the input; predict tokens, disk, time and memory from it.
3. `plan`: the plan as a value and as `plan.json`; whether two plans are the same run.
4. `begin`: hold the place, and write the plan of a new run into it, or continue the one that is
   there; a file system without what a run needs, or without room, is refused.
5. `output`: what stands in the place: foreign files, leftovers, parts that are done.
6. `part`: read, encode and write one part; threads encode blocks ahead.
7. `reject_limits`: stop a run of which too many records are rejected, or whose input breaks off,
   such as a truncated .gz.
8. `finish`: make the parts that are missing, here, on `workers` or on `ray`; sum them up; write the
   manifest. `tasks` does the same as an array: a share of the parts, a look, the finish.
"""
