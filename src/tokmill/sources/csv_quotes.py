"""Find where CSV records end: line ends outside quotes, by the rules of Arrow's CSV parser."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tokmill.sources.raw_blocks import Cuts

if TYPE_CHECKING:
    import numpy.typing as npt

_QUOTE, _NEWLINE, _RETURN = ord('"'), ord("\n"), ord("\r")
_INSIDE_FIELD = 0  # any byte that is no quote, delimiter or line end

# State of the parser after a byte. A quote opens a quoted field only at the start of the field;
# a quote right after a closing quote is an escaped quote.
_START, _FIELD, _QUOTED, _CLOSED = range(4)


class CsvSplitter:
    r"""A record ends at \n or \r outside quotes; empty records are not counted."""

    mark_bytes = 1
    advice = ""

    def __init__(self, delimiter: str) -> None:
        self._delimiter = ord(delimiter)
        self._quoted = False
        self._last = _NEWLINE  # the byte before the chunk
        self._open_bytes = 0  # of the record that the chunk before left open

    def feed(self, chunk: bytes) -> Cuts:
        """Return where records end in the next chunk."""
        ends = self.ends(chunk)
        if not len(ends):
            self._open_bytes += len(chunk)
            return Cuts(0, 0, 0)
        filled = np.diff(ends, prepend=-self._open_bytes) > 1
        self._open_bytes = len(chunk) - int(ends[-1])
        return Cuts(int(ends[0]), int(ends[-1]), int(np.count_nonzero(filled)))

    def unfinished(self) -> str:
        """Return an error if a quote is open, else ''."""
        return "a quoted field is not closed before the end of the file" if self._quoted else ""

    def ends(self, chunk: bytes | bytearray) -> npt.NDArray[np.int64]:
        """Return the positions after the end marks of records in the next chunk: (n,) int64."""
        if not chunk:
            return np.zeros(0, dtype=np.int64)
        view = np.frombuffer(chunk, dtype=np.uint8)
        quotes = np.flatnonzero(view == _QUOTE)
        quoted = (np.arange(1, len(quotes) + 1) + self._quoted) % 2 == 1  # behind each quote
        if not self._is_plain(view, quotes[quoted]):
            return self._walk(view)
        breaks = np.flatnonzero((view == _NEWLINE) | (view == _RETURN))
        before = np.searchsorted(quotes, breaks)
        ends: npt.NDArray[np.int64] = breaks[(before + self._quoted) % 2 == 0] + 1
        self._quoted = bool((len(quotes) + self._quoted) % 2)
        self._last = int(view[-1])
        return ends

    def _is_plain(self, view: npt.NDArray[np.uint8], opening: npt.NDArray[np.int64]) -> bool:
        """Return whether every second quote opens a field or escapes a quote.

        Then an odd count of quotes means "inside quotes", and no walk is needed.
        """
        before = view[opening - 1]
        if len(opening) and opening[0] == 0:
            before[0] = self._last
        plain = (before == self._delimiter) | (before == _QUOTE)
        return bool(np.all(plain | (before == _NEWLINE) | (before == _RETURN)))

    def _walk(self, view: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
        """Return the ends by a walk over quotes, delimiters and line ends: for misplaced quotes."""
        tokens = (view == _QUOTE) | (view == self._delimiter)
        at = np.flatnonzero(tokens | (view == _NEWLINE) | (view == _RETURN))
        state, behind = self._state(), 0
        ends = []
        for position, kind in zip(at.tolist(), view[at].tolist(), strict=True):
            if state in (_START, _CLOSED) and position != behind:
                state = _FIELD
            if kind == _QUOTE:
                opened = _FIELD if state == _FIELD else _QUOTED
                state = _CLOSED if state == _QUOTED else opened
            elif state != _QUOTED:
                state = _START
                if kind != self._delimiter:
                    ends.append(position + 1)
            behind = position + 1
        if state in (_START, _CLOSED) and behind != len(view):
            state = _FIELD
        self._quoted = state == _QUOTED
        self._last = {_START: _NEWLINE, _CLOSED: _QUOTE}.get(state, _INSIDE_FIELD)
        return np.array(ends, dtype=np.int64)

    def _state(self) -> int:
        if self._quoted:
            return _QUOTED
        if self._last in (self._delimiter, _NEWLINE, _RETURN):
            return _START
        return _CLOSED if self._last == _QUOTE else _FIELD
