"""The only module that prints; control characters in names, messages and records are escaped.

Results go to standard output. What is said of the work goes to standard error, as text or, with
`--log-format json`, as one JSON object on each line; docs/containers.md lists its keys.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import asdict
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import click

from tokmill.errors import EXIT_INTERRUPTED
from tokmill.interrupts import NOT_BEGUN, Interrupt
from tokmill.words import json_text, plural, printable, printable_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import RenderableType

    from tokmill.api.progress import Progress, RunObserver
    from tokmill.dataset.manifest import Manifest

LOG_OPTION, LOG_VARIABLE = "--log-format", "TOKMILL_LOG_FORMAT"
LOG_FORMATS = ("text", "json")
LOG_EVERY_S = 1.0
"""Least seconds between two objects with the progress of a run."""
_LEVELS = {"warning": "warning", "unread": "warning", "error": "error"}
"""Levels of events; those of others are `info`."""


log_option = click.option(
    LOG_OPTION,
    type=click.Choice(LOG_FORMATS),
    envvar=LOG_VARIABLE,
    expose_value=False,  # `choose_log_format` has read it
    help="How standard error is written; json: one object on each line, with its time.  "
    f"[default: text; env var: {LOG_VARIABLE}]",
)


class Log:
    """How standard error is written by this process: there is one."""

    is_json = False


def choose_log_format(words: Sequence[str]) -> None:
    """Choose how standard error is written, by the words of the command, then by the variable.

    Before the words are parsed: what is wrong with them is written in the same way.
    """
    chosen = os.environ.get(LOG_VARIABLE)
    for name in LOG_FORMATS:
        if f"{LOG_OPTION}={name}" in words or (LOG_OPTION, name) in pairwise(words):
            chosen = name
    Log.is_json = chosen == "json"
    Interrupt.shown = _json_interrupt if Log.is_json else Interrupt.as_text


def log(event: str, message: str, **more: Any) -> None:
    """Write one object with the time and the message on standard error."""
    click.echo(_json_line(event, message, **more), err=True, color=False)


def _json_line(event: str, message: str, **more: Any) -> str:
    """Return an object with the time in UTC, to a millisecond, as RFC 3339 writes it."""
    seconds, nanoseconds = divmod(time.time_ns(), 10**9)
    day_and_time = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    begin = {
        "time": f"{day_and_time}.{nanoseconds // 10**6:03d}Z",
        "level": _LEVELS.get(event, "info"),
    }
    return json_text({**begin, "event": event, "message": message, **more})


def _json_interrupt(line: str) -> str:
    return _json_line("error", line, exit_code=EXIT_INTERRUPTED)


def log_result(message: str, **result: Any) -> None:
    """Write the result of a command, if standard error is JSON."""
    if Log.is_json:
        log("result", message, result=result)


def log_dataset(place: str, manifest: Manifest) -> None:
    """Write what a finished dataset holds, if standard error is JSON."""
    totals = manifest.totals
    counts = f"{plural(totals.documents, 'document')}, {plural(totals.tokens, 'token')}"
    log_result(
        f"{place}: {counts}", output=place, totals=manifest.plain["totals"], sha256=manifest.sha256
    )


def show(text: str = "", *, bold: bool = False, err: bool = False) -> None:
    """Print one line on standard output or standard error."""
    if err and Log.is_json:
        log("note", text)
        return
    show_styled(click.style(printable(text), bold=True) if bold else printable(text), err=err)


def show_labelled(label: str, text: str, *, colour: str, err: bool = False) -> None:
    """Print one line behind a word that stands out, such as `warning:`, which names its event."""
    if err and Log.is_json:
        log(label.rstrip(":"), text)
        return
    show_styled(f"{click.style(label, fg=colour, bold=True)} {printable(text)}", err=err)


def show_error(text: str, exit_code: int) -> None:
    """Print what ended the command on standard error."""
    if Log.is_json:
        log("error", text, exit_code=exit_code)
        return
    show_labelled("error:", text, colour="red", err=True)


def warn(text: str) -> None:
    """Print a warning on standard error."""
    show_labelled("warning:", text, colour="yellow", err=True)


def observer(*, quiet: bool = False, as_json: bool = False, stopped: str = "") -> RunObserver:
    """Return what shows the notes, warnings and progress of a run on standard error.

    With `as_json` there are only warnings, unless standard error is JSON too; with `quiet` only
    those about settings that match nothing. `stopped`: what an interrupt says once the work has
    begun, '' if it always says the same.
    """
    from tokmill.api.progress import RunObserver, make_bar

    if stopped:
        Interrupt.line = NOT_BEGUN
    has_notes = not quiet and (Log.is_json or not as_json)
    has_log = has_notes and Log.is_json
    return RunObserver(
        begun=partial(setattr, Interrupt, "line", stopped) if stopped else None,
        note=partial(show, err=True) if has_notes else None,
        warn=None if quiet else warn,
        insist=warn,
        bar=make_bar() if has_notes and not has_log else None,
        call=_log_progress if has_log else None,
        call_every_s=LOG_EVERY_S,
    )


def _log_progress(progress: Progress) -> None:
    """Write how far a run is; nothing if it had nothing to do."""
    if progress.input_bytes:
        figures = {"percentage": progress.percentage, **asdict(progress)}
        log("progress", progress.line().strip(), progress=figures)


def show_rows(rows: Sequence[tuple[str, str]]) -> None:
    """Print (label, text) rows, the texts in one column; a text may have several lines.

    A terminal wraps texts inside their column; elsewhere each line stays whole.
    """
    lines = [
        (label if not at else "", line, "")
        for label, text in rows
        for at, line in enumerate(text.split("\n"))
    ]
    if _has_width():
        from tokmill.terminal_tables import labelled

        print_tables([labelled(lines)])
        return
    width = max(len(label) for label, _ in rows)
    for label, line, _ in lines:
        shown = click.style(printable(label).ljust(width), bold=True)
        show_styled(f"{shown}  {printable(line)}".rstrip())


def show_json(value: Any) -> None:
    """Print a value as one line of JSON."""
    show_styled(json_text(value))


def show_styled(text: str, *, err: bool = False) -> None:
    """Print text that holds nothing but printable characters, line ends and colours of ours."""
    if err and Log.is_json:
        log("note", click.unstyle(text))
        return
    click.echo(text, err=err, color=False if os.environ.get("NO_COLOR") else None)


_PLAIN_WIDTH = 110
_LEAST_WIDTH = 40
"""Narrower tables would lose figures; with COLUMNS=0, as some programs set it, all text."""


def _has_width() -> bool:
    """Return whether standard output is a terminal, or COLUMNS names the width of one."""
    is_terminal = sys.stdout is not None and sys.stdout.isatty()  # None: a closed descriptor
    return is_terminal or "COLUMNS" in os.environ


def print_tables(tables: Iterable[RenderableType]) -> None:
    """Print what rich can render on standard output."""
    from rich.console import Console
    from rich.segment import Segments

    console = Console(no_color=click.get_current_context().color is False, highlight=False)
    console.width = max(console.width, _LEAST_WIDTH) if _has_width() else _PLAIN_WIDTH
    # Captured, since rich would exit with code 1 (a mismatch) when it prints to a closed pipe.
    with console.capture() as captured:
        for table in tables:
            # Text cannot control the terminal; colours are stored beside it.
            segments = (s._replace(text=printable_lines(s.text)) for s in console.render(table))
            console.print(Segments(segments), soft_wrap=True, end="")
    for line in captured.get().split("\n")[:-1]:
        show_styled(line.rstrip())
