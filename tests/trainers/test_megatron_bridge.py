"""Packs for Megatron-Bridge: what is trained, decoded; padding; the packs of its own rule."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tokmill.api.dataset import Dataset
from tokmill.errors import UsageError
from tokmill.trainers.export import export
from tokmill.trainers.options import ExportOptions


def read(path: Path) -> list[dict[str, list[int]]]:
    rows: list[dict[str, list[int]]] = pq.read_table(path).to_pylist()
    return rows


def spans(row: dict[str, list[int]]) -> list[slice]:
    stops = [*row["seq_start_id"][1:], len(row["input_ids"])]
    return [slice(*pair) for pair in zip(row["seq_start_id"], stops, strict=True)]


def trained(row: dict[str, list[int]]) -> list[tuple[list[int], list[int]]]:
    """Return each sample, and the labels that are trained of it, as the trainer cuts them."""
    found = []
    for span in spans(row):
        ids, mask = row["input_ids"][span], row["loss_mask"][span]
        labels = [label for label, on in zip(ids[1:], mask[:-1], strict=True) if on]
        found.append((ids, labels))
    return found


def ours(split: Dataset) -> list[tuple[list[int], list[int]]]:
    found = []
    for i in range(len(split)):
        mask = split.mask(i)
        found.append((split[i].tolist(), split[i][mask == 1].tolist()))
    return found


def test_what_is_trained_is_what_the_mask_says(chats: Dataset, tmp_path) -> None:
    made = export(chats.directory, "megatron-bridge", tmp_path / "e", ExportOptions())
    for name in ("train", "val"):
        expected, packs = ours(chats.split(name)), chats.packs[name]
        found = [trained(row) for row in read(tmp_path / "e" / f"{name}.idx.parquet")]
        assert found == [[expected[i] for i in packs.row(row)] for row in range(packs.n_rows)]
    assert made.mask_alignment == "predictor"


def test_types_are_those_that_the_reader_documents(chats: Dataset, tmp_path) -> None:
    export(chats.directory, "megatron-bridge", tmp_path / "e", ExportOptions())
    schema = pq.read_schema(tmp_path / "e" / "train.idx.parquet")
    assert {field.name: str(field.type.value_type) for field in schema} == {
        "input_ids": "int32",
        "loss_mask": "int8",
        "seq_start_id": "int32",
    }


@pytest.mark.parametrize("multiple", [2, 8, 64])
def test_samples_are_padded_to_a_multiple_of_what_the_model_sees(
    unpacked: Dataset, tmp_path, multiple
) -> None:
    options = ExportOptions(packing=4096, pad_samples_to=multiple)
    export(unpacked.directory, "megatron-bridge", tmp_path / "e", options)
    rows = read(tmp_path / "e" / "train.idx.parquet")
    assert all((span.stop - span.start) % multiple == 1 for row in rows for span in spans(row))
    assert max(len(row["input_ids"]) - len(row["seq_start_id"]) for row in rows) <= 4096
    eos = unpacked.manifest["tokenizer"]["eos"]["id"]
    found = []
    expected = ours(unpacked.split("train"))
    by_labels = {tuple(labels): ids for ids, labels in expected}
    for row in rows:
        for ids, labels in trained(row):
            original = by_labels[tuple(labels)]
            assert ids[len(original) :] == [eos] * (len(ids) - len(original))
            assert len(ids) - len(original) < multiple
            found.append((ids[: len(original)], labels))
    assert sorted(found) == sorted(expected)


def test_new_packs_hold_as_many_tokens_as_the_model_sees(unpacked: Dataset, tmp_path) -> None:
    longest = max(len(unpacked[i]) for i in range(len(unpacked)))
    options = ExportOptions(packing=longest - 1)
    export(unpacked.directory, "megatron-bridge", tmp_path / "e", options)
    rows = read(tmp_path / "e" / "train.idx.parquet")
    seen = [len(row["input_ids"]) - len(row["seq_start_id"]) for row in rows]
    assert max(seen) == longest - 1
    assert sorted(sample for row in rows for sample in trained(row)) == sorted(
        ours(unpacked.split("train"))
    )


@pytest.mark.parametrize(
    ("fixture", "options", "named"),
    [
        ("unpacked", {}, "add --packing with the tokens of a row"),
        ("chats", {"pad_samples_to": 3}, "rows of 4096 tokens are no multiple of it"),
        ("chats", {"packing": 64}, "fits in no row of 64"),
        ("single", {}, r"and train has none: run tokmill pack \S+ --length 4096 first"),
        ("single", {"packing": 64}, r"whole chats into rows, .* run tokmill pack \S+ --length 64"),
    ],
)
def test_what_it_cannot_read_is_refused(fixture, options, named, request, tmp_path) -> None:
    dataset = request.getfixturevalue(fixture)
    with pytest.raises(UsageError, match=named):
        export(dataset.directory, "nemo", tmp_path / "e", ExportOptions(**options))
    assert list(tmp_path.iterdir()) == []


def test_the_usage_is_python_for_every_name(chats: Dataset, tmp_path) -> None:
    name = 'it\'s "here" \\ {x}\nand here'
    lines = chats.export("megatron-bridge", tmp_path / name).usage.split("\n", 3)[3]
    calls = {"GPTSFTDatasetConfig": dict, "PackedSequenceSpecs": dict}
    exec(lines, calls)
    assert calls["dataset"]["dataset_root"] == str(tmp_path / name)
    assert calls["dataset"]["offline_packing_specs"]["packed_train_data_path"] == str(
        tmp_path / name / "train.idx.parquet"
    )
