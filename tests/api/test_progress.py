from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from tokmill.api import progress
from tokmill.api.progress import Progress, RunObserver, clock
from tokmill.executors.run import run
from tokmill.recipes.spec import Increments


def half_done() -> Progress:
    resumed = Increments(input_bytes=500_000_000, text_bytes=1, tokens=5, resumed=True)
    own = Increments(
        input_bytes=500_000_000,
        text_bytes=400_000_000,
        tokens=90_000_000,
        drops={"too short": 1},
        rejects={"malformed JSON": 1, "no text": 11},
    )
    return Progress(total_bytes=2_000_000_000).plus(resumed, 1.0).plus(own, 10.0)


def test_a_wide_line_has_every_figure():
    assert half_done().line() == (
        " 50%  40.0 MB/s  eta 0:20  12 rejects  90 million tokens  1 GB  1 drop  9.00 Mtok/s"
    )


@pytest.mark.parametrize(
    ("width", "line"),
    [
        (68, " 50%  40.0 MB/s  eta 0:20  12 rejects  90 million tokens  1 GB"),
        (50, " 50%  40.0 MB/s  eta 0:20  12 rejects"),
        (20, " 50%  40.0 MB/s"),
        (3, " 50"),
    ],
)
def test_what_does_not_fit_is_left_out_whole_the_least_important_first(width, line):
    assert half_done().line(width) == line


def test_what_an_earlier_attempt_did_makes_this_one_no_faster():
    resumed = Increments(input_bytes=50, text_bytes=50, tokens=50, resumed=True)
    assert Progress(total_bytes=100).plus(resumed, 10.0).line() == (
        " 50%  0.0 MB/s  eta -:--  0 rejects  50 tokens  50 B  0 drops  0.00 Mtok/s"
    )


def test_an_input_of_unknown_size_has_neither_percentage_nor_time_left():
    done = Progress().plus(Increments(input_bytes=50, text_bytes=50, tokens=1), 0.0)
    assert done.line(40) == "50000.0 MB/s  0 rejects  1 token  50 B"


def test_all_of_the_input_is_100_percent_and_less_is_not():
    assert Progress(total_bytes=1000, input_bytes=999).percentage == 99
    assert Progress(total_bytes=1000, input_bytes=1000).percentage == 100
    assert Progress(total_bytes=1000, input_bytes=1001).percentage == 100


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00"), (59.2, "1:00"), (3599, "59:59"), (3600, "1:00:00")]
)
def test_a_duration_is_read_as_on_a_clock(seconds, text):
    assert clock(seconds) == text


@pytest.fixture
def progress_lines(monkeypatch) -> Callable[..., list[str]]:
    """Return the lines about a run that reports at some times, where no bar can be drawn."""

    def lines_of(
        seconds: list[float],
        *,
        notes: bool = True,
        call: Callable[[Progress], object] | None = None,
    ) -> list[str]:
        times, lines = iter([0.0, *seconds, 999.0]), []
        monkeypatch.setattr(progress, "time", SimpleNamespace(perf_counter=lambda: next(times)))
        more = Increments(
            input_bytes=3_000_000, text_bytes=3_000_000, tokens=1_000_000, documents=5
        )
        with RunObserver(note=lines.append if notes else None, call=call) as observer:
            for _ in seconds:
                observer.progressed(more)
        return lines

    return lines_of


def test_without_a_terminal_a_line_every_30_seconds_says_how_far_the_run_is(progress_lines):
    assert progress_lines([0.1, 29.9, 30.0, 45.0, 60.0, 89.9]) == [
        "progress: 0.3 MB/s  0 rejects  3,000,000 tokens  9 MB  0 drops  0.10 Mtok/s",
        "progress: 0.2 MB/s  0 rejects  5,000,000 tokens  15 MB  0 drops  0.08 Mtok/s",
    ]


def test_a_quiet_run_prints_no_line_of_progress(progress_lines):
    assert progress_lines([30.0, 60.0], notes=False) == []


def test_a_run_says_its_percentage_and_the_time_left_in_a_log(configure, tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "LINE_EVERY_S", 0.0)
    corpus = tmp_path / "a.jsonl"
    corpus.write_text('{"text": "hello world"}\n' * 40)
    lines: list[str] = []
    run(configure(tmp_path / "out", corpus), RunObserver(note=lines.append))
    last = [line for line in lines if line.startswith("progress")][-1]
    assert last.startswith("progress: 100%  ")
    assert "MB/s  eta 0:00  0 rejects" in last


def test_a_callback_gets_sums_at_most_ten_times_a_second_and_at_the_end(progress_lines):
    heard: list[Progress] = []
    progress_lines([1.0, 1.05, 1.09, 1.2], call=heard.append)
    assert [(one.tokens, one.documents, one.elapsed_s) for one in heard] == [
        (1_000_000, 5, 1.0), (4_000_000, 20, 1.2), (4_000_000, 20, 999.0)
    ]  # fmt: skip
