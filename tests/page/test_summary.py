from __future__ import annotations

import copy

import pytest

from tokmill.chat.segments import Kind
from tokmill.masks.encoder import JOINT_DIFFERS, STRADDLING_TOKENS
from tokmill.masks.truncation import CUT_SAMPLES
from tokmill.page.summary import (
    MOST_ROWS,
    detail_rows,
    fields_line,
    noticed,
    summary_rows,
    trained_parts,
)

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
        "start_s": 10.3,
        "text_bytes_per_s": 26_341_463,
        "peak_memory_bytes": 512_000_000,
        "resumed_parts": 0,
    },
}


def changed(**changes) -> dict:
    manifest = copy.deepcopy(MANIFEST)
    for key, value in changes.items():
        section, _, name = key.partition("__")
        if name:
            manifest[section][name] = value
        else:
            manifest[section] = value
    return manifest


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
        ({"totals__drops": {}}, "drops", None),
        ({"totals__rejects": {}}, "rejects", None),
        ({}, "unread", None),
        (
            {
                "totals__unread": {"files": 2, "text_bytes": 1312, "stored_bytes": 0},
                "sources": [{"path": "a.gz", "unread": [{}]}, {"path": "b", "unread": [{}]}],
            },
            "unread",
            "2 files not read to the end, 1,312 bytes of text: a.gz, b",
        ),
        ({}, "unused keys", None),
        (
            {"totals__unread_keys": {"context": 12, "url": 1300}},
            "unused keys",
            "url 1,300, context 12",
        ),
        (
            {"totals__unread_keys": {f"k{i}": 1 for i in range(11)}},
            "unused keys",
            "k0 1, k1 1, k10 1, k2 1, k3 1, k4 1, k5 1, k6 1, and 3 more",
        ),
        (
            {
                "totals__unread": {"files": 1, "text_bytes": 9, "stored_bytes": 0},
                "sources": [{"path": "a.gz", "unread": [{}]}],
                "totals__unread_keys": {"url": 2},
            },
            "unread",
            "1 file not read to the end, 9 bytes of text: a.gz; unused keys: url 2",
        ),
        (
            {"totals__rejects": {"b": 2000, "a": 1}},
            "rejects",
            "2,001: 2,000 b, 1 a (see out/rejects)",
        ),
        (
            {"totals__rejects": {"a": 5, "b": 4, "c": 4, "d": 2, "e": 1}},
            "rejects",
            "16: 5 a, 4 b, 4 c, 3 for 2 other reasons (see out/rejects)",
        ),
        ({"totals__tokens": 0}, "tokens", "0 (eos included, 1,000 of them in val)"),
        (
            {"run__peak_memory_bytes": 0, "run__resumed_parts": 3},
            "time",
            "12.3 s: 10.3 s start-up, then 162 MB of text per second (3 parts from earlier runs)",
        ),
        (
            {"run__start_s": 0.0, "run__peak_memory_bytes": 0},
            "time",
            "12.3 s, 26.3 MB of text per second",
        ),
        (
            {"run__text_bytes_per_s": 0, "run__peak_memory_bytes": 0, "run__start_s": 12.3},
            "time",
            "12.3 s",
        ),
        (
            {"shards": [{"split": "train", "tokens": 25_000}]},
            "tokens",
            "25,000 (eos included, no validation split); text bytes per token 4.00",
        ),
    ],
)
def test_what_is_not_there_is_left_out(changes, label, expected):
    assert rows(**changes).get(label) == expected


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
}
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
    ("changes", "label", "expected"),
    [
        ({"totals__counters": {}}, "noticed", "nothing"),
        ({"totals__counters": {"cut samples": 0}}, "noticed", "nothing"),
        ({"totals__trained_tokens": 0}, "trained tokens", "0 (0.0%)"),
        ({"totals__tokens": 0, "totals__trained_tokens": 0}, "trained tokens", "0 (0.0%)"),
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
            "1 sample in 1 row of 4,096 tokens, 99.69% full; 45 bytes of memory per sample",
        ),
        (
            {"files": [{"name": f"x.{kind}", "bytes": 1} for kind in ("mask", "weight", "bin")]},
            "files",
            "1 .bin, 1 .mask, 1 .weight, manifest.json, plan.json",
        ),
    ],
)
def test_what_sft_lacks_is_said_in_words_or_left_out(changes, label, expected):
    assert details(**{**SFT, **changes}).get(label) == expected


def test_two_packs_stand_in_one_line():
    packs = {"train": PACK, "val": {**PACK, "rows": 1, "fill": 0.5}}
    assert rows(**{**SFT, "packs": packs})["packing"] == (
        "train 1,200 rows of 4,096 tokens, 99.69% full; val 1 row of 4,096 tokens, 50.00% full"
    )


def test_pretraining_says_nothing_of_masks():
    assert rows(kind="pretrain") == rows()
    assert details(kind="pretrain") == details()


def with_fields(*sources, used=("text",)):
    totals = {}
    for fields in sources:
        for path, n in fields.items():
            totals[path] = totals.get(path, 0) + n
    rows = [{"path": f"{i}.jsonl", "fields": fields} for i, fields in enumerate(sources)]
    return {"fields_read": list(used), "totals": {"fields": totals}, "sources": rows}


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
    assert fields_line({"totals": {}, "sources": []}) == ""


def test_every_part_of_a_turn_has_words_without_an_abbreviation():
    for kind in Kind:
        words = trained_parts({"trained": [kind.name.lower()]})
        assert words.startswith("trains ")
        assert "_" not in words
        assert "eot" not in words


def test_parts_are_listed_and_what_a_newer_version_trains_keeps_its_name():
    assert trained_parts({"trained": ["content", "eot", "new"]}) == "trains text, end of turn, new"
    assert trained_parts({}) == trained_parts({"trained": []}) == ""


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
