"""Rows as Arrow files, read with pyarrow alone: every document, label and pack, any file size."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import tokmill
from tokmill.api.dataset import Dataset
from tokmill.errors import UsageError, VerifyError
from tokmill.trainers import hf_datasets, rows
from tokmill.trainers.export import export
from tokmill.trainers.options import ExportOptions


def read(folder: Path) -> list[dict[str, list[int]]]:
    """Return the rows of a split's folder, in the order of state.json."""
    state = json.loads((folder / "state.json").read_text())
    found = []
    for file in state["_data_files"]:
        with (folder / file["filename"]).open("rb") as stream:
            found += pa.ipc.open_stream(stream).read_all().to_pylist()
    return found


def labels_of(split: Dataset, number: int) -> list[int]:
    mask = split.mask(number)
    return np.where(mask, split[number].astype(np.int64), -100).tolist()


@pytest.mark.parametrize("batch_tokens", [1, 100, 5000])
def test_files_and_batches_of_any_size_have_the_same_rows(
    pretrained: Dataset, tmp_path, monkeypatch, batch_tokens
) -> None:
    monkeypatch.setattr(hf_datasets, "FILE_BYTES", 50_000)
    monkeypatch.setattr(rows, "BATCH_TOKENS", batch_tokens)
    monkeypatch.setattr(hf_datasets, "BATCH_TOKENS", batch_tokens)
    export(pretrained.directory, "datasets", tmp_path / "e", ExportOptions())
    files = sorted((tmp_path / "e" / "train").glob("*.arrow"))
    assert len(files) > 3
    assert files[1].name == f"data-00001-of-{len(files):05d}.arrow"
    split = pretrained.split("train")
    assert [row["input_ids"] for row in read(tmp_path / "e" / "train")] == [
        split[i].tolist() for i in range(len(split))
    ]


def test_the_same_dataset_has_the_same_bytes_and_another_one_another_fingerprint(
    pretrained: Dataset, single: Dataset, tmp_path
) -> None:
    def fingerprint(name: str) -> str:
        return json.loads((tmp_path / name / "train" / "state.json").read_text())["_fingerprint"]

    for name in ("a", "b"):
        export(pretrained.directory, "datasets", tmp_path / name, ExportOptions())
    export(single.directory, "datasets", tmp_path / "c", ExportOptions())
    for path in (tmp_path / "a").rglob("*.arrow"):
        other = tmp_path / "b" / path.relative_to(tmp_path / "a")
        assert path.read_bytes() == other.read_bytes()
    assert fingerprint("a") == fingerprint("b") != fingerprint("c")
    assert len(fingerprint("a")) == 16


def test_ids_that_int32_cannot_hold_are_refused(pretrained: Dataset, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(hf_datasets, "_MOST_ID", 10)
    with pytest.raises(UsageError, match="int32 ids, up to 10"):
        export(pretrained.directory, "datasets", tmp_path / "e", ExportOptions())


def weighted(tokenizer_dir: Path, write_rows, tmp_path: Path, weights: list[float]) -> Dataset:
    chats = [
        {
            "messages": [
                {"role": "user", "content": "hi"},
                {"role": "assistant", "content": "yes", "weight": weight},
            ]
        }
        for weight in weights
    ]
    return tokmill.sft(
        write_rows(tmp_path / "in.jsonl", chats), tokenizer=tokenizer_dir, output=tmp_path / "d",
        template="plain", weights="file", progress=False,
    )  # fmt: skip


def test_weights_are_a_column_for_datasets(tokenizer_dir, write_rows, tmp_path) -> None:
    dataset = weighted(tokenizer_dir, write_rows, tmp_path, [0.5, 2, 1])
    export(dataset.directory, "datasets", tmp_path / "e", ExportOptions())
    rows = read(tmp_path / "e")
    assert [row["weights"] for row in rows] == [dataset.weight(i).tolist() for i in range(3)]
    assert {max(row["weights"]) for row in rows} == {0.5, 2, 1}
    assert [row["labels"] for row in rows] == [labels_of(dataset, i) for i in range(3)]


@pytest.mark.parametrize("trainer", ["trl", "axolotl", "megatron", "olmo-core", "torchtitan"])
def test_weights_without_a_place_are_refused_unless_they_are_dropped(
    tokenizer_dir, write_rows, tmp_path, trainer
) -> None:
    dataset = weighted(tokenizer_dir, write_rows, tmp_path, [0.5, 1])
    with pytest.raises(UsageError, match=r"weights .* other than 0 and 1.*--drop-weights"):
        export(dataset.directory, trainer, tmp_path / "e", ExportOptions())
    assert not (tmp_path / "e").exists()
    made = export(dataset.directory, trainer, tmp_path / "e", ExportOptions(drop_weights=True))
    assert "weights other than 0 and 1 are left out: every trained token counts as 1" in made.notes


def test_a_weight_file_that_says_what_the_mask_says_is_no_loss(
    tokenizer_dir, write_rows, tmp_path
) -> None:
    dataset = weighted(tokenizer_dir, write_rows, tmp_path, [1, 1])
    assert export(dataset.directory, "trl", tmp_path / "t", ExportOptions()).notes == ()
    export(dataset.directory, "datasets", tmp_path / "e", ExportOptions())
    assert list(read(tmp_path / "e")[0]) == ["input_ids", "labels"]


def test_a_damaged_weight_file_is_not_exported(tokenizer_dir, write_rows, tmp_path) -> None:
    dataset = weighted(tokenizer_dir, write_rows, tmp_path, [0.5, 1])
    path = dataset.directory / "train-0000000-0000.weight"
    path.chmod(0o644)
    path.write_bytes(path.read_bytes().replace(np.float32(0.5).tobytes(), np.float32(2).tobytes()))
    with pytest.raises(VerifyError, match="weight"):
        export(dataset.directory, "datasets", tmp_path / "e", ExportOptions())
