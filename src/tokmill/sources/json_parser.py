"""The parser of JSON behind one interface: lines of bytes become Arrow columns, or a failure.

The texts, rejects and places of a run depend on the parser, so a plan names it. docs/parsers.md
compares others with it. A new one must agree with `ArrowParser` on every line, quirks included.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.json

if TYPE_CHECKING:
    from collections.abc import Mapping


class Failure(NamedTuple):
    """Why the result for a run of lines is not used; `row`: the bad line of the run, or -1."""

    reason: str
    message: str
    row: int = -1


class JsonParser(Protocol):
    """Parses lines; safe to call from several threads, and best if it releases the GIL."""

    name: str
    """The package that parses, whose version decides with its name."""

    @property
    def version(self) -> str:
        """Return the version of the package."""

    def parse(self, lines: pa.Buffer, n_lines: int, schema: pa.Schema) -> pa.Table | Failure:
        """Return the records of lines that begin with {, end with } and are UTF-8.

        The table has exactly the columns of `schema`, and a row for each line. A failure of several
        lines may be that of any of them: they are parsed again in parts, down to single lines.
        """


class ArrowParser:
    """The JSON reader of Arrow, without its threads; it releases the GIL.

    If there are as many rows as lines, each line is one object: after the } at the end of a line,
    the next { can only begin a new top-level value (Arrow refuses a newline inside a string), so
    each line holds at least one object.
    """

    name = "pyarrow"
    version = pa.__version__

    def parse(self, lines: pa.Buffer, n_lines: int, schema: pa.Schema) -> pa.Table | Failure:
        """Return the records of lines; see `JsonParser`."""
        try:
            table = pa.json.read_json(
                pa.BufferReader(lines),
                read_options=pa.json.ReadOptions(use_threads=False, block_size=lines.size + 1),
                parse_options=pa.json.ParseOptions(
                    explicit_schema=schema,
                    unexpected_field_behavior="ignore",
                    newlines_in_values=False,
                ),
            )
        except pa.ArrowInvalid as error:
            return _failure(str(error))
        except UnicodeDecodeError:  # bytes of the record in Arrow's message
            return Failure("malformed JSON", "cannot be parsed")
        if table.num_rows == n_lines:
            return table
        return Failure("several records on a line", f"{table.num_rows} JSON values on one line")


_CHANGED = re.compile(r"Column\((/.*)\) changed from (\w+) to (\w+)", re.DOTALL)
_KINDS = {"string": "text", "array": "a list", "object": "an object", "number": "a number"}

PARSER: JsonParser = ArrowParser()
"""The parser of all runs."""


def parser_entry() -> Mapping[str, str]:
    """Return the name and the version of the parser, as a plan has them."""
    return {"name": PARSER.name, "version": PARSER.version}


def _failure(message: str) -> Failure:
    """Return a failure from Arrow's message, which may name the row: a hint for the next run."""
    found = re.search(r" in row (\d+)", message)
    text = message.removeprefix("JSON parse error: ").replace(found[0] if found else "\0", "")
    row = int(found[1]) if found else -1
    if changed := _CHANGED.search(text):
        path, *kinds = changed.groups()
        field = path[1:].replace("/[]", "[]").replace("/", ".")
        wanted, held = (_KINDS.get(kind, kind) for kind in kinds)
        return Failure("wrong type", f"{field}: expected {wanted}, found {held}", row)
    reason = "wrong type" if "ailed to convert" in message else "malformed JSON"
    return Failure(reason, text.strip().rstrip("."), row)
