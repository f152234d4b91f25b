"""Check that the first records of a CSV file can be read in one way: quotes and backslashes."""

from __future__ import annotations

import csv
from dataclasses import replace
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple

from tokmill.errors import UsageError
from tokmill.sources.csv import CsvSplitter
from tokmill.sources.csv_dialect import AUTO, dialect_of
from tokmill.sources.streams import first_bytes

if TYPE_CHECKING:
    from tokmill.settings.schema import InputSettings
    from tokmill.sources.csv_dialect import Dialect
    from tokmill.sources.slices import SourceFile

_BACKSLASH = "\\"
_SHOWN = 40
"""Characters of a cell in a message."""


class _Sample(NamedTuple):
    """The first records of a file, read in one dialect.

    `is_regular`: all have as many cells. `is_proper`: and behind each quoted field stands a
    delimiter or a line break.
    """

    rows: list[list[Any]]
    is_regular: bool
    is_proper: bool


def check_readings(file: SourceFile, settings: InputSettings) -> None:
    r"""Check that the first records are the same in each dialect that they may be written in.

    A backslash may escape a quote (MySQL, Spark) or be text: `"C:\dir\"` is. Where the records
    contradict escapes and fit without them, it is text. A quote at the start of a cell may be text
    of a file that never quotes. A setting that the user gave is not questioned.

    Raises:
        UsageError: the records differ, and which ones are right is not known.
        StorageError: the file cannot be read.
    """
    if AUTO not in (settings.csv_escape, settings.csv_quote):
        return
    dialect = dialect_of(file, settings)
    head, is_all = first_bytes(file.path, file.compression)
    head = head.removeprefix(b"\xef\xbb\xbf")
    if settings.csv_escape == AUTO and _BACKSLASH.encode() in head:
        _check_escapes(file.path, head, dialect, is_all=is_all)
    if settings.csv_escape == settings.csv_quote == AUTO and dialect.quote.encode() in head:
        _check_quotes(file.path, head, dialect, is_all=is_all)


def _check_escapes(path: str, head: bytes, dialect: Dialect, *, is_all: bool) -> None:
    plain = _sample(head, dialect, is_all=is_all)
    escaped = _sample(head, replace(dialect, escape=_BACKSLASH), is_all=is_all)
    is_text = plain.is_proper and not escaped.is_proper
    if plain.rows != escaped.rows and not is_text:
        shown = _difference(plain.rows, escaped.rows)
        raise UsageError(
            f"{path}: a backslash may escape the character behind it, or be text: expected cells "
            f"that are the same in both readings, found {shown}: use --csv-escape='\\', or "
            "--csv-escape=none if backslashes are text"
        )


def _check_quotes(path: str, head: bytes, dialect: Dialect, *, is_all: bool) -> None:
    splitter = CsvSplitter(dialect)
    splitter.ends(head)
    if is_all and splitter.unfinished:
        return  # unread input: the file may be cut off
    quoted = _sample(head, dialect, is_all=is_all)
    plain = _sample(head, replace(dialect, quote=""), is_all=is_all)
    if not plain.is_regular or not plain.rows:
        return
    # Lines that are whole records without quotes are no lines of a quoted cell.
    swallows = len(plain.rows[0]) > 1 and len(plain.rows) > len(quoted.rows)
    if swallows or not quoted.is_proper:
        shown = _difference(plain.rows, quoted.rows)
        raise UsageError(
            f"{path}: a quote may enclose a cell, or be text: expected a delimiter behind each "
            f"enclosed cell, found {shown}: use --csv-quote=none if quotes are text, or "
            f"--csv-quote='{dialect.quote}'"
        )


def _sample(head: bytes, dialect: Dialect, *, is_all: bool) -> _Sample:
    """Read the first bytes of a file, without a last record that is cut: that is unread input."""
    splitter = CsvSplitter(dialect)
    ends = splitter.ends(head)
    if not is_all or splitter.unfinished:
        head = head[: ends[-1]] if len(ends) else b""
    is_strict = True
    try:
        rows = dialect.rows(head, strict=True)
    except csv.Error:
        is_strict, rows = False, dialect.rows(head)
    rows = [row for row in rows if row]
    if rows and len(rows[-1]) < len(rows[0]) and not head.endswith((b"\n", b"\r")):
        rows.pop()
    is_regular = len({len(row) for row in rows}) <= 1
    return _Sample(rows, is_regular, is_regular and is_strict)


def _difference(first: list[list[Any]], second: list[list[Any]]) -> str:
    """Return the first cells that differ, in words."""
    cells = zip_longest(chain.from_iterable(first), chain.from_iterable(second), fillvalue="")
    one, other = next((pair for pair in cells if pair[0] != pair[1]), ("", ""))
    return f"{_shown(one)} or {_shown(other)}"


def _shown(cell: str | None) -> str:
    """Return a cell as it stands, on one line; repr() would double each backslash."""
    if cell is None:
        return "no value"
    return f"[{' '.join(cell[:_SHOWN].split())}{'…' if len(cell) > _SHOWN else ''}]"
