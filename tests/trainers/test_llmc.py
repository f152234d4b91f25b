"""Exports for llm.c and modded-nanogpt: a header of 1,024 bytes, and eos before every document."""

from __future__ import annotations

import glob
import shlex
import struct
from pathlib import Path

import numpy as np
import pytest

from tests.fixtures.streams import documents_of
from tokmill.api.dataset import Dataset
from tokmill.errors import UsageError, VerifyError
from tokmill.trainers import nanogpt
from tokmill.trainers.nanogpt import LLM_C
from tokmill.trainers.options import ExportOptions
from tokmill.trainers.trainer import ExportSource


def read(path: Path) -> tuple[tuple[int, ...], np.ndarray]:
    """Return the header's numbers and the tokens, as the layout says and nothing else."""
    data = path.read_bytes()
    header = struct.unpack("<256i", data[:1024])
    dtype = {20240520: "<u2", 20240801: "<u4"}[header[0]]
    return header, np.frombuffer(data[1024:], dtype)


def files(folder: Path, split: str) -> list[Path]:
    return sorted(folder.glob(f"*_{split}_*.bin"))


@pytest.mark.parametrize(
    ("kind", "magic", "version"), [("pretrained", 20240520, 1), ("wide", 20240801, 7)]
)
def test_a_file_is_a_header_and_documents_behind_their_eos(
    kind, magic, version, request, tmp_path
) -> None:
    dataset: Dataset = request.getfixturevalue(kind)
    made = dataset.export("llm.c", tmp_path / "e", check=True)
    eos = dataset.manifest["tokenizer"]["eos"]["id"]
    for split in {shard.split for shard in dataset.shards}:
        (path,) = files(tmp_path / "e", split)
        header, tokens = read(path)
        documents = documents_of(dataset, split)
        assert header[:3] == (magic, version, len(tokens))
        assert not any(header[3:])
        expected = [id_ for document in documents for id_ in (eos, *document[:-1])]
        assert tokens.tolist() == expected
    assert made.checked.compared.startswith(f"{dataset.n_tokens:,} tokens of {len(dataset)} docu")


def found(pattern: str) -> list[str]:
    return sorted(glob.glob(pattern))  # noqa: PTH207  as llm.c expands it


def test_the_patterns_of_the_usage_find_the_files(pretrained: Dataset, tmp_path) -> None:
    output = tmp_path / "it's [1]"
    made = pretrained.export("llm.c", output)
    program, i, train, j, val = shlex.split(made.usage)
    assert (program, i, j) == ("./train_gpt2cu", "-i", "-j")
    assert found(train) == [str(output / "it-s--1-_train_000001.bin")]
    assert found(val) == [str(output / "it-s--1-_val_000000.bin")]


def test_uint32_is_for_llama_3(wide: Dataset, tmp_path) -> None:
    made = wide.export("llm.c", tmp_path / "e")
    assert made.usage.startswith("python train_llama3.py --input_bin ")
    assert "--input_val_bin" not in made.usage
    assert any("not by the loader in C" in note for note in made.notes)


def test_a_document_longer_than_a_file_may_be_is_refused(
    pretrained: Dataset, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(nanogpt, "_MOST_BYTES", 1024 + 2 * 100)
    with pytest.raises(UsageError, match=r"longer than a file of llm\.c can be \(100\)"):
        pretrained.export("llm.c", tmp_path / "e")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("offset", "message"), [(8, "header"), (12, "header"), (1024, "begins with"), (1060, "token")]
)
def test_a_changed_byte_is_found_by_the_check(pretrained, tmp_path, offset, message) -> None:
    pretrained.export("llm.c", tmp_path / "e")
    (path,) = files(tmp_path / "e", "train")
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 1]))
    with pytest.raises(VerifyError, match=message):
        LLM_C.check(ExportSource(pretrained.directory), ExportOptions(), tmp_path / "e")


def test_modded_nanogpt_has_two_train_files_since_its_loader_opens_the_next(
    pretrained: Dataset, tmp_path
) -> None:
    made = pretrained.export("modded-nanogpt", tmp_path / "e", check=True)
    sizes = [len(read(path)[1]) for path in files(tmp_path / "e", "train")]
    assert len(sizes) == 2
    assert sum(sizes) == sum(len(one) for one in documents_of(pretrained, "train"))
    assert min(sizes) > 0.9 * max(sizes)
    assert made.usage.split("\n") == [
        "# train_gpt.py, class Hyperparameters",
        f"train_files: str = '{tmp_path}/e/e_train_*.bin'",
        f"val_files: str = '{tmp_path}/e/e_val_*.bin'",
    ]


def test_modded_nanogpt_is_told_of_another_eos_and_of_a_short_val_split(
    pretrained: Dataset, tmp_path
) -> None:
    notes = " ".join(pretrained.export("modded-nanogpt", tmp_path / "e").notes)
    eos = pretrained.manifest["tokenizer"]["eos"]["id"]
    assert f"set BOS_ID = {eos} in train_gpt.py" in notes
    assert "shorter than val_batch_size (2,097,152)" in notes


def test_modded_nanogpt_reads_no_uint32(wide: Dataset, tmp_path) -> None:
    with pytest.raises(UsageError, match=r"reads uint16, and this dataset is uint32: make it with"):
        wide.export("modded-nanogpt", tmp_path / "e")
