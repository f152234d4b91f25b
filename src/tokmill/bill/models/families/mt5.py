"""mT5: T5 v1.1 with a vocabulary of many languages."""

from __future__ import annotations

from dataclasses import replace

from tokmill.bill.models.families import t5

FAMILY = replace(
    t5.FAMILY,
    heads=t5.heads("MT5"),
    defaults={
        **t5.FAMILY.defaults, "vocab_size": 250112, "intermediate_size": 1024,
        "num_hidden_layers": 8, "num_attention_heads": 6, "feed_forward_proj": "gated-gelu",
    },
)  # fmt: skip
