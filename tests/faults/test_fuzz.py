"""Whatever the bytes are, a file is read or refused; `python -m bench.fuzz` tries more."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from bench import fuzz
from tokmill.dataset.part_record import parse_record
from tokmill.errors import StateError, StorageError
from tokmill.settings.schema import InputSettings
from tokmill.sources.files import Slice, discover
from tokmill.sources.formats import open_slice

N_MUTATIONS = 25
FEWER = {"tokenizer": 3}
"""The library takes a quarter of a second to refuse a tokenizer."""


@pytest.mark.parametrize("target", fuzz.TARGETS)
def test_mutated_bytes_are_read_or_refused(target):
    chance, n = random.Random(target), FEWER.get(target, N_MUTATIONS)
    for seed in fuzz.seeds(target):
        for data in [seed, *fuzz.mutations(seed, chance, n)]:
            fuzz.one_input(target, data)


@pytest.mark.parametrize("target", fuzz.TARGETS)
def test_sound_seeds_are_read(target):
    for seed in fuzz.seeds(target):
        fuzz.TARGETS[target](seed)


# Found by fuzzing


@pytest.mark.parametrize(("offset", "value"), [(1, 1 << 20), (2, 1 << 30), (1, -5)])
@pytest.mark.parametrize("as_head", [False, True])
def test_offsets_of_an_arrow_file_that_leave_its_buffers_are_refused(
    tmp_path, offset, value, as_head
):
    batch = pa.record_batch({"title": ["aaaa", "bbbb", "cccc"]})
    offsets = pa.py_buffer(
        b"".join(
            (value if i == offset else 4 * i).to_bytes(4, "little", signed=True) for i in range(4)
        )
    )
    text = pa.Array.from_buffers(pa.string(), 3, [None, offsets, batch.column(0).buffers()[2]])
    path = tmp_path / "in.arrow"
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays([text], names=["title"]))
    settings = InputSettings(paths=(str(path),))
    (file,) = discover(settings).files
    schema = pa.schema([("title", pa.string())])
    whole = Slice(file, 0, -1, file.n_bytes)

    def read() -> None:
        with open_slice(whole, settings, schema, 500, samples_head=as_head) as reader:
            for block in reader.blocks():
                block.parse()

    with pytest.raises(StorageError, match=r"in\.arrow"):
        read()


def test_a_record_of_nothing_but_brackets_is_damaged(tmp_path):
    path = tmp_path / "0000000.json"
    path.write_bytes(b"[" * 100_000)
    with pytest.raises(StateError, match="damaged record of a part"):
        parse_record(path.read_bytes(), path, 0, 1)
