"""Records of an object store give the dataset of the same files, whatever happened meanwhile."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tokmill
from tokmill.api.jobs import verify_dataset
from tokmill.errors import StateError, StorageError, UsageError
from tokmill.run.finish import run
from tokmill.stores.connections import FileSystemObjects

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

pytest.importorskip("fsspec")

ROWS = [{"text": f"hello {i} \u732b " * (i % 40 + 1)} for i in range(2000)]
LINES = b"".join(json.dumps(row).encode() + b"\n" for row in ROWS) + b"{bad\n"


def parquet() -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(ROWS), sink, row_group_size=100)
    return sink.getvalue().to_pybytes()


CONTENTS = {
    "a.jsonl": lambda: LINES,
    "a.jsonl.gz": lambda: gzip.compress(LINES),
    "a.jsonl.zst": lambda: zstd.compress(LINES),
    "a.parquet": parquet,
    "a.json": lambda: json.dumps(ROWS).encode(),
    "a.csv": lambda: b"text\n" + b"".join(row["text"].encode() + b"\n" for row in ROWS),
}


def tokens(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.glob("*.[bi][id][nx]"))}


@pytest.mark.parametrize("name", CONTENTS)
def test_every_format_gives_the_bytes_of_a_local_file(
    name, store, tmp_path, configure, listener, out
):
    content = CONTENTS[name]()
    (tmp_path / name).write_bytes(content)
    store.write(name, content)
    settings = {"part_bytes": 40_000, "shard_tokens": 9000, "max_reject_fraction": 1.0}
    local = run(configure(out, tmp_path / name, **settings), listener).plain
    remote = run(configure(tmp_path / "remote", f"{store.url}/{name}", **settings), listener).plain
    assert tokens(tmp_path / "remote") == tokens(out)
    assert remote["totals"] == local["totals"]
    assert len(tokens(out)) >= 2
    assert not verify_dataset(tmp_path / "remote").problems


@pytest.fixture
def long(store, configure, out, monkeypatch, asked_ranges):
    """Settings of one part with many shards, and the ranges that are asked for."""
    store.write("a.jsonl", LINES)
    monkeypatch.setattr("tokmill.sources.streams.CHUNK_BYTES", 16_000)
    for name, n_bytes in (
        ("FIRST_BYTES", 16_000),
        ("_AHEAD_FROM_BYTES", 1),
        ("MOST_BYTES", 32_000),
    ):
        monkeypatch.setattr(f"tokmill.stores.objects.{name}", n_bytes)
    config = configure(
        out, f"{store.url}/a.jsonl", shard_tokens=5000, block_bytes=4000, renderer="text",
        max_reject_fraction=1.0,
    )  # fmt: skip
    return config, asked_ranges


def test_an_object_that_is_replaced_in_the_middle_stops_the_run(
    long, store, out, listener, monkeypatch
):
    config, _ = long
    answer = FileSystemObjects.read_range

    def replacing(self: FileSystemObjects, name: str, start: int, stop: int) -> bytes:
        if listener.plans and start > len(LINES) // 2:
            store.write(name, LINES.replace(b"hello", b"HELLO"))
        return answer(self, name, start, stop)

    with monkeypatch.context() as patch:
        patch.setattr(FileSystemObjects, "read_range", replacing)
        with pytest.raises(StorageError, match=r"a\.jsonl: changed while it was read"):
            run(config, listener)
    assert not (out / "manifest.json").exists()
    with pytest.raises(StateError, match=r"a\.jsonl has changed \(its kind or revision\)"):
        run(config, listener)
    manifest = run(config, listener, overwrite=True).plain
    assert manifest["totals"]["records"] == len(ROWS) + 1
    assert not verify_dataset(out).problems


IDS = [{"input_ids": [3, 4 + i % 200], "labels": [-100, 4 + i % 200]} for i in range(300)]


def of_ids(name: str) -> bytes:
    """Return rows of ids as a file of the ending of a name."""
    table, sink = pa.Table.from_pylist(IDS), pa.BufferOutputStream()
    if name.endswith(".parquet"):
        pq.write_table(table, sink, row_group_size=100)
    else:
        lines = b"".join(json.dumps(row).encode() + b"\n" for row in IDS)
        return gzip.compress(lines) if name.endswith(".gz") else lines
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize(
    ("name", "trainer"),
    [("a.jsonl", "jsonl"), ("a.jsonl.gz", "jsonl"), ("a.parquet", "parquet"), ("a.parquet", "hf")],
)
@pytest.mark.parametrize("is_named", [True, False])
def test_rows_of_ids_are_imported_from_a_store(
    name, trainer, is_named, store, tokenizer_dir, tmp_path
):
    store.write(name, of_ids(name))
    source = f"{store.url}/{name}" if is_named else store.url
    made = tokmill.import_dataset(
        source, trainer=trainer, output=tmp_path / "out", tokenizer=tokenizer_dir
    )
    assert [made[i].tolist() for i in range(len(made))] == [row["input_ids"] for row in IDS]
    assert made.manifest["sources"][0]["path"] == f"{store.url}/{name}"


@pytest.mark.parametrize("name", ["validation.parquet", "val/a.parquet", "test-00000.parquet"])
def test_rows_of_another_split_in_a_store_are_asked_about(name, store, tokenizer_dir, tmp_path):
    for one in ("train.parquet", name):
        store.write(one, of_ids(one))
    given = {"trainer": "parquet", "output": tmp_path / "out", "tokenizer": tokenizer_dir}
    with pytest.raises(UsageError, match=rf"{name}: may be of another split than .*--val|val"):
        tokmill.import_dataset(store.url, **given)
    made = tokmill.import_dataset(f"{store.url}/train.parquet", val=f"{store.url}/{name}", **given)
    assert made.splits == ("train", "val")


@pytest.mark.parametrize("trainer", ["megatron", "nanogpt", "litdata", "olmo-core", "llm.c"])
@pytest.mark.parametrize("source", ["s3://bucket/tokens", "https://host/a.bin", "hf:org/name"])
def test_files_of_tokens_are_read_from_a_disk(trainer, source, tokenizer_dir, tmp_path):
    with pytest.raises(UsageError, match=r"read from a disk: (copy|download) the dataset"):
        tokmill.import_dataset(
            source, trainer=trainer, output=tmp_path / "out", tokenizer=tokenizer_dir
        )
