"""The spot check: during a run, some text is encoded again by the reference and compared.

A short document is compared completely, a long one in windows. A window has other tokens at its
edges, but the tokens of its middle must be among the document's. If they are not, that alone proves
nothing: a run stops only if two encodings of the same text, window or document, differ.

Only a hash of a text decides whether it is picked, so the result depends neither on blocks, workers
and threads nor on earlier documents.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import xxhash

from tokmill.dataset.counts import CHECKED, CHECKED_BYTES, SKIPPED
from tokmill.engines.engine import FAST_ENGINES, REFERENCE
from tokmill.offsets import byte_offsets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import numpy.typing as npt

    from tokmill.engines.engine import Engine
    from tokmill.values import TokenBatch

    Ids = npt.NDArray[np.uint32]

_SHARE, _SHARE_OF_FAST = 0.002, 0.0002
"""Of the bytes, see `spot_share`. A fast engine takes 5 to 30 ms for 1 MB of text, the reference
400 to 800 for single texts with a cold cache (AMD EPYC): so the check takes about 1% of a run."""

WHOLE_BYTES = 8 << 20
"""Longest document that the reference encodes: that takes 25 times the memory, and 0.4 s per MB."""

TOO_LONG = f"a window differs, and the document is longer than {WHOLE_BYTES >> 20} MiB"

_MARGIN_BYTES = 256
"""Text on each side of a window that is encoded with it; its tokens are not compared."""

_EDGE_TOKENS = 64
_LEAST_TOKENS = 64
"""A window with fewer tokens in its middle proves nothing."""

LONGEST_BYTES = 32 << 10
"""A longer document is split into windows of at most this size."""

_FIRST_ROUND = 16
"""A quick hash of some bytes picks this many times the wanted share, a hash of all bytes the rest.
The quick hash alone would pick all or none of the texts that differ in a word or two."""

_WORD_BYTES = 8
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)

_MOST_KNOWN = 1 << 14


@dataclass(frozen=True, slots=True)
class SpotResult:
    """The result for one span of text `index`; `n_bytes` of it were compared.

    `skipped`: why it could not be compared, or ''. `difference`: a line about other ids, or ''.
    """

    index: int
    n_bytes: int
    skipped: str = ""
    difference: str = ""


class SpotCheck:
    """Compares the ids of texts with the reference's; safe to call from several threads.

    `reference` loads the reference engine, with the first picked span; `continuation` loads it for
    texts that continue others, if that is another engine. `share`: of the bytes to compare.
    """

    def __init__(
        self,
        reference: Callable[[], Engine],
        share: float,
        continuation: Callable[[], Engine] | None = None,
    ) -> None:
        self._share = share
        self._reference = self._continuation = _Reference(reference)
        if continuation is not None:
            self._continuation = _Reference(continuation)

    def check(
        self,
        text: pa.LargeStringArray,
        tokens: TokenBatch,
        encode: Callable[[bool, pa.LargeStringArray], TokenBatch],
        continues: npt.NDArray[np.bool_] | None = None,
    ) -> list[SpotResult]:
        """Compare the picked spans of documents, in order.

        `encode` is the run's engine, for windows that differ; its first argument is whether they
        continue a text. `continues`: (n,), whether a document continues a text; None: none does.
        """
        picked = pick_spans(text, self._share)
        offsets = byte_offsets(text)
        results = []
        for index, start, stop in zip(
            picked.document.tolist(), picked.start.tolist(), picked.stop.tolist(), strict=True
        ):
            is_continuation = continues is not None and bool(continues[index])
            reference = self._continuation if is_continuation else self._reference
            ids = tokens.ids[tokens.offsets[index] : tokens.offsets[index + 1]]
            window = _Window(text, index, int(offsets[index]), start, stop, int(offsets[index + 1]))
            if window.is_whole:
                line, skipped = reference.difference(window.document(), ids), ""
            else:
                line, skipped = _compare_window(
                    window, ids, reference, partial(encode, is_continuation)
                )
            results.append(SpotResult(index, 0 if skipped else stop - start, skipped, line))
        return results


class _Reference:
    """The reference engine, loaded once for all threads."""

    def __init__(self, load: Callable[[], Engine]) -> None:
        self._load = load
        self._lock = threading.Lock()
        self._engine: Engine | None = None
        # A repeated text, such as the same system message in every chat, is encoded once.
        self._known: dict[bytes, bytes] = {}

    def ids(self, text: str) -> Ids:
        with self._lock:
            if self._engine is None:
                self._engine = self._load()
        return self._engine.encode(_column(text)).ids

    def difference(self, text: str, ids: Ids) -> str:
        """Return a line about ids that differ from the reference's, or ''."""
        key, value = xxhash.xxh3_128_digest(text.encode()), xxhash.xxh3_128_digest(ids.tobytes())
        if self._known.get(key) == value:
            return ""
        expected = self.ids(text)
        if not np.array_equal(expected, ids):
            return difference(text, ids, expected)
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[key] = value
        return ""


