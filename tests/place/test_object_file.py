"""An object is read like a file: any range, in requests that grow and that are made again."""

from __future__ import annotations

import io
import random
import threading
from itertools import pairwise

import pytest

from tokmill.errors import StorageError
from tokmill.stores.connections import FileSystemObjects
from tokmill.stores.objects import MOST_BYTES, ObjectFile, look

pytest.importorskip("fsspec")

CONTENT = random.Random(1).randbytes(1 << 20) * 40 + b"end"


@pytest.fixture
def big(store) -> str:
    store.write("big.bin", CONTENT)
    return f"{store.url}/big.bin"


def test_reading_on_makes_larger_requests_of_each_byte_once(big, asked_ranges):
    with ObjectFile(big) as file:
        chunks = iter(lambda: file.read(1 << 20), b"")
        assert b"".join(chunks) == CONTENT
    asked_ranges.sort()
    assert asked_ranges[0][0] == 0
    assert asked_ranges[-1][1] == len(CONTENT)
    assert all(before[1] == after[0] for before, after in pairwise(asked_ranges))
    assert max(stop - start for start, stop in asked_ranges) == MOST_BYTES


def test_any_order_of_ranges_gives_the_bytes_of_a_file(big):
    ours, plain, chance = ObjectFile(big), io.BytesIO(CONTENT), random.Random(2)
    for _ in range(300):
        if chance.random() < 0.3:
            offset = chance.randrange(len(CONTENT) + 10)
            assert ours.seek(offset) == plain.seek(offset)
        n_bytes = chance.choice([0, 1, 1000, 1 << 16, 3 << 20])
        assert ours.read(n_bytes) == plain.read(n_bytes)
        assert ours.tell() == plain.tell()
        if chance.random() < 0.1:
            assert ours.seek(-5, io.SEEK_CUR) == plain.seek(-5, io.SEEK_CUR)


def test_an_object_that_becomes_shorter_is_named(big, store, monkeypatch):
    monkeypatch.setattr("tokmill.stores.connections.time.sleep", lambda _: None)
    file = ObjectFile(big)
    store.write("big.bin", b"short")
    with pytest.raises(
        StorageError, match=r"changed while it was read: 41,943,043 .*, 5 bytes now"
    ):
        file.read(10)
    store.remove("big.bin")
    with pytest.raises(StorageError, match=r"changed while it was read: .*, it is gone; run again"):
        file.read(10)
    with pytest.raises(StorageError, match=f"^{big}: cannot be read: no such object"):
        look(big)


def test_bytes_whose_request_ahead_failed_are_asked_for_again(big, monkeypatch):
    answer, left = FileSystemObjects.read_range, [StorageError("the network is gone")]

    def failing(self: FileSystemObjects, name: str, start: int, stop: int) -> bytes:
        if stop > 20 << 20 and left:
            raise left.pop()
        return answer(self, name, start, stop)

    monkeypatch.setattr(FileSystemObjects, "read_range", failing)
    file = ObjectFile(big)
    while file.tell() < 12 << 20:
        file.read(1 << 20)
    with pytest.raises(StorageError, match="the network is gone"):
        file.read()
    rest: list[bytes] = []
    offset = file.tell()
    reader = threading.Thread(target=lambda: rest.append(file.read()), daemon=True)
    reader.start()
    reader.join(300)  # it would wait for ever for the thread that ended
    assert rest == [CONTENT[offset:]]
