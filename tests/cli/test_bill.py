"""`tokmill report --measure`: every loading strategy in a child process."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tokmill.cli.report import measured_table
from tokmill.cli.screen import print_tables
from tokmill.settings.training import LOADING, TrainingSettings

MIB = 1 << 20


@pytest.fixture(autouse=True)
def without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """No child imports torch, as if it were not installed; tests/bill/measuring/ has it."""
    monkeypatch.setitem(sys.modules, "torch", None)


@pytest.fixture
def made(pretrain: Callable[..., Any], tmp_path: Path) -> Path:
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps({"text": f"hello {i}"}) + "\n" for i in range(400)))
    assert pretrain(path).code == 0
    return tmp_path / "out"


@pytest.mark.skipif(sys.platform != "linux", reason="only RSS can be read here")
def test_every_strategy_is_measured_beside_its_prediction(tokmill, made):
    outcome = tokmill("report", made, "--sequence", "16", "--measure", "--json")
    assert outcome.code == 0, outcome.err
    rows = json.loads(outcome.out)["measured"]
    assert [row["loading"] for row in rows] == list(LOADING)
    for row in rows:
        assert row["measured_bytes"] == pytest.approx(
            row["predicted_bytes"], rel=0.05, abs=32 * MIB
        )
        assert row["page_cache_bytes"] > 0
    assert "measuring: memmap" in outcome.err


def test_rows_say_by_how_much_they_differ_or_why_they_were_not_run(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    import click

    def row(loading: str, predicted: int, measured: int = 0, cache: int = 0) -> Any:
        peak = SimpleNamespace(committed=measured, file=cache, exact=cache > 0)
        return SimpleNamespace(
            training=TrainingSettings(loading=loading),
            predicted=SimpleNamespace(n_bytes=predicted),
            measured=SimpleNamespace(peak=peak) if measured else None,
            skipped="more than is free",
        )

    rows = [
        row("memmap", 100 * MIB, 110 * MIB, 7 * MIB),
        row("lists", 9000 * MIB),
        row("read", 100 * MIB, 200 * MIB),
    ]
    with click.Context(click.Command("x")):
        print_tables([measured_table(rows, TrainingSettings(loader_workers=2))])
    head, mapped, listed, read = capsys.readouterr().out.splitlines()
    assert head.startswith("committed host RAM, one process, 2 workers, fork  predicted")
    assert re.fullmatch(r"  memmap +100\.0 MiB +110\.0 MiB +\+10\.0% +7\.0 MiB", mapped)
    assert re.fullmatch(r"  lists +8\.79 GiB +not run +more than is free", listed)
    assert re.fullmatch(r"  read +100\.0 MiB +200\.0 MiB +\+100\.0% +not known: all .*", read)