def _compare_window(
    window: _Window,
    ids: Ids,
    reference: _Reference,
    encode: Callable[[pa.LargeStringArray], TokenBatch],
) -> tuple[str, str]:
    """Return a line about differing ids, or '', and why they cannot be compared, or ''."""
    text = window.text()
    expected = reference.ids(text)
    middle = window.middle(expected)
    if len(middle) >= _LEAST_TOKENS and window.holds(ids, middle):
        return "", ""
    encoded = encode(_column(text)).ids
    if not np.array_equal(encoded, expected):
        return difference(text, encoded, expected), ""
    # The engine is right about the window. Either it is wrong about the document, or the tokens
    # depend on text outside the window.
    if window.last - window.first > WHOLE_BYTES:
        return "", TOO_LONG
    return reference.difference(window.document(), ids), ""


@dataclass(frozen=True, slots=True)
class _Window:
    """A span of a document: bytes `start:stop` of `first:last` in the buffer of a column."""

    column: pa.LargeStringArray
    index: int
    first: int
    start: int
    stop: int
    last: int

    @property
    def is_whole(self) -> bool:
        return (self.start, self.stop) == (self.first, self.last)

    def document(self) -> str:
        return str(self.column[self.index].as_py())

    def text(self) -> str:
        """Return its text with the margins, complete characters only."""
        start = max(self.first, self.start - _MARGIN_BYTES)
        stop = min(self.last, self.stop + _MARGIN_BYTES)
        data = memoryview(self.column.buffers()[2])[start:stop]
        # The bytes of a character at an edge may be incomplete.
        return str(data, "utf-8", "ignore")

    def middle(self, ids: Ids) -> Ids:
        """Return its ids except those near an edge that is not an end of the document."""
        start = 0 if self.start == self.first else _EDGE_TOKENS
        stop = len(ids) - (0 if self.stop == self.last else _EDGE_TOKENS)
        return ids[start : max(start, stop)]

    def holds(self, ids: Ids, middle: Ids) -> bool:
        """Return whether a document's ids contain the window's middle at a possible place."""
        if self.start == self.first:
            return np.array_equal(ids[: len(middle)], middle)
        if self.stop == self.last:
            return np.array_equal(ids[-len(middle) :], middle)
        return _contains(ids, middle)


def counts(
    results: Iterable[SpotResult], owner: npt.NDArray[np.int64], n_documents: int
) -> dict[str, npt.NDArray[np.int64]]:
    """Return counts of documents by the names of `Counts.checks`: (n_documents,) each.

    `owner`: (n_texts,), the document of each text.
    """
    result: dict[str, npt.NDArray[np.int64]] = {}
    for one in results:
        document = owner[one.index]
        name = SKIPPED + one.skipped if one.skipped else CHECKED
        result.setdefault(name, np.zeros(n_documents, np.int64))[document] = 1
        if one.n_bytes:
            of_bytes = result.setdefault(CHECKED_BYTES, np.zeros(n_documents, np.int64))
            of_bytes[document] += one.n_bytes
    return result


def differences(
    results: Sequence[SpotResult], rows: npt.NDArray[np.int64]
) -> list[tuple[int, str]]:
    """Return the row (of `rows`, (n_texts,)) and the line of each difference, in order of rows."""
    return sorted((int(rows[one.index]), one.difference) for one in results if one.difference)


def spot_share(engine: str) -> float:
    """Return the share of the text that is compared for an engine.

    Fixed, not measured in each run: the number of checks is written into the dataset, which must
    not depend on the speed of the machine.
    """
    if engine == REFERENCE:
        return 0.0
    return _SHARE_OF_FAST if engine in FAST_ENGINES else _SHARE


def difference(text: str, ids: Ids, expected: Ids) -> str:
    """Return one line about an engine's ids of a text that differ from the reference's."""
    return (
        f"the engine's {describe_difference(ids, expected)} of the text that begins {text[:60]!r}: "
        "run again with --engine=reference --overwrite, and report it"
    )


