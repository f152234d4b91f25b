from __future__ import annotations

import json

import pytest

from tokmill.dataset.canonical import sha256_hex
from tokmill.errors import UsageError, VerifyError
from tokmill.page.samples import SampleReader, control_ids, numbers_in_dataset


@pytest.fixture
def reader(dataset, tokenizer):
    return SampleReader(*dataset(), tokenizer)


def test_a_sample_is_read_with_its_mask_and_its_text_in_runs(reader):
    sample = reader.read(3)
    assert (sample.kind, sample.shard) == ("sample", "train-0000001-0000")
    assert [(run.text, run.is_trained, run.is_control) for run in sample.runs] == [
        ("<|im_start|>", False, True),
        ("f", False, False),
        ("our", True, False),
        ("<eos>", True, True),
    ]
    assert sample.mask == (0, 0, 1, 1, 1, 1)
    assert sample.trained_text == "our<eos>"
    assert sample.facts() == ["train-0000001-0000", "6 tokens", "4 trained", "66.7%"]


def test_a_sample_as_json_has_its_mask_and_its_trained_text(reader):
    values = json.loads(json.dumps(reader.read(0).as_json()))
    assert values == {
        "document": 0,
        "shard": "train-0000000-0000",
        "tokens": 5,
        "trained_tokens": 3,
        "ids": [2, *values["ids"][1:4], 0],
        "mask": [0, 0, 1, 1, 1],
        "text": "<|im_start|>one<eos>",
        "trained_text": "ne<eos>",
    }


def test_weights_stand_in_the_runs_and_in_json(dataset, tokenizer):
    sample = SampleReader(*dataset(weight=0.5), tokenizer).read(0)
    assert [run.weight for run in sample.runs] == [0, 0, 0.5, 0.5]
    assert sample.as_json()["weights"] == (0, 0, 0.5, 0.5, 0.5)


def test_a_row_has_the_samples_of_its_split_in_order_with_their_places(reader):
    assert [sample.number for sample in reader.read_row(0)] == [3]
    row = reader.read_row(1)
    assert [sample.number for sample in row] == [0, 1, 4]
    assert [sample.row_start for sample in row] == [0, 5, 10]
    assert row[1].facts()[-1] == "from token 5 of the row"


@pytest.mark.parametrize("number", [-1, 2])
def test_a_row_that_is_not_there_is_named(reader, number):
    with pytest.raises(UsageError, match=f"no row {number} of train; it holds 0 to 1"):
        reader.read_row(number)


def test_a_split_without_packs_has_no_rows(reader):
    with pytest.raises(UsageError, match="not packed, so it has no rows of val"):
        reader.read_row(0, "val")


def test_numbers_within_a_split_become_those_of_the_dataset(dataset):
    _, manifest = dataset()
    assert numbers_in_dataset(manifest, "train", [0, 1, 2, 3]) == [0, 1, 3, 4]
    assert numbers_in_dataset(manifest, "val", [0]) == [2]
    with pytest.raises(VerifyError, match="packs of val: sample 1 does not exist, the split has 1"):
        numbers_in_dataset(manifest, "val", [1])


def test_control_tokens_are_the_special_ones_and_those_that_the_template_writes(
    dataset, tokenizer, tmp_path
):
    _, manifest = dataset()
    tool = tokenizer.library().token_to_id("<tool>")
    manifest["mask"]["template_sha256"] = sha256_hex(b"plain")
    assert control_ids(manifest, tokenizer) == {0, 1, 2}
    source = "<tool>{{ messages[0].content }}"
    (tmp_path / "t.jinja").write_text(source)
    manifest["config"]["sft"]["template"] = str(tmp_path / "t.jinja")
    manifest["mask"]["template_sha256"] = sha256_hex(source.encode())
    assert control_ids(manifest, tokenizer) == {0, 1, 2, tool}


@pytest.mark.parametrize("content", [None, "another template"])
def test_every_added_token_is_a_control_token_where_the_template_is_gone(
    dataset, tokenizer, tmp_path, content
):
    _, manifest = dataset()
    if content is not None:
        (tmp_path / "t.jinja").write_text(content)
    manifest["config"]["sft"]["template"] = str(tmp_path / "t.jinja")
    manifest["mask"]["template_sha256"] = "0" * 64
    tool = tokenizer.library().token_to_id("<tool>")
    assert control_ids(manifest, tokenizer) == {0, 1, 2, tool}


def test_of_a_dataset_for_pretraining_only_special_tokens_are_control_tokens(dataset, tokenizer):
    _, manifest = dataset()
    assert control_ids({**manifest, "kind": "pretrain"}, tokenizer) == {0, 1, 2}
