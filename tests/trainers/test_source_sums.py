"""Files of a dataset are summed up while they are copied, and compared with the manifest."""

from __future__ import annotations

import io
from itertools import pairwise
from pathlib import Path

import pytest

from tokmill.dataset.checksum import digest_of
from tokmill.errors import VerifyError
from tokmill.trainers import source_sums
from tokmill.trainers.source_sums import SourceSums

BODY = bytes(range(256)) * 4


@pytest.fixture(params=["blake3", "sha256"])
def sums(tmp_path, request) -> SourceSums:
    entry = digest_of(io.BytesIO(BODY), request.param).entry("a.bin")
    (tmp_path / "a.bin").write_bytes(BODY)
    return SourceSums(tmp_path, {"files": [entry.as_json()]})


def spans(*bounds: int) -> list[tuple[int, int]]:
    return list(pairwise(bounds))


@pytest.mark.parametrize(
    "pieces", [[], spans(0, 1024), spans(0, 100, 1024), [(0, 100), (101, 1024)], [(7, 9), (7, 9)]]
)
def test_what_copies_did_not_read_is_read(sums, tmp_path, monkeypatch, pieces) -> None:
    monkeypatch.setattr(source_sums, "COPY_BYTES", 64)
    path, copied = tmp_path / "a.bin", io.BytesIO()
    for start, stop in pieces:
        sums.copy(path, start, stop, copied)
    assert copied.getvalue() == b"".join(BODY[start:stop] for start, stop in pieces)
    sums.check(path)
    sums.check(path)


def test_a_file_that_was_copied_whole_is_not_read_again(sums, tmp_path, monkeypatch) -> None:
    path = tmp_path / "a.bin"
    for start, stop in spans(0, 500, 1000, 1024):
        sums.copy(path, start, stop, None)
    path.write_bytes(bytes(1024))
    sums.check(path)


@pytest.mark.parametrize("at", [0, 99, 100, 1023])
@pytest.mark.parametrize("is_copied", [True, False])
def test_one_changed_bit_is_found(sums, tmp_path, at: int, is_copied: bool) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(BODY[:at] + bytes([BODY[at] ^ 1]) + BODY[at + 1 :])
    if is_copied:
        for start, stop in spans(0, 100, 1024):
            sums.copy(path, start, stop, io.BytesIO())
    with pytest.raises(VerifyError, match=r"a\.bin: its 1,024 bytes are not those of the manifest"):
        sums.check(path)


def test_a_file_that_became_shorter_is_an_error(sums, tmp_path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(BODY[:1000])
    with pytest.raises(VerifyError, match=r"a\.bin: ends at byte 1,000, expected 1,024"):
        sums.copy(path, 10, 1024, io.BytesIO())
    with pytest.raises(VerifyError, match="ends at byte 1,000"):
        sums.check(path)
    path.unlink()
    with pytest.raises(VerifyError, match=r"a\.bin"):
        sums.check(Path(path))
