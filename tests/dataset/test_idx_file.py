from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tokmill.dataset.sidecars as index
from tokmill.dataset.sidecars import IndexWriter, read_index
from tokmill.errors import VerifyError


def write(path: Path, item_bytes: int, *batches: list[int]) -> Path:
    with path.open("x+b") as file:
        writer = IndexWriter(file, file.write, item_bytes)
        for batch in batches:
            writer.append(np.array(batch, np.int64))
        writer.finish()
    return path


def by_hand(item_bytes: int, lengths: list[int]) -> bytes:
    """The table of the module, field by field."""
    offsets = [item_bytes * sum(lengths[:i]) for i in range(len(lengths))]
    return b"".join(
        [
            b"MMIDIDX\x00\x00",
            struct.pack("<Q", 1),
            struct.pack("<B", {2: 8, 4: 4}[item_bytes]),
            struct.pack("<Q", len(lengths)),
            struct.pack("<Q", len(lengths) + 1),
            *(struct.pack("<i", length) for length in lengths),
            *(struct.pack("<q", offset) for offset in offsets),
            *(struct.pack("<q", i) for i in range(len(lengths) + 1)),
        ]
    )


@given(
    batches=st.lists(st.lists(st.integers(1, 2**31 - 1), max_size=4), max_size=4),
    item_bytes=st.sampled_from([2, 4]),
)
def test_any_index_is_the_table_and_reads_back(tmp_path_factory, batches, item_bytes):
    path = write(tmp_path_factory.mktemp("index") / "a.idx", item_bytes, *batches)
    lengths = [length for batch in batches for length in batch]
    assert path.read_bytes() == by_hand(item_bytes, lengths)
    read, offsets, item = read_index(path)
    assert read[:].tolist() == lengths
    assert offsets[:].tolist() == [item_bytes * sum(lengths[:i]) for i in range(len(lengths))]
    assert item == item_bytes
    assert path.stat().st_size == index.index_bytes(len(lengths))


def test_offsets_go_past_four_gibibytes_without_wrapping(tmp_path: Path):
    long = 2**31 - 1
    _, offsets, _ = read_index(write(tmp_path / "a.idx", 4, [long, long], [long, 5]))
    assert offsets[:].tolist() == [0, 4 * long, 8 * long, 12 * long]
    assert int(offsets[-1]) > 2**34


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda data: b"", "not an MMIDIDX index"),
        (lambda data: data[:33], "not an MMIDIDX index"),
        (lambda data: b"X" + data[1:], "not an MMIDIDX index"),
        (lambda data: data[:9] + b"\x02" + data[10:], "index header says version 2, dtype code 8"),
        (lambda data: data[:17] + b"\x06" + data[18:], "index header says version 1, dtype code 6"),
        (lambda data: data[:26] + b"\x09" + data[27:], "index header says version 1, dtype code 8"),
        (lambda data: data[:-1], "81 bytes do not fit 2 documents"),
        (lambda data: data + b"\x00", "83 bytes do not fit 2 documents"),
    ],
)
def test_a_broken_index_is_refused(tmp_path: Path, change, expected):
    data = by_hand(2, [3, 2])
    assert len(data) == 82
    path = tmp_path / "a.idx"
    path.write_bytes(change(data))
    with pytest.raises(VerifyError) as caught:
        read_index(path)
    assert str(caught.value) == f"{path}: {expected}"
