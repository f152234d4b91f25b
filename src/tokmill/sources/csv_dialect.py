"""How the cells of a CSV file are separated, quoted and escaped."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tokmill.errors import UsageError

if TYPE_CHECKING:
    from tokmill.settings.schema import InputSettings
    from tokmill.sources.slices import SourceFile

AUTO, NONE = "auto", "none"
QUOTE = '"'
_LONGEST_CELL = 1 << 30


@dataclass(frozen=True, slots=True)
class Dialect:
    r"""The marks of a CSV file, each one ASCII character; `quote` and `escape` may be none: ''.

    A quote opens a quoted field only at the start of the field; two inside it are one. An escape
    takes the meaning of a mark, an escape or a line break behind it, quoted or not. Before any
    other character it is text: Spark escapes quotes alone, and writes `\alpha` as it is. A cell
    that is the escape and N is null, as MySQL writes it.
    """

    delimiter: str
    quote: str = QUOTE
    escape: str = ""

    @property
    def null(self) -> str:
        """Return the cell that is null; '' if each cell is text."""
        return self.escape and f"{self.escape}N"

    def with_doubled_escapes(self, data: bytes) -> bytes:
        """Return data in which an escape that is text is escaped too: parsers would drop it."""
        if not self.escape:
            return data
        escape = re.escape(self.escape.encode())
        marks = re.escape(f"{self.delimiter}{self.quote}{self.escape}\r\n".encode())
        return re.sub(
            rb"%b([%b])?" % (escape, marks),
            lambda found: found[0] if found[1] else found[0] * 2,
            data,
        )

    def rows(self, data: bytes, *, strict: bool = False) -> list[list[Any]]:
        """Return the cells of each record, as the standard library reads them.

        Raises:
            csv.Error: with `strict`, a quoted field has text behind it or no end.
        """
        csv.field_size_limit(_LONGEST_CELL)  # else a cell of more than 128 KiB is an error
        text = self.with_doubled_escapes(data).decode(errors="replace")
        reader = csv.reader(
            io.StringIO(text, newline=""),
            delimiter=self.delimiter,
            quotechar=self.quote or None,
            quoting=csv.QUOTE_MINIMAL if self.quote else csv.QUOTE_NONE,
            escapechar=self.escape or None,
            strict=strict,
        )
        rows: list[list[Any]] = list(reader)
        if not self.null:
            return rows
        return [[None if cell == self.null else cell for cell in row] for row in rows]

    def cells(self, record: bytes) -> list[Any]:
        """Return the cells of one record."""
        return next(iter(self.rows(record)), [])


def dialect_of(file: SourceFile, settings: InputSettings) -> Dialect:
    """Return the dialect of a file; the delimiter is a tab in a file that ends in .tsv.

    Raises:
        UsageError: a mark is not one ASCII character, or two are the same.
    """
    delimiter = "\t" if file.format == "tsv" else settings.csv_delimiter
    _check_mark(delimiter, "csv_delimiter")
    quote, escape = QUOTE, ""
    if settings.csv_quote != AUTO:
        quote = _mark(settings.csv_quote, "csv_quote", delimiter)
    if settings.csv_escape != AUTO:
        escape = _mark(settings.csv_escape, "csv_escape", delimiter + quote)
    if delimiter == quote:
        _refuse(delimiter, "csv_delimiter", "another one than the quote")
    return Dialect(delimiter, quote, escape)


def _mark(value: str, setting: str, others: str) -> str:
    if value == NONE:
        return ""
    _check_mark(value, setting)
    if value in others:
        _refuse(value, setting, "another one than the delimiter and the quote, or none")
    return value


def _check_mark(value: str, setting: str) -> None:
    if len(value) != 1 or not value.isascii() or value in "\r\n":
        _refuse(value, setting, "")


def _refuse(value: str, setting: str, expected: str) -> None:
    more = f", {expected}" if expected else ""
    raise UsageError(f"expected one ASCII character{more}; found {value!r}", f"input.{setting}")
