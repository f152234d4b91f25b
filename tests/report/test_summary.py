from __future__ import annotations

import copy

import pytest

from tokmill.report.summary import describe_engine, summary_rows

ENGINE = {
    "name": "gigatoken",
    "version": "0.10.0",
    "reason": "fastest on a sample",
    "n_checked": 1234,
    "mb_per_s": {"gigatoken": 195.4, "fastokens": 171.0},
    "refused": {},
}

MANIFEST = {
    "tokenizer": {
        "name": "gpt2/",
        "vocab_size": 50_257,
        "eos": {"id": 50_256, "token": "<|endoftext|>"},
        "bos": None,
    },
    "engine": ENGINE,
    "dtype": "uint16",
    "totals": {
        "records": 1008,
        "documents": 1000,
        "tokens": 25_000,
        "text_bytes": 100_000,
        "input_bytes": 200_000,
        "drops": {"too short": 2, "duplicate": 5},
        "rejects": {"not JSON": 1},
    },
    "length_histogram": [0, 10, 500, 480, 9, 1],
    "shards": [
        {"split": "train", "documents": 900, "tokens": 22_000},
        {"split": "val", "documents": 50, "tokens": 1000},
        {"split": "train", "documents": 50, "tokens": 2000},
    ],
    "files": [
        {"name": "plan.json", "bytes": 1000},
        {"name": "train-0000000-0000.bin", "bytes": 44_000},
        {"name": "train-0000000-0000.idx", "bytes": 18_042},
        {"name": "val-0000000-0000.bin", "bytes": 2000},
        {"name": "val-0000000-0000.idx", "bytes": 1042},
        {"name": "rejects/0000000-0000.jsonl", "bytes": 100},
        {"name": "parts/0000000.json", "bytes": 816},
    ],
    "run": {
        "wall_s": 12.3,
        "text_bytes_per_s": 162_000_000,
        "peak_memory_bytes": 512_000_000,
        "resumed_parts": 0,
    },
}


def rows(**changes) -> dict[str, str]:
    manifest = copy.deepcopy(MANIFEST)
    for key, value in changes.items():
        section, _, name = key.partition("__")
        if name:
            manifest[section][name] = value
        else:
            manifest[section] = value
    found = summary_rows(manifest, "out")
    assert len(dict(found)) == len(found)
    return dict(found)


def test_the_summary_of_a_run_says_every_fact_once():
    assert rows() == {
        "documents": "1,000 of 1,008 records",
        "tokens": "25,000, eos included, as uint16 (train 24,000, val 1,000)",
        "bytes per token": "4.00 bytes of text",
        "drops": "7: 5 duplicate, 2 too short",
        "rejects": "1: 1 not JSON (see out/rejects)",
        "document length": "median below 8, 99 % below 16, longest below 64 tokens",
        "tokenizer": "gpt2/, 50,257 ids, eos <|endoftext|> = 50256",
        "engine": "gigatoken 0.10.0 (fastest on a sample: gigatoken 195 MB/s, fastokens 171 MB/s; "
        "ids equal to the reference's on 1,234 texts)",
        "files": "2 .bin, 2 .idx, manifest.json, plan.json",
        "time": "12.3 s, 162 MB of text per second",
        "peak memory": "512 MB",
    }


@pytest.mark.parametrize(
    ("changes", "label", "expected"),
    [
        ({"totals__drops": {}}, "drops", "none"),
        ({"totals__rejects": {}}, "rejects", "none"),
        (
            {"totals__rejects": {"b": 2000, "a": 1}},
            "rejects",
            "2,001: 1 a, 2,000 b (see out/rejects)",
        ),
        ({"totals__tokens": 0}, "bytes per token", "no tokens"),
        ({"length_histogram": []}, "document length", "no documents"),
        (
            {"length_histogram": [1]},
            "document length",
            "median below 2, 99 % below 2, longest below 2 tokens",
        ),
        (
            {"length_histogram": [0] * 15 + [99, 1]},
            "document length",
            "median below 65,536, 99 % below 65,536, longest below 131,072 tokens",
        ),
        ({"run__peak_memory_bytes": 0}, "peak memory", "unknown"),
        (
            {"run__resumed_parts": 3},
            "time",
            "12.3 s, 162 MB of text per second (already there: 3 parts)",
        ),
        (
            {"tokenizer__bos": {"id": 1, "token": "<s>"}},
            "tokenizer",
            "gpt2/, 50,257 ids, eos <|endoftext|> = 50256, bos <s> = 1",
        ),
        (
            {"shards": [{"split": "train", "tokens": 25_000}]},
            "tokens",
            "25,000, eos included, as uint16",
        ),
        (
            {"shards": [{"split": "val", "tokens": 25_000}]},
            "tokens",
            "25,000, eos included, as uint16 (train 0, val 25,000)",
        ),
    ],
)
def test_what_is_not_there_is_said_in_words(changes, label, expected):
    assert rows(**changes)[label] == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"reason": "asked for", "mb_per_s": {}, "n_checked": 0},
            "gigatoken 0.10.0 (asked for)",
        ),
        (
            {"reason": "first exact", "mb_per_s": {}, "n_checked": 184},
            "gigatoken 0.10.0 (first exact; ids equal to the reference's on 184 texts)",
        ),
        (
            {
                "name": "tokenizers",
                "version": "sentencepiece 0.2.1",
                "reason": "no fast engine gives its ids here",
                "mb_per_s": {},
                "n_checked": 0,
                "refused": {"gigatoken": "not installed", "fastokens": "ids differ"},
            },
            "tokenizers 0.2.1 (no fast engine gives its ids here)\n"
            "gigatoken not used: not installed\n"
            "fastokens not used: ids differ",
        ),
    ],
)
def test_an_engine_is_described_with_its_proof_and_the_others_refusal(changes, expected):
    assert describe_engine({**ENGINE, **changes}) == expected


