from __future__ import annotations

import json

from bench.host_ram import cases, comparisons, main, options_of
from tokmill.settings.training import TrainingSettings


def test_the_matrix_has_every_strategy_with_and_without_workers_and_masks():
    found = list(cases(options_of(["dir"])))
    assert len(found) == 7 * (1 + 2 * 2) * 2
    assert len(set(found)) == len(found)


def key(one: TrainingSettings, masked: bool) -> tuple[object, ...]:
    return one.loading, one.loader_workers, one.start_method, masked


def test_the_kept_cases_have_the_whole_matrix():
    kept = {key(one.training, one.size.mask) for one in comparisons() if one.measured is not None}
    assert {key(*case) for case in cases(options_of(["dir"]))} - kept == set()


def test_a_made_dataset_is_measured_and_kept_as_data(tmp_path, capsys):
    directory, kept = tmp_path / "data", tmp_path / "kept.json"
    assert main([str(directory), "--make", "40000"]) == 0
    arguments = [str(directory), "--plain", "--loading", "read", "--workers", "0"]
    arguments += ["--sequence", "64", "--micro-batch", "4", "--json", str(kept)]
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    assert shown.count("| holds |") == 2
    plain, masked = json.loads(kept.read_text())["rows"]
    assert (plain["tokens"], plain["shards"]) == (masked["tokens"], 4) == (40_000, 4)
    assert (plain["masked"], masked["masked"]) == (False, True)
