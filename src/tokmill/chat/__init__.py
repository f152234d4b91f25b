"""Chats: records of conversations to samples of text, control tokens and weights.

A record takes this way: `reading` makes a `Conversation` of it; a template of `jinja` writes
that as `Segments`; `weights` decides which of them are trained; `renderer` runs all this for a
block.
"""
