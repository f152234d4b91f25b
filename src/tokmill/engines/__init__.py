"""Engines turn texts into token ids.

`engine` has the protocol and loads engines by name; `gigatoken`, `fastokens` and `reference` are
one engine each, listed in `tokmill.tables`. `trial` chooses the engine of a run, `choice` is the
result. While a run goes on, `routing` sends texts with certain characters to the
reference, `spot_check` compares some text with it, and `engine_memory` limits caches.
"""
