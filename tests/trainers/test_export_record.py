"""An export can be verified: every file again, against its record."""

from __future__ import annotations

import json

import pytest

import tokmill
from tokmill.dataset.layout import EXPORT_RECORD as RECORD
from tokmill.errors import StateError, VerifyError
from tokmill.trainers.export import read_record


@pytest.fixture
def exported(single, tmp_path):
    single.export("nanogpt", tmp_path / "e", copy=True)
    return tmp_path / "e"


def test_an_export_is_verified_against_its_record(exported) -> None:
    found = tokmill.verify(exported)
    record = read_record(exported)
    assert found.n_files == len(record["files"]) >= 2
    assert found.n_bytes == sum(file["bytes"] for file in record["files"])


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "bytes, the record says"),
        (lambda path: path.write_bytes(b"x" + path.read_bytes()[1:]), "blake3 does not match"),
        (lambda path: path.unlink(), "no such file"),
        (lambda path: path.rename(path.with_name("other")), "other is not in the record"),
    ],
)
def test_every_change_of_a_file_is_found(exported, change, problem) -> None:
    change(exported / "val.bin")
    with pytest.raises(VerifyError) as raised:
        tokmill.verify(exported)
    assert any(problem in found for found in raised.value.problems)


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{",
        "{}",
        json.dumps({"format": "other", "files": []}),
        json.dumps(
            {
                "format": "tokmill export",
                "files": [{"name": "../x", "bytes": 1, "blake3": "0", "how": "link"}],
            }
        ),
    ],
)
def test_a_damaged_record_is_one_line(exported, text: str) -> None:
    (exported / RECORD).chmod(0o644)
    (exported / RECORD).write_text(text)
    with pytest.raises(StateError, match=RECORD):
        read_record(exported)
