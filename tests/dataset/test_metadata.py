"""The fields of records beside the tokens: the bytes of `.meta`, and reading some rows of it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tokmill.dataset.sidecars import GROUP, MetadataEncoder, read_metadata
from tokmill.errors import VerifyError

N = 2 * GROUP + 88
KEEP = ["url", "meta.n"]
URLS = [None if i % 7 == 0 else f"http://site/{i}/猫" for i in range(N)]
ROWS = pa.RecordBatch.from_arrays(
    [pa.array(URLS, pa.large_string()), pa.array([None] * N, pa.large_string())], ["url", "meta.n"]
)


def encoded(*batches: pa.RecordBatch) -> bytes:
    encoder = MetadataEncoder()
    return b"".join(encoder.encode([batch]) for batch in batches) + encoder.finish()


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "train-0000000-0000.meta"
    path.write_bytes(encoded(ROWS))
    return path


@pytest.mark.parametrize("step", [1, 3, GROUP - 1, GROUP, GROUP + 1, 2 * GROUP])
def test_how_documents_are_handed_in_changes_no_byte(step):
    pieces = [ROWS.slice(start, step) for start in range(0, N, step)]
    # Rows of other documents in the buffers of a slice must not be written.
    shifted = pa.concat_batches([ROWS.slice(5, 3), *pieces]).slice(3)
    assert encoded(*pieces) == encoded(ROWS) == encoded(shifted)


def test_any_arrow_reader_reads_it(file):
    with pa.memory_map(str(file)) as mapped:
        reader = pa.ipc.open_file(mapped)
        sizes = [reader.get_batch(i).num_rows for i in range(reader.num_record_batches)]
        assert sizes == [GROUP, GROUP, 88]
        assert reader.read_all().to_pydict() == ROWS.to_pydict()


@pytest.mark.parametrize(
    ("start", "stop"),
    [(0, 1), (GROUP - 1, GROUP + 1), (GROUP, GROUP), (300, N), (N - 1, N), (0, N)],
)
def test_some_rows_are_read(file, start, stop):
    assert read_metadata(file, KEEP, start, stop)["url"].to_pylist() == URLS[start:stop]


@pytest.mark.parametrize(("start", "stop"), [(0, N + 1), (N, N + 1), (9000, 9001)])
def test_rows_that_are_not_there_are_an_error(file, start, stop):
    with pytest.raises(VerifyError, match="metadata of these documents"):
        read_metadata(file, KEEP, start, stop)


def test_a_damaged_file_is_an_error_and_no_crash(file):
    data = file.read_bytes()
    for damaged in (b"", data[:100], data[:-20], data[: len(data) // 2] + data[-300:]):
        file.write_bytes(damaged)
        with pytest.raises(VerifyError, match=r"\.meta"):
            read_metadata(file, KEEP, 0, N)
    start = data.index(np.int64(len("http://site/1/猫".encode())).tobytes())
    file.write_bytes(data[:start] + b"\xff" * 8 + data[start + 8 :])  # an offset
    with pytest.raises(VerifyError, match=r"\.meta"):
        read_metadata(file, KEEP, 0, N)
