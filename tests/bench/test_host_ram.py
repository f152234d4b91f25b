from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.host_ram import cases, main, options_of

DATA = Path(__file__).parents[2] / "bench" / "host_ram.json"


def test_the_matrix_has_every_strategy_with_and_without_workers_and_masks():
    found = list(cases(options_of(["dir"])))
    assert len(found) == 7 * (1 + 2 * 2) * 2
    assert len(set(found)) == len(found)


@pytest.fixture(scope="module")
def rows() -> list[dict[str, object]]:
    return json.loads(DATA.read_text())["rows"]


def test_every_case_of_the_matrix_was_measured_and_holds(rows):
    found = {(row["loading"], row["workers"], row["start_method"], row["masked"]) for row in rows}
    expected = {
        (one.loading, one.loader_workers, one.start_method if one.loader_workers else "", masked)
        for one, masked in cases(options_of(["dir"]))
    }
    assert found == expected
    assert [row for row in rows if not row.get("holds")] == []


def test_a_made_dataset_is_measured_and_kept_as_data(tmp_path, capsys):
    directory, kept = tmp_path / "data", tmp_path / "kept.json"
    assert main([str(directory), "--make", "40000"]) == 0
    arguments = [str(directory), "--plain", "--loading", "read", "--workers", "0"]
    arguments += ["--sequence", "64", "--micro-batch", "4", "--json", str(kept)]
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    assert shown.count("| holds |") == 2
    plain, masked = json.loads(kept.read_text())["rows"]
    assert (plain["dataset_bytes"], masked["dataset_bytes"]) == (80_000, 120_000)
