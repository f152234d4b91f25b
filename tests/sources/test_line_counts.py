from __future__ import annotations

import dataclasses
import random

import psutil
import pytest

from tokmill.settings.schema import InputSettings
from tokmill.sources.byte_reader import lines_before
from tokmill.sources.formats import cut, open_slice
from tokmill.sources.slices import SourceFile
from tokmill.sources.streams import zstd
from tokmill.values import RecordPlace

LINE = b'{"title": "0123456789012345678901234567890123456789"}\n'
N_LINES = 100_000
N_BAD = 300


@pytest.fixture
def large(tmp_path) -> SourceFile:
    """A file of 5 MB whose last lines are broken."""
    path = tmp_path / "a.jsonl"
    path.write_bytes(LINE * (N_LINES - N_BAD) + b"{bad}\n" * N_BAD)
    return SourceFile(path.as_posix(), "jsonl", "", path.stat().st_size, 0, "")


def read_bytes() -> int:
    """Count what this process has read from files so far, whether from a disk or not."""
    counters = psutil.Process().io_counters()
    return int(counters.read_chars)


def places_of_rejects(pieces, schema) -> list[RecordPlace]:
    found = []
    for piece in pieces:
        with open_slice(piece, InputSettings(), schema, 1 << 20) as reader:
            for block in reader.blocks():
                found += [r.place.shifted(reader.origin()) for r in block.parse().rejects]
    return found


def expected(file) -> list[RecordPlace]:
    first = (N_LINES - N_BAD) * len(LINE)
    return [RecordPlace(N_LINES - N_BAD + i + 1, first + i * len(b"{bad}\n")) for i in range(N_BAD)]


def test_a_slice_alone_reads_what_is_before_it_once(large, schema):
    other = dataclasses.replace(large, mtime_ns=1)
    pieces = cut(other, other.n_bytes // 6)
    before = read_bytes()
    assert places_of_rejects(pieces[-1:], schema) == expected(large)
    assert read_bytes() - before < 1.2 * large.n_bytes
    before = read_bytes()
    assert places_of_rejects(pieces[-1:], schema) == expected(large)
    assert read_bytes() - before < 0.4 * large.n_bytes


def test_an_origin_is_the_same_whatever_was_known_before(tmp_path):
    lines = [b"a\n", b"bb\n", b"ccc" * 9, b"\n", b"", b"dd\nee\nf", b"g\nhh\n"]
    frames = [zstd.compress(line) for line in lines]
    bounds = [sum(map(len, frames[:i])) for i in range(len(frames) + 1)]
    chance, whole = random.Random(0), b"".join(frames)
    files = [whole]
    for i in chance.choices(range(1, len(frames)), k=100):
        head = chance.choice((frames[i][:4], b""))
        files.append(whole[: bounds[i]] + head + chance.randbytes(9) + whole[bounds[i + 1] :])
    path, n_pieces = tmp_path / "a.zst", set()
    for number, data in enumerate(files):
        path.write_bytes(data)
        file = SourceFile(path.as_posix(), "jsonl", "zst", len(data), number, "")
        pieces = cut(file, 1)[1:]
        n_pieces.add(len(pieces))
        alone = [lines_before(piece) for piece in pieces[::-1]][::-1]
        for order in (pieces, pieces[::-1], pieces[2:] + pieces[:2]):
            found = {piece.start: lines_before(piece) for piece in order}
            assert [found[piece.start] for piece in pieces] == alone
    assert n_pieces >= {2, 3, 4, 5, 6}
