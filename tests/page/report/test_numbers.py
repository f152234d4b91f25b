"""The numbers of the page are those of the manifest, the bill and the indices."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tokmill.dataset.reader import read_manifest
from tokmill.dataset.statistics import CONTEXTS
from tokmill.page.report import ids_section
from tokmill.page.report.losses_section import reject_examples
from tokmill.page.report.sources_section import grouped

Make = Callable[..., Any]


@pytest.fixture(scope="module", params=["pretrained", "chats"])
def dataset(request: pytest.FixtureRequest):
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="module")
def page(dataset, page_of: Make):
    return page_of(dataset.directory)


def test_every_anchor_stands_once_and_nothing_is_loaded(page):
    assert len(page.read.ids) == len(set(page.read.ids))
    for word in ("http:", "https:", "url(", "@import", " src=", "<link", "<img"):
        assert word not in page.html


def test_the_head_has_the_totals_of_the_manifest_and_the_bytes_of_the_bill(page):
    totals = page.manifest["totals"]
    head = page.data["overview"]
    assert head["disk_bytes"] == page.bill["disk"]["dataset"]["bytes"]
    for key in ("documents", "tokens", "records", "text_bytes"):
        assert head[key] == totals[key]
    assert f"{totals['tokens']:,}" in page.read.texts
    assert f"{totals['documents']:,}" in page.read.texts


def test_one_source_is_named_and_has_no_charts(page):
    (source,) = page.manifest["sources"]
    things = "samples" if page.manifest["kind"] == "sft" else "documents"
    assert f"All {things} come from {source['path']}." in page.text
    assert "sources-amounts" not in page.html


def test_the_head_says_where_the_dataset_is_and_how_its_ids_were_made(page, dataset):
    assert str(dataset.directory.resolve()) in page.read.texts
    assert "uint16, 2 bytes a token" in page.read.texts
    tokens = dict.fromkeys(("train", "val"), 0)
    for shard in page.manifest["shards"]:
        tokens[shard["split"]] += shard["tokens"]
    assert f"train {tokens['train']:,} tokens, val {tokens['val']:,} tokens" in page.read.texts
    assert page.text.count("same ids as the reference") == 0


def test_lengths_are_those_of_every_document(page, dataset):
    lengths = np.array([len(ids) for ids in dataset])
    data = page.data["lengths"]
    assert data["length_histogram"] == page.manifest["length_histogram"]
    assert sum(data["tokens_by_length"]) == page.manifest["totals"]["tokens"]
    assert data["longest"] == lengths.max()
    longer = [int((lengths > context).sum()) for context in CONTEXTS]
    beyond = [int(np.maximum(lengths - context, 0).sum()) for context in CONTEXTS]
    assert (data["documents_longer"], data["tokens_beyond"]) == (longer, beyond)
    pairs = [list(pair) for pair in zip(longer, beyond, strict=True)]
    pairs = pairs[: sum(1 for n in longer if n) + 1]
    assert list(page.read.tables["lengths-contexts"].values()) == pairs
    first = next(i for i, n in enumerate(data["length_histogram"]) if n)
    histogram = zip(data["length_histogram"], data["tokens_by_length"], strict=True)
    rows = [list(pair) for pair in histogram][first:]
    assert list(page.read.tables["lengths-histogram"].values()) == rows
    assert page.read.bars["lengths-histogram"] == [n for row in rows for n in row]


def test_ids_and_duplicates_are_those_of_stats(page, dataset, capsys):
    statistics = dataset.stats().as_json()
    assert page.data["ids"] == {key: statistics[key] for key in ("ids", "duplicates")}
    frequent = statistics["ids"]["frequent"]
    counts = [named["count"] for named in frequent]
    assert [n for n, _ in page.read.tables["ids"].values()] == counts
    assert f"{statistics['ids']['unused']:,} of {statistics['ids']['vocabulary']:,}" in page.text


def test_splits_stages_and_sums_are_those_of_the_manifest(page):
    manifest = page.manifest
    splits = {split: [0, 0, 0] for split in ("train", "val")}
    for shard in manifest["shards"]:
        for i, n in enumerate((1, shard["documents"], shard["tokens"])):
            splits[shard["split"]][i] += n
    assert page.read.tables["run"] == splits
    assert page.data["run"]["stage_s"] == manifest["run"]["stage_s"]
    stages = page.read.tables["run-stages"]
    assert {stage: n for stage, (n,) in stages.items()} == manifest["run"]["stage_s"]
    assert manifest["sha256"] in page.read.texts


def test_what_is_trained_and_packed_is_that_of_the_manifest(chats, page_of: Make):
    page = page_of(chats.directory)
    totals, packs = page.manifest["totals"], page.manifest["packs"]
    data = page.data["trained"]
    assert data["trained_tokens"] == totals["trained_tokens"]
    share = totals["trained_tokens"] / totals["tokens"]
    assert page.read.bars["trained-shares"] == [share]
    assert page.read.bars["trained-packing"] == [packs[split]["fill"] for split in packs]
    assert {split: data["packs"][split]["rows"] for split in packs} == {
        split: packs[split]["rows"] for split in packs
    }
    assert page.html.count("<article") == len(page.data["texts"]["numbers"]) == 4
    assert '<mark class="t">' in page.html


def test_a_pretraining_page_has_no_section_on_training(pretrained, page_of: Make):
    page = page_of(pretrained.directory)
    assert "trained" not in page.data
    assert list(page.data) == [
        "overview", "sources", "lengths", "ids", "losses", "texts", "bill", "run",
    ]  # fmt: skip


def test_drops_rejects_and_their_examples_are_counted(
    pretrain_rows: Callable[..., Path], page_of: Make
):
    directory = pretrain_rows(
        [{"text": "hello"}, {"text": "a " * 60}, b"{broken <b>&", b"\xff\xfe", b"[1]"],
        max_tokens=20, max_reject_fraction=1,
    )  # fmt: skip
    page = page_of(directory)
    totals, losses = page.manifest["totals"], page.data["losses"]
    assert losses["drops"] == totals["drops"] == {"more than max_tokens": 1}
    assert losses["rejects"] == totals["rejects"]
    assert sum(losses["rejects"].values()) == 3
    assert losses["records"] == 5
    assert page.read.tables["losses-records"]["all records"] == [1, 1, 3]
    reasons = {name: n for name, (n,) in page.read.tables["losses-rejects"].items()}
    assert reasons == totals["rejects"]
    assert page.html.count('<article class="reject">') == losses["examples"]
    assert losses["examples"] == sum(min(2, n) for n in totals["rejects"].values())
    assert "{broken &lt;b&gt;&amp;" in page.html
    assert '<span class="x">\\xff</span><span class="x">\\xfe</span>' in page.html
    assert "rows.jsonl:3" in page.text


def test_every_reason_has_an_example_before_one_has_two(pretrain_rows: Callable[..., Path]):
    kinds = [b"{", b"\xff", b"[1]", {"text": 1}, {"other": "x"}, {"text": ""}]
    rows = [row for row in kinds for _ in range(3)]
    directory = pretrain_rows([*rows, b"[2]", {"text": "hello"}], max_reject_fraction=1)
    manifest = read_manifest(directory)
    counts = manifest["totals"]["rejects"]
    shown = [str(entry["reason"]) for entry in reject_examples(directory, manifest)]
    assert len(shown) == 8
    assert set(shown) == set(counts)
    assert [counts[reason] for reason in shown] == sorted(
        (counts[reason] for reason in shown), reverse=True
    )


def test_of_many_sources_the_largest_are_shown_and_the_others_are_one():
    sources = [
        {"path": f"a/b/{i}.jsonl", "tokens": i, "documents": 1, "text_bytes": 3 * i, "records": 1}
        for i in range(1, 31)
    ]
    rows, folder = grouped(sources)
    assert folder == "a/b/"
    assert [row["name"] for row in rows[:2]] == ["30.jsonl", "29.jsonl"]
    assert len(rows) == 21
    assert (rows[-1]["name"], rows[-1]["documents"]) == ("10 other sources", 10)
    assert sum(row["tokens"] for row in rows) == sum(range(31))
    assert len(grouped(sources[:21])[0]) == 21
    assert grouped([{**sources[0], "path": "a/bc"}, {**sources[0], "path": "a/bd"}])[1] == "a/"
    assert grouped(sources[:1])[1] == "a/b/"
    assert grouped([{**sources[0], "path": "a"}])[1] == grouped([])[1] == ""


def test_a_page_of_ten_thousand_sources_is_small(pretrained, page_of: Make):
    manifest = json.loads(json.dumps(pretrained.manifest))
    (source,) = manifest["sources"]
    names = [f"corpus/{'长' * 60}/{i:05d}-<b>.jsonl" for i in range(10_000)]
    manifest["sources"] = [{**source, "path": name} for name in names]
    manifest["config"]["input"]["paths"] = names
    page = page_of(pretrained.directory, manifest)
    assert len(page.html.encode()) < 400_000
    assert page.data["sources"]["sources"][-1]["name"] == "9,980 other sources"
    assert "… 9,980 more" in page.html


def test_without_its_tokenizer_the_page_says_so_and_the_rest_stands(pretrained, page_of: Make):
    page = page_of(pretrained.directory, tokenizer="/nowhere")
    assert "/nowhere" in page.data["texts"]["problem"]
    assert "No documents are shown: " in page.text
    assert "Name the tokenizer with --tokenizer to see some." in page.text
    assert page.html.count("<figure") >= 5


def test_without_its_indices_the_page_has_the_histogram_of_the_manifest(
    pretrained, page_of: Make, tmp_path: Path
):
    manifest = json.loads(json.dumps(pretrained.manifest))
    manifest["shards"][0]["documents"] += 1
    manifest["shards"][1]["documents"] -= 1
    page = page_of(pretrained.directory, manifest)
    assert "The exact lengths are not known" in page.text
    assert page.data["lengths"] == {"length_histogram": manifest["length_histogram"]}


def test_a_page_does_not_read_all_tokens_of_a_large_dataset(pretrained, page_of: Make, monkeypatch):
    monkeypatch.setattr(ids_section, "MOST_TOKENS", 1000)
    page = page_of(pretrained.directory)
    assert f"tokmill stats {pretrained.directory}" in page.text
    assert "ids" not in page.data
