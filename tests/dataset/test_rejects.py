from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path

import pytest

from tokmill.dataset.rejects import RejectsFile, describe_reject
from tokmill.values import RecordPlace, Reject

NAME = "0000001-0000.jsonl"


@pytest.fixture
def directory(tmp_path) -> Path:
    (tmp_path / "rejects").mkdir()
    return tmp_path


def reject(raw: bytes = b"{bad") -> Reject:
    return Reject(RecordPlace(1, 0), "malformed", "a comma is missing", raw)


def test_rejects_are_json_lines_with_place_reason_and_bytes(directory):
    rejects = RejectsFile(directory, NAME, "sha256")
    rejects.append("a.jsonl", RecordPlace(7, 99), reject("猫{".encode()))
    rejects.append("b.parquet", RecordPlace(8, -1), reject(b"\xff\x00"))
    entry = rejects.commit_entry()
    data = (directory / "rejects" / NAME).read_bytes()
    assert [json.loads(line) for line in data.splitlines()] == [
        {
            "source": "a.jsonl",
            "byte_offset": 99,
            "line": 7,
            "reason": "malformed",
            "message": "a comma is missing",
            "raw": "猫{",
        },
        {
            "source": "b.parquet",
            "byte_offset": -1,
            "line": 8,
            "reason": "malformed",
            "message": "a comma is missing",
            "raw_base64": base64.b64encode(b"\xff\x00").decode(),
        },
    ]
    assert data.isascii()
    assert (entry.name, entry.n_bytes) == (f"rejects/{NAME}", len(data))
    assert (entry.algorithm, entry.checksum) == ("sha256", hashlib.sha256(data).hexdigest())


def test_raw_line_ends_stay_inside_their_line(directory):
    rejects = RejectsFile(directory, NAME, "sha256")
    rejects.append("a.jsonl", RecordPlace(1, 0), reject("a\nb\r\u2028c".encode()))
    rejects.commit_entry()
    (line,) = (directory / "rejects" / NAME).read_text().splitlines()
    assert json.loads(line)["raw"] == "a\nb\r\u2028c"


def test_nothing_appears_before_the_commit_and_nothing_after_a_discard(directory):
    rejects = RejectsFile(directory, NAME, "sha256")
    rejects.append("a.jsonl", RecordPlace(1, 0), reject())
    assert not (directory / "rejects" / NAME).exists()
    rejects.discard()
    assert list((directory / "rejects").iterdir()) == []


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        (RecordPlace(3, 20), "a.jsonl:3 (byte 20): malformed: a comma is missing"),
        (RecordPlace(3, -1), "a.jsonl:3: malformed: a comma is missing"),
    ],
)
def test_a_reject_is_described_in_one_line(place, expected):
    assert describe_reject("a.jsonl", place, reject()) == expected
