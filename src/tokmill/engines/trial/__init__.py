"""Chooses the engine of a run: the fastest one with exactly the ids of the reference.

1. `choose`: the entry; takes the reference for little text, or tries engines.
   `candidates`: which engines, in which order, and whether they are timed.
   `speeds`: what each is expected to cost.
2. `remembered`: choices and scans of earlier runs, in the cache directory of the user.
3. `compare`: lets engines encode the hostile texts and a sample of the corpus, and times them.
   `hostile_texts`: the built-in texts.
   `engine_process`: an engine in a child process, which may crash; `tasks`: the child's side.
4. `scan`: compares characters, all or the common ones, and sequences of them, once for each
   tokenizer variant.
   `contexts`: the text around a character, derived from the tokenizer.
   `character_classes`: characters that a tokenizer is likely to treat alike.
   `sequences`: the texts of several characters.

A new engine is not named here: it is a module in `engines` and a row in `tokmill.tables`.
"""
