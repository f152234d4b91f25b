"""`tokmill inspect --noticed` shows the samples behind a counter."""

from __future__ import annotations

import json

import pytest

import tokmill as package

EMPTY, KEPT = "empty replies (only their end of turn is trained)", "strings of control tokens"


@pytest.fixture(scope="module")
def out(tokenizer_dir, write_rows, tmp_path_factory):
    """A dataset of two files of 300 chats in two splits.

    The replies of chats 7, 14, … of the first file are empty; those of the second hold <bos>.
    """

    def chat(reply: str, i: int) -> dict:
        turns = [("user", f"Ask {i}."), ("assistant", reply)]
        return {"messages": [{"role": role, "content": text} for role, text in turns]}

    place = tmp_path_factory.mktemp("noticed")
    for name, odd in (("a", " "), ("b", "a <bos>")):
        rows = [chat("Say." if i % 7 else odd, i) for i in range(1, 301)]
        write_rows(place / f"{name}.jsonl", rows)
    return package.sft(
        [place / "a.jsonl", place / "b.jsonl"], tokenizer=tokenizer_dir, output=place / "out",
        template="plain", val_fraction=0.3, part_bytes="8kB",
    ).directory  # fmt: skip


@pytest.fixture
def shown(out, tokmill):
    """Return what `inspect` does with the dataset."""
    return lambda *options: tokmill("inspect", out, *options)


def test_the_samples_behind_a_counter_are_shown(shown) -> None:
    found = [json.loads(line) for line in shown("--noticed", EMPTY, "--json").out.splitlines()]
    assert len(found) == 4
    assert all(one["trained_text"] == " <eos>" for one in found)
    found = [
        json.loads(line)
        for line in shown("--noticed", KEPT, "--sample", 50, "--json").out.splitlines()
    ]
    assert sorted(one["origin"]["record"] for one in found) == list(range(7, 141, 7))
    assert {one["trained_text"] for one in found} == {"a <bos><eos>"}
    assert {one["origin"]["split"] for one in found} == {"train", "val"}


def test_a_name_that_nothing_was_counted_under_is_refused_with_those_that_are(shown) -> None:
    run = shown("--noticed", "straddling")
    assert (run.code, run.out) == (2, "")
    assert f"noticed: expected one of {EMPTY}, strings of control tokens kept" in run.err


def test_it_chooses_the_samples_alone(shown) -> None:
    for option in (("--row", 0), ("--document", 0), ("--split", "val")):
        assert "--noticed: leave" in shown("--noticed", EMPTY, *option).err
