"""Engines turn texts into token ids.

`engine` has the protocol and loads engines by name; `gigatoken`, `fastokens` and `reference` are
one engine each, listed in `tokmill.tables`. `choose` makes the `choice` of a run, by `comparison`
with the reference, in an `engine_child` where its result is not known. While a run goes on,
`routing` sends texts with certain characters to the reference, `spot_check` compares some text with
it, and `loaded` limits caches.
"""
