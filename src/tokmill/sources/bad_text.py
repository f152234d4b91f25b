"""Find what is no text in text, count it, and write U+FFFD for it.

That is half of a surrogate pair, which JSON can escape but UTF-8 cannot encode, and bytes that are
not UTF-8. As with Python's `errors="replace"`, each longest part of bytes that is ill-formed is one
character.
"""

from __future__ import annotations

import codecs
import re
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from tokmill.words import plural

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Mapping, Sequence

    import numpy.typing as npt
    import pyarrow as pa

T = TypeVar("T")

ADVICE = "; --on-bad-text=replace writes U+FFFD for it"
"""The end of the message about a record that would be read then."""

REPLACED_CHARACTERS = "characters replaced by U+FFFD"
REPLACED_RECORDS = "records with replaced characters"
"""Names of counters: what was no text in the records of documents, and these records."""

HALF = "\udfff"
"""Half of a surrogate pair, which stands for what is no text until it is replaced or refused."""

_REPLACEMENT = "\ufffd"
_HALF = re.compile("[\ud800-\udfff]")
_AS_HALF = "tokmill.half"


def _as_half(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return HALF, error.end


codecs.register_error(_AS_HALF, _as_half)


def with_halves(data: bytes) -> str:
    """Return bytes as text, with half of a surrogate pair for each part that is not UTF-8."""
    return data.decode("utf-8", _AS_HALF)


def escaped(text: str) -> str:
    """Return the text of JSON that halves of surrogate pairs, inside strings, are escaped in."""
    return text.encode("utf-8", "backslashreplace").decode()


class Replacer:
    """Writes U+FFFD for what is no text in values, and counts it in `n_replaced`."""

    def __init__(self) -> None:
        self.n_replaced = 0

    def value(self, value: Any) -> Any:
        """Return a value of JSON, or one with bytes for text, whose text is valid.

        Raises:
            ValueError: two keys of an object become the same.
        """
        if isinstance(value, bytes):
            value = with_halves(value)
        if isinstance(value, str):
            text, n_halves = _HALF.subn(_REPLACEMENT, value)
            self.n_replaced += n_halves
            return text if n_halves else value  # it may be of a class of its own
        if isinstance(value, list):
            return [self.value(inner) for inner in value]
        if isinstance(value, dict):
            replaced = {self.value(key): self.value(inner) for key, inner in value.items()}
            if len(replaced) < len(value):
                raise ValueError("a key twice")
            return replaced
        return value


def replaced_rows(array: pa.Array, rows: Sequence[int], replaced: Counter[int]) -> pa.Array:
    """Return an array whose text is valid in some rows; add the characters to those of each row.

    It is of strings, or of lists and structs of them.
    """
    import pyarrow as pa

    of_bytes = array.take(pa.array(rows)).view(change_leaves(array.type, bytes_for_text))
    texts = []
    for row, value in zip(rows, of_bytes.to_pylist(), strict=True):
        replacer = Replacer()
        texts.append(replacer.value(value))
        replaced[row] += replacer.n_replaced
    order = np.arange(len(array))
    order[list(rows)] = len(array) + np.arange(len(rows))
    return pa.concat_arrays([array, pa.array(texts, array.type)]).take(pa.array(order))


def change_leaves(kind: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Return a type with a change made to each type in it that is no list or struct."""
    import pyarrow as pa

    def changed(field: pa.Field) -> pa.Field:
        return field.with_type(change_leaves(field.type, change))

    if pa.types.is_list(kind):
        return pa.list_(changed(kind.value_field))
    if pa.types.is_large_list(kind):
        return pa.large_list(changed(kind.value_field))
    if pa.types.is_struct(kind):
        return pa.struct(map(changed, kind))
    return change(kind)


def bytes_for_text(kind: pa.DataType) -> pa.DataType:
    """Return the type of the same layout whose bytes Arrow does not check."""
    import pyarrow as pa

    return {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}.get(kind, kind)


def replaced_line(counters: Mapping[str, int]) -> str:
    """Return how many characters stand for what was no text; '' if none."""
    if not (n := counters.get(REPLACED_CHARACTERS, 0)):
        return ""
    records = plural(counters[REPLACED_RECORDS], "record")
    return f"{plural(n, 'character')} in {records}: U+FFFD stands for what was no text"


def by_row(of_record: Mapping[int, T], rows: npt.NDArray[np.int64]) -> dict[int, T]:
    """Return values of records, by their numbers, for the rows that they are."""
    if not of_record:
        return {}
    numbers = enumerate(rows.tolist())
    return {row: of_record[number] for row, number in numbers if number in of_record}
