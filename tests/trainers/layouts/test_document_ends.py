"""Where documents end, and where a reader that looks for eos would end them."""

from __future__ import annotations

import json

import pytest

import tokmill
from tokmill.trainers.layouts import document_ends
from tokmill.trainers.source import ExportSource


def test_offsets_are_exact_behind_4_gib(five) -> None:
    """Numbers of tokens above 2^31 do not overflow: offsets are int64, lengths int32."""
    shard = next(ExportSource(five.directory).shards("train"))
    far = type(shard)(
        shard.name, shard.split, shard.tokens, shard.lengths, shard.offsets + (1 << 40)
    )
    item = shard.tokens.itemsize
    first = (1 << 40) // item
    assert document_ends.ends_of(far, 0, 2).tolist() == [first + 18, first + 319]


@pytest.fixture
def made(words, tmp_path):
    """Make a dataset of texts with control tokens inside."""

    def make(texts: list[str], **settings):
        rows = "".join(json.dumps({"text": text}) + "\n" for text in texts)
        (tmp_path / "in.jsonl").write_text(rows)
        return tokmill.pretrain(
            tmp_path / "in.jsonl", tokenizer=words, output=tmp_path / "out", progress=False,
            control_tokens_in_text="parse", **settings,
        )  # fmt: skip

    return make


@pytest.mark.parametrize("block", [1, 2, 3, 1 << 22])
@pytest.mark.parametrize(
    ("texts", "n_inside"),
    [
        (["w5 w6"], 0),
        (["w5 <eos> w6"], 1),
        (["<eos>"], 1),
        (["<eos> <eos> w3", "w4", "w5 <eos>"], 3),
    ],
)
def test_eos_inside_is_counted_in_blocks_of_any_size(
    made, monkeypatch, texts: list[str], n_inside: int, block: int
) -> None:
    monkeypatch.setattr(document_ends, "_BLOCK", block)
    assert document_ends.count_eos(ExportSource(made(texts).directory)) == (n_inside, 0)
