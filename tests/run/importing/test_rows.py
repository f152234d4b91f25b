"""Rows of ids: every column that says what is trained, padding, packed rows, and what is asked."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import tokmill
from tests.run.importing.conftest import EOS, files_of, ids
from tokmill.api import progress as progress_module
from tokmill.api.dataset import Dataset
from tokmill.cli.main import cli
from tokmill.errors import RecordError, StateError, TokmillError, UsageError, VerifyError
from tokmill.recipes.row_columns import GivenColumns
from tokmill.recipes.row_samples import samples_of
from tokmill.run import plan
from tokmill.run.rows import find_rows
from tokmill.settings.schema import InputSettings
from tokmill.trainers.export import export
from tokmill.trainers.options import ExportOptions

Row = dict[str, Any]


KINDS = ("jsonl", "parquet", "datasets")


@pytest.fixture
def store(tmp_path: Path) -> Callable[..., tuple[Path, str]]:
    """Write rows as one of `KINDS`, which differs from case to case; return path and kind."""

    def store(rows: Sequence[Row], kind: str = "", name: str = "in") -> tuple[Path, str]:
        kind = kind or KINDS[sum(map(len, rows[0])) % len(KINDS)]
        path = tmp_path / f"{name}.{kind}"
        if kind == "jsonl":
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        elif kind == "parquet":
            pq.write_table(pa.Table.from_pylist(rows), path)
        else:
            save_to_disk(path, rows)
        return path, kind

    return store


def save_to_disk(folder: Path, rows: Sequence[Row]) -> Path:
    """Write what `save_to_disk` of datasets does."""
    table = pa.Table.from_pylist(list(rows))
    folder.mkdir(parents=True)
    name = "data-00000-of-00001.arrow"
    with pa.ipc.new_stream(str(folder / name), table.schema) as stream:
        stream.write_table(table)
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": name}]}))
    (folder / "dataset_info.json").write_text("{}")
    return folder


def trained(dataset: Dataset) -> list[list[int]]:
    """Return the mask of every sample."""
    return [dataset.mask(i).tolist() for i in range(len(dataset))]


A, B, C = [3, 4, 5, 6], [7, 8, 9], [10, 11]
"""Three samples; their masks: the last two tokens, the last one, the last one."""
MASK_A, MASK_B, MASK_C = [0, 0, 1, 1], [0, 0, 1], [0, 1]


def labels(tokens: Sequence[int], mask: Sequence[int]) -> list[int]:
    return [token if flag else -100 for token, flag in zip(tokens, mask, strict=True)]


LABELS_A, LABELS_B, LABELS_C = labels(A, MASK_A), labels(B, MASK_B), labels(C, MASK_C)
PACKED = [*A, *B, *C]
PACKED_LABELS = [*LABELS_A, *LABELS_B, *LABELS_C]

ONE_BY_ONE: dict[str, list[Row]] = {
    "labels": [
        {"input_ids": A, "labels": LABELS_A},
        {"input_ids": B, "labels": LABELS_B},
        {"input_ids": C, "labels": LABELS_C},
    ],
    "labels of the next token": [
        {"input_ids": A, "labels": [-100, 5, 6, -100]},
        {"input_ids": B, "labels": [-100, 9, -100]},
        {"input_ids": C, "labels": [11, -100]},
    ],
    "inputs, and the targets behind them": [
        {"input_ids": A[:-1], "labels": LABELS_A[1:]},
        {"input_ids": B[:-1], "labels": LABELS_B[1:]},
        {"input_ids": C[:-1], "labels": LABELS_C[1:]},
    ],
    "a mask of the loss": [
        {"tokens": A, "loss_mask": MASK_A},
        {"tokens": B, "loss_mask": MASK_B},
        {"tokens": C, "loss_mask": MASK_C},
    ],
    "a mask of floats": [
        {"token_ids": A, "loss_mask": [float(flag) for flag in MASK_A]},
        {"token_ids": B, "loss_mask": [float(flag) for flag in MASK_B]},
        {"token_ids": C, "loss_mask": [float(flag) for flag in MASK_C]},
    ],
    "a mask of true and false": [
        {"ids": A, "assistant_masks": [bool(flag) for flag in MASK_A]},
        {"ids": B, "assistant_masks": [bool(flag) for flag in MASK_B]},
        {"ids": C, "assistant_masks": [bool(flag) for flag in MASK_C]},
    ],
    "two masks, of which both must be 1": [
        {"input_ids": A, "completion_mask": [0, 1, 1, 1], "assistant_masks": MASK_A},
        {"input_ids": B, "completion_mask": MASK_B, "assistant_masks": [1, 1, 1]},
        {"input_ids": C, "completion_mask": [1, 1], "assistant_masks": MASK_C},
    ],
    "prompts and completions": [
        {"prompt_ids": A[:2], "completion_ids": A[2:], "text": "seen"},
        {"prompt_ids": B[:2], "completion_ids": B[2:], "text": "seen"},
        {"prompt_ids": C[:1], "completion_ids": C[1:], "text": "seen"},
    ],
    "completions with a mask of their own": [
        {"prompt_ids": A[:1], "response_ids": A[1:], "response_mask": MASK_A[1:]},
        {"prompt_ids": B[:1], "response_ids": B[1:], "response_mask": MASK_B[1:]},
        {"prompt_ids": C[:1], "response_ids": C[1:], "response_mask": MASK_C[1:]},
    ],
    "padding at both ends": [
        {"input_ids": [0, *A, 0], "attention_mask": [0, 1, 1, 1, 1, 0],
         "labels": [-100, *LABELS_A, -100]},
        {"input_ids": [0, 0, 0, *B], "attention_mask": [0, 0, 0, 1, 1, 1],
         "labels": [-100, -100, -100, *LABELS_B]},
        {"input_ids": [*C, 0, 0, 0, 0], "attention_mask": [1, 1, 0, 0, 0, 0],
         "labels": [*LABELS_C, -100, -100, -100, -100]},
    ],
    "padding behind labels of the next token": [
        {"input_ids": [*A[:-1], 0, 0], "attention_mask": [1, 1, 1, 0, 0],
         "labels": [*LABELS_A[1:], -100, -100]},
        {"input_ids": [*B, 0, 0], "attention_mask": [1, 1, 1, 0, 0],
         "labels": [*LABELS_B[1:], -100, -100, -100]},
        {"input_ids": [0, 0, 0, *C], "attention_mask": [0, 0, 0, 1, 1],
         "labels": [-100, -100, -100, 11, -100]},
    ],
}  # fmt: skip

PACKS: dict[str, Row] = {
    "positions": {
        "input_ids": PACKED, "labels": PACKED_LABELS, "position_ids": [0, 1, 2, 3, 0, 1, 2, 0, 1],
    },
    "lengths": {"input_ids": PACKED, "labels": PACKED_LABELS, "seq_lengths": [4, 3, 2]},
    "other lengths": {"input_ids": PACKED, "labels": PACKED_LABELS, "sequence_lengths": [4, 3, 2]},
    "bounds": {"input_ids": PACKED, "labels": PACKED_LABELS, "cu_seqlens": [0, 4, 7, 9, 9]},
    "starts": {"input_ids": PACKED, "labels": PACKED_LABELS, "seq_start_id": [0, 4, 7]},
    "numbers of samples": {
        "input_ids": [*PACKED, 0, 0], "labels": [*PACKED_LABELS, -100, -100],
        "attention_mask": [1, 1, 1, 1, 2, 2, 2, 3, 3, 0, 0],
    },
    "positions and lengths, padded": {
        "input_ids": [*PACKED, 0, 0], "labels": [*PACKED_LABELS, -100, -100],
        "attention_mask": [1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0], "seq_lengths": [4, 3, 2],
        "position_ids": [0, 1, 2, 3, 0, 1, 2, 0, 1, 1, 1],
    },
    "padding with position 0": {
        "input_ids": [*PACKED, 0, 0], "labels": [*PACKED_LABELS, -100, -100],
        "attention_mask": [1] * 11, "position_ids": [0, 1, 2, 3, 0, 1, 2, 0, 1, 0, 0],
    },
    "labels of the next token, shifted in each sample": {
        "input_ids": PACKED, "labels": [-100, 5, 6, -100, -100, 9, -100, 11, -100],
        "seq_lengths": [4, 3, 2],
    },
    "labels of the next token, shifted in the row": {
        "input_ids": PACKED, "labels": [-100, 5, 6, 7, -100, 9, 10, 11, -100],
        "seq_lengths": [4, 3, 2],
    },
    "inputs, and the targets behind them": {
        "input_ids": [*A[:-1], *B[:-1], *C[:-1]],
        "labels": [*LABELS_A[1:], *LABELS_B[1:], *LABELS_C[1:]], "seq_lengths": [3, 2, 1],
    },
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", ["labels", "a mask of true and false"])
def test_rows_are_the_same_however_they_are_stored(case: str, kind: str, store, bring) -> None:
    made = bring(*store(ONE_BY_ONE[case], kind))
    assert ids(made) == [A, B, C]
    assert trained(made) == [MASK_A, MASK_B, MASK_C]


@pytest.mark.parametrize("case", ONE_BY_ONE)
def test_every_column_says_the_same(case: str, store, bring) -> None:
    made = bring(*store(ONE_BY_ONE[case]))
    assert made.manifest["kind"] == "sft"
    assert ids(made) == [A, B, C]
    assert trained(made) == [MASK_A, MASK_B, MASK_C]


@pytest.mark.parametrize("case", PACKS)
def test_packed_rows_are_divided(case: str, store, bring) -> None:
    made = bring(*store([PACKS[case]] * 2))
    assert ids(made) == [A, B, C] * 2
    assert trained(made) == [MASK_A, MASK_B, MASK_C] * 2
    assert [made.origin(i).record for i in range(6)] == [1, 1, 1, 2, 2, 2]


def test_weights_are_kept_where_labels_train(store, bring) -> None:
    rows = [
        {"input_ids": A, "labels": LABELS_A, "weights": [0.5, 0.0, 0.25, 2.0]},
        {"input_ids": B, "labels": LABELS_B, "weights": [0.0, 1.0, 0.125]},
    ]
    made = bring(*store(rows))
    assert [made.weight(i).tolist() for i in range(2)] == [[0, 0, 0.25, 2.0], [0, 0, 0.125]]
    assert trained(made) == [MASK_A, MASK_B]


@pytest.mark.parametrize("given", [{}, {"labels": "none"}])
def test_documents_end_with_eos(given, store, bring) -> None:
    rows = [{"input_ids": [*A, EOS]}, {"input_ids": [*B, EOS]}, {"input_ids": []}]
    if given:
        rows = [{**row, "labels": row["input_ids"]} for row in rows]
    made = bring(*store(rows), **given)
    assert made.manifest["kind"] == "pretrain"
    assert ids(made) == [[*A, EOS], [*B, EOS]]
    assert made.manifest["totals"]["drops"] == {"no token": 1}


def test_eos_is_added_if_asked_for(store, bring) -> None:
    rows = [{"input_ids": A}, {"input_ids": [*B, EOS]}]
    path, trainer = store(rows)
    with pytest.raises(RecordError, match=rf"{path.name}.*:1.*end with eos 0: --add-eos"):
        bring(path, trainer, output="refused")
    assert ids(bring(path, trainer, add_eos=True)) == [[*A, EOS], [*B, EOS]]


def test_a_sample_without_a_trained_token_is_left_out(store, bring) -> None:
    rows = [{"input_ids": A, "labels": LABELS_A}, {"input_ids": B, "labels": [-100] * 3}]
    made = bring(*store(rows))
    assert ids(made) == [A]
    assert made.manifest["totals"]["drops"] == {"no trained token": 1}


BROKEN: dict[str, tuple[Row, str]] = {
    "an id of no token": (
        {"input_ids": [3, 70_000], "labels": [-100, 70_000]}, "id 70000, and the tokenizer has ids",
    ),
    "a negative id": ({"input_ids": [-1, 3], "labels": [-100, 3]}, "id -1, and the tokenizer"),
    "labels that are no ids": (
        {"input_ids": [3, 4], "labels": [-100, 5]}, r"labels\[1\] is 5, and the id of this token",
    ),
    "labels of another length": ({"input_ids": [3, 4], "labels": [3]}, "1 value for 2 ids"),
    "no labels": ({"input_ids": [3, 4], "labels": None}, "labels: expected a list, found nothing"),
    "no ids": ({"input_ids": None, "labels": [3]}, "input_ids: expected a list, found nothing"),
    "null": ({"input_ids": [3, None], "labels": [3, 4]}, "input_ids: holds null"),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_row_is_named_or_skipped(case: str, store, bring) -> None:
    row, message = BROKEN[case]
    good = {"input_ids": A, "labels": LABELS_A}
    path, trainer = store([good, good, row, good])
    with pytest.raises(RecordError, match=rf"{path.name}.*:3.*{message}.*skip"):
        bring(path, trainer, output="refused")
    made = bring(path, trainer, on_error="skip")
    assert ids(made) == [A, A, A]
    assert sum(made.manifest["totals"]["rejects"].values()) == 1


ASKED: dict[str, tuple[list[Row], str, dict[str, Any]]] = {
    "labels that fit both ways": (
        [{"input_ids": [3, 3, 3], "labels": [-100, 3, 3]}], "fit their own tokens and the next",
        {"alignment": "own"},
    ),
    "no trained label": (
        [{"input_ids": A, "labels": [-100] * 4}, {"input_ids": A, "labels": [-100] * 4}],
        "train no token", {},
    ),
    "labels that are no ids": (
        [{"input_ids": A, "labels": [9, 9, 9, 9]}], "neither the ids of their own tokens", {},
    ),
    "rows of both alignments": (
        [{"input_ids": A, "labels": LABELS_A}, {"input_ids": A, "labels": [-100, 5, 6, -100]}],
        "import them apart", {},
    ),
    "two columns of ids": (
        [{"chosen": A, "rejected": B}], "which column holds the ids. chosen, rejected may",
        {"ids": "chosen", "add_eos": True},
    ),
    "two known columns of ids": (
        [{"input_ids": A, "tokens": B}], "which column holds the ids. input_ids, tokens may",
        {"ids": "tokens", "add_eos": True},
    ),
    "a mask of another name": (
        [{"input_ids": A, "train_mask": MASK_A}], "--mask train_mask reads it",
        {"mask": "train_mask"},
    ),
    "starts of NeMo": (
        [{"input_ids": A, "loss_mask": [0, 1, 1, 0], "seq_start_id": [0]}], "--alignment next",
        {"alignment": "next"},
    ),
    "a mask of weights": (
        [{"input_ids": A, "loss_mask": [0.0, 0.5, 1.0, 1.0]}],
        "if these are weights, name the column", {"weights": "loss_mask", "mask": "none"},
    ),
    "labels of classes": (
        [{"input_ids": [*A, EOS], "labels": 3}], "labels: expected lists of integers, found a "
        "single integer.*--labels none", {"labels": "none"},
    ),
    "no ids": ([{"text": "a"}], "no column of lists of integers", {}),
    "texts": ([{"input_ids": ["a"]}], "no column of lists of integers", {}),
    "a column that is not there": (
        [{"input_ids": A}], "no column|does not end with eos", {"add_eos": True},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ASKED)
def test_what_is_not_understood_is_asked_for(case: str, store, bring) -> None:
    rows, message, answer = ASKED[case]
    path, kind = store(rows, "jsonl")
    with pytest.raises(TokmillError, match=message):
        bring(path, kind, output="refused")
    if answer:
        assert len(bring(path, kind, **answer)) == len(rows)


@pytest.mark.parametrize("option", ["ids", "labels", "mask", "weights"])
def test_a_column_that_is_named_must_be_there(option: str, store, bring) -> None:
    path, kind = store([{"input_ids": A, "labels": LABELS_A}])
    with pytest.raises(UsageError, match="gone: no such column: its columns are"):
        bring(path, kind, **{option: "gone"})


BROKEN_PACKS: dict[str, tuple[Row, str]] = {
    "lengths of more tokens": ({"seq_lengths": [3, 2]}, "seq_lengths: does not divide"),
    "a length of 0": ({"seq_lengths": [0, 4]}, "seq_lengths: does not divide"),
    "a bound inside": ({"cu_seqlens": [0, 2, 3]}, "cu_seqlens: does not divide"),
    "bounds that fall": ({"cu_seqlens": [0, 3, 2, 4]}, "cu_seqlens: does not divide"),
    "starts that do not begin": ({"seq_start_id": [1, 2]}, "seq_start_id: does not divide"),
    "a start behind the end": ({"seq_start_id": [0, 4]}, "seq_start_id: does not divide"),
    "positions that jump": ({"position_ids": [0, 1, 3, 4]}, r"position_ids\[2\]: expected 2"),
    "columns that differ": (
        {"position_ids": [0, 1, 0, 1], "seq_lengths": [1, 3]}, "do not agree at token 1",
    ),
    "padding inside": ({"attention_mask": [1, 0, 1, 1]}, r"attention_mask\[1\] is 0, between 1"),
    "a mask of 2": ({"loss_mask": [0, 1, 2, 1]}, r"loss_mask\[2\]: expected 0 or 1, found 2"),
    "a weight below 0": ({"weights": [0.0, 1.0, -1.0, 1.0]}, r"weights\[2\]: expected 0 or more"),
    "a weight that is no number": (
        {"weights": [0.0, 1.0, float("nan"), 1.0]}, r"weights\[2\]: expected 0 or more, found nan",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN_PACKS)
def test_a_row_that_contradicts_itself_is_refused(case: str, store, bring) -> None:
    columns, message = BROKEN_PACKS[case]
    row = {"input_ids": A, "labels": LABELS_A, **columns}
    path, kind = store([row], "parquet")
    with pytest.raises(RecordError, match=rf"in.parquet:1: .*{message}"):
        bring(path, kind)


def test_the_alignment_is_found_or_asked_for_in_every_table(store) -> None:
    numbers = np.random.default_rng(3)
    asked = []
    for number in range(100):
        alignment = ("own", "next")[number % 2]
        n_ids = int(numbers.choice([2, 3, 290]))  # of few ids, neighbours are often equal
        rows = []
        for _ in range(int(numbers.integers(1, 6))):
            tokens = numbers.integers(0, n_ids, int(numbers.integers(2, 20)))
            of_tokens = np.where(numbers.random(len(tokens)) < numbers.random(), tokens, -100)
            if alignment == "next":
                of_tokens = np.append(of_tokens[1:], -100)
            rows.append({"input_ids": tokens.tolist(), "labels": of_tokens.tolist()})
        path, kind = store(rows, name=str(number))
        try:
            found = find_rows([path], [], kind, GivenColumns(), InputSettings())
        except UsageError as error:
            asked.append(str(error))
        else:
            assert found.rules.alignment == alignment
    assert 0 < len(asked) < 30
    assert all("name it with --alignment own" in message for message in asked)


FORMS = (
    "labels", "labels of the next", "loss_mask", "completion_mask", "assistant_masks", "weights",
    "prompts and completions", "position_ids", "seq_lengths", "a list column",
)  # fmt: skip


def random_samples(numbers: np.random.Generator, n_ids: int) -> list[tuple[list[int], list[int]]]:
    """Return ids and masks; nothing predicts a first token, and each sample has a target."""
    samples = []
    for _ in range(int(numbers.integers(1, 6))):
        tokens = numbers.integers(3, 3 + n_ids, int(numbers.integers(2, 12))).tolist()
        mask = [0, *(int(flag) for flag in numbers.random(len(tokens) - 1) < 0.6)]
        mask[-1] = 1
        samples.append((tokens, mask))
    return samples


def rows_in_form(form: str, samples: Sequence[tuple[list[int], list[int]]]) -> list[Row]:
    """Return the rows that say the samples in a form; the last forms have all in one row."""
    if form in ("position_ids", "seq_lengths"):
        lengths = [len(tokens) for tokens, _ in samples]
        ends = [at for n in lengths for at in range(n)] if form == "position_ids" else lengths
        return [
            {
                "input_ids": [token for tokens, _ in samples for token in tokens],
                "labels": [one for sample in samples for one in labels(*sample)],
                form: ends,
            }
        ]
    rows: list[Row] = []
    for tokens, mask in samples:
        if form == "labels":
            rows.append({"input_ids": tokens, "labels": labels(tokens, mask)})
        elif form == "labels of the next":
            rows.append({"input_ids": tokens, "labels": [*labels(tokens, mask)[1:], -100]})
        elif form == "weights":
            rows.append({"tokens": tokens, "weights": [flag / 2 for flag in mask]})
        elif form == "prompts and completions":
            rows.append({"prompt_ids": tokens[:-1], "completion_ids": tokens[-1:]})
        elif form == "a list column":
            rows.append({"packed": [*tokens, EOS], "text": "seen"})
        else:
            rows.append({"input_ids": tokens, form: mask})
    return rows


def test_100_random_tables_come_back_or_are_asked_about(store) -> None:
    numbers = np.random.default_rng(11)
    asked: list[str] = []
    for number in range(100):
        form = FORMS[number % len(FORMS)]
        samples = random_samples(numbers, int(numbers.choice([1, 2, 280])))
        if form == "prompts and completions":
            samples = [(ids, [0] * (len(ids) - 1) + [1]) for ids, _ in samples]
        rows = rows_in_form(form, samples)
        path, kind = store(rows, name=f"table{number}")
        try:
            rules = find_rows([path], [], kind, GivenColumns(), InputSettings()).rules
        except UsageError as error:
            asked.append(str(error))
            continue
        batch = pa.RecordBatch.from_pylist(rows, rules.schema())
        found = samples_of(batch, rules)
        assert not found.refused
        expected = [[*ids, EOS] if form == "a list column" else ids for ids, _ in samples]
        assert found.ids.tolist() == [token for ids in expected for token in ids]
        assert found.lengths.tolist() == [len(ids) for ids in expected]
        if form == "a list column":
            assert found.weights is None
        else:
            mask = [flag for _, flags in samples for flag in flags]
            assert (found.weights > 0).astype(int).tolist() == mask
    assert 0 < len(asked) < 20
    assert all("name it with --alignment own" in message for message in asked)


def rows_of(dataset: Dataset, split: str) -> list[tuple[Any, ...]]:
    """Return ids, mask and weights of the samples of a split, in order."""
    part = dataset.split(split)
    return [
        (
            part[i].tolist(),
            part.mask(i).tolist() if dataset.manifest["kind"] == "sft" else None,
            part.weight(i).tolist() if part.has_weights else None,
        )
        for i in range(len(part))
    ]


@pytest.mark.parametrize(
    ("trainer", "options"),
    [
        ("datasets", ExportOptions()),
        ("trl", ExportOptions()),
        ("axolotl", ExportOptions()),
        ("llamafactory", ExportOptions()),
        ("llamafactory", ExportOptions(unpacked=True)),
        ("ms-swift", ExportOptions()),
        ("ms-swift", ExportOptions(unpacked=True)),
    ],
)
def test_chats_come_back_from_an_export(trainer, options, chats, bring, tmp_path) -> None:
    export(chats.directory, trainer, tmp_path / "e", options)
    made = bring(tmp_path / "e", "datasets", like=chats)
    assert made.splits == chats.splits
    for split in chats.splits:
        assert sorted(rows_of(made, split)) == sorted(rows_of(chats, split))


@pytest.mark.parametrize("trainer", ["datasets", "ms-swift"])
def test_weights_come_back_from_an_export(trainer, weighed, bring, tmp_path) -> None:
    export(weighed.directory, trainer, tmp_path / "e", ExportOptions())
    made = bring(tmp_path / "e", "datasets", like=weighed)
    assert rows_of(made, "train") == rows_of(weighed, "train")


def test_documents_come_back_from_an_export(pretrained, bring, tmp_path) -> None:
    export(pretrained.directory, "datasets", tmp_path / "e", ExportOptions())
    made = bring(tmp_path / "e", "datasets", like=pretrained)
    for split in pretrained.splits:
        assert rows_of(made, split) == rows_of(pretrained, split)


@pytest.mark.parametrize("kind", KINDS)
def test_weights_come_back_from_rows(kind: str, store, weighed, bring) -> None:
    rows = [
        {
            "input_ids": weighed[i].tolist(),
            "labels": labels(weighed[i].tolist(), weighed.mask(i).tolist()),
            "weights": weighed.weight(i).tolist(),
        }
        for i in range(len(weighed))
    ]
    made = bring(*store(rows, kind), like=weighed)
    assert rows_of(made, "train") == rows_of(weighed, "train")


@pytest.fixture
def weighed(tokenizer_dir, write_rows, tmp_path) -> Dataset:
    """Chats with weights of several values."""
    chats = [
        {
            "messages": [
                {"role": "user", "content": "hi" * number},
                {"role": "assistant", "content": "yes, it is", "weight": number / 7},
            ]
        }
        for number in range(1, 9)
    ]
    return tokmill.sft(
        write_rows(tmp_path / "chats.jsonl", chats), tokenizer=tokenizer_dir,
        output=tmp_path / "weighed", template="plain", weights="file", progress=False,
    )  # fmt: skip


@pytest.fixture
def many(tmp_path, monkeypatch) -> list[Path]:
    """Rows in several files of several parts each: JSON Lines, and packed ones."""
    monkeypatch.setattr(plan, "SFT_PART_BYTES", 2000)
    numbers = np.random.default_rng(5)
    paths = []
    for name in ("a.jsonl", "b.jsonl.gz", "c.jsonl"):
        lines = []
        for _ in range(60):
            tokens = numbers.integers(3, 290, int(numbers.integers(2, 30))).tolist()
            mask = [0] + [int(flag) for flag in numbers.random(len(tokens) - 1) < 0.7]
            lines.append(json.dumps({"input_ids": tokens, "labels": labels(tokens, mask)}) + "\n")
        data = "".join(lines).encode()
        paths.append(tmp_path / name)
        paths[-1].write_bytes(gzip.compress(data, mtime=0) if name.endswith(".gz") else data)
    return paths


def test_workers_and_stops_change_no_byte(many, bring, tmp_path, monkeypatch) -> None:
    whole = files_of(bring(many[:2], "jsonl", val=many[2], output="whole").directory)
    made = bring(many[:2], "jsonl", val=many[2], output="workers", workers=2)
    assert made.manifest["run"]["workers"] == 2
    assert files_of(made.directory) == whole
    monkeypatch.setattr(progress_module, "CALL_EVERY_S", 0.0)

    def stop(progress: Any) -> None:
        if len(list(tmp_path.glob("out/parts/*.json"))) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match=r"2 of .* parts are kept"):
        bring(many[:2], "jsonl", val=many[2], progress=stop)
    made = bring(many[:2], "jsonl", val=many[2])
    assert made.manifest["run"]["resumed_parts"] == 2
    assert files_of(made.directory) == whole


def test_an_import_does_not_continue_with_other_columns(many, bring) -> None:
    bring(many[:1], "jsonl")
    with pytest.raises(StateError, match="--alignment was 'own', is 'next'"):
        bring(many[:1], "jsonl", alignment="next")


def test_splits_of_a_dataset_are_taken_or_asked_for(tmp_path, bring) -> None:
    row = {"input_ids": A, "labels": LABELS_A}
    for folder, splits in (("known", ["train", "validation"]), ("unknown", ["train", "test"])):
        for split in splits:
            save_to_disk(tmp_path / folder / split, [row])
        listing = tmp_path / folder / "dataset_dict.json"
        listing.write_text(json.dumps({"splits": splits}))
    made = bring(tmp_path / "known", "datasets")
    assert made.splits == ("train", "val")
    with pytest.raises(UsageError, match="has the splits train, test, and test may be of train"):
        bring(tmp_path / "unknown", "datasets", output="refused")


def test_an_empty_split_of_a_dataset_is_left_out(tmp_path, bring) -> None:
    for split in ("train", "validation"):
        save_to_disk(tmp_path / "in" / split, [{"input_ids": A, "labels": LABELS_A}])
    (tmp_path / "in" / "validation" / "state.json").write_text('{"_data_files": []}')
    listing = tmp_path / "in" / "dataset_dict.json"
    listing.write_text(json.dumps({"splits": ["train", "validation"]}))
    made = bring(tmp_path / "in", "datasets")
    assert made.splits == ("train",)
    assert ids(made) == [A]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('{"input_ids": [3, 1180591620717411303424], "labels": [-100, 4]}', "row 1: "),
        ('{"input_ids": [3, 4], "labels": [4]}', "row 1: labels: 1 value for 2 ids"),
        ('{"input_ids": [3, 4], "input_ids": [3, 5], "labels": [-100, 4]}', "row 1: "),
    ],
)
def test_first_rows_that_cannot_be_read_say_why(line: str, told: str, tmp_path, bring) -> None:
    (tmp_path / "in.jsonl").write_text(f"{line}\n" * 3)
    with pytest.raises(UsageError, match=f"none of the first rows can be read: {told}"):
        bring(tmp_path / "in.jsonl", "jsonl")


def test_a_folder_with_files_of_several_splits_is_asked_about(store, tmp_path, bring) -> None:
    for name in ("train", "validation", "rows"):
        store([{"input_ids": A, "labels": LABELS_A}], "parquet", name=name)
    with pytest.raises(UsageError, match=r"validation\.parquet: may be of another split"):
        bring(tmp_path, "parquet")
    (tmp_path / "test").mkdir()
    (tmp_path / "validation.parquet").rename(tmp_path / "test" / "more.parquet")
    with pytest.raises(UsageError, match=r"test/more\.parquet: may be of another split"):
        bring(tmp_path, "parquet")


def test_files_of_another_kind_are_named(store, bring) -> None:
    path, _ = store([{"input_ids": A, "labels": LABELS_A}], "parquet")
    with pytest.raises(UsageError, match="expected JSON Lines, found parquet: --from datasets"):
        bring(path, "jsonl")


def test_files_with_other_columns_are_imported_apart(store, bring) -> None:
    first, kind = store([{"input_ids": A, "labels": LABELS_A}], "jsonl", name="a")
    second, _ = store([{"input_ids": A, "loss_mask": MASK_A}], "jsonl", name="b")
    with pytest.raises(UsageError, match=r"b\.jsonl: reads as input_ids, loss_mask"):
        bring([first, second], kind)


def test_a_cut_file_is_an_error(many, bring) -> None:
    many[1].write_bytes(many[1].read_bytes()[:-200])
    with pytest.raises(RecordError, match=r"b\.jsonl\.gz"):
        bring(many[:2], "jsonl")


@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32", "uint32", "int64"])
def test_ids_of_any_width_are_read(dtype: str, tmp_path, bring) -> None:
    kinds = [pa.list_, pa.large_list, lambda kind: pa.list_(kind, 4)]
    for number, kind in enumerate(kinds):
        of_ids = pa.array([A, A], kind(pa.type_for_alias(dtype)))
        mask = pa.array([MASK_A, MASK_A], kind(pa.int8()))
        pq.write_table(
            pa.table({"input_ids": of_ids, "mask": mask}), tmp_path / f"{number}.parquet"
        )
    made = bring(sorted(tmp_path.glob("*.parquet")), "parquet")
    assert ids(made) == [A] * 6
    assert trained(made) == [MASK_A] * 6


@pytest.mark.parametrize(
    "options", [{"dtype": "uint32"}, {"add_eos": True}, {"alignment": "before"}]
)
def test_options_that_make_no_sense_are_refused(options, store, bring) -> None:
    path, kind = store([{"input_ids": A, "labels": LABELS_A}])
    with pytest.raises(UsageError, match=r"leave it out|expected own or next"):
        bring(path, kind, **options)


def test_the_notes_say_how_rows_are_read(store, tokenizer_dir, tmp_path) -> None:
    row = {"input_ids": [*A, 0], "labels": [*LABELS_A, -100], "attention_mask": [1, 1, 1, 1, 0]}
    path, kind = store([{**row, "text": "x"}], "jsonl")
    arguments = ["import", path, "--from", kind, "-t", tokenizer_dir, "-o", tmp_path / "out"]
    result = CliRunner().invoke(cli, list(map(str, arguments)))
    assert result.exit_code == 0, result.output
    for told in (
        "ids in input_ids; trained where labels are not -100; each at its own token (as in 1 of "
        "the 1 first row); padding where attention_mask is 0",
        "not read: text",
        "1 token of padding left out",
    ):
        assert told in result.output


@pytest.mark.parametrize("run", [tokmill.pretrain, tokmill.sft])
def test_a_run_of_text_says_what_reads_rows_of_ids(run, store, tokenizer_dir, tmp_path) -> None:
    path, _ = store([{"input_ids": A, "labels": LABELS_A}], "parquet")
    with pytest.raises(
        UsageError, match=r"rows of ids \(input_ids\), not text: tokmill import --fr"
    ):
        run(path, tokenizer=tokenizer_dir, output=tmp_path / "out", progress=False)


def test_standard_input_is_refused(bring) -> None:
    with pytest.raises(UsageError, match="standard input cannot be imported"):
        bring("-", "jsonl")


@pytest.mark.parametrize("how", ["dicts", "generator", "table"])
def test_rows_in_memory_are_imported(how: str, bring, tmp_path) -> None:
    rows = ONE_BY_ONE["labels"]
    given = {"dicts": rows, "generator": iter(rows), "table": pa.Table.from_pylist(rows)}[how]
    made = bring(given, "datasets")
    assert ids(made) == [A, B, C]
    assert trained(made) == [MASK_A, MASK_B, MASK_C]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_rows_in_memory_are_no_files_of_tokens(bring) -> None:
    with pytest.raises(UsageError, match="rows in memory hold ids: trainer is datasets"):
        bring(ONE_BY_ONE["labels"], "megatron")


@pytest.mark.parametrize("kind", KINDS)
def test_labels_that_begin_late_are_not_lost(kind: str, store, bring) -> None:
    rows: list[Row] = [{"input_ids": [*A, EOS], "labels": None}] * 40
    rows.append({"input_ids": A, "labels": LABELS_A})
    if kind == "jsonl":
        rows = [{name: value for name, value in row.items() if value} for row in rows]
    path, kind = store(rows, kind)
    with pytest.raises(RecordError, match=r":41.*labels: the first rows have no such column"):
        bring(path, kind)
    assert len(bring(path, kind, output="named", labels="none", add_eos=True)) == 41


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ('[{"input_ids": [3, 4]}]', "expected"),
        ('{"input_ids": [3, 4.0]}\n', r"its columns are input_ids \(numbers\)"),
        ("3 4 5\n6 7 8\n", "expected"),
    ],
)
def test_a_file_that_holds_no_rows_says_what_it_holds(content, told, tmp_path, bring) -> None:
    (tmp_path / "in.jsonl").write_text(content)
    with pytest.raises(UsageError, match=told):
        bring(tmp_path / "in.jsonl", "jsonl")


def test_damage_in_an_export_is_found(pretrained, bring, tmp_path) -> None:
    export(pretrained.directory, "datasets", tmp_path / "e", ExportOptions())
    (path,) = (tmp_path / "e" / "val").glob("*.arrow")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.chmod(0o644)
    path.write_bytes(data)
    with pytest.raises(VerifyError, match=path.name):
        bring(tmp_path / "e", "datasets", like=pretrained)


def test_chats_are_packed_as_they_are_imported(store, bring) -> None:
    rows = [*ONE_BY_ONE["labels"], {"input_ids": A * 3, "labels": LABELS_A * 3}]
    made = bring(*store(rows), packing=7)
    assert ids(made) == [A, B, C]
    assert made.manifest["totals"]["drops"] == {"more than max_tokens": 1}
    assert made.manifest["packs"]["train"]["capacity"] == 7
    with pytest.raises(UsageError, match="run tokmill pack after the import"):
        bring(*store([{"tokens": [*A, EOS]}], name="documents"), packing=7, output="refused")


def test_options_of_the_command_reach_the_run(store, tokenizer_dir, tmp_path) -> None:
    broken = {"input_ids": [3, 4], "labels": [3]}
    path, kind = store([*ONE_BY_ONE["labels"], broken], "jsonl")
    arguments = [
        "import", path, "--from", kind, "-t", tokenizer_dir, "-o", tmp_path / "out", "--packing",
        "1k", "--on-error", "skip", "--max-reject-fraction", "0.5", "--alignment", "own",
    ]  # fmt: skip
    result = CliRunner().invoke(cli, list(map(str, arguments)))
    assert result.exit_code == 0, result.output
    assert "1 row rejected: lengths differ" in result.output
    made = tokmill.open(tmp_path / "out")
    assert made.manifest["packs"]["train"]["capacity"] == 1024
    assert made.manifest["config"]["limits"]["max_reject_fraction"] == 0.5
