"""The record that a document came from: one file, one number, one byte."""

from __future__ import annotations

import gzip
import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tokmill
from tokmill.dataset.checksum import json_chunks, manifest_sha256
from tokmill.dataset.origins import GROUP, OriginEncoder, numbers_of, read_groups
from tokmill.dataset.reader import plain_manifest
from tokmill.dataset.verify import verify
from tokmill.errors import VerifyError
from tokmill.place import open_place
from tokmill.run.finish import run
from tokmill.settings.sft import SftSettings
from tokmill.sources.streams import zstd

ROWS = [{"text": f"hello {i} " * (i % 5 + 1)} for i in range(60)]
SMALL = {"part_bytes": 700, "shard_tokens": 150, "val_fraction": 0.2}
LINES = b"".join(json.dumps(row).encode() + b"\n" for row in ROWS)


def text_of(dataset, number: int) -> str:
    return dataset.text(number).removesuffix("<eos>")


def rewritten(directory, manifest) -> list[str]:
    """Return the problems of a dataset whose files have changed, with the sums that a forger makes.

    Only what the bytes say is left to be found.
    """
    from tokmill.dataset.checksum import FileEntry, digest_of

    for entry in manifest["files"]:
        algorithm = FileEntry.from_json(entry).algorithm
        with (directory / entry["name"]).open("rb") as file:
            entry |= digest_of(file, algorithm).entry(entry["name"]).as_json()
    manifest = {**manifest, "sha256": manifest_sha256(manifest)}
    path = directory / "manifest.json"
    path.chmod(0o644)
    path.write_bytes(b"".join(json_chunks(manifest)))
    return list(verify(open_place(str(directory)), manifest).problems)


@pytest.fixture(scope="module")
def made(tmp_path_factory, configure, silent, write_rows):
    """Two files with blank, broken and empty records, several parts and splits: to be read only."""
    place = tmp_path_factory.mktemp("origins")
    lines = [b"", *ROWS[:9], b"{bad", {"text": ""}, b"  ", *ROWS[9:]]
    sources = [write_rows(place / f"{name}.jsonl", lines) for name in "ab"]
    run(configure(place / "out", *sources, max_reject_fraction=1.0, **SMALL), silent)
    return place / "out"


@pytest.fixture
def directory(made, tmp_path):
    """Return a copy that a test may change."""
    return shutil.copytree(made, tmp_path / "out")


def test_every_document_has_its_own_line_and_byte(made):
    dataset = tokmill.open(made)
    assert len(dataset) == 120
    assert len(dataset.shards) > 10
    seen = set()
    for one in (dataset, tokmill.open(made, split="val")):
        for i in range(len(one)):
            origin = one.origin(i)
            with open(origin.path, "rb") as file:  # noqa: PTH123
                data = file.read()
            line = data[origin.byte :].partition(b"\n")[0]
            assert json.loads(line)["text"] == text_of(one, i)
            assert data[: origin.byte].count(b"\n") + 1 == origin.record
            assert origin.split == origin.shard.partition("-")[0]
            seen.add((origin.path, origin.record))
    assert len(seen) == 120
    first = dataset.origin(0)
    assert str(first) == f"{first.path}, record 2, byte 1"


def write_array(path):
    path.write_text(json.dumps(ROWS, indent=1))


def write_csv(path):
    path.write_text("text\n" + "".join(f'"{row["text"]}\n"\n' for row in ROWS))


def write_parquet(path):
    pq.write_table(pa.Table.from_pylist(ROWS), path, row_group_size=7)


def write_gz(path):
    path.write_bytes(gzip.compress(LINES))


def write_zst(path):
    """Frames that end inside of lines."""
    frames = [zstd.compress(LINES[i : i + 300]) for i in range(0, len(LINES), 300)]
    path.write_bytes(b"".join(frames))


@pytest.mark.parametrize(
    ("name", "write", "has_bytes"),
    [
        ("a.json", write_array, True),
        ("a.csv", write_csv, True),
        ("a.parquet", write_parquet, False),
        ("a.jsonl.gz", write_gz, True),
        ("a.jsonl.zst", write_zst, True),
    ],
)
def test_each_format_counts_its_records(tmp_path, configure, silent, name, write, has_bytes):
    source = tmp_path / name
    write(source)
    run(configure(tmp_path / "out", source, part_bytes=400, block_bytes=1 << 16), silent)
    dataset = tokmill.open(tmp_path / "out")
    found = [dataset.origin(i) for i in range(len(dataset))]
    assert [(one.path, one.record) for one in found] == [(str(source), n + 1) for n in range(60)]
    if not has_bytes:
        assert {one.byte for one in found} == {-1}
        return
    is_packed = name.endswith(("gz", "zst"))
    data = LINES if is_packed else source.read_bytes()
    bytes_ = [one.byte for one in found]
    records = [data[start:stop] for start, stop in zip(bytes_, [*bytes_[1:], None], strict=True)]
    assert all(record.startswith((b"{", b'"')) for record in records)
    assert all(row["text"].encode() in one for row, one in zip(ROWS, records, strict=True))


def test_samples_of_one_record_have_its_origin(tmp_path, configure, silent, write_rows):
    turn = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "the cat"}]
    source = write_rows(tmp_path / "c.jsonl", [{"messages": turn * n} for n in (1, 3, 2)])
    sft = SftSettings(template="plain", samples="turn")
    run(configure(tmp_path / "sft", source, sft=sft), silent)
    dataset = tokmill.open(tmp_path / "sft")
    assert [dataset.origin(i).record for i in range(len(dataset))] == [1, 2, 2, 2, 3, 3]


# Damage


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda data: data + data[-2:], "documents"),
        (lambda data: data[:-2], "origins, expected 12 documents"),
        (lambda data: data + b"\xff", "not the numbers of documents"),
        (lambda data: b"\xff" * 40, "not the numbers of documents"),
        (lambda data: b"\x00" + data[1:], "no record of the sources"),
    ],
)
def test_verify_finds_origins_that_do_not_fit(directory, change, problem):
    manifest = plain_manifest(directory)
    name = f"{manifest['shards'][0]['name']}.origin"
    path = directory / name
    path.chmod(0o644)
    path.write_bytes(change(path.read_bytes()))
    assert any(
        found.startswith(f"{name}: ")
        for found in verify(open_place(str(directory)), manifest).problems
    )
    found = rewritten(directory, manifest)
    assert len(found) == 1
    assert found[0].startswith(f"{name}: ")
    assert problem in found[0]


def test_verify_finds_a_shard_without_its_origins(directory):
    manifest = plain_manifest(directory)
    name = f"{manifest['shards'][0]['name']}.origin"
    (directory / name).unlink()
    assert f"{name}: missing" in verify(open_place(str(directory)), manifest).problems
    with pytest.raises(VerifyError, match=r"\.origin: "):
        tokmill.open(directory).origin(0)


# The bytes of the file


def test_any_order_of_documents_comes_back():
    rng = np.random.default_rng(7)
    numbers = rng.integers(-1, 1 << 60, (2 * GROUP + 5, 2))
    data = np.frombuffer(bytes(OriginEncoder().encode(numbers)), np.uint8)
    assert np.array_equal(np.concatenate(list(read_groups(data))), numbers)
    for i in (0, 1, GROUP - 1, GROUP, 2 * GROUP + 4):
        assert np.array_equal(numbers_of(data, i), numbers[i : i + 1])
    with pytest.raises(ValueError, match="too few documents"):
        numbers_of(data, 2 * GROUP + 5)
