"""An export for litdata and litgpt: chunks of one item, and their index."""

from __future__ import annotations

import json
import re
import shlex
import struct
from pathlib import Path

import numpy as np
import pytest

from tests.fixtures.streams import documents_of
from tokmill.api.dataset import Dataset
from tokmill.errors import UsageError, VerifyError
from tokmill.trainers import litdata as module
from tokmill.trainers.litdata import LITDATA
from tokmill.trainers.options import ExportOptions
from tokmill.trainers.trainer import ExportSource

NEEDS_LITDATA = "the reader of litdata is not installed"


def stream(dataset: Dataset, split: str) -> list[int]:
    return [id_ for document in documents_of(dataset, split) for id_ in document]


def read_chunk(path: Path, dtype: str) -> np.ndarray:
    """Return the tokens of a chunk, as the layout says and nothing else."""
    data = path.read_bytes()
    n, first, last = struct.unpack("<3I", data[:12])
    assert (n, first, last) == (1, 12, len(data))
    return np.frombuffer(data[12:], dtype)


@pytest.mark.parametrize(("kind", "code", "dtype"), [("pretrained", 5, "<u2"), ("wide", 6, "<u4")])
def test_a_split_is_a_folder_of_chunks_and_their_index(
    kind: str, code: int, dtype: str, request, tmp_path
) -> None:
    dataset: Dataset = request.getfixturevalue(kind)
    dataset.export("litdata", tmp_path / "e", block_tokens=100, file_tokens=20_050)
    for split in {shard.split for shard in dataset.shards}:
        folder = tmp_path / "e" / split
        index = json.loads((folder / "index.json").read_bytes())
        chunks = [read_chunk(folder / row["filename"], dtype) for row in index["chunks"]]
        assert np.concatenate(chunks).tolist() == stream(dataset, split)
        assert all(len(chunk) == 20_000 for chunk in chunks[:-1])
        for row, chunk in zip(index["chunks"], chunks, strict=True):
            assert (row["dim"], row["chunk_size"]) == (len(chunk), 1)
            assert row["chunk_bytes"] == (folder / row["filename"]).stat().st_size
        assert index["config"]["data_format"] == [f"no_header_numpy:{code}"]
        assert index["config"]["item_loader"] == "TokensLoader"


def test_its_own_reader_returns_every_block(pretrained: Dataset, tmp_path) -> None:
    pytest.importorskip("litdata", reason=NEEDS_LITDATA)
    made = pretrained.export(
        "litdata", tmp_path / "e", block_tokens=33, file_tokens=5_000, check=True
    )
    n_tokens = {split: len(stream(pretrained, split)) for split in ("train", "val")}
    n_blocks = sum(n // 33 for n in n_tokens.values())
    assert made.checked.compared == f"{n_blocks:,} blocks of 33 tokens"
    assert made.checked.left_out == sum(n % 33 for n in n_tokens.values())
    assert len(list((tmp_path / "e" / "train").iterdir())) == 15  # the reader leaves nothing there


def test_a_changed_token_is_found_by_the_check(pretrained: Dataset, tmp_path) -> None:
    pytest.importorskip("litdata", reason=NEEDS_LITDATA)
    pretrained.export("litdata", tmp_path / "e", block_tokens=100)
    path = tmp_path / "e" / "train" / "chunk-0-0.bin"
    path.chmod(0o644)
    np.memmap(path, np.uint16, "r+", offset=12)[4321] += 1
    with pytest.raises(VerifyError, match="token 4,321"):
        LITDATA.check(
            ExportSource(pretrained.directory), ExportOptions(block_tokens=100), tmp_path / "e"
        )


def test_a_chunk_stays_below_4_gib(pretrained: Dataset, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(module, "_MOST_BYTES", 12 + 2 * 250)
    pretrained.export("litdata", tmp_path / "e", block_tokens=100)
    chunks = list((tmp_path / "e" / "train").glob("*.bin"))
    assert max(chunk.stat().st_size for chunk in chunks) == 12 + 2 * 200
    with pytest.raises(UsageError, match="--block-tokens 300: expected at most 250"):
        pretrained.export("litdata", tmp_path / "f", block_tokens=300)


def test_the_index_names_the_content_for_caches_of_remote_copies(
    pretrained: Dataset, tmp_path
) -> None:
    def name(folder: str, **options: int) -> str:
        pretrained.export("litdata", tmp_path / folder, **options)
        return json.loads((tmp_path / folder / "train" / "index.json").read_bytes())["updated_at"]

    assert name("a") == name("b") != name("c", file_tokens=5_000)


def test_litgpt_gets_its_own_options(pretrained, wide, tmp_path) -> None:
    words = shlex.split(pretrained.export("litgpt", tmp_path / "it's").usage)
    assert words[:3] == ["litgpt", "pretrain", "MODEL"]
    options = dict(zip(words[3::2], words[4::2], strict=True))
    assert options == {
        "--data": "LitData",
        "--data.data_path": str(tmp_path / "it's"),
        "--data.split_names": '["train", "val"]',
        "--train.max_seq_length": "2048",
    }
    made = wide.export("litgpt", tmp_path / "w")
    assert f"--data.data_path {tmp_path}/w/train --train" in made.usage
    assert made.notes[-1] == "no val split: litgpt validates on train"


def test_litdatas_usage_runs(pretrained: Dataset, tmp_path) -> None:
    pytest.importorskip("litdata", reason=NEEDS_LITDATA)
    made = pretrained.export("litdata", tmp_path / "e")
    found: dict[str, object] = {}
    exec(made.usage, found)
    assert re.match(r"from litdata", made.usage)
    assert len(found["train"]) == len(stream(pretrained, "train")) // 2049
