"""A renderer that is a function: from another package, a module, or this process.

Of one record, which is easy to write, or of Arrow columns, which is fast:

    def render(record: dict) -> str | None: ...

    def render(batch: pa.RecordBatch) -> pa.StringArray: ...

    render.schema = pa.schema([("title", pa.string()), ("body", pa.string())])

A function of columns says so: by its `schema`, by the type of its parameter, or by its name, batch.
It gets the columns of its `schema`, or without one the column `record`: each record as JSON text.
It returns one string for each row.

null (None) drops the record, and so does an empty string. A record for which a function of one
record raises is a reject. A function must return the same for the same records, and several threads
may call it at the same time.

To place control tokens, a function of a record returns a list of pieces, and one of columns a list
with text, None, or a list of pieces for each row: `[ControlToken("<repo_name>"), name,
ControlToken("<file_sep>"), code]`. Its attribute `control_tokens` names those that are not special
in the tokenizer.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from textwrap import shorten
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tokmill.errors import UsageError
from tokmill.extensions import TableEntry, find, one_line
from tokmill.rendering.user_functions import (
    beginning,
    find_function,
    is_local,
    parameter_of,
    raised_by,
)
from tokmill.tables import RENDERERS
from tokmill.values import (
    DROPPED_BY_RENDERER,
    EMPTY,
    WHOLE_RECORD,
    ControlToken,
    DocumentBatch,
    Pieces,
)
from tokmill.words import plural

if TYPE_CHECKING:
    from tokmill.values import Records

RenderFunction = (
    Callable[[pa.RecordBatch], pa.StringArray | list[str | Pieces | None]]
    | Callable[[dict[str, Any]], str | Pieces | None]
)

_WHOLE = pa.schema([(WHOLE_RECORD, pa.large_string())])
_KINDS = (pa.string(), pa.large_string())
RAISED = "the renderer raised an error"


class FunctionRenderer:
    """Calls a function, and checks what it returns."""

    def __init__(self, function: RenderFunction, name: str) -> None:
        self.name = name
        self.schema = getattr(function, "schema", _WHOLE)
        self._function: Callable[[Any], Any] = function
        if not callable(function) or not isinstance(self.schema, pa.Schema):
            actual = type(function).__name__ if not callable(function) else repr(self.schema)[:60]
            wanted = "a function" if not callable(function) else "its attribute schema to be one"
            raise UsageError(f"renderer {name}: expected {wanted}, found {actual}")
        self._is_of_record = _is_of_record(function, name)

    def render(self, records: Records) -> DocumentBatch:
        """Return a document for each record; drops the records of null and of empty strings.

        Raises:
            UsageError: a function of columns raised, or a function returned something else than one
                text for each record.
        """
        batch, rows = records.batch, np.arange(records.batch.num_rows)
        if self.schema is _WHOLE:
            batch = batch.rename_columns(["record"])
        if records.doubtful:  # nobody knows what the function reads
            rows = np.delete(rows, list(records.doubtful))
            batch = batch.take(pa.array(rows))
        refused = {row: records.reject(row, *why) for row, why in records.doubtful.items()}
        if self._is_of_record:
            returned, raised = self._of_each(batch["record"].to_pylist())
            for i, message in raised.items():
                refused[int(rows[i])] = records.reject(int(rows[i]), RAISED, message)
            rows = np.delete(rows, list(raised))
        else:
            returned = self._of_batch(batch)
        pieces: list[Pieces | None] = []
        if isinstance(returned, list):
            pieces = returned if self._is_of_record else [*map(self._pieces, returned)]
            returned = self._texts(pieces)
        text = self._checked(returned, len(rows))
        lengths = pc.fill_null(pc.binary_length(text), -1).to_numpy()
        drops = {EMPTY: lengths == 0, DROPPED_BY_RENDERER: lengths < 0}
        kept = [own for own, n in zip(pieces, lengths, strict=False) if own is not None and n > 0]
        return DocumentBatch(
            text.filter(pa.array(lengths > 0)).cast(pa.large_string()),
            rows[lengths > 0],
            refused,
            {reason: rows[is_of] for reason, is_of in drops.items() if is_of.any()},
            kept if any(map(_is_divided, kept)) else None,
        )

    def _of_batch(self, batch: pa.RecordBatch) -> Any:
        """Return what a function of columns returns; raises `UsageError` if it raises."""
        try:
            return self._function(batch) if batch.num_rows else pa.array([], pa.string())
        except (Exception, SystemExit) as error:  # whatever somebody else's function raises
            raise UsageError(f"renderer {self.name} raised {one_line(error)}") from error

    def _of_each(self, records: list[str]) -> tuple[list[Pieces | None], dict[int, str]]:
        """Return what a function makes of each record, and for which records it raises what."""
        returned, raised = [], {}
        for i, record in enumerate(records):
            try:
                value = self._function(json.loads(record))
            except (Exception, SystemExit) as error:  # whatever somebody else's function raises
                raised[i] = raised_by(error)
                continue
            returned.append(self._pieces(value, record))
        return returned, raised

    @property
    def control_tokens(self) -> tuple[str, ...]:
        """Return the strings of the control tokens that the function says it places.

        Raises:
            UsageError: its attribute `control_tokens` holds something else.
        """
        named = getattr(self._function, "control_tokens", ())
        strings = [token.content if isinstance(token, ControlToken) else token for token in named]
        if isinstance(named, str) or not all(isinstance(string, str) for string in strings):
            raise UsageError(
                f"renderer {self.name}: expected its attribute control_tokens to be a list of "
                f"strings, found {named!r}"
            )
        return tuple(strings)

    def _texts(self, documents: list[Pieces | None]) -> pa.LargeStringArray:
        """Return documents as text, with the strings of their control tokens.

        Raises:
            UsageError: a text holds half of a surrogate pair, which is no character.
        """
        texts = [
            None
            if pieces is None
            else "".join(p.content if isinstance(p, ControlToken) else p for p in pieces)
            for pieces in documents
        ]
        try:
            return pa.array(texts, pa.large_string())
        except UnicodeEncodeError as error:
            raise UsageError(
                f"renderer {self.name} returned a wrong value: expected text of whole characters: "
                f"{one_line(error)}"
            ) from None

    def _pieces(self, value: Any, record: str = "") -> Pieces | None:
        """Return a document as pieces, none of them empty; None for None.

        `record`: of which a function of one record made it.

        Raises:
            UsageError: it is something else.
        """
        if value is None:
            return None
        pieces = [value] if isinstance(value, str | ControlToken) else value
        is_one = isinstance(pieces, list | tuple)
        if not is_one or not all(isinstance(piece, str | ControlToken) for piece in pieces):
            each = "record" if self._is_of_record else "row"
            is_column = self._is_of_record and isinstance(value, pa.Array | pa.ChunkedArray)
            advice = ": name its parameter batch, if it is a function of columns"
            found = shorten(repr(value), 60)
            if record:
                found += f" for {beginning(record.encode())}"
            raise UsageError(
                f"renderer {self.name} returned a wrong value: expected None, text or a list of "
                f"text and tokmill.ControlToken for each {each}, found {found}"
                f"{advice if is_column else ''}"
            )
        return [piece for piece in pieces if piece]

    def _checked(self, text: Any, n_rows: int) -> pa.StringArray:
        wrong = ""
        if isinstance(text, pa.NullArray):  # pyarrow's own type of a list that holds only None
            text = text.cast(pa.string())
        if not isinstance(text, pa.Array):
            wrong = f"expected a pyarrow Array of strings or a list, found {type(text).__name__}"
        elif text.type not in _KINDS:
            wrong = f"expected an Array of strings, found one of {text.type}"
        elif len(text) != n_rows:
            wrong = f"expected {plural(n_rows, 'string')}, one for each row, found {len(text)}"
        else:
            try:
                text.validate(full=True)
            except pa.ArrowInvalid as error:
                wrong = f"expected strings of valid UTF-8: {error}"
        if wrong:
            raise UsageError(f"renderer {self.name} returned a wrong value: {wrong}")
        return text


def _is_divided(pieces: Pieces) -> bool:
    """Return whether a document is more than one text."""
    return len(pieces) > 1 or isinstance(pieces[0], ControlToken)


def _is_of_record(function: Callable[..., Any], name: str) -> bool:
    """Return whether a function takes one record; else it takes a batch of columns.

    Raises:
        UsageError: it takes more than one value, or none.
    """
    if hasattr(function, "schema"):
        return False
    first = parameter_of(function, f"renderer {name}")
    if first is None:
        return True
    kind = getattr(first.annotation, "__name__", str(first.annotation))
    return first.name != "batch" and kind.strip("'\"").rpartition(".")[2] != "RecordBatch"


def find_renderer(name: str) -> TableEntry:
    """Return a renderer by name or dotted path, and its identity if it did not come with tokmill.

    Raises:
        UsageError: it is not there, or cannot be imported.
    """
    if is_local(name) or ":" in name:
        return find_function("renderer", name)
    return find(RENDERERS, name)