def describe_difference(ids: Ids, expected: Ids) -> str:
    """Return the first place where ids differ from the reference's, and the ids there."""
    n = min(len(ids), len(expected))
    differs = np.flatnonzero(ids[:n] != expected[:n])
    at = int(differs[0]) if len(differs) else n
    shown = f"{ids[at : at + 4].tolist()} against {expected[at : at + 4].tolist()}"
    return f"ids differ from the reference's at token {at} ({shown})"


def _contains(ids: Ids, wanted: Ids) -> bool:
    """Return whether ids contain some ids consecutively."""
    data, pattern = np.ascontiguousarray(ids).data.cast("B"), wanted.tobytes()
    haystack, at = bytes(data), -1
    while (at := haystack.find(pattern, at + 1)) >= 0:
        if at % ids.itemsize == 0:
            return True
    return False


def _column(text: str) -> pa.LargeStringArray:
    return pa.array([text], pa.large_string())


@dataclass(frozen=True, slots=True)
class PickedSpans:
    """Documents or windows of documents: (n_spans,) int64 each.

    `document`: index of the document. `start`, `stop`: bytes in the column's buffer; a window may
    begin and end inside a character.
    """

    document: npt.NDArray[np.int64]
    start: npt.NDArray[np.int64]
    stop: npt.NDArray[np.int64]


def pick_spans(text: pa.LargeStringArray, share: float) -> PickedSpans:
    """Return the spans to compare: on average `share` of the bytes, of long and short documents.

    An empty document is never picked.
    """
    offsets = byte_offsets(text)
    if not len(text) or offsets[0] == offsets[-1]:
        return PickedSpans(*np.zeros((3, 0), np.int64))
    spans = _spans(offsets)
    inside = spans.start - offsets[spans.document]
    data = np.frombuffer(text.buffers()[2], np.uint8)
    first = min(1.0, _FIRST_ROUND * share)
    is_picked = (_hashes(data, spans, inside) < _threshold(first)) & (spans.start < spans.stop)
    second = int(_threshold(share / first))
    rest = np.flatnonzero(is_picked)
    chosen = []
    for i in rest.tolist():
        whole = data[spans.start[i] : spans.stop[i]].data
        if xxhash.xxh3_64_intdigest(whole, int(inside[i])) < second:
            chosen.append(i)
    return PickedSpans(spans.document[chosen], spans.start[chosen], spans.stop[chosen])


def _threshold(share: float) -> np.uint64:
    return np.uint64(min(int(share * (1 << 64)), (1 << 64) - 1))


def _spans(offsets: npt.NDArray[np.int64]) -> PickedSpans:
    """Return short documents, and long ones as windows of equal size."""
    start, stop = offsets[:-1], offsets[1:]
    document = np.arange(len(start))
    if (stop - start).max() <= LONGEST_BYTES:
        return PickedSpans(document, start, stop)
    n_windows = np.maximum(1, -(-(stop - start) // LONGEST_BYTES))
    document = np.repeat(document, n_windows)
    number = np.arange(len(document)) - np.repeat(np.cumsum(n_windows) - n_windows, n_windows)
    length, of_windows = (stop - start)[document], n_windows[document]
    first, last = (start[document] + length * (number + i) // of_windows for i in (0, 1))
    return PickedSpans(document, first, last)


def _hashes(
    data: npt.NDArray[np.uint8], spans: PickedSpans, inside: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint64]:
    """Return a hash of each span: of its length, and of eight bytes at four places in it.

    `inside`: its place in its document, so that windows with the same text differ.
    """
    lengths = spans.stop - spans.start
    mixed = (lengths ^ (inside << 20)).astype(np.uint64) * _MULTIPLIER
    room = np.maximum(lengths - _WORD_BYTES, 0)
    for place in (0, room // 3, 2 * room // 3, room):
        mixed = (mixed ^ _words(data, spans.start + place, lengths)) * _MULTIPLIER
        mixed ^= mixed >> _SHIFT
    return mixed * _MULTIPLIER


def _words(
    data: npt.NDArray[np.uint8], start: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint64]:
    """Return the eight bytes at each start, or fewer for a shorter text."""
    if len(data) < _WORD_BYTES:
        data = np.pad(data, (0, _WORD_BYTES - len(data)))
    # A view of the bytes as overlapping words: indexing every byte takes 20 times as long.
    words: npt.NDArray[np.uint64] = np.ndarray(
        (len(data) - _WORD_BYTES + 1,), "<u8", data, strides=(1,)
    )
    index = np.minimum(start, len(words) - 1)
    too_far = (8 * (start - index)).astype(np.uint64)
    beyond = (8 * np.maximum(_WORD_BYTES - lengths, 0)).astype(np.uint64)
    shifted: npt.NDArray[np.uint64] = words[index] >> too_far << beyond
    return shifted
