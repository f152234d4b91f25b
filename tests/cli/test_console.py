from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tokmill.cli.console import RunDisplay
from tokmill.executors.run import run
from tokmill.measure.process_tree import PeakMemory
from tokmill.recipes.spec import Progress


def progress_lines(
    capsys: pytest.CaptureFixture[str], seconds: list[float], *, notes: bool = True
) -> list[str]:
    """The lines that say how far a run is which reports at these times; stderr is no terminal."""
    times = iter([0.0, *seconds])
    display = RunDisplay(
        PeakMemory(), notes=notes, warnings=notes, clock=lambda: next(times), line_every_s=30.0
    )
    for _ in seconds:
        display.progressed(Progress(input_bytes=3_000_000, text_bytes=3_000_000, tokens=1_000_000))
    display.close()
    return capsys.readouterr().err.splitlines()


def test_without_a_terminal_a_line_every_30_seconds_says_how_far_the_run_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert progress_lines(capsys, [0.1, 29.9, 30.0, 45.0, 60.0, 89.9]) == [
        "progress: 9 MB  0.3 MB/s  0 rejects  0 drops  3,000,000 tokens  0.10 Mtok/s",
        "progress: 15 MB  0.2 MB/s  0 rejects  0 drops  5,000,000 tokens  0.08 Mtok/s",
    ]


def test_a_run_of_less_than_30_seconds_prints_no_line_of_progress(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert progress_lines(capsys, [0.1, 10.0, 29.9]) == []


def test_a_quiet_run_prints_no_line_of_progress(capsys: pytest.CaptureFixture[str]) -> None:
    assert progress_lines(capsys, [30.0, 60.0], notes=False) == []


def test_a_run_says_its_percentage_and_the_time_left_in_a_log(
    capsys: pytest.CaptureFixture[str], configure: Callable[..., Any], tmp_path: Path
) -> None:
    corpus = tmp_path / "a.jsonl"
    corpus.write_text('{"text": "hello world"}\n' * 40)
    display = RunDisplay(PeakMemory(), notes=True, warnings=True, line_every_s=0.0)
    run(configure(tmp_path / "out", corpus), display)
    last = [line for line in capsys.readouterr().err.splitlines() if line.startswith("progress")][
        -1
    ]
    assert last.startswith("progress: 100%  ")
    assert "MB/s  eta 0:00  0 rejects" in last
