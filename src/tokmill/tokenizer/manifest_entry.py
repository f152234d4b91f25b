"""The manifest's entry about the tokenizer, by which another one of the same name is noticed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokmill.tokenizer.tokenizer import Tokenizer

PROBE_TEXT = "Hello, 世界! 123\n\tx = {}"
"""Text whose ids are in the manifest: they show another tokenizer of the same name."""


def tokenizer_entry(tokenizer: Tokenizer, probe_ids: Sequence[int]) -> dict[str, Any]:
    """Return the entry; `probe_ids`: ids of `PROBE_TEXT` by the reference."""
    eos, bos = tokenizer.eos, tokenizer.bos
    return {
        "name": tokenizer.name,
        "sha256": tokenizer.sha256,
        "vocab_size": tokenizer.vocab_size,
        "eos": {"id": eos.id, "token": eos.content},
        "bos": None if bos is None else {"id": bos.id, "token": bos.content},
        "probe": {"text": PROBE_TEXT, "ids": list(probe_ids)},
    }
