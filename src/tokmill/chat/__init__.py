"""Chats: records of conversations to samples of text, control tokens and weights.

A record takes this way: `reading` makes a `Conversation` of it; a template of `jinja` writes that
as a `Sample`; `weights` decides which of its segments are trained. `records` runs all this for the
records of a block; `render_pool` asks for it, here or in children (`worker`).
"""
