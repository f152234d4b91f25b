"""The spot check: during a run, some text is encoded again by the reference and compared.

A short document is compared completely, a long one in windows. A window has other tokens at its
edges, but the tokens of its middle must be among the document's. If they are not, that alone proves
nothing: a run stops only if two encodings of the same text, window or document, differ.

Only a hash of a text decides whether it is picked, so the result depends neither on blocks, workers
and threads nor on earlier documents.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import xxhash

from tokmill.dataset.counts import CHECKED, CHECKED_BYTES, ROUTED, SKIPPED
from tokmill.engines.engine import FAST_ENGINES, IMPORT, REFERENCE
from tokmill.offsets import byte_offsets

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from tokmill.engines.engine import Engine
    from tokmill.values import TokenBatch

    Ids = npt.NDArray[np.uint32]

_SHARE, _SHARE_OF_FAST = 0.002, 0.0002
"""Of the bytes, see `spot_share`. A fast engine takes 5 to 30 ms for 1 MB of text, the reference
400 to 800 for single texts with a cold cache (AMD EPYC): so the check takes about 1% of a run."""

WHOLE_BYTES = 8 << 20
"""Longest document that the reference encodes: that takes 0.4 s per MB, and 60 to 142 times the
memory, which a forecast counts for the longest text."""

TOO_LONG = f"a window differs, and the document is longer than {WHOLE_BYTES >> 20} MiB"

_MARGIN_BYTES = 256
"""Text on each side of a window that is encoded with it; its tokens are not compared."""

_EDGE_TOKENS = 64
_LEAST_TOKENS = 64
"""A window with fewer tokens in its middle proves nothing."""

LONGEST_BYTES = 32 << 10
"""A longer document is split into windows of at most this size."""

_MOST_KNOWN = 1 << 14


class SpotCheck:
    """Compares the ids of texts with the reference's; safe to call from several threads.

    `reference` returns the reference engine, and loads it at the first call; `continuation` returns
    it for texts that continue others, if that is another engine. `share`: of the bytes to compare.
    """

    def __init__(
        self,
        reference: Callable[[], Engine],
        share: float,
        continuation: Callable[[], Engine] | None = None,
    ) -> None:
        self._share = share
        self._references = reference, continuation or reference
        # A repeated text, such as the same system message in every chat, is encoded once.
        self._known: dict[tuple[bool, bytes], bytes] = {}

    def check(
        self,
        text: pa.LargeStringArray,
        tokens: TokenBatch,
        encode: Callable[[bool, pa.LargeStringArray], TokenBatch],
        owner: npt.NDArray[np.int64],
        rows: npt.NDArray[np.int64],
        continues: npt.NDArray[np.bool_] | None = None,
    ) -> tuple[dict[str, npt.NDArray[np.int64]], list[tuple[int, str]]]:
        """Compare the picked windows of n texts, and count the texts that were routed.

        `encode` is the run's engine, for windows that differ; its first argument is whether they
        continue a text. `owner`: (n,), the document of each text. `rows`: (n_documents,), the row
        of each document. `continues`: (n,), whether a text continues another; None: none does.

        Returns:
            counts by the names of `Counts.checks`, (n_documents,) each; and the row and a line of
            each difference, in order of rows.
        """
        checks: dict[str, npt.NDArray[np.int64]] = {}
        differences, zeros = [], np.zeros(len(rows), np.int64)
        for window in pick_windows(text, self._share):
            start, stop = tokens.offsets[window.number : window.number + 2]
            is_continuation = continues is not None and bool(continues[window.number])
            line, skipped = self._compare(window, tokens.ids[start:stop], encode, is_continuation)
            document = owner[window.number]
            name = SKIPPED + skipped if skipped else CHECKED
            checks.setdefault(name, zeros.copy())[document] = 1
            if not skipped:
                n_bytes = window.stop - window.start
                checks.setdefault(CHECKED_BYTES, zeros.copy())[document] += n_bytes
            if line:
                differences.append((int(rows[document]), line))
        if tokens.routed is not None:
            checks[ROUTED] = zeros.copy()
            checks[ROUTED][owner[tokens.routed]] = 1
        return checks, sorted(differences)

    def _compare(
        self,
        window: Window,
        ids: Ids,
        encode: Callable[[bool, pa.LargeStringArray], TokenBatch],
        is_continuation: bool,
    ) -> tuple[str, str]:
        """Return a line about differing ids, or '', and why they cannot be compared, or ''."""
        if not window.is_whole:
            text = _column(window.text())
            expected = self._references[is_continuation]().encode(text).ids
            if window.agrees(ids, expected):
                return "", ""
            encoded = encode(is_continuation, text).ids
            if not np.array_equal(encoded, expected):
                return difference(text[0].as_py(), encoded, expected), ""
            # The engine is right about the window. Either it is wrong about the document, or the
            # tokens depend on text outside the window.
            if window.last - window.first > WHOLE_BYTES:
                return "", TOO_LONG
        return self._difference(window.column[window.number].as_py(), ids, is_continuation), ""

    def _difference(self, text: str, ids: Ids, is_continuation: bool) -> str:
        """Return a line about ids of a document that differ from the reference's, or ''."""
        key = is_continuation, xxhash.xxh3_128_digest(text.encode())
        value = xxhash.xxh3_128_digest(ids.tobytes())
        if self._known.get(key) == value:
            return ""
        expected = self._references[is_continuation]().encode(_column(text)).ids
        if not np.array_equal(expected, ids):
            return difference(text, ids, expected)
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[key] = value
        return ""


