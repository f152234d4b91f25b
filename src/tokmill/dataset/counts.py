"""Counts of records, documents, tokens, drops and rejects: of a slice, a source or a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, NoReturn

import numpy as np

from tokmill.dataset.typed_json import Count, ObjectReader, Place, Text, WrongValue, to_json

if TYPE_CHECKING:
    import numpy.typing as npt

    from tokmill.timing import StageSeconds
    from tokmill.values import UnreadInput

OTHER_KEYS = "other keys"
"""The name under which keys beyond the first hundred, and long keys, are counted."""

MOST_PATHS = 64
"""The fields that are counted one by one; keys may be data, such as ids, so there may be more."""

OTHER_FIELDS = "other fields"

_MOST_UNREAD_KEYS = 100
_LONGEST_KEY = 60
_NUMBERS = ("records", "documents", "tokens", "text_bytes", "input_bytes")

CHECKED, CHECKED_BYTES, ROUTED = "checked", "checked_bytes", "routed"
"""Keys of `Counts.checks`: documents compared with the reference, bytes of text compared, and
documents encoded by the reference: the engine raises, or is not exact on their characters."""

TRAINED_TURNS = "trained turns"
REASONED_REPLIES = "trained replies with reasoning"
USUAL = frozenset((TRAINED_TURNS, REASONED_REPLIES))
"""Keys of `Counts.counters` that say nothing unusual: the others are compared with them."""

NOTICED_RECORDS = 20
"""Most records behind a counter that are kept to be shown."""

TOO_SHORT = "fewer than min_tokens"
TOO_LONG = "more than max_tokens"
LONG_PROMPT = "prompt of more than max_prompt_tokens"
UNTRAINED = "no trained token"
"""Reasons of `Counts.drops` that the lengths and masks of documents have."""

CUT_SAMPLES = "cut samples"
"""Key of `Counts.counters`: samples that are a part of a longer one, so they may end otherwise."""

SKIPPED = "skipped: "
"""Prefix of keys of `Counts.checks`: the reason follows why chosen documents were not compared."""


N_LENGTH_BINS = 32
"""Documents have fewer than 2^31 tokens: see `sidecars.MAX_LENGTH`."""


def documents_by_length(
    lengths: npt.NDArray[np.integer[Any]], amounts: npt.NDArray[np.integer[Any]] | None = None
) -> npt.NDArray[np.int64]:
    """Return documents by length: (32,) int64, entry i counts 2^i to 2^(i + 1) - 1 tokens.

    `lengths`: (n,) tokens of each, at least 1. `amounts`: (n,), what each counts for; None: 1.
    """
    sums = np.zeros(N_LENGTH_BINS, np.int64)
    _, exponents = np.frexp(lengths.astype(np.float64))  # of n = m * 2^e with 0.5 <= m < 1
    np.add.at(sums, exponents - 1, 1 if amounts is None else amounts)
    return sums


class _EmptyCounter(Counter[str]):
    """The one empty counter that compacted counts share; adding to it raises."""

    def __init__(self) -> None:
        dict.__init__(self)  # Counter's calls `update`

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("compacted counts cannot be added to: call Counts.mutable() first")

    __setitem__ = update = setdefault = _refuse

    def __reduce__(self) -> str:
        return "_EMPTY"


_EMPTY = _EmptyCounter()
_COUNTERS = (
    "drops",
    "rejects",
    "lost_tokens",
    "counters",
    "checks",
    "unread_keys",
    "fields",
    "renderers",
    "named",
)
_ALWAYS_THERE = ("drops", "rejects")


def add_fields(into: Counter[str], counts: Mapping[str, int]) -> None:
    """Add the bytes of fields to a sum, which names at most `MOST_PATHS` of them one by one."""
    for path, n in counts.items():
        into[path if path in into or len(into) < MOST_PATHS else OTHER_FIELDS] += n


class SliceLength(NamedTuple):
    """The length of a slice of a file that was cut: its records, and its bytes (of a table 0)."""

    records: Annotated[int, range(1 << 36)]
    bytes: Count


@dataclass(slots=True)
class Counts:
    """Counts of the records of one slice. Records + extra = documents + drops + rejects.

    `lost_tokens`: of what length rules dropped or cut off, by reason, without bos and eos of text.
    `extra`: documents and drops after the first of a record with several samples.
    `trained_tokens`: tokens that are targets. `counters`: other observations, by name. `unread`:
    breaks of the input, with places in their files. `checks`: comparisons with the reference, by
    the names above. `unread_keys`: records with a filled key that nothing reads, by key. `fields`:
    bytes of sampled records by field: all bytes of a used field, the text of another one, 0 if it
    has no text. `length`: lines and bytes (of a table rows and 0) of a slice of a file that was
    cut, once it was read to its end; never added up. `noticed`: by counter the numbers in the slice
    of the first records behind it; not added up either. `renderers`:
    documents by the renderer of their file, where each file of sections has its own. `named`:
    records that have what a setting names, by setting and name. These twelve are in the JSON only
    if they are not 0.
    """

    records: int = 0
    documents: int = 0
    tokens: int = 0
    text_bytes: int = 0
    input_bytes: int = 0
    drops: Counter[str] = field(default_factory=Counter)
    rejects: Counter[str] = field(default_factory=Counter)
    extra: int = 0
    trained_tokens: int = 0
    counters: Counter[str] = field(default_factory=Counter)
    unread: list[UnreadInput] = field(default_factory=list)
    checks: Counter[str] = field(default_factory=Counter)
    unread_keys: Counter[str] = field(default_factory=Counter)
    fields: Counter[str] = field(default_factory=Counter)
    length: SliceLength | None = None
    lost_tokens: Counter[str] = field(default_factory=Counter)
    noticed: Mapping[str, Sequence[int]] | None = None
    renderers: Counter[str] = field(default_factory=Counter)
    named: Counter[str] = field(default_factory=Counter)

    def compacted(self) -> Counts:
        """Return these counts, whose empty counters are one object now, which refuses additions.

        A run keeps counts of every file, and there may be millions: without any counter they need
        209 bytes instead of 737 (CPython 3.11).
        """
        for name in _COUNTERS:
            if not getattr(self, name):
                setattr(self, name, _EMPTY)
        return self

    def mutable(self) -> Counts:
        """Return these counts, to be added to."""
        for name in _COUNTERS:
            if getattr(self, name) is _EMPTY:
                setattr(self, name, Counter())
        return self

    def add(self, other: Counts) -> None:
        """Add another slice's counts to these."""
        for name in (*_NUMBERS, "extra", "trained_tokens"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("drops", "rejects", "lost_tokens", "counters", "checks", "renderers", "named"):
            if counter := getattr(other, name):
                getattr(self, name).update(counter)
        self.unread.extend(other.unread)
        add_fields(self.fields, other.fields)
        for key, n in sorted(other.unread_keys.items()):
            self.add_unread_key(key, n)

    def add_unread_key(self, key: str, n: int) -> None:
        """Count an unread key of `n` records; after a hundred keys, under `OTHER_KEYS`.

        Each record may have a key of its own, such as an identifier, and counts are in memory.
        """
        is_short = len(key) <= _LONGEST_KEY and key.isprintable()
        is_full = len(self.unread_keys) >= _MOST_UNREAD_KEYS
        if key not in self.unread_keys and (is_full or not is_short):
            key = OTHER_KEYS
        self.unread_keys[key] += n

    def notice(self, name: str, records: Iterable[int]) -> None:
        """Keep the first records behind a counter; `records`: numbers that do not decrease."""
        noticed = dict(self.noticed or {})
        kept = dict.fromkeys([*noticed.get(name, ()), *records])
        noticed[name] = list(kept)[:NOTICED_RECORDS]
        self.noticed = noticed

    def as_json(self) -> dict[str, Any]:
        """Return the counts as plain values, reasons sorted."""
        counters = {name: dict(sorted(getattr(self, name).items())) for name in _COUNTERS}
        optional = {
            "extra": self.extra,
            "trained_tokens": self.trained_tokens,
            "unread": [_unread_as_json(unread) for unread in self.unread],
            "length": to_json(self.length),
            "noticed": self.noticed,
            **counters,
        }
        return {
            **{name: getattr(self, name) for name in _NUMBERS},
            **{name: counters[name] for name in _ALWAYS_THERE},
            **{name: value for name, value in optional.items() if value},
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Counts:
        """Return the counts of a value from `as_json`; raises `WrongValue` if it is none."""
        values = _read_counts(data)
        for name in _COUNTERS:
            found = values.get(name)
            values[name] = Counter(found) if found else _EMPTY
        values["unread"] = [
            _unread_from_json(entry, f"unread[{i}]")
            for i, entry in enumerate(values.get("unread", ()))
        ]
        return cls(**values)


_ByName = Mapping[str, Count]
_read_counts = ObjectReader(
    {
        **dict.fromkeys((*_NUMBERS, "extra", "trained_tokens"), Count),
        **dict.fromkeys(_COUNTERS, _ByName),
        "unread": tuple[Mapping[str, Any], ...],
        "length": SliceLength,
        "noticed": Mapping[str, tuple[Annotated[int, range(1 << 36)], ...]],
    },
    frozenset({"extra", "trained_tokens", "unread", "length", "noticed", *_COUNTERS})
    - {*_ALWAYS_THERE},
)
_read_unread = ObjectReader(
    {
        **dict.fromkeys(("line", "text_bytes", "stored_bytes"), Count),
        **dict.fromkeys(("byte_offset", "stored_byte"), Place),
        **dict.fromkeys(("reason", "message"), Text),
    },
    frozenset(),
)


def _unread_as_json(unread: UnreadInput) -> dict[str, Any]:
    data = asdict(unread)
    place = data.pop("place")
    return {**data, **place}


def _unread_from_json(data: Mapping[str, Any], where: str) -> UnreadInput:
    """Return the break of an entry under `unread` in the JSON of counts; `where`: its place."""
    try:
        values = _read_unread(data)
    except WrongValue as error:
        raise error.inside(where) from None
    from tokmill.values import RecordPlace, UnreadInput  # takes 5 ms, and few inputs break off

    place = RecordPlace(values.pop("line"), values.pop("byte_offset"))
    return UnreadInput(place, **values)


@dataclass(frozen=True, slots=True)
class Increments:
    """What a part did since its last report; all counts are increments.

    `drops` and `rejects` are by reason, `counters` as in `Counts`; `first_reject` describes one of
    the rejects in one line.
    `resumed`: an earlier attempt had committed these. `stage_s`: seconds by stage of the recipe,
    summed over threads.
    """

    input_bytes: int = 0
    text_bytes: int = 0
    records: int = 0
    documents: int = 0
    tokens: int = 0
    drops: Mapping[str, int] = field(default_factory=dict)
    rejects: Mapping[str, int] = field(default_factory=dict)
    counters: Mapping[str, int] = field(default_factory=dict)
    first_reject: str = ""
    resumed: bool = False
    stage_s: Mapping[str, StageSeconds] = field(default_factory=dict)
