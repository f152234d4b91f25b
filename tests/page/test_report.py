"""The numbers of the page are those of the manifest, the bill, the indices and the tokens."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import tokmill
from tests.fixtures.datasets import TOKENIZER
from tokmill.bill.gpus import FITS, gpu_verdict, known_gpus
from tokmill.bill.text.rows import moment
from tokmill.bill.text.summary import asked_parts, summary_rows
from tokmill.cli.bill import memory_command
from tokmill.dataset.counts import Counts
from tokmill.dataset.manifest import Manifest, SourceEntry
from tokmill.dataset.reader import read_manifest
from tokmill.inspect.document_hashes import Duplicates
from tokmill.inspect.statistics import CONTEXTS
from tokmill.page import dataset_sections
from tokmill.page.dataset_sections import (
    grouped,
    head_tiles,
    reject_examples,
    sources_section,
    to_look_at,
)
from tokmill.words import plural, printable

Make = Callable[..., Any]
GIVEN = {
    "model": {"name": "llama-3.2-1b"},
    "training": {"gpu": "RTX 4090", "micro_batch": 2, "host_ram": 1 << 36, "price_per_hour": 0.5},
}


@pytest.fixture(scope="module", params=["pretrained", "chats"])
def dataset(request: pytest.FixtureRequest):
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="module")
def page(dataset, page_of: Make):
    return page_of(dataset.directory)


@pytest.fixture(scope="module")
def billed(pretrained, page_of: Make):
    return page_of(pretrained.directory, given=GIVEN)


def test_every_anchor_stands_once_and_nothing_is_loaded(page):
    assert len(page.read.ids) == len(set(page.read.ids))
    for word in ("http:", "https:", "url(", "@import", " src=", "<link", "<img"):
        assert word not in page.html


def test_one_script_runs_and_the_policy_has_its_hash(page):
    (script,) = re.findall(r"<script>(.*?)</script>", page.html, re.S)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page.html)[1]
    assert f"script-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline';")


def test_the_head_has_the_totals_of_the_manifest_and_the_bytes_of_the_bill(page, dataset):
    tiles, totals = page.read.tiles, page.manifest["totals"]
    assert tiles["size on disk"] == page.bill.disk.bill.n_bytes
    assert tiles["tokens"] == totals["tokens"]
    things = "samples" if page.manifest["kind"] == "sft" else "documents"
    assert tiles[things] == totals["documents"]
    n_val = sum(one["tokens"] for one in page.manifest["shards"] if one["split"] == "val")
    assert f"{n_val:,} in val" in page.read.texts
    assert str(dataset.directory.resolve()) in page.read.texts


def test_the_share_that_was_left_out_is_one_of_records(pretrained):
    manifest = json.loads(json.dumps(pretrained.manifest))
    manifest["totals"] |= {"records": 4, "drops": {"short": 1}, "rejects": {}}  # many windows
    assert ">25.0%<" in head_tiles(Manifest.of(manifest, ""), 0)


def test_of_a_mix_of_many_sources_a_few_are_shown_and_the_others_opened(pretrained):
    one = {"available": 5, "wanted": 5, "tokens": 5, "documents": 1, "epochs": 1}
    sources = [{"name": f"s{i}", **one} for i in range(120)]
    mix = {"fingerprint": "", "settings": {}, "inputs": [], "sources": sources}
    manifest = Manifest.of({**pretrained.manifest, "mix": mix}, "")
    assert "<summary>114 more</summary>" in sources_section(manifest).html


def test_lengths_are_those_of_every_document(page, dataset):
    lengths = np.array([len(ids) for ids in dataset])
    longer = [int((lengths > context).sum()) for context in CONTEXTS]
    beyond = [int(np.maximum(lengths - context, 0).sum()) for context in CONTEXTS]
    n_shown = sum(1 for n in longer if n) + 1
    assert (
        list(page.read.bars["Longer than a context"].values())
        == [list(pair) for pair in zip(longer, beyond, strict=True)][:n_shown]
    )
    rows = page.read.tables["Lengths"]
    histogram = [n for n in page.manifest["length_histogram"] if n]
    assert [documents for documents, _ in rows.values() if documents] == histogram
    assert sum(tokens for _, tokens in rows.values()) == page.manifest["totals"]["tokens"]
    assert f"longest {lengths.max():,}" in page.text


def test_ids_and_duplicates_are_those_of_stats(page, dataset):
    statistics = dataset.stats().as_json()
    frequent = [named["count"] for named in statistics["ids"]["frequent"]]
    assert [n for n, _ in page.read.tables["Most frequent ids"].values()] == frequent
    ids = statistics["ids"]
    assert f"{ids['unused']:,} of {ids['vocabulary']:,}" in page.text


def test_the_seconds_of_stages_add_up_to_the_total(page):
    *stages, (last, (total,)) = page.read.tables["Seconds by stage"].items()
    assert last == "all threads"
    assert sum(s for _, (s, _) in stages) == pytest.approx(total, abs=1e-9)
    assert sum(share for _, (_, share) in stages) == pytest.approx(1)
    shown = re.findall(r'data-value="[^"]+">([\d.]+)<', page.html.partition("Seconds by stage")[2])
    assert round(sum(map(float, shown[: len(stages)])), 2) == float(shown[len(stages)])
    for s in page.manifest["run"]["stage_s"].values():
        assert not round(s, 2) or f"{s:,.2f} s: " in page.text


def test_settings_are_named_as_they_are_typed(page):
    options = dict(re.findall(r"<li><code>(\S+)</code> (.*?)</li>", page.html))
    assert float(options["--val-fraction"]) == page.manifest["config"]["output"]["val_fraction"]
    assert options["--tokenizer"] == page.manifest["config"]["tokenizer"]["path"]
    assert not [name for name in options if "_" in name and name.startswith("--")]
    assert "run.block_bytes" in page.text  # no option has its name


def test_what_is_trained_and_packed_is_that_of_the_manifest(chats, page_of: Make):
    page = page_of(chats.directory)
    totals, packs = page.manifest["totals"], page.manifest["packs"]
    assert f"{totals['trained_tokens']:,} ({totals['trained_tokens'] / totals['tokens']:.1%})" in (
        page.text
    )
    for pack in packs.values():
        assert f"in {plural(pack['rows'], 'row')} of {pack['capacity']:,} tokens, " in page.text
    assert '<mark class="t">' in page.html


def test_a_pretraining_page_has_no_section_on_training(pretrained, page_of: Make):
    sections = re.findall(r'<section id="(\w+)"', page_of(pretrained.directory).html)
    assert sections == ["lengths", "sources", "samples", "losses", "bill", "run"]


def test_documents_say_their_split_their_source_and_their_place(pretrained, page_of: Make):
    page = page_of(pretrained.directory)
    cards = page.html.split("<article")[1:]
    assert len(cards) == min(24, page.manifest["totals"]["documents"])
    numbers = [int(n) for n in re.findall(r'id="document-(\d+)"', page.html)]
    for card, number in zip(cards, numbers, strict=True):
        origin = pretrained.origin(number)
        assert f'<span class="chip">{origin.split}</span>' in card
        assert f"from {origin.path}, record {origin.record:,}, " in unescape(card)


def test_documents_without_origins_are_drawn_at_random(pretrained, page_of: Make):
    manifest = json.loads(json.dumps(pretrained.manifest))
    for entry in manifest["shards"]:
        del entry["first_slice"]  # as of imported tokens
    page = page_of(pretrained.directory, manifest)
    assert f"{page.manifest['totals']['documents']:,} documents, drawn at random." in page.text
    assert "one of each source" in page_of(pretrained.directory).text


def test_drops_rejects_and_their_examples_are_counted(pretrain_rows: Make, page_of: Make):
    directory = pretrain_rows(
        [{"text": "hello"}, {"text": "a " * 60}, b"{broken <b>&", b"\xff\xfe", b"[1]"],
        max_tokens=20, max_reject_fraction=1,
    )  # fmt: skip
    page = page_of(directory)
    rejects = page.manifest["totals"]["rejects"]
    assert {name: n for name, (n, _) in page.read.tables["Left out"].items()} == {
        "more than max_tokens": 1,
        **rejects,
    }
    assert "1 drop and 3 rejects of 5 records." in page.text
    assert page.html.count("<pre dir") == sum(min(2, n) for n in rejects.values())
    assert "{broken &lt;b&gt;&amp;" in page.html
    assert '<span class="x">\\xff</span><span class="x">\\xfe</span>' in page.html
    assert "rows.jsonl:3" in page.text


def test_every_reason_has_two_examples_the_most_frequent_first(pretrain_rows: Make):
    kinds = [b"{", b"\xff", b"[1]", {"text": 1}, {"other": "x"}, {"text": ""}]
    rows = [row for row in kinds for _ in range(3)]
    directory = pretrain_rows([*rows, b"[2]", {"text": "hello"}], max_reject_fraction=1)
    manifest = read_manifest(directory)
    counts = manifest.totals.rejects
    shown = [str(entry["reason"]) for entry in reject_examples(directory, manifest)]
    assert Counter(shown) == dict.fromkeys(counts, 2)
    found = [counts[reason] for reason in shown]
    assert found == sorted(found, reverse=True)


def test_validation_documents_that_are_trained_on_are_said_first(pretrained):
    manifest = read_manifest(pretrained.directory)
    statistics = replace(pretrained.stats(), duplicates=Duplicates(in_both_splits=3))
    assert to_look_at(manifest, statistics) == ["3 documents of val also in train"]
    assert to_look_at(manifest, pretrained.stats()) == []


def test_of_many_sources_the_largest_are_shown_and_the_others_are_one():
    sources = [
        SourceEntry(f"a/b/{i}.jsonl", Counts(tokens=i, documents=1, text_bytes=3 * i, records=1))
        for i in range(1, 31)
    ]
    rows, folder = grouped(sources)
    assert folder == "a/b/"
    assert [row.name for row in rows[:2]] == ["30.jsonl", "29.jsonl"]
    assert len(rows) == 21
    assert (rows[-1].name, rows[-1].documents) == ("10 other sources", 10)
    assert sum(row.tokens for row in rows) == sum(range(31))
    assert len(grouped(sources[:21])[0]) == 21
    assert grouped([replace(sources[0], path=f"a/b{c}") for c in "cd"])[1] == "a/"
    assert grouped(sources[:1])[1] == "a/b/"
    assert grouped([replace(sources[0], path="a")])[1] == grouped([])[1] == ""


def test_files_of_a_source_that_has_a_name_are_one_row():
    files = [
        SourceEntry(
            f"{i}.jsonl",
            Counts(tokens=i, documents=1, text_bytes=1, records=2, drops=Counter(short=1)),
            "web" if i < 3 else "",
        )
        for i in range(4)
    ]
    rows, _ = grouped(files)
    assert [(row.name, row.tokens, row.left_out) for row in rows] == [
        ("3.jsonl", 3, 1),
        ("web", 3, 3),
    ]


def test_a_page_of_ten_thousand_sources_is_small(pretrained, page_of: Make):
    manifest = json.loads(json.dumps(pretrained.manifest))
    (source,) = manifest["sources"]
    names = [f"corpus/{'长' * 60}/{i:05d}-<b>.jsonl" for i in range(10_000)]
    manifest["sources"] = [{**source, "path": name} for name in names]
    manifest["config"]["input"]["paths"] = names
    page = page_of(pretrained.directory, manifest)
    assert len(page.html.encode()) < 400_000
    assert list(page.read.tables["Sources"])[-1] == "9,980 other sources"
    assert "… 9,980 more" in page.html


def test_a_page_of_odd_characters_alone_has_less_than_two_megabytes(
    pretrain_rows: Make, page_of: Make
):
    directory = pretrain_rows([{"text": "\r" * 1600} for _ in range(40)])
    page = page_of(directory)
    assert 10 < page.html.count("<article") < 24
    assert len(page.html.encode()) < 2_000_000


def test_without_its_tokenizer_the_page_says_so_and_the_rest_stands(pretrained, page_of: Make):
    page = page_of(pretrained.directory, tokenizer="/nowhere")
    assert "No documents are shown: " in page.text
    assert "No documents are shown: /nowhere: no such tokenizer" in page.text
    assert {"Longer than a context", "Sources", "Seconds by stage"} <= set(page.read.tables)


def test_without_its_indices_the_page_says_so_and_the_rest_stands(pretrained, page_of: Make):
    manifest = json.loads(json.dumps(pretrained.manifest))
    manifest["shards"][0]["documents"] += 1
    manifest["shards"][1]["documents"] -= 1
    page = page_of(pretrained.directory, manifest)
    assert "The lengths are not known: " in page.text
    assert {"Sources", "Seconds by stage"} <= set(page.read.tables)


def test_a_page_does_not_read_all_tokens_of_a_large_dataset(pretrained, page_of: Make, monkeypatch):
    monkeypatch.setattr(dataset_sections, "MOST_TOKENS", 1000)
    page = page_of(pretrained.directory)
    assert f"tokmill stats {pretrained.directory} reads " in page.text
    assert "Most frequent ids" not in page.read.tables


def test_the_bill_is_that_of_the_command(billed):
    text = unescape(re.sub("<[^>]*>", "", billed.html))
    for row in summary_rows(billed.bill, asked_parts(billed.bill.settings)):
        assert row.label == "disk" or printable(row.text) in text  # the free space changes
        assert row.label in text


def test_the_first_screen_says_whether_it_fits_where_and_at_what_cost(billed):
    head = unescape(re.sub("<[^>]+>", " ", billed.html.partition("</header>")[0]))
    of_model = billed.bill.of_model
    assert f"llama-3.2-1b {gpu_verdict(of_model.training.peak, of_model.gpu)} on RTX 4090" in head
    named = re.search(r"smallest GPU it fits on\s+(\S+(?: \S+)*?)\s{2}", head)[1]
    (smallest,) = [gpu for gpu in known_gpus() if gpu.name == named]
    fitting = [g for g in known_gpus() if gpu_verdict(of_model.training.peak, g) == FITS]
    assert smallest.memory_bytes == min(gpu.memory_bytes for gpu in fitting)
    assert billed.read.tiles["cost"] == of_model.compute.cost


def test_moments_are_those_of_the_bill_and_their_kinds_add_up(billed):
    moments = {moment(each): each.n_bytes for each in billed.bill.of_model.training.moments}
    shown = billed.read.tables["GPU memory of training"]
    assert {name: n for name, (n,) in shown.items()} == moments
    for numbers in (billed.read.bars["GPU memory of training"],
                    billed.read.tables["GPU memory by kind"]):  # fmt: skip
        assert {name: sum(each) for name, each in numbers.items()} == moments


def test_the_dataset_is_visible_among_the_bars_of_the_disk(billed):
    bars = billed.read.bars["Disk"]
    assert sum(n for (n,) in bars.values()) == billed.bill.disk.bill.n_bytes
    widths = re.findall(r"width:([\d.]+)%", billed.html.partition('aria-label="Disk"')[2])
    assert max(map(float, widths[: len(bars)])) == 100  # checkpoints, often 1,000 times, are text


def test_the_alternatives_are_those_of_compare(billed):
    options = ["--model", "llama-3.2-1b", "--gpu", "RTX 4090", "--micro-batch", "2"]
    shown = CliRunner().invoke(memory_command, [*options, "--compare", "--json"])
    expected = json.loads(shown.stdout)["alternatives"]
    listed = [n for row in billed.read.tables["Alternatives"].values() for n in row]
    every = [n for one in expected for n in (one["n_bytes"], one["high_bytes"])]
    assert sorted(listed) == sorted(every)
    verdicts = [one["verdict"] for one in expected]
    said = re.findall(r'<td class="short (\w+)">', billed.html)
    assert said == sorted(said, key=["green", "yellow", "red"].index)
    assert said.count("green") == verdicts.count(FITS) > 0
    for axis in expected[0]["values"]:
        assert f">--{axis}<" in billed.html


def test_inference_alone_has_its_alternatives(pretrained, page_of: Make):
    given = {"model": {"name": "gpt2"}, "inference": {"batch": 8}}
    page = page_of(pretrained.directory, given=given)
    assert "--weight-type" in page.read.texts
    lines = page.read.tables["Inference"].values()
    assert sum(n for (n,) in lines) == page.bill.of_model.inference.n_bytes


def test_without_a_model_the_page_says_what_to_add(page):
    assert "Which GPU trains a model on this?" in page.text
    assert "unknown: add --model" in page.text


@pytest.fixture(scope="module")
def one_chat(tmp_path_factory: pytest.TempPathFactory, page_of: Make) -> str:
    """The page of one chat with a long question."""
    question = "first " + "word " * 900 + "last"
    messages = [
        {"role": "user", "content": question},
        {"role": "assistant", "content": "The reply that is trained."},
        {"role": "user", "content": "A short question."},
        {"role": "assistant", "content": "long " * 200},
    ]
    folder = tmp_path_factory.mktemp("chat")
    path = folder / "chats.jsonl"
    path.write_text(json.dumps({"messages": messages}))
    made = tokmill.sft(path, tokenizer=TOKENIZER, output=folder / "out", progress=False)
    return page_of(made.directory).html


def test_the_middle_of_long_untrained_text_is_left_out(one_chat: str) -> None:
    text = unescape(re.sub("<[^>]*>", "", one_chat))
    assert "first word" in text
    assert "word last" in text
    found = re.search(r"\[…([\d,]+) characters…\]", text)
    assert found
    n_left_out = int(found[1].replace(",", ""))
    assert text.count("word ") * 5 + n_left_out == pytest.approx(4500, abs=30)
    assert "A short question." in text


def test_trained_text_is_shown_and_never_shortened(one_chat: str) -> None:
    assert "The reply that is trained." in one_chat
    marked = "".join(re.findall(r'<mark class="t">(.*?)</mark>', one_chat, re.DOTALL))
    assert marked.count("long ") > 150
    assert "characters…]" not in marked
