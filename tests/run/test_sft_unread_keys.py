"""Keys that nothing reads are counted exactly, and alike however the work is done."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from tokmill.executors.run import run
from tokmill.settings.sft import SftSettings

SAMPLES = Path(__file__).parents[2] / "data_samples"
USER, REPLY = {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}


def records(own_keys: int) -> list[dict]:
    """Regular stretches and odd ones; `own_keys` of them have a key that no other has."""
    rows: list[dict] = []
    for i in range(300):
        row: dict = {"messages": [USER, REPLY], "id": i}
        row |= {"url": "u"} if i % 3 else {"url": None, "note": ""}
        row |= {"tags": ["t"]} if i % 5 == 0 else {"tags": []}
        if 100 < i < 150:
            row["messages"] = [{**USER, "id": 7}, REPLY]
        if i < own_keys:
            row[f"k{i:03}"] = 1
        rows.append(row)
    return rows


@pytest.fixture
def unread(configure, files_of, silent, tmp_path):
    """Return a function that runs records and returns the unread keys, and the part records."""

    def make(name: str, rows: list[dict], **settings):
        path = tmp_path / "chats.jsonl"
        if not path.exists():  # its time is in the parts' fingerprints
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        config = configure(
            tmp_path / name,
            path,
            sft=SftSettings(template="tokenizer", too_long="window"),
            **{"path": str(SAMPLES / "tokenizer"), "part_bytes": 13_000, "shard_tokens": 700}
            | settings,
        )
        manifest = run(config, silent)
        files = files_of(tmp_path / name)
        parts = {name: data for name, data in files.items() if name.startswith("parts/")}
        return manifest["totals"]["unread_keys"], parts

    return make


def test_every_filled_key_that_nothing_reads_is_counted_once_a_record(unread):
    rows = records(0)
    found, _ = unread("out", rows, part_bytes=1 << 20)
    expected = Counter(
        key for row in rows for key in ("id", "url", "tags") if row[key] or key == "id"
    )
    assert found == {**expected, "messages[].id": 49}
    assert "note" not in found


def test_neither_workers_threads_nor_batches_change_a_count(unread):
    rows = records(250)
    expected = unread("whole", rows, block_bytes=8 << 20)
    for threads, workers, block_bytes in ((3, 1, 1), (1, 2, 777)):
        settings = {"threads": threads, "workers": workers, "block_bytes": block_bytes}
        assert unread(f"{threads}-{workers}", rows, **settings) == expected


def test_a_key_of_each_record_does_not_fill_the_manifest(unread):
    found, _ = unread("out", records(250))
    named = [key for key in found if key.startswith("k")]
    assert (len(named), len(found)) == (97, 101)
    assert found["other keys"] == 250 - 97 + 49  # inside messages is met behind the hundredth


def test_windows_of_a_record_count_it_once(unread):
    found, _ = unread("out", [{"messages": [USER, REPLY] * 9, "url": "u"}] * 4, max_tokens=50)
    assert found == {"url": 4}
