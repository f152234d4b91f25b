"""Rows for LLaMA-Factory, as its own processors lay them out, read with pyarrow alone."""

from __future__ import annotations

from itertools import pairwise

import pytest
import yaml

from tests.trainers.test_hf_datasets import labels_of, read
from tokmill.api.dataset import Dataset
from tokmill.trainers.export import export
from tokmill.trainers.options import ExportOptions


def samples(split: Dataset) -> list[tuple[list[int], list[int]]]:
    return [(split[i].tolist(), labels_of(split, i)) for i in range(len(split))]


def in_row(row: dict) -> list[tuple[list[int], list[int]]]:
    """Return the samples of a pack between its boundaries; the last is the padding."""
    spans = [slice(*pair) for pair in pairwise(row["packing_params"]["sequence_boundaries"])]
    return [(row["input_ids"][span], row["labels"][span]) for span in spans]


def test_the_splits_are_train_and_validation(chats: Dataset, tmp_path) -> None:
    export(chats.directory, "llamafactory", tmp_path / "e", ExportOptions())
    folders = sorted(path.name for path in (tmp_path / "e").iterdir() if path.is_dir())
    assert folders == ["train", "validation"]
    written = (tmp_path / "e" / "dataset_dict.json").read_text()
    assert yaml.safe_load(written) == {"splits": ["train", "validation"]}


def test_a_row_is_a_pack_with_its_samples_in_order(chats: Dataset, tmp_path) -> None:
    export(chats.directory, "llamafactory", tmp_path / "e", ExportOptions())
    for name, folder in (("train", "train"), ("val", "validation")):
        split, packs = chats.split(name), chats.packs[name]
        ours, rows = samples(split), read(tmp_path / "e" / folder)
        assert [in_row(row)[:-1] for row in rows] == [
            [ours[i] for i in packs.row(row)] for row in range(packs.n_rows)
        ]


def test_samples_are_numbered_and_padding_counts_nowhere(chats: Dataset, tmp_path) -> None:
    made = export(chats.directory, "llamafactory", tmp_path / "e", ExportOptions())
    n_tokens = yaml.safe_load(made.usage)["cutoff_len"]
    capacity = chats.manifest["packs"]["train"]["capacity"]
    assert n_tokens % 8 == 0
    assert capacity < n_tokens <= capacity + 8
    for row in read(tmp_path / "e" / "train"):
        ends = row["packing_params"]["sequence_boundaries"]
        lengths = [stop - start for start, stop in pairwise(ends)]
        n_padding = lengths.pop()
        assert n_padding == row["packing_params"]["right_padding_length"] > 0
        numbers = [number for number, n in enumerate(lengths, 1) for _ in range(n)]
        assert row["attention_mask"] == numbers + [0] * n_padding
        positions = [position for n in lengths for position in range(n)]
        assert row["position_ids"] == positions + [0] * n_padding
        assert row["labels"][-n_padding:] == [-100] * n_padding
        assert len(row["input_ids"]) == n_tokens
        for media in ("image", "video", "audio"):
            assert row["packing_params"][f"{media}_subseq_ids"] == [1 << 32]


def test_chats_without_packs_are_rows_of_their_own(unpacked: Dataset, tmp_path) -> None:
    made = export(unpacked.directory, "llamafactory", tmp_path / "e", ExportOptions())
    rows = read(tmp_path / "e" / "train")
    assert [(row["input_ids"], row["labels"]) for row in rows] == samples(unpacked.split("train"))
    assert all(row["attention_mask"] == [1] * len(row["input_ids"]) for row in rows)
    assert yaml.safe_load(made.usage)["packing"] is False


@pytest.mark.parametrize("options", [{"packing": 5000}, {"packing": 4095}])
def test_packs_are_made_of_chats_without_them(unpacked: Dataset, tmp_path, options) -> None:
    export(unpacked.directory, "llamafactory", tmp_path / "e", ExportOptions(**options))
    found = [one for row in read(tmp_path / "e" / "train") for one in in_row(row)[:-1]]
    assert sorted(found) == sorted(samples(unpacked.split("train")))


def test_pieces_of_packed_text_are_samples_whose_first_token_is_not_trained(
    pieces: Dataset, tmp_path
) -> None:
    export(pieces.directory, "llamafactory", tmp_path / "e", ExportOptions())
    split, packs = pieces.split("train"), pieces.packs["train"]
    for number, row in enumerate(read(tmp_path / "e" / "train")):
        ids = [
            split[int(document)][span].tolist()
            for document, span in zip(packs.row(number), packs.row_pieces(number), strict=True)
        ]
        assert in_row(row)[:-1] == [(piece, [-100, *piece[1:]]) for piece in ids]


def test_the_usage_is_yaml_that_names_everything_llama_factory_asks_for(
    chats: Dataset, wide: Dataset, tmp_path
) -> None:
    made = export(chats.directory, "llamafactory", tmp_path / "a: b", ExportOptions())
    settings = yaml.safe_load(made.usage)
    assert settings["tokenized_path"] == str(tmp_path / "a: b")
    assert settings["dataset"] == settings["eval_dataset"] == "tokmill"
    assert settings["packing"] is settings["neat_packing"] is True
    one = export(wide.directory, "llamafactory", tmp_path / "f", ExportOptions())
    assert "eval_dataset" not in yaml.safe_load(one.usage)
