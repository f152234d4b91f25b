"""The bill of host RAM against what was measured (measured.json), by the formulas of today.

Processes that load a dataset with torch's DataLoader, as `bench.host_loading` measures them:
strategies, 0 to 8 workers, fork and spawn, with masks and without, 30 MB to 1 GB of ids. So many
tokens were read as `most_tokens_read` says, spread over the dataset; of lists, all.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokmill.bill.dataset_size import DatasetSize
from tokmill.bill.formula import Bill
from tokmill.bill.host_ram.host import host_bill
from tokmill.bill.host_ram.machine import MIB, Machine
from tokmill.settings.training import LOADING, TrainingSettings

ROWS: list[dict[str, Any]] = json.loads(Path(__file__).with_name("measured.json").read_bytes())[
    "rows"
]


def predicted(row: dict[str, Any]) -> Bill:
    training = TrainingSettings(
        loading=row["loading"], loader_workers=row["workers"],
        start_method=row["start_method"] or "fork", micro_batch=row["micro_batch"],
        sequence=row["sequence"],
    )  # fmt: skip
    size = DatasetSize(
        "sft", row["tokens"], 1, 2, mask=row["masked"], shards=row["shards"],
        largest_shard_tokens=row["tokens"] // row["shards"], small_ids=row["small_ids"],
    )  # fmt: skip
    return host_bill(None, training, size, Machine(interpreter_bytes=row["interpreter"])).peak


def test_every_strategy_was_measured_without_workers_forked_and_spawned() -> None:
    kinds = {(row["loading"], row["start_method"]) for row in ROWS}
    assert kinds == {(loading, how) for loading in LOADING for how in ("", "fork", "spawn")}


def test_all_measured_cases_hold_within_five_percent_and_32_mib() -> None:
    for row in ROWS:
        bill, peak = predicted(row), row["anonymous"] + row["shared"]
        allowed = 0.05 * peak + 32 * MIB
        assert abs(bill.n_bytes - peak) <= allowed, row
        assert bill.low_bytes - allowed <= peak <= bill.high_bytes + allowed, row
