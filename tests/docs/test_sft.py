"""Keys and masks are as docs/sft.md says, and the programs for chats in docs/format.md run."""

from __future__ import annotations

import re
import tomllib
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tokmill.chat.names import (
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
from tokmill.dataset.documents import Documents
from tokmill.dataset.manifest import Manifest
from tokmill.dataset.packs import open_packs
from tokmill.run.finish import run
from tokmill.settings.load import build_config
from tokmill.settings.sft import SftSettings

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "sft.md").read_text(encoding="utf-8")
FORMAT = (ROOT / "docs" / "format.md").read_text(encoding="utf-8")
PROGRAMS = FORMAT.partition("\n## A program for chats\n")[2].partition("\n## ")[0]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CAPACITY = 700


@pytest.fixture(scope="module")
def dataset(tmp_path_factory, configure, silent):
    """The sample chats in several shards of both splits, packed, as `chats` of a directory."""
    directory = tmp_path_factory.mktemp("docs")
    config = configure(
        directory / "chats",
        ROOT / "data_samples" / "sft" / "chats.jsonl",
        path=str(ROOT / "data_samples" / "tokenizer"),
        max_tokens=CAPACITY,
        shard_tokens=8000,
        val_fraction=0.1,
        sft=SftSettings(packing=CAPACITY, packed_rows=True),
    )
    return directory, run(config, silent).plain


@pytest.fixture(scope="module")
def shards(dataset):
    """The train shards as tokmill itself reads them."""
    directory, manifest = dataset
    found = list(Documents(directory / "chats", Manifest.of(manifest, ""), "train").shards())
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
        for program in BLOCK.findall(PROGRAMS):
            exec(compile(program, "docs/format.md", "exec"), names)
    return names


def test_every_program_of_the_page_is_run():
    assert PROGRAMS.count("```python") == len(BLOCK.findall(PROGRAMS)) == 2
    assert "```python" not in PAGE


def test_the_samples_are_those_of_the_train_split(page, samples):
    assert [(t.tolist(), m.tolist()) for t, m in page["samples"]] == samples


def test_packed_rows_keep_their_samples_apart(dataset, page, samples):
    directory, manifest = dataset
    packs = open_packs(directory / "chats", "train", Manifest.of(manifest, "").packs["train"])
    assert page["n_rows"] == packs.n_rows == manifest["packs"]["train"]["rows"] > 10
    for row in range(packs.n_rows):
        members = [(tokens.tolist(), mask.tolist()) for tokens, mask in page["packed_row"](row)]
        assert members == [samples[i] for i in packs.row(row)]


def test_packed_rows_are_read_as_shards_are(dataset, page):
    directory, manifest = dataset
    eos_id = manifest["tokenizer"]["eos"]["id"]
    row = 0
    for shard in manifest["packs"]["train"]["shards"]:
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(directory)
            tokens, mask, starts = page["read"](shard["name"])
        assert np.diff(starts).tolist() == [CAPACITY] * shard["documents"]
        for start in starts[:-1]:
            members = page["packed_row"](row)
            n_padding = CAPACITY - sum(len(ids) for ids, _ in members)
            expected = [id_ for ids, _ in members for id_ in ids] + [eos_id] * n_padding
            targets = [target for _, mask_of in members for target in mask_of] + [0] * n_padding
            assert tokens[start : start + CAPACITY].tolist() == expected
            assert mask[start : start + CAPACITY].tolist() == targets
            row += 1
    assert row == page["n_rows"]


def test_the_drawing_shows_predictors_one_place_before_their_targets():
    drawn = {
        label: [int(cell) for cell in cells.split()]
        for label, cells in re.findall(r"^(mask|predictor) +([01 ]+)$", PAGE, re.MULTILINE)
    }
    assert [*drawn["mask"][1:], 0] == drawn["predictor"]


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
