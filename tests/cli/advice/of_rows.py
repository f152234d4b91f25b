"""Rows of ids: which columns they are, and what stands where."""

from __future__ import annotations

from typing import Any

from tests.cli.advice.case import Case, Step, lines, pretrain


def _rows(name: str, row: Any, *steps: Step | str, before: tuple[str, ...] = ()) -> Case:
    made = tuple(step if isinstance(step, Step) else Step(step) for step in steps)
    command = "tokmill import a.jsonl --from jsonl -t TOK -o out"
    return Case(name, {"a.jsonl": lines(row, n=5)}, command, made, before)


ROWS = (
    _rows(
        "labels that fit both alignments",
        {"input_ids": [7, 7, 7, 7], "labels": [-100, 7, 7, 7]},
        "--alignment own",
    ),
    _rows(
        "labels that are other ids",
        {"input_ids": [5, 6, 0], "labels": [-100, 9, 9]},
        Step("--labels", "--labels none"),
    ),
    _rows(
        "masks of packs that may be shifted",
        {"input_ids": [5, 6, 0], "loss_mask": [1, 1, 0], "seq_start_id": [0]},
        "--alignment next",
    ),
    _rows(
        "two columns of integers", {"first": [5, 0], "second": [6, 0]}, Step("--ids", "--ids first")
    ),
    _rows(
        "a mask of another name",
        {"input_ids": [5, 6, 0], "my_mask": [0, 1, 1]},
        "--mask my_mask",
        "--mask none",
    ),
    _rows(
        "a mask of strings",
        {"input_ids": [5, 0], "loss_mask": ["yes", "no"]},
        "--mask none",
    ),
    _rows(
        "a mask of weights",
        {"input_ids": [5, 6, 0], "loss_mask": [0, 2, 2]},
        Step("name the column with --weights", "--weights loss_mask --mask none"),
    ),
    _rows(
        "two columns of weights",
        {"input_ids": [5, 6, 0], "weights": [0.0, 0.5, 1.0], "loss_weights": [0.0, 1.0, 1.0]},
        Step("--weights", "--weights weights"),
    ),
    pretrain(
        "ids for a run of text",
        {"a.jsonl": lines({"input_ids": [5, 6, 0]}, n=5)},
        Step(
            "tokmill import --from jsonl", "tokmill import a.jsonl --from jsonl -t TOK -o imported"
        ),
    ),
)
