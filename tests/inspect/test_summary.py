from __future__ import annotations

import copy

import pytest

from tokmill.dataset.counts import CUT_SAMPLES, Counts
from tokmill.dataset.manifest import Manifest
from tokmill.inspect.summary import (
    MOST_ROWS,
    detail_rows,
    fields_line,
    noticed,
    share_of,
    summary_rows,
    trained_parts,
)
from tokmill.masks.encoder import JOINT_DIFFERS, STRADDLING_TOKENS

ENGINE = {
    "name": "gigatoken",
    "version": "0.10.0",
    "reason": "fastest on a sample",
    "n_checked": 1234,
    "mb_per_s": {"gigatoken": 195.4, "fastokens": 171.0},
    "refused": {},
}

MANIFEST = {
    "format_version": 1,
    "config": {
        "input": {"paths": ["in"]},
        "output": {"dir": "out", "packing": 0, "shard_tokens": 100, "val_fraction": 0.0},
        "tokenizer": {"path": "gpt2/", "pattern": "", "control_tokens_in_text": "text"},
    },
    "sources": [],
    "tokenizer": {
        "name": "gpt2/",
        "identity": "0" * 64,
        "vocab_size": 50_257,
        "eos": {"id": 50_256, "token": "<|endoftext|>"},
        "bos": None,
    },
    "engine": ENGINE,
    "rules": {},
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
        {"name": "train-0000000-0000", "split": "train", "documents": 900, "tokens": 22_000},
        {"name": "val-0000000-0000", "split": "val", "documents": 50, "tokens": 1000},
        {"name": "train-0000001-0000", "split": "train", "documents": 50, "tokens": 2000},
    ],
    "files": [
        {"name": name, "bytes": 1000, "blake3": "0" * 64}
        for name in (
            "plan.json",
            "train-0000000-0000.bin",
            "train-0000000-0000.idx",
            "val-0000000-0000.bin",
            "val-0000000-0000.idx",
            "rejects/0000000.jsonl",
            "parts/0000000.json",
        )
    ],
    "run": {
        "wall_s": 12.3,
        "start_s": 10.3,
        "text_bytes_per_s": 26_341_463,
        "peak_memory_bytes": 512_000_000,
        "resumed_parts": 0,
    },
}


def changed(**changes) -> Manifest:
    manifest = copy.deepcopy(MANIFEST)
    for key, value in changes.items():
        section, _, name = key.partition("__")
        if name:
            manifest[section][name] = value
        else:
            manifest[section] = value
    return Manifest.of(manifest, "out")


def rows(**changes) -> dict[str, str]:
    found = summary_rows(changed(**changes), "out", 66_000)
    assert len(dict(found)) == len(found) <= MOST_ROWS
    assert not any("\n" in text for _, text in found)
    return dict(found)


def details(**changes) -> dict[str, str]:
    found = detail_rows(changed(**changes), "out")
    assert len(dict(found)) == len(found)
    return dict(found)


def test_the_summary_of_a_run_says_what_a_person_wants_to_see_first():
    assert rows() == {
        "records": "1,008 = 1,000 documents + 7 drops + 1 reject",
        "drops": "7: 5 duplicate, 2 too short",
        "rejects": "1 not JSON (see out/rejects)",
        "tokens": "25,000 (eos included, 1,000 of them in val); text bytes per token 4.00",
        "engine": "gigatoken 0.10.0, ids equal to the reference's (checked)",
        "time": "12.3 s: 10.3 s start-up, then 162 MB of text per second; peak memory 512 MB",
        "output": "66 kB as uint16 in out; see also tokmill report",
    }


def test_the_details_of_a_run_say_every_fact_once():
    assert details() == {
        "records": "1,008 = 1,000 documents + 7 drops + 1 reject",
        "drops": "7: 5 duplicate, 2 too short",
        "rejects": "1 not JSON (see out/rejects)",
        "tokens": "25,000 (eos included, 1,000 of them in val); text bytes per token 4.00",
        "tokenizer": "gpt2/, 50,257 ids, eos <|endoftext|> = 50256",
        "engine": "gigatoken 0.10.0 (fastest on a sample: gigatoken 195 MB/s, fastokens 171 MB/s; "
        "same ids as the reference on 1,234 texts)",
        "files": "2 .bin, 2 .idx, manifest.json, plan.json",
        "time": "12.3 s: 10.3 s start-up, then 162 MB of text per second; peak memory 512 MB",
    }


@pytest.mark.parametrize(
    ("changes", "label", "expected"),
    [
        ({"totals__drops": {}}, "drops", "none"),
        ({"totals__rejects": {}}, "rejects", "none"),
        (
            {"totals__rejects": {"a": 5, "b": 4, "c": 4, "d": 2, "e": 1}},
            "rejects",
            "16: 5 a, 4 b, 4 c, 2 d, 1 e (see out/rejects)",
        ),
        (
            {"tokenizer__bos": {"id": 1, "token": "<s>"}},
            "tokenizer",
            "gpt2/, 50,257 ids, eos <|endoftext|> = 50256, bos <s> = 1",
        ),
    ],
)
def test_details_say_in_words_what_is_not_there(changes, label, expected):
    assert details(**changes)[label] == expected


