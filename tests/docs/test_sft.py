"""The programs in docs/sft.md run as they stand, and give what the dataset holds."""

from __future__ import annotations

import re
import tomllib
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tokmill.chat.reading.names import (
    ANSWER_KEYS,
    HISTORY_KEYS,
    INPUT_KEYS,
    PROMPT_KEYS,
    REASONING_KEYS,
    SYSTEM_KEYS,
    TOOL_KEYS,
    WEIGHT_KEYS,
    check_names,
)
from tokmill.dataset.packs import open_packs
from tokmill.dataset.reader import open_shards
from tokmill.executors.run import run
from tokmill.settings.load import build_config
from tokmill.settings.sft import SftSettings

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "sft.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NEEDS_DATASETS = "from datasets import"
CAPACITY = 700


@pytest.fixture(scope="module")
def dataset(tmp_path_factory, configure, silent):
    """The sample chats in several shards of both splits, packed, as `out/sft` of a directory."""
    directory = tmp_path_factory.mktemp("docs")
    config = configure(
        directory / "out" / "sft",
        ROOT / "data_samples" / "sft" / "chats.jsonl",
        path=str(ROOT / "data_samples" / "tokenizer"),
        max_tokens=CAPACITY,
        shard_tokens=8000,
        val_fraction=0.1,
        sft=SftSettings(packing=CAPACITY, packed_rows=True),
    )
    return directory, run(config, silent)


@pytest.fixture(scope="module")
def shards(dataset):
    """The train shards as tokmill itself reads them."""
    directory, manifest = dataset
    found = list(open_shards(directory / "out" / "sft", manifest, "train"))
    assert len(found) > 2
    return found


@pytest.fixture(scope="module")
def samples(shards):
    """The ids and mask of every train sample, as tokmill itself reads them."""
    return [
        (shard.document(i).tolist(), shard.sample_mask(i).tolist())
        for shard in shards
        for i in range(len(shard.lengths))
    ]


@pytest.fixture(scope="module")
def page(dataset):
    """What the page's programs leave behind, run one after the other."""
    names: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(dataset[0])
        for program in BLOCK.findall(PAGE):
            if NEEDS_DATASETS not in program:
                exec(compile(program, "docs/sft.md", "exec"), names)
    return names


def test_every_program_of_the_page_is_run():
    found = BLOCK.findall(PAGE)
    assert sum(NEEDS_DATASETS in program for program in found) == 1
    assert PAGE.count("```python") == len(found) == 7


def test_the_samples_are_those_of_the_train_split(page, samples):
    assert [(t.tolist(), m.tolist()) for t, m in page["samples"]] == samples


def test_targets_of_windows_are_minus_1_where_the_mask_is_0(page, shards):
    length = page["x"].shape[1]
    assert page["x"].shape == page["y"].shape == (8, 256)
    for shard, (tokens, mask, _) in zip(shards, page["shards"], strict=True):
        for start in range(0, len(shard.tokens) - length, length):
            x, y = page["window"](tokens, mask, start, length)
            targets = slice(start + 1, start + 1 + length)
            assert x.tolist() == shard.tokens[start : start + length].tolist()
            expected = np.where(shard.mask[targets], shard.tokens[targets].astype(int), -1)
            assert y.tolist() == expected.tolist()
    assert (page["y"] == -1).any()
    assert (page["y"] != -1).any()


def test_padded_batches_train_the_targets_of_each_sample_and_no_padding(page, samples):
    ids, labels, attention_mask = page["padded"](page["samples"], pad_id=77)
    for row, (tokens, mask) in enumerate(samples):
        n_padding = ids.shape[1] - len(tokens)
        expected = [t if m else -100 for t, m in zip(tokens, mask, strict=True)]
        assert ids[row].tolist() == tokens + [77] * n_padding
        assert labels[row].tolist() == expected + [-100] * n_padding
        assert attention_mask[row].tolist() == [1] * len(tokens) + [0] * n_padding


