from __future__ import annotations

import io
import os
import pty
import re
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from tokmill.api import progress
from tokmill.api.progress import NotebookBar, Progress, RunObserver, TerminalBar, make_bar
from tokmill.dataset.counts import Increments
from tokmill.run.finish import run


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


def test_an_input_of_unknown_size_has_neither_percentage_nor_time_left():
    done = Progress().plus(Increments(input_bytes=50, text_bytes=50, tokens=1), 0.0)
    assert done.line(40) == "50000.0 MB/s  0 rejects  1 token  50 B"


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


# Bars


FULL = Progress(
    total_bytes=2 * 10**12,
    input_bytes=10**12,
    text_bytes=10**12,
    tokens=10**11,
    drops=10**7,
    rejects=1_234_567,
    elapsed_s=10_000.0,
)


@contextmanager
def terminal(monkeypatch: pytest.MonkeyPatch, *, columns: int = 80) -> Iterator[list[str]]:
    """Make stderr a terminal; the lines that were drawn on it, without codes, are there at exit."""
    lines: list[str] = []
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as stderr, monkeypatch.context() as patch:
        patch.setattr("sys.stderr", stderr)
        patch.setenv("TERM", "xterm")
        patch.setenv("COLUMNS", str(columns))
        yield lines
        stderr.write("end")
        stderr.flush()
        text = b""
        while not text.endswith(b"end"):
            text += os.read(ours, 1 << 16)
    os.close(ours)
    lines += re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text.decode()))


@pytest.mark.parametrize(("columns", "bar"), [(60, 0), (79, 0), (80, 10), (120, 20), (200, 20)])
def test_percentage_speed_time_left_and_rejects_stand_uncut_on_a_terminal_of_any_width(
    monkeypatch, columns, bar
):
    with terminal(monkeypatch, columns=columns) as lines:
        shown = TerminalBar()
        shown.start(FULL.total_bytes)
        shown.update(FULL)
        shown.stop()
    figures = [line for line in lines if "MB/s" in line]
    assert figures
    for line in figures:
        assert len(line) <= columns
        assert len(re.findall("[━╸╺]", line)) == bar
        assert re.search(r" 50%  100.0 MB/s  eta 2:46:40  1,234,567 rejects", line)


@pytest.mark.parametrize("kind", ["dumb", "unknown", ""])
def test_nothing_is_drawn_on_a_terminal_that_cannot_move_its_cursor(monkeypatch, kind):
    with terminal(monkeypatch):
        assert isinstance(make_bar(), TerminalBar)
        monkeypatch.setenv("TERM", kind)
        assert make_bar() is None


def test_in_a_notebook_the_figures_stand_below_the_cell_and_change_a_few_times_a_second(
    monkeypatch,
):
    shown: list[str] = []

    class Handle:
        def update(self, data: dict[str, str], raw: bool) -> None:
            shown.append(data["text/plain"])

    def display(data: dict[str, str], raw: bool, display_id: bool) -> Handle:
        shown.append(data["text/plain"])
        return Handle()

    monkeypatch.setattr("sys.stderr.isatty", lambda: False)
    shell = types.SimpleNamespace(kernel=True)
    package = types.SimpleNamespace(get_ipython=lambda: shell)
    monkeypatch.setitem(sys.modules, "IPython", package)
    monkeypatch.setitem(sys.modules, "IPython.display", types.SimpleNamespace(display=display))
    bar = make_bar()
    assert isinstance(bar, NotebookBar)
    times = iter(range(50))
    clock = SimpleNamespace(monotonic=lambda: 9 + next(times) / 50)  # a second in all
    monkeypatch.setattr(progress, "time", clock)
    bar.start(100)
    for i in range(50):
        bar.update(Progress(total_bytes=100, input_bytes=i))
    bar.stop()
    assert shown[0] == ""
    assert shown[1].startswith("  0%  0.0 MB/s")
    assert shown[-1].startswith(" 49%  0.0 MB/s")
    assert len(shown) < 10


class _NoStream:
    """Stands for standard error in a program that replaced it."""


def _closed() -> io.StringIO:
    stream = io.StringIO()
    stream.close()
    return stream


@pytest.mark.parametrize("stream", [None, _NoStream(), _closed()])
def test_a_program_without_standard_error_has_no_bar(monkeypatch, stream):
    monkeypatch.setattr("sys.stderr", stream)
    assert make_bar() is None


def test_all_of_the_input_is_100_percent_and_less_is_not():
    assert Progress(total_bytes=1000, input_bytes=999).percentage == 99
    assert Progress(total_bytes=1000, input_bytes=1000).percentage == 100
    assert Progress(total_bytes=1000, input_bytes=1001).percentage == 100