MASK = {
    "preset": "trl",
    "boundary": "joint",
    "template": "messages as chatml",
    "trained": ["content"],
    "alignment": "target",
    "template_sha256": "0" * 64,
    "ends": {"rule": "eos", "last_ids": []},
    "cut": 0,
}
NOTHING = Counts().as_json()
PACK = {
    "capacity": 4096,
    "rows": 1200,
    "samples": 10_000,
    "tokens": 4_900_000,
    "fill": 0.99691,
    "bytes_per_sample": 45,
}
SOURCES = [
    {**NOTHING, "path": "a.jsonl", "tokens": 20_000, "trained_tokens": 12_345},
    {**NOTHING, "path": "b.jsonl", "tokens": 5000},
    {**NOTHING, "path": "c.jsonl", "tokens": 0},
]
COUNTERS = {"straddling tokens": 1234, "cut samples": 0, "samples whose joint ids differ": 2}
SFT = {
    "kind": "sft",
    "config__sft": {"weights": "refuse", "too_long": "drop", "packing": 0, "packed_rows": False},
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
    assert found == {
        **rows(),
        "records": "1,008 + 1,010 extra samples of the same records = 2,010 samples + 7 drops "
        "+ 1 reject",
        "tokens": "25,000 (1,000 of them in val); text bytes per token 4.00",
        "trained": "12,345 (49.4%); noticed 1,236: 1,234 tokens with trained and untrained bytes, "
        "2 samples with other tokens near a mask boundary than their text encoded as one",
        "packing": "train 1,200 rows of 4,096 tokens, 99.69% full",
    }
    assert list(found)[3:6] == ["tokens", "trained", "packing"]


def test_the_details_of_sft_say_the_rule_the_sources_and_the_packs():
    found = details(**SFT)
    assert found["trained tokens"] == "12,345 (49.4%)"
    assert found["by source"] == "a.jsonl: 61.7%\nb.jsonl: 0.0%\nc.jsonl: 0.0%"
    assert found["mask"] == "preset trl, boundary joint, messages as chatml; trains text"
    assert found["noticed"] == (
        "1,234 tokens with trained and untrained bytes, 2 samples with other tokens near a mask "
        "boundary than their text encoded as one"
    )
    assert found["packs, train"] == (
        "10,000 samples in 1,200 rows of 4,096 tokens, 99.69% full; 45 bytes of memory per sample"
    )


@pytest.mark.parametrize(
    ("n", "total", "expected"),
    [
        (0, 0, "0.0%"),
        (1, 100_000, "<0.01%"),
        (1, 10_000, "0.01%"),
        (1, 3, "33.3%"),
        (9999, 10_000, ">99.9%"),
        (3, 3, "100.0%"),
    ],
)
def test_only_nothing_is_zero_and_only_all_is_a_hundred_per_cent(n, total, expected):
    assert share_of(n, total) == expected


def with_fields(*sources, used=("text",)):
    totals = {}
    for fields in sources:
        for path, n in fields.items():
            totals[path] = totals.get(path, 0) + n
    rows = [{**NOTHING, "path": f"{i}.jsonl", "fields": fields} for i, fields in enumerate(sources)]
    return changed(fields_read=list(used), totals__fields=totals, sources=rows)


def test_the_fields_that_were_read_and_left_out_are_named_with_their_shares():
    made = with_fields({"text": 97, "title": 3, "url": 0})
    assert fields_line(made) == "text 97%; left out: title 3%, url"


def test_less_than_ninety_per_cent_comes_first():
    assert fields_line(with_fields({"text": 80, "body": 20})) == (
        "only 80% of the text is used: text 80%; left out: body 20%"
    )


def test_sources_of_which_less_is_used_are_named():
    made = with_fields({"text": 980}, {"text": 10, "body": 10})
    assert fields_line(made) == "text 99%; left out: body 1%; used of the text: 1.jsonl 50%"


def test_chats_and_datasets_without_the_counts_have_no_such_line():
    assert fields_line(changed()) == ""


def test_parts_are_listed_and_what_a_newer_version_trains_keeps_its_name():
    assert trained_parts(["content", "eot", "new"]) == "trains text, end of turn, new"


@pytest.mark.parametrize(
    ("n", "counter", "expected"),
    [
        (
            1,
            JOINT_DIFFERS,
            "1 sample with other tokens near a mask boundary than their text encoded as one",
        ),
        (1234, STRADDLING_TOKENS, "1,234 tokens with trained and untrained bytes"),
        (1, CUT_SAMPLES, "1 sample cut to max_tokens"),
        (2, "windows left out", "2 windows left out"),
    ],
)
def test_what_was_noticed_is_said_in_words(n, counter, expected):
    assert noticed(n, counter) == expected
