"""GPT-2's layer, 12 d^2 + 13 d parameters; positions are learned if their number is given."""

from __future__ import annotations

from dataclasses import replace

from tokmill.bill.models.families import gpt2

FAMILY = replace(
    gpt2.FAMILY,
    heads={},
    style=replace(gpt2.FAMILY.style, measured=False),
    defaults={"hidden_act": "gelu_new", "tie_word_embeddings": True},
)
