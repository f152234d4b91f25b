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


def test_a_split_shows_its_documents_alone(shown):
    for split in ("train", "val"):
        found = shown("--split", split, "--sample", 30)
        assert len(found) == 30
        assert {one["shard"].partition("-")[0] for one in found} == {split}


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


def test_a_source_can_have_a_name(out):
    from tokmill.dataset.reader import read_manifest
    from tokmill.page.samples import chosen_documents

    manifest = read_manifest(out)
    for row in manifest["sources"]:
        row["name"] = "web" if "/web/" in row["path"] else "rest"
    dataset = package.open(out)
    first, second = chosen_documents(out, manifest, 2)
    assert "/web/" in dataset.origin(first).path
    assert "/web/" not in dataset.origin(second).path
    found = chosen_documents(out, manifest, 9, source="rest", seed=3)
    assert not any("/web/" in dataset.origin(number).path for number in found)


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


def test_a_row_or_a_document_is_not_chosen_again(tokmill, out):
    failed = tokmill("inspect", out, "--document", 1, "--split", "val")
    assert "--row and --document: leave --split, --source and --seed out" in failed.error
    failed = tokmill("report", out, "--seed", 1)
    assert "choose what a page shows: add --html" in failed.error


def test_a_document_is_shown_with_its_origin_and_whole_or_with_a_visible_cut(tokmill, out):
    source = out.parent / "long.jsonl"
    shown = tokmill("inspect", out, "--source", source, "--max-chars", 100).out
    assert f"from {source}, record 1, byte 0)" in shown
    assert shown.rstrip().endswith("… 3,505 more characters")
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