class Window(NamedTuple):
    """A part of document `number`, or all of it: bytes `start:stop` of `first:last` in the buffer.

    It may begin and end inside a character.
    """

    column: pa.LargeStringArray
    number: int
    first: int
    start: int
    stop: int
    last: int

    @property
    def is_whole(self) -> bool:
        """Return whether it is the complete document."""
        return (self.start, self.stop) == (self.first, self.last)

    def text(self) -> str:
        """Return its text with the margins, complete characters only."""
        start = max(self.first, self.start - _MARGIN_BYTES)
        stop = min(self.last, self.stop + _MARGIN_BYTES)
        data = memoryview(self.column.buffers()[2])[start:stop]
        # The bytes of a character at an edge may be incomplete.
        return str(data, "utf-8", "ignore")

    def agrees(self, ids: Ids, expected: Ids) -> bool:
        """Return whether a document's ids contain the reference's ids of the window.

        Those near an edge that is not an end of the document may differ.
        """
        start = 0 if self.start == self.first else _EDGE_TOKENS
        stop = len(expected) - (0 if self.stop == self.last else _EDGE_TOKENS)
        middle = expected[start:stop]
        if stop - start < _LEAST_TOKENS:
            return False
        if start == 0:
            return np.array_equal(ids[: len(middle)], middle)
        if stop == len(expected):
            return np.array_equal(ids[-len(middle) :], middle)
        return _contains(ids, middle)


def spot_share(engine: str) -> float:
    """Return the share of the text that is compared for an engine.

    Fixed, not measured in each run: the number of checks is written into the dataset, which must
    not depend on the speed of the machine.
    """
    if engine in (REFERENCE, IMPORT):
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


def pick_windows(text: pa.LargeStringArray, share: float) -> list[Window]:
    """Return the windows to compare: on average `share` of the bytes, of long and short documents.

    A hash of all its bytes decides about each window: 0.2 us for a document of 1 kB. No window is
    empty.
    """
    offsets = byte_offsets(text).tolist()
    if not len(text) or offsets[0] == offsets[-1]:
        return []
    windows = []
    data, limit, digest = memoryview(text.buffers()[2]), share * (1 << 64), xxhash.xxh3_64_intdigest
    for number, (first, last) in enumerate(pairwise(offsets)):
        n_bytes = last - first
        if n_bytes <= LONGEST_BYTES:
            if digest(data[first:last]) < limit and n_bytes:
                windows.append(Window(text, number, first, first, last, last))
            continue
        n_windows = -(-n_bytes // LONGEST_BYTES)
        bounds = [first + n_bytes * i // n_windows for i in range(n_windows + 1)]
        for start, stop in pairwise(bounds):
            # Its place in the document is the seed, so that windows with the same text differ.
            if digest(data[start:stop], start - first) < limit:
                windows.append(Window(text, number, first, start, stop, last))
    return windows
