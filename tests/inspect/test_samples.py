from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from tokmill.dataset.checksum import sha256_hex
from tokmill.dataset.manifest import Manifest
from tokmill.errors import UsageError, VerifyError
from tokmill.inspect.samples import SampleReader, ShownRun, control_ids, shown_runs
from tokmill.tokenizer.decode import TokenRun
from tokmill.tokenizer.files import AddedToken


@pytest.fixture
def reader(picked_chats, tokenizer):
    directory, manifest = picked_chats()
    return SampleReader(directory, Manifest.of(manifest, directory), tokenizer)


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
        "origin": None,
        "tokens": 5,
        "trained_tokens": 3,
        "ids": [2, *values["ids"][1:4], 0],
        "mask": [0, 0, 1, 1, 1],
        "text": "<|im_start|>one<eos>",
        "trained_text": "ne<eos>",
    }


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


@pytest.mark.parametrize("sample", [-1, 4])
def test_a_row_of_a_sample_that_is_not_there_is_an_error(picked_chats, tokenizer, sample):
    directory, manifest = picked_chats()
    np.array([2, 0, 1, sample]).tofile(directory / "packs-train-samples.bin")
    with pytest.raises(VerifyError, match=f"packs of train: no sample {sample}; it has 4$"):
        SampleReader(directory, Manifest.of(manifest, directory), tokenizer).read_row(1)


@pytest.mark.parametrize("kind", ["sft", "pretrain"])
def test_added_tokens_are_shown_as_control_tokens_but_not_ordinary_text(
    picked_chats, tokenizer, kind
):
    directory, manifest = picked_chats()
    if kind == "pretrain":
        del manifest["mask"], manifest["config"]["sft"]
        manifest["kind"] = kind
    tool = tokenizer.library().token_to_id("<tool>")
    plain = (AddedToken(300, "   ", False), AddedToken(301, "word", False))
    tokenizer = dataclasses.replace(tokenizer, added=(*tokenizer.added, *plain))
    assert control_ids(Manifest.of(manifest, directory), tokenizer) == {0, 1, 2, tool}


def test_a_word_that_the_template_writes_as_a_token_is_a_control_token(
    picked_chats, tokenizer, tmp_path
):
    directory, manifest = picked_chats()
    word = AddedToken(301, "word", False)
    tokenizer = dataclasses.replace(tokenizer, added=(*tokenizer.added, word))
    source = "word{{ messages[0].content }}"
    (tmp_path / "t.jinja").write_text(source)
    manifest["config"]["sft"]["template"] = str(tmp_path / "t.jinja")
    manifest["mask"]["template_sha256"] = sha256_hex(source.encode())
    assert 301 in control_ids(Manifest.of(manifest, directory), tokenizer)
    manifest["mask"]["template_sha256"] = "0" * 64  # the template is gone
    assert 301 not in control_ids(Manifest.of(manifest, directory), tokenizer)


def run(text: str, weight: float = 0, *, is_control: bool = False) -> TokenRun:
    return TokenRun((7,), is_control, weight, (text,))


RUNS = [
    run("<s>", is_control=True),
    run("user\n"),
    run("\nhi ", 1),
    run("</s>", 1, is_control=True),
    run("\n", 0.5),
    run("end"),
]


def test_a_trained_span_opens_with_its_first_run_and_closes_with_its_last():
    shown, n_cut = shown_runs(RUNS, 0)
    assert [(s.opens, s.closes) for s in shown] == [
        (False, False),
        (False, False),
        (True, False),
        (False, True),
        (True, True),
        (False, False),
    ]
    assert n_cut == 0


@pytest.mark.parametrize(
    ("max_chars", "expected"),
    [
        (1, []),
        (3, ["<s>"]),
        (6, ["<s>", "use"]),
        (8, ["<s>", "user\n"]),
        (9, ["<s>", "user\n", "\n"]),
        (13, ["<s>", "user\n", "\nhi "]),
        (16, ["<s>", "user\n", "\nhi ", "</s>"]),
        (19, ["<s>", "user\n", "\nhi ", "</s>", "\n", "en"]),
    ],
)
def test_text_is_cut_at_a_number_of_characters_but_never_in_a_control_token(max_chars, expected):
    shown, n_cut = shown_runs(RUNS, max_chars)
    assert [stretch.run.text for stretch in shown] == expected
    assert n_cut == 20 - sum(map(len, expected))


@pytest.mark.parametrize(
    ("text", "opens", "closes", "expected"),
    [
        ("\n hi \n", False, False, [("\n hi \n", False)]),
        ("\n hi \n", True, False, [("\n ", True), ("hi \n", False)]),
        ("\n hi \n", False, True, [("\n hi", False), (" \n", True)]),
        ("\n hi \n", True, True, [("\n ", True), ("hi", False), (" \n", True)]),
        (" \n", True, True, [(" \n", True)]),
        ("hi", True, True, [("hi", False)]),
    ],
)
def test_white_space_at_the_edges_of_a_trained_span_is_set_apart(text, opens, closes, expected):
    assert ShownRun(run(text, 1), opens, closes).parts() == [expected]


def test_of_a_long_sample_the_first_tokens_are_read_and_the_others_counted(picked_chats, tokenizer):
    directory, manifest = picked_chats()
    reader = SampleReader(directory, Manifest.of(manifest, directory), tokenizer)
    whole = reader.read(0)
    part = reader.read(0, most_tokens=2)
    assert part.ids == whole.ids[:2]
    assert part.n_unread == len(whole.ids) - 2
    assert part.facts()[1:3] == [f"{len(whole.ids)} tokens", "of the first 2:"]
    assert reader.read(0, most_tokens=1000) == whole
