"""What may stand for a file of records in a call from Python: rows that are in memory.

Told apart from paths without reading a row: see `is_rows`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from io import IOBase
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class ArrowStream(Protocol):
    """A table that any library of Arrow can read: of pyarrow, pandas, polars, duckdb or others."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return a PyCapsule with the stream of its record batches."""


Rows = ArrowStream | Iterable[Mapping[str, Any]] | Iterable[str] | Callable[[], Any]
"""Rows in memory: a table, dicts, texts that come from an iterator, or a function that returns
any of these."""

_NO_ROWS = (str, bytes, os.PathLike, IOBase, set, frozenset, Mapping)  # a set has no order
_BATCH = "__arrow_c_array__"
_MOST_SHOWN = 200


def is_table(value: object) -> bool:
    """Return whether a value gives columns of Arrow."""
    return isinstance(value, ArrowStream) or hasattr(value, _BATCH)


def is_rows(value: object) -> bool:
    """Return whether a value is rows; a list is, if its first item is one, and else has paths.

    An iterator may also give paths, as `Path.glob` does: that is seen when it is read.
    """
    if isinstance(value, _NO_ROWS):
        return False
    if isinstance(value, list | tuple):
        return bool(value) and isinstance(value[0], Mapping)
    return is_table(value) or isinstance(value, Iterable) or callable(value)


def brief(value: object) -> str:
    """Return a value for a message or a `repr`: of rows and long values, their type alone."""
    name = f"<{type(value).__name__}>"
    text = name if is_rows(value) else repr(value)
    return text if len(text) <= _MOST_SHOWN and "\n" not in text else name
