"""The tables of a bill are described once: the terminal and the page show the same rows."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

import pytest

import tokmill
from tests.bill.text.printed import printed
from tokmill.bill.full_bill import FullBill
from tokmill.bill.overhead import NCCL
from tokmill.bill.text import PARTS
from tokmill.bill.text.breakdown import bill_tables
from tokmill.bill.text.rows import (
    GROUPS,
    VERDICTS,
    Amounts,
    by_group,
    host_tables,
    inference_table,
    of_bill,
    tables_of,
)
from tokmill.page.bill_section import bill_section

HOW: dict[str, dict[str, Any]] = {
    "training": {"model": "llama-3-8b", "gpu": "H100", "gpus": 8, "sharding": "zero-3"},
    "stages": {
        "model": "llama-3-8b", "gpu": "H100", "gpus": 4, "framework": "megatron",
        "pipeline_parallel": 4, "accumulation": 4,
    },
    "inference": {"model": "qwen3-8b", "gpu": "4090", "context": "8k", "users": None},
    "dataset": {"dataset_bytes": "1GB"},
}  # fmt: skip


def bill(kind: str) -> FullBill:
    settings = {name: value for name, value in HOW[kind].items() if value is not None}
    return tokmill.bill.of(**settings)


@pytest.mark.parametrize("kind", list(HOW))
def test_the_terminal_shows_each_row_of_each_table(kind: str) -> None:
    full = bill(kind)
    shown = " ".join(printed(bill_tables(full, PARTS), width=200).split())
    for each in tables_of(full):
        assert each.title in shown
        for name, *_ in each.rows:
            assert " ".join(name.split()) in shown


@pytest.mark.parametrize("kind", list(HOW))
def test_the_page_shows_the_same_rows(kind: str) -> None:
    full = bill(kind)
    page = html.unescape(bill_section(Path("data"), full).html)
    tables: list[Amounts] = []
    if full.disk is not None:
        tables.append(of_bill("disk", full.disk.bill))
    if full.of_model is not None:
        tables.append(list(host_tables(full.host))[1])
        if not full.settings.trains:
            tables.append(inference_table(full.of_model))
    assert tables
    for each in tables:
        assert [name for name, _ in each.rows if name not in page] == []


def test_every_amount_of_a_gpu_has_a_group_and_all_groups_are_the_whole() -> None:
    full = bill("training")
    assert full.of_model is not None
    for moment in full.of_model.training.moments:
        amounts = dict(zip(GROUPS, by_group(moment), strict=True))
        assert sum(amounts.values()) == moment.n_bytes
        nccl = sum(line.n_bytes for line in moment.lines if line.name == NCCL.name)
        assert 0 < nccl < amounts["CUDA and fragmentation"]


def test_each_verdict_has_words_for_every_face() -> None:
    for said in VERDICTS.values():
        assert all(said)
