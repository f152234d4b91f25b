"""Rows for ms-swift, which it takes as they are, read with pyarrow alone."""

from __future__ import annotations

import shlex
from itertools import pairwise

import numpy as np
import pytest

import tokmill
from tests.fixtures.datasets import TOKENIZER
from tests.trainers.test_hf_datasets import labels_of, read
from tokmill.api.dataset import Dataset
from tokmill.errors import UsageError
from tokmill.trainers.export import export
from tokmill.trainers.options import ExportOptions


def samples(split: Dataset) -> list[tuple[list[int], list[int]]]:
    return [(split[i].tolist(), labels_of(split, i)) for i in range(len(split))]


def in_row(row: dict) -> list[tuple[list[int], list[int]]]:
    """Return the samples of a pack: each begins where the positions begin anew."""
    starts = np.flatnonzero(np.array(row["position_ids"]) == 0).tolist()
    spans = [slice(*pair) for pair in pairwise([*starts, len(row["input_ids"])])]
    assert row["position_ids"] == [i for span in spans for i in range(span.stop - span.start)]
    return [(row["input_ids"][span], row["labels"][span]) for span in spans]


def test_a_row_is_a_pack_with_positions_of_its_samples(chats: Dataset, tmp_path) -> None:
    export(chats.directory, "ms-swift", tmp_path / "e", ExportOptions())
    for name in ("train", "val"):
        split, packs = chats.split(name), chats.packs[name]
        ours, rows = samples(split), read(tmp_path / "e" / name)
        assert [in_row(row) for row in rows] == [
            [ours[i] for i in packs.row(row)] for row in range(packs.n_rows)
        ]
        assert all(row["length"] == len(row["input_ids"]) for row in rows)
        assert all(row["lengths"] == [len(row["input_ids"])] for row in rows)


def test_chats_are_rows_that_ms_swift_can_pack_itself(unpacked: Dataset, tmp_path) -> None:
    export(unpacked.directory, "ms-swift", tmp_path / "e", ExportOptions())
    rows = read(tmp_path / "e" / "train")
    assert [(row["input_ids"], row["labels"]) for row in rows] == samples(unpacked.split("train"))
    assert list(rows[0]) == ["input_ids", "labels", "length", "lengths"]


def test_each_split_is_named_by_its_own_option(chats: Dataset, wide: Dataset, tmp_path) -> None:
    made = export(chats.directory, "ms-swift", tmp_path / "e e", ExportOptions())
    words = shlex.split(made.usage.replace("\\\n", " "))
    options = dict(zip(words[2::2], words[3::2], strict=True))
    assert options["--cached_dataset"] == str(tmp_path / "e e" / "train")
    assert options["--cached_val_dataset"] == str(tmp_path / "e e" / "val")
    assert options["--truncation_strategy"] == "split"
    assert options["--padding_free"] == "true"
    one = export(wide.directory, "ms-swift", tmp_path / "f", ExportOptions())
    assert "--cached_val_dataset" not in one.usage
    assert f"--cached_dataset {tmp_path / 'f'} " in one.usage


@pytest.mark.parametrize("packing", [[], ["packing"]])
def test_weights_are_the_loss_scale(tmp_path, write_rows, packing) -> None:
    said = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "good day", "weight": 0.5},
    ]
    path = write_rows(tmp_path / "chats.jsonl", [{"messages": said}, {"messages": [*said, *said]}])
    options = dict.fromkeys(packing, 64)
    dataset = tokmill.sft(
        path,
        tokenizer=TOKENIZER,
        output=tmp_path / "out",
        weights="file",
        progress=False,
        **options,
    )
    made = export(dataset.directory, "ms-swift", tmp_path / "e", ExportOptions())
    assert made.notes
    for row in read(tmp_path / "e"):
        scales = {
            scale
            for scale, label in zip(row["loss_scale"], row["labels"], strict=True)
            if label != -100
        }
        assert scales == {0.5}
    dropped = ExportOptions(drop_weights=True)
    export(dataset.directory, "ms-swift", tmp_path / "f", dropped)
    assert "loss_scale" not in read(tmp_path / "f")[0]
    with pytest.raises(UsageError, match="--to datasets"):
        export(dataset.directory, "llamafactory", tmp_path / "g", ExportOptions())