MASK = {"preset": "trl", "boundary": "joint", "template": "messages as chatml"}
PACK = {
    "capacity": 4096,
    "rows": 1200,
    "samples": 10_000,
    "tokens": 4_900_000,
    "fill": 0.99691,
    "bytes_per_sample": 45,
}
SOURCES = [
    {"path": "a.jsonl", "tokens": 20_000, "trained_tokens": 12_345},
    {"path": "b.jsonl", "tokens": 5000},
    {"path": "c.jsonl", "tokens": 0},
]
COUNTERS = {"straddling tokens": 1234, "cut samples": 0, "samples whose joint ids differ": 2}
SFT = {
    "kind": "sft",
    "mask": MASK,
    "sources": SOURCES,
    "packs": {"train": PACK},
    "totals__trained_tokens": 12_345,
    "totals__counters": COUNTERS,
    "totals__extra": 1010,
    "totals__documents": 2010,
}


def test_the_summary_of_sft_says_what_is_trained_noticed_and_packed():
    found = rows(**SFT)
    alike = {label: text for label, text in rows().items() if not label.startswith("document")}
    assert found == {
        **alike,
        "samples": "2,010 of 1,008 records (1,010 more than one each, drops included)",
        "tokens": "25,000 as uint16 (train 24,000, val 1,000)",
        "trained tokens": "12,345 (49.4%)",
        "by source": "a.jsonl: 61.7%\nb.jsonl: 0.0%\nc.jsonl: 0.0%",
        "mask": "preset trl, boundary joint, messages as chatml",
        "noticed": "1,234 straddling tokens, 2 samples whose joint ids differ",
        "packs, train": "10,000 samples in 1,200 rows of 4,096 tokens, 99.69% full; "
        "45 bytes of memory a sample",
        "sample length": "median below 8, 99 % below 16, longest below 64 tokens",
    }
    assert list(found)[:4] == ["samples", "tokens", "trained tokens", "by source"]


@pytest.mark.parametrize(
    ("changes", "label", "expected"),
    [
        ({"totals__counters": {}}, "noticed", "nothing"),
        ({"totals__counters": {"cut samples": 0}}, "noticed", "nothing"),
        ({"totals__trained_tokens": 0}, "trained tokens", "0 (0.0%)"),
        ({"totals__tokens": 0, "totals__trained_tokens": 0}, "trained tokens", "0 (0.0%)"),
        ({"totals__extra": 0, "totals__documents": 900}, "samples", "900 of 1,008 records"),
        ({"sources": SOURCES[:1]}, "by source", None),
        (
            {"sources": SOURCES[:1] * 13},
            "by source",
            "a.jsonl: 61.7%\n" * 12 + "…",
        ),
        ({"packs": {}}, "packs, train", None),
        (
            {"packs": {"val": {**PACK, "samples": 1, "rows": 1}}},
            "packs, val",
            "1 samples in 1 rows of 4,096 tokens, 99.69% full; 45 bytes of memory a sample",
        ),
        (
            {"files": [{"name": f"x.{kind}", "bytes": 1} for kind in ("mask", "weight", "bin")]},
            "files",
            "1 .bin, 1 .mask, 1 .weight, manifest.json, plan.json",
        ),
    ],
)
def test_what_sft_lacks_is_said_in_words_or_left_out(changes, label, expected):
    assert rows(**{**SFT, **changes}).get(label) == expected


def test_pretraining_says_nothing_of_masks():
    assert rows(kind="pretrain") == rows()
