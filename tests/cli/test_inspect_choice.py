"""Which documents `inspect` and the page show, and what they say of each."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tokmill as package

LONG = "hello world " * 300


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory, tokenizer_dir: Path, write_rows: Any) -> Path:
    """Three files in two folders, of 300, 3 and 40 documents, in two splits and many shards."""
    place = tmp_path_factory.mktemp("choice")
    for name, n in (("web/a", 300), ("web/b", 3), ("wiki/c", 40)):
        path = place / f"{name}.jsonl"
        path.parent.mkdir(exist_ok=True)
        write_rows(path, [{"text": f"{name} {i} " + "x" * (i % 7)} for i in range(n)])
    inputs = [place / "web", place / "wiki", write_rows(place / "long.jsonl", [{"text": LONG}])]
    return package.pretrain(
        inputs, tokenizer=tokenizer_dir, output=place / "out", val_fraction=0.2, engine="reference",
        part_bytes="2kB", shard_tokens=500, max_reject_fraction=1.0,
    ).directory  # fmt: skip


@pytest.fixture
def shown(tokmill: Callable[..., Any], out: Path) -> Callable[..., list[dict[str, Any]]]:
    """Return what `inspect --json` prints with some options."""

    def run(*options: object) -> list[dict[str, Any]]:
        lines = tokmill("inspect", out, "--json", *options).out.splitlines()
        return [json.loads(line) for line in lines]

    return run


def names(found: list[dict[str, Any]]) -> list[str]:
    return [Path(one["origin"]["path"]).name for one in found]


def test_one_document_of_each_source_is_shown_first_in_their_order(shown):
    found = shown("--sample", 12)
    assert names(found)[:4] == ["a.jsonl", "b.jsonl", "c.jsonl", "long.jsonl"]
    assert len({one["document"] for one in found}) == 12
    assert names(shown()) == ["a.jsonl", "b.jsonl", "c.jsonl", "long.jsonl"]
    assert len(shown("--sample", 2)) == 2


def test_the_shown_text_is_that_of_the_record_it_names(shown):
    for one in shown("--sample", 20):
        with open(one["origin"]["path"], "rb") as file:  # noqa: PTH123
            file.seek(one["origin"]["byte"])
            assert one["text"] == json.loads(file.readline())["text"] + "<eos>"


def test_a_seed_draws_others_and_the_same_seed_the_same(shown):
    found = [[one["document"] for one in shown("--seed", seed)] for seed in (0, 0, 1, 2)]
    assert found[0] == found[1]
    assert len({tuple(numbers) for numbers in found}) > 1


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("web/b.jsonl", {"b.jsonl": 3}),
        ("wiki/", {"c.jsonl": 40}),
        ("web", {"a.jsonl": 300, "b.jsonl": 3}),
    ],
)
def test_a_source_is_a_file_or_a_folder(shown, out, source, expected):
    path = f"{out.parent}/{source}"
    assert Counter(names(shown("--source", path, "--sample", 1000))) == expected
    few = shown("--source", path, "--sample", 2)
    assert len(few) == 2
    assert set(names(few)) <= set(expected)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--split", "test", "split: expected train or val; found 'test'"),
        ("--source", "web/z.jsonl", "web/a.jsonl, "),
        ("--source", "web/z.jsonl", "; found 'web/z.jsonl'"),
    ],
)
def test_what_is_not_there_is_one_line_that_lists_what_is(
    tokmill, out, tmp_path, option, value, message
):
    for command in (("inspect", out), ("report", out, "--html", tmp_path / "page.html")):
        failed = tokmill(*command, option, value)
        assert failed.code == 2
        assert message in failed.error
    with pytest.raises(package.TokmillError, match="expected"):
        package.open(out).report(tmp_path / "page.html", **{option.strip("-"): value})


def test_a_document_is_shown_with_its_origin_and_whole_or_with_a_visible_cut(tokmill, out):
    source = out.parent / "long.jsonl"
    shown = tokmill("inspect", out, "--source", source, "--max-chars", 100).out
    assert f"from {source}, record 1, byte 0)" in shown
    assert "… 3,505 more characters\n\nrules: " in shown
    whole = tokmill("inspect", out, "--source", source, "--max-chars", 0).out
    assert "more character" not in whole
    assert LONG in whole


@pytest.mark.parametrize("page", ["inspect", "report"])
def test_pages_show_the_same_with_origins_and_a_visible_cut(tokmill, out, tmp_path, page):
    source, html = out.parent / "long.jsonl", tmp_path / "page.html"
    tokmill(page, out, "--html", html, "--source", source)
    text = html.read_text()
    assert f"from {source}, record 1, byte 0" in text
    assert "more characters" in text
    assert "web/a.jsonl, record" not in text


# The samples behind a counter


EMPTY, KEPT = "empty replies (only their end of turn is trained)", "strings of control tokens"


@pytest.fixture(scope="module")
def with_counters(tokenizer_dir, write_rows, tmp_path_factory):
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
def noticed(with_counters, tokmill):
    """Return what `inspect` does with the dataset."""
    return lambda *options: tokmill("inspect", with_counters, *options)


def test_the_samples_behind_a_counter_are_noticed(noticed) -> None:
    found = [json.loads(line) for line in noticed("--noticed", EMPTY, "--json").out.splitlines()]
    assert len(found) == 4
    assert all(one["trained_text"] == " <eos>" for one in found)
    found = [
        json.loads(line)
        for line in noticed("--noticed", KEPT, "--sample", 50, "--json").out.splitlines()
    ]
    assert sorted(one["origin"]["record"] for one in found) == list(range(7, 141, 7))
    assert {one["trained_text"] for one in found} == {"a <bos><eos>"}
    assert {one["origin"]["split"] for one in found} == {"train", "val"}


def test_a_name_that_nothing_was_counted_under_is_refused_with_those_that_are(noticed) -> None:
    run = noticed("--noticed", "straddling")
    assert (run.code, run.out) == (2, "")
    assert f"noticed: expected one of {EMPTY}, strings of control tokens kept" in run.err


def test_it_chooses_the_samples_alone(noticed) -> None:
    for option in (("--row", 0), ("--document", 0), ("--split", "val")):
        assert "--noticed: leave" in noticed("--noticed", EMPTY, *option).err
