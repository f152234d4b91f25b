from __future__ import annotations

import io
import os
import pty
import re
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tokmill.api.progress import NotebookBar, Progress, TerminalBar, make_bar

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
