"""Prompts without replies, as reinforcement learning has them, are filtered by their length."""

from __future__ import annotations

import json

import tokmill
from tests.cli.conftest import manifest, write_lines


def test_prompts_without_replies_are_filtered_by_their_length(sft, tmp_path):
    records = [
        {"id": str(n), "prompt": [{"role": "user", "content": "q " * n}], "reward": {"answer": 42}}
        for n in (1, 5, 500)
    ]
    source = write_lines(tmp_path / "in.jsonl", [json.dumps(r).encode() for r in records])
    words = ("--fields", "messages=prompt", "--train", "everything", "--max-tokens", "100")
    assert sft(source, *words, "--keep", "id").code == 0
    totals = manifest(tmp_path / "out")["totals"]
    assert totals["drops"] == {"more than max_tokens": 1}
    with tokmill.open(tmp_path / "out") as dataset:
        assert [dataset.meta(i)["id"] for i in range(len(dataset))] == ["1", "5"]
