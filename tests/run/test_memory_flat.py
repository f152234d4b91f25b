"""A corpus is larger than the memory that its run takes, whatever its container."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("gigatoken")

TEXT = "the cat, the hat; hello world 猫猫 狗狗 维基百科 " * 40
N_RECORDS = 71_000
"""More bytes of text than `PEAK_LIMIT_BYTES`, which the test asserts."""

PEAK_LIMIT_BYTES = 152 << 20
"""An interpreter with its libraries and one engine takes 90 MB, blocks in flight some more."""


def jsonl(path: Path, n_records: int) -> Path:
    line = json.dumps({"text": TEXT}, ensure_ascii=False).encode() + b"\n"
    path = path.with_suffix(".jsonl")
    path.write_bytes(line * n_records)
    return path


def gz(path: Path, n_records: int) -> Path:
    plain = jsonl(path, n_records)
    packed = plain.with_suffix(".jsonl.gz")
    packed.write_bytes(gzip.compress(plain.read_bytes(), 1))
    return packed


def array(path: Path, n_records: int) -> Path:
    path = path.with_suffix(".json")
    element = json.dumps({"text": TEXT}, ensure_ascii=False).encode()
    path.write_bytes(b"[" + (element + b",") * (n_records - 1) + element + b"]")
    return path


def csv(path: Path, n_records: int) -> Path:
    path = path.with_suffix(".csv")
    path.write_text("text\n" + f'"{TEXT}"\n' * n_records)
    return path


def parquet(path: Path, n_records: int) -> Path:
    """One row group, and a dictionary that holds the one text once."""
    path = path.with_suffix(".parquet")
    once = pa.DictionaryArray.from_arrays(pa.array([0] * n_records, pa.int32()), pa.array([TEXT]))
    table = pa.table({"text": once})
    pq.write_table(table, path, row_group_size=n_records, store_schema=False)
    return path


@pytest.fixture(scope="module")
def engine_known(tokenizer_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A run before: the comparison of an engine on all characters takes memory of its own."""
    directory = tmp_path_factory.mktemp("before")
    command = [sys.executable, "-m", "tokmill", "pretrain", jsonl(directory / "few", 3)]
    options = ["-t", tokenizer_dir, "-o", directory / "out", "--engine", "gigatoken"]
    subprocess.run([*command, *options, "--renderer", "text"], check=True, capture_output=True)


@pytest.mark.slow(reason="a corpus must be larger than what a run with its libraries takes")
@pytest.mark.usefixtures("engine_known")
@pytest.mark.parametrize("container", [gz, array, csv, parquet])
def test_a_corpus_is_never_in_memory(
    container: Callable[[Path, int], Path],
    finish_command: Callable[..., None],
    tokenizer_dir: Path,
    tmp_path: Path,
) -> None:
    out, settings = tmp_path / "out", tmp_path / "run.toml"
    settings.write_text('[run]\nblock_bytes = "1MiB"\n')
    finish_command(
        *("pretrain", container(tmp_path / "corpus", N_RECORDS), "-t", tokenizer_dir, "-o", out),
        *("--renderer", "text", "--engine", "gigatoken"),
        *("--threads", "1", "--config", settings),
    )
    manifest = json.loads((out / "manifest.json").read_bytes())
    assert manifest["totals"]["text_bytes"] > PEAK_LIMIT_BYTES
    assert manifest["run"]["peak_memory_bytes"] < PEAK_LIMIT_BYTES
