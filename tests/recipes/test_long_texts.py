"""A text that the memory of the machine cannot hold while it is encoded becomes a reject."""

from __future__ import annotations

import json

import pytest

import tokmill
from tokmill.recipes import memory_bounds

TEXTS = ["hello", "x" * 3_000_000, "the cat"]


@pytest.fixture
def little_memory(monkeypatch):
    """Leave so little of the machine's memory to one text that two million bytes are too many."""
    share = memory_bounds.TEXT_COPIES * 1_000_000 / memory_bounds.usable_memory()
    monkeypatch.setattr(memory_bounds, "_TEXT_SHARE", share)


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("engine", ["reference", "gigatoken"])
def test_a_text_too_long_for_the_memory_is_a_reject_with_its_place(
    tmp_path, tokenizer_dir, write_rows, engine
):
    source = write_rows(tmp_path / "in.jsonl", [{"text": text} for text in TEXTS])
    with tokmill.pretrain(
        source, tokenizer=tokenizer_dir, output=tmp_path / "out", engine=engine, progress=False
    ) as dataset:
        totals = dataset.manifest["totals"]
        assert [dataset.text(i) for i in range(len(dataset))] == [
            "hello<eos>",
            "the cat<eos>",
        ]
    assert totals["rejects"] == {"text too long for the memory": 1}
    (rejects,) = (tmp_path / "out" / "rejects").iterdir()
    reject = json.loads(rejects.read_text())
    assert reject["line"] == 2
    assert reject["message"].startswith("a text of 3,000,000 bytes takes up to 0.3 GB of memory")
    assert "split the record" in reject["message"]


@pytest.mark.usefixtures("little_memory")
def test_a_plan_counts_it_among_the_rejects(tmp_path, tokenizer_dir, write_rows):
    source = write_rows(tmp_path / "in.jsonl", [{"text": text} for text in TEXTS])
    forecast = tokmill.plan(source, tokenizer=tokenizer_dir)
    assert forecast.reject_fraction == pytest.approx(1 / 3)


def test_texts_that_fit_are_no_rejects(tmp_path, tokenizer_dir, write_rows):
    source = write_rows(tmp_path / "in.jsonl", [{"text": text[:1_100_000]} for text in TEXTS])
    with tokmill.pretrain(
        source, tokenizer=tokenizer_dir, output=tmp_path / "out", progress=False
    ) as dataset:
        assert len(dataset) == 3
