"""The text in the fields of records: bytes by path, and the shares that a run reads or leaves out.

A path is a key, `meta.source` for a key inside an object, `sections[].title` for a key inside a
list of objects, `tags[]` for the strings of a list. Bytes are those of the decoded strings in
UTF-8. Labels of a record (a URL, an id, a date, a file name, a hash) are no text.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from tokmill.words import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    import pyarrow as pa

ENOUGH = 0.9
"""A renderer is chosen automatically if its fields hold this share of the text. If a source uses
less, the user is told."""

_MOST_NAMED = 3
_FEWEST_MEASURED, _LONGEST_NOTE = 2, 100
"""Records with so many measured values and fewer bytes of text are no documents."""

_MOST_TOGETHER = 1000
"""Sets of keys that stand in one record: keys may be data."""

_EMPTY: tuple[Any, ...] = ("", b"", [], {})
_DEEPEST = 3
_DEEPEST_READ = 20
_LONGEST_LABEL, _FEWEST_LABELS, _LABEL_REPEATS = 64, 5, 5

_LONGEST_JSON = 1 << 20
_LONGEST_DATE = 48
_LONGEST_WORD = 3

_NO_BLANK = re.compile(r"[!-~]+")
_MARKED = re.compile(r"[0-9/\\_@:=.+-]")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")
_DATE = re.compile(
    r"(?:[0-9T Z:,./+\-年月日时分秒]|"
    r"(?:mon|tue|wed|thu|fri|sat|sun|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*+|"
    r"gmt|utc|am|pm|st|nd|rd|th)+",
    re.IGNORECASE,
)

_NUMBER = re.compile(r"[+-]?[\d., ]*\d(?:[eE][+-]?\d+)?")
_FRACTION = re.compile(r"[+-]?\d*[.,]\d+(?:[eE][+-]?\d+)?")
_PROSE = re.compile(
    "\\S\\s+\\S|"  # two words, or four characters of a script that has no blanks
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3000-\u30ff\u3400-\u9fff\uff00-\uffef]{4}"
)

_ASCII_LETTERS = bytes(range(ord("A"), ord("Z") + 1)) + bytes(range(ord("a"), ord("z") + 1))
_SIGNS = bytes([0xC2, 0xE2, 0xEF])
"""First bytes of U+0080 to U+00BF, U+2000 to U+2FFF and U+F000 to U+FFFF: signs, punctuation."""
_NO_FIRST_BYTES = bytes({*range(0x100)} - {*_ASCII_LETTERS, *range(0xC2, 0xF5)} | {*_SIGNS})
_NO_HAN = bytes({*range(0x100)} - {*range(0xE3, 0xEA)})
"""All but the first bytes of U+3000 to U+9FFF."""


class Letters(NamedTuple):
    """A number of letters, and how many of them are Han or Kana."""

    n: int
    n_han: int

    def plus(self, other: Letters) -> Letters:
        """Return the sum with others."""
        return Letters(self.n + other.n, self.n_han + other.n_han)

    @property
    def han_share(self) -> float:
        """Return the share of Han and Kana; 0 without letters."""
        return self.n_han / max(1, self.n)


NO_LETTERS = Letters(0, 0)


def count_letters(text: bytes) -> Letters:
    """Return the letters of a text in UTF-8.

    By the first byte of each character: ten times as fast as asking Python for each. A letter is A
    to Z, and every other character that is not ASCII but those of the blocks of signs. Han and Kana
    are U+3000 to U+9FFF: with their punctuation.
    """
    firsts = text.translate(None, _NO_FIRST_BYTES)
    return Letters(len(firsts), len(firsts.translate(None, _NO_HAN)))


class FieldBytes(NamedTuple):
    """The bytes of all strings in a field, and of those that are text."""

    n_bytes: int
    text_bytes: int


def weigh(
    record: Mapping[str, Any],
    used: Collection[str],
    nested: Collection[str] = (),
    labels: Collection[str] = (),
) -> dict[str, int]:
    """Return the bytes of a record's fields that count, by path: the used ones, then in its order.

    All bytes of a used field count, and of another one those of text. Used fields come first, so
    that `add_fields` counts each under its name. `nested`: keys whose value may be a list
    or object written as a JSON string, as in CSV. `labels`: fields that hold no text.
    """
    counts = dict.fromkeys(sorted(used), 0)
    for path, text in strings_of(record, nested):
        counts.setdefault(path, 0)
        if is_used(path, used) or (path not in labels and is_text(text)):
            counts[path] += _size(text)
    return counts


@dataclass(slots=True)
class _Field:
    """The strings of one field: their bytes, those of text, and letters.

    `n_prose`: strings of several words, or of a language without blanks. `values`: the distinct
    strings; None once one is longer than a label.
    """

    n_bytes: int = 0
    text_bytes: int = 0
    n_prose: int = 0
    letters: Letters = NO_LETTERS
    n_values: int = 0
    values: set[str] | None = field(default_factory=set)

    def add(self, text: str) -> int:
        """Add a string; return its bytes."""
        data = text.encode("utf-8", "surrogatepass")
        n_bytes = len(data)
        self.n_bytes += n_bytes
        if is_text(text):
            self.text_bytes += n_bytes
            self.n_prose += int(_PROSE.search(text) is not None)
        self.letters = self.letters.plus(count_letters(data))
        self.n_values += 1
        if len(text) > _LONGEST_LABEL:
            self.values = None
        elif self.values is not None:
            self.values.add(text)
        return n_bytes

    def merge(self, other: _Field) -> None:
        """Add the strings of the same field in other records."""
        self.n_bytes += other.n_bytes
        self.text_bytes += other.text_bytes
        self.n_prose += other.n_prose
        self.letters = self.letters.plus(other.letters)
        self.n_values += other.n_values
        if self.values is None or other.values is None:
            self.values = None
        else:
            self.values |= other.values

    def kind(self) -> str:
        """Return what the strings are, in words."""
        if self.is_label:
            return "labels"
        if self.text_bytes:
            return "short text"
        shown = next((value for value in sorted(self.values or ()) if value), "")
        if _URL.fullmatch(shown):
            return "URLs"
        if _NUMBER.fullmatch(shown):
            return "numbers"
        return "dates" if _DATE.fullmatch(shown) else "ids or short words"

    @property
    def is_label(self) -> bool:
        """Return whether few short values repeat, as categories do."""
        if self.values is None or self.n_values < _FEWEST_LABELS:
            return False
        return len(self.values) * _LABEL_REPEATS <= self.n_values


class FieldSample:
    """The fields of some records, which are added one by one and not kept.

    `where`: the file of the records. `fields`: by path, in the order of their first records.
    `keys`: top-level keys in order. `string_keys`: those with a string in some record.
    """

    def __init__(self, nested: Collection[str] = ()) -> None:
        self.where = ""
        self.n_records = self.n_bytes = 0
        self.keys: dict[str, None] = {}
        self.fields: dict[str, _Field] = {}
        self.string_keys: set[str] = set()
        self._together: set[frozenset[str]] = set()
        self._kinds: dict[str, str] = {}
        self._n_measured = 0
        self._empty: set[str] = set()
        self._new_key_at = 0
        self._nested = nested

    def add(self, record: Mapping[str, Any]) -> None:
        """Add a record."""
        empty = {key for key, value in record.items() if value is None or value in _EMPTY}
        filled = record.keys() - empty
        if any(key not in self.keys or key in self._empty for key in filled):
            self._new_key_at = self.n_records
        self._empty = (self._empty | (empty - self.keys.keys())) - filled
        self.n_records += 1
        self.keys.update(dict.fromkeys(record))
        self.string_keys.update(k for k, value in record.items() if isinstance(value, str | bytes))
        for key in filled - self._kinds.keys():
            self._kinds[key] = _kind(record[key])
        self._n_measured += sum(map(_n_measured, record.values()))
        texts = [key for key in filled if isinstance(record[key], str | bytes)]
        if len(self._together) < _MOST_TOGETHER:
            self._together.add(frozenset(texts))
        for path, text in strings_of(record, self._nested):
            self.n_bytes += self.fields.setdefault(path, _Field()).add(text)

    def merge(self, other: FieldSample) -> None:
        """Add the records of another sample, which come after those of this one."""
        self.where = self.where or other.where
        self.n_records += other.n_records
        self.n_bytes += other.n_bytes
        self.keys |= other.keys
        self.string_keys |= other.string_keys
        self._together |= other._together
        self._kinds = other._kinds | self._kinds
        self._n_measured += other._n_measured
        for path, of_path in other.fields.items():
            self.fields.setdefault(path, _Field()).merge(of_path)

    def weigh_letters(self, factor: float) -> None:
        """Multiply the counts of letters: a sample stands for a file of its size."""
        for of_path in self.fields.values():
            n, n_han = of_path.letters
            of_path.letters = Letters(round(n * factor), round(n_han * factor))

    def letters(self, used: Collection[str]) -> Letters:
        """Return the letters of the used fields."""
        total = NO_LETTERS
        for path, of_path in self.fields.items():
            if is_used(path, used):
                total = total.plus(of_path.letters)
        return total

    @property
    def holds_prose(self) -> bool:
        """Return whether some field may be the text of a document, whatever its name.

        Words that stand alone may be labels. A short note beside measured values, such as a time
        series or an embedding, is none either.
        """
        labels = self.labels()
        texts = [f for path, f in self.fields.items() if f.n_prose and path not in labels]
        n_bytes = sum(of_path.text_bytes for of_path in texts)
        is_measured = self._n_measured >= _FEWEST_MEASURED * self.n_records
        is_note = is_measured and n_bytes < _LONGEST_NOTE * self.n_records
        return bool(texts) and not is_note

    def kinds(self) -> dict[str, str]:
        """Return what stands under each key, in words: `input_ids` is a list of numbers."""
        return {
            key: self.fields[key].kind()
            if key in self.string_keys
            else self._kinds.get(key, "empty")
            for key in self.keys
        }

    def stand_together(self, one: str, other: str) -> bool:
        """Return whether some record has text under both keys."""
        is_unknown = len(self._together) >= _MOST_TOGETHER
        return is_unknown or any(one in keys and other in keys for keys in self._together)

    @property
    def n_since_new_key(self) -> int:
        """Return the number of records since a key first had a value; 0 if a key never had one."""
        return 0 if self._empty else self.n_records - self._new_key_at

    def weighed(self, text_field: str = "") -> dict[str, FieldBytes]:
        """Return the fields; those whose few short values repeat hold no text.

        `text_field` always counts as text, even if it holds JSON; it may be several keys with
        commas between them.
        """
        labels, named = self.labels(text_field), text_field.split(",")
        weighed = {}
        for path, of_path in self.fields.items():
            text_bytes = of_path.n_bytes if path in named else of_path.text_bytes
            weighed[path] = FieldBytes(of_path.n_bytes, 0 if path in labels else text_bytes)
        return weighed

    def labels(self, text_field: str = "") -> frozenset[str]:
        """Return the fields whose few short values repeat, as categories do."""
        repeating = frozenset(path for path, of_path in self.fields.items() if of_path.is_label)
        return repeating - {*text_field.split(",")}


def _kind(value: Any) -> str:
    """Return what a value that is no string is, in words."""
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, list):
        inner = _kind(value[0])
        return f"list of {inner}s" if inner in ("number", "string", "list", "object") else "list"
    if isinstance(value, dict):
        return "object"
    return "string" if isinstance(value, str | bytes) else type(value).__name__


def _n_measured(value: Any, depth: int = 1, *, in_list: bool = False) -> int:
    """Return how many measured values a value holds: fractions, and numbers in a list.

    An integer elsewhere may be an id, a label or the number of a line. Of a list or an object the
    first values count.
    """
    if isinstance(value, str):
        return int(len(value) <= _LONGEST_DATE and _FRACTION.fullmatch(value) is not None)
    if isinstance(value, float) or (in_list and isinstance(value, int)):
        return 1
    if not isinstance(value, list | dict) or depth > _DEEPEST:
        return 0
    inside = value if isinstance(value, list) else list(value.values())
    return sum(
        _n_measured(inner, depth + 1, in_list=inside is value)
        for inner in inside[:_FEWEST_MEASURED]
    )


def used_paths(schema: pa.Schema) -> frozenset[str]:
    """Return the paths of the columns that a renderer reads."""
    columns = ((_shown(field.name), field.type) for field in schema)
    return frozenset(path for name, kind in columns for path in _column_paths(name, kind))


def is_used(path: str, used: Collection[str]) -> bool:
    """Return whether a path is one of those that are used, or lies inside one."""
    return path in used or any(path.startswith((f"{name}.", f"{name}[")) for name in used)


def counted(fields: Mapping[str, FieldBytes], used: Collection[str]) -> dict[str, int]:
    """Return the bytes of each field that count: all of a used field, those of text of another."""
    return {path: n.n_bytes if is_used(path, used) else n.text_bytes for path, n in fields.items()}


def used_share(counts: Mapping[str, int], used: Collection[str]) -> float:
    """Return the share of the used fields in all counted bytes; 1 if there are none."""
    total = sum(counts.values())
    return sum(n for path, n in counts.items() if is_used(path, used)) / total if total else 1.0


def describe_fields(counts: Mapping[str, int], used: Collection[str]) -> str:
    """Return the used fields and those left out, with their shares of the text.

    Example: `text 97%; left out: title 3%, url, id`. A field without a share holds no text.
    """
    total = max(1, sum(counts.values()))
    kept = {path: n for path, n in counts.items() if is_used(path, used)}
    rest = {
        path: n for path, n in counts.items() if path not in kept and not _is_outer(path, counts)
    }
    text = listed_shares(kept, total) or "none"
    return text + (f"; left out: {listed_shares(rest, total)}" if rest else "")


def _is_outer(path: str, counts: Mapping[str, int]) -> bool:
    """Return whether a path is that of a list or object that is empty in some records."""
    return not counts[path] and any(is_used(other, {path}) for other in counts if other != path)


def listed_shares(counts: Mapping[str, int], total: int, most: int = 8) -> str:
    """Return fields with their share of `total` bytes, the largest first."""
    ordered = sorted(counts.items(), key=lambda row: -row[1])
    shown = [_with_share(path, n, total) for path, n in ordered[:most]]
    rest = [n for _, n in ordered[most:]]
    if rest:
        shown.append(_with_share(f"{plural(len(rest), 'other field')}", sum(rest), total))
    return ", ".join(shown)


def _with_share(path: str, n_bytes: int, total: int) -> str:
    return f"{path} {percent(n_bytes / total)}" if n_bytes else path


def noted_sources(sources: Iterable[tuple[str, Mapping[str, int]]], used: Collection[str]) -> str:
    """Return the sources that use less than 90% of their text, with the share; '' if none.

    `sources`: the path of each, and its bytes by field.
    """
    shares = [(path, used_share(fields, used)) for path, fields in sources if fields]
    few = [f"{path} {percent(share)}" for path, share in shares if share < ENOUGH]
    return ", ".join(few[:_MOST_NAMED] + ["…"] * (len(few) > _MOST_NAMED))


def percent(share: float) -> str:
    """Return a share in words; only all is `100%`, and only nothing is `0%`."""
    if 0 < share < 0.01:
        return "under 1%"
    if 0.99 < share < 1:
        return "over 99%"
    return f"{share * 100:.0f}%"


def _column_paths(name: str, kind: pa.DataType) -> Iterator[str]:
    import pyarrow as pa  # to show a dataset, its names suffice

    value = getattr(kind, "value_type", None)
    if pa.types.is_struct(kind):
        for field in kind:
            yield from _column_paths(f"{name}.{_shown(field.name)}", field.type)
    elif value is None:
        yield name
    else:
        for field in value:
            yield f"{name}[].{_shown(field.name)}"


def _shown(key: str) -> str:
    """Return a key as it can be printed on one line."""
    if not key:
        return "''"
    return key if key.isprintable() else key.encode("unicode_escape").decode()


def _size(text: str) -> int:
    """Return the bytes of a string in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def strings_of(record: Mapping[str, Any], nested: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield the strings of a record with their paths, in order; an empty one where there is none.

    `nested`: keys whose strings are read as JSON.
    """
    waiting: list[tuple[str, Any, int]] = [
        (_shown(key), json_in(value) if key in nested else value, 1)
        for key, value in reversed(list(record.items()))
    ]
    while waiting:
        path, value, depth = waiting.pop()
        if isinstance(value, str):
            yield path, value
        elif isinstance(value, bytes):
            yield path, _decoded(value)
        elif depth > _DEEPEST_READ or not (isinstance(value, dict | list) and value):
            yield path, ""
        elif isinstance(value, dict):
            for key, inner in reversed(value.items()):
                waiting.append(
                    (f"{path}.{_shown(key)}" if depth < _DEEPEST else path, inner, depth + 1)
                )
        else:
            below = path if path.endswith("[]") or depth >= _DEEPEST else f"{path}[]"
            waiting += [(below, inner, depth + 1) for inner in reversed(value)]


def _decoded(value: bytes) -> str:
    """Return bytes as text, as a Parquet column may hold them; '' if they are not UTF-8."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return ""


def is_text(value: str) -> bool:
    """Return whether a string is text, and not a URL, an id, a number, a date or a file name.

    A string of ASCII without a blank is text only if it is a word. JSON in a string is metadata.
    """
    if len(value) <= _LONGEST_WORD and value.isascii():
        return False
    if _NO_BLANK.fullmatch(value):
        return not _MARKED.search(value)
    if len(value) <= _LONGEST_DATE and _DATE.fullmatch(value):
        return False
    if _URL.fullmatch(value):
        return False
    return isinstance(json_in(value), str)


def json_in(value: Any, load: Callable[[str], Any] = json.loads) -> Any:
    """Return the list or object that a JSON string holds; any other value unchanged."""
    if not isinstance(value, str) or len(value) > _LONGEST_JSON:
        return value
    if value[:1] + value[-1:] not in ("[]", "{}"):
        return value
    with suppress(ValueError, RecursionError):
        return load(value)
    return value