def test_packed_rows_keep_their_samples_apart(dataset, page, samples):
    directory, manifest = dataset
    packs = open_packs(directory / "out" / "sft", "train")
    assert page["n_rows"] == packs.n_rows == manifest["packs"]["train"]["rows"] > 10
    for row in range(packs.n_rows):
        ids, labels, cu_seqlens, position_ids = page["packed_row"](row, pad_id=77)
        members = [samples[i] for i in packs.row(row)]
        tokens = [t for member in members for t in member[0]]
        mask = [m for member in members for m in member[1]]
        n_padding = CAPACITY - len(tokens)
        lengths = [len(member[0]) for member in members] + [n_padding] * (n_padding > 0)
        expected = [t if m else -100 for t, m in zip(tokens, mask, strict=True)]
        assert ids.tolist() == tokens + [77] * n_padding
        assert labels.tolist() == expected + [-100] * n_padding
        assert np.diff(cu_seqlens).tolist() == lengths
        assert position_ids.tolist() == [place for n in lengths for place in range(n)]


def test_packed_rows_are_read_as_shards_are(dataset, page):
    directory, manifest = dataset
    row = 0
    for shard in manifest["packs"]["train"]["shards"]:
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(directory)
            tokens, mask, starts = page["read"](shard["name"])
        assert np.diff(starts).tolist() == [CAPACITY] * shard["documents"]
        for start in starts[:-1]:
            ids, labels, *_ = page["packed_row"](row, page["eos_id"])
            assert tokens[start : start + CAPACITY].tolist() == ids.tolist()
            assert mask[start : start + CAPACITY].tolist() == (labels != -100).tolist()
            row += 1
    assert row == page["n_rows"]


def test_columns_hold_labels_of_minus_100_where_the_mask_is_0(page, samples):
    table = page["table"]
    assert list(table) == ["input_ids", "labels"]
    assert table["input_ids"] == [tokens for tokens, _ in samples]
    assert table["labels"] == [
        [t if m else -100 for t, m in zip(tokens, mask, strict=True)] for tokens, mask in samples
    ]


def test_columns_become_a_dataset_of_the_library(page):
    pytest.importorskip("datasets", reason="datasets is not installed: pip install '.[hub]'")
    for program in BLOCK.findall(PAGE):
        if NEEDS_DATASETS in program:
            exec(compile(program, "docs/sft.md", "exec"), page)
    assert page["dataset"][:] == page["table"]


def test_predictors_are_one_place_before_their_target_in_the_same_sample(page, shards):
    for shard, (_, mask, _) in zip(shards, page["shards"], strict=True):
        found = page["predictor_mask"](mask)
        for i in range(len(shard.lengths)):
            expected = [*shard.sample_mask(i).tolist()[1:], 0]
            assert found[shard.span(i)].tolist() == expected
    assert page["predictor"].tolist() == page["predictor_mask"](shards[0].mask).tolist()


def test_the_drawing_shows_what_the_programs_do(page):
    drawn = {
        label: [int(cell) for cell in cells.split()]
        for label, cells in re.findall(r"^(mask|predictor) +([01 ]+)$", PAGE, re.MULTILINE)
    }
    mask = np.array(drawn["mask"], np.uint8)
    assert page["predictor_mask"](mask).tolist() == drawn["predictor"]


def test_the_page_names_every_key_that_is_read():
    groups = (PROMPT_KEYS, ANSWER_KEYS, INPUT_KEYS, REASONING_KEYS, SYSTEM_KEYS, HISTORY_KEYS)
    for key in chain(*groups, TOOL_KEYS, WEIGHT_KEYS, ("images", "videos", "audios", "refusal")):
        assert f"`{key}`" in PAGE, key


def test_names_in_a_file_and_as_options_are_the_same():
    table = re.search(r"^```toml\n(\[sft\.fields\].*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    option = re.search(r"--fields[ =](\S+) --role-names[ =](\S+)$", PAGE, re.MULTILINE)
    assert table is not None
    assert option is not None
    in_file = build_config(tomllib.loads(table[1]), where="page").sft
    pairs = [words.split(",") for words in option.groups()]
    named = dict(zip(("fields", "role_names"), pairs, strict=True))
    as_options = build_config({"sft": named}, where="page")
    assert in_file == as_options.sft
    assert in_file is not None
    check_names(in_file)
