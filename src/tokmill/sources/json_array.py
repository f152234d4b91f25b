"""Turns a JSON array of records into JSON Lines, byte for byte in place, as it streams by."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tokmill.batch import RAW_LIMIT_BYTES
from tokmill.sources.streams import BrokenInputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

_WHITE = b" \t\r\n"
_QUOTE, _BACKSLASH, _COMMA, _NEWLINE, _RETURN = (ord(c) for c in '"\\,\n\r')
_OPEN, _CLOSE = ord("{"), ord("}")  # with bit 0x20 set, [ and ] look the same
_SCAN_BYTES = 128 << 10  # the work arrays of one step stay in the cache


def array_lines(chunks: Iterator[bytes], *, inside: bool) -> Iterator[bytes]:
    r"""Give the chunks of an array as lines: an element a line, every byte at its old offset.

    Commas between elements and the closing bracket become newlines, the opening bracket and line
    breaks between tokens become blanks. A line break within a string, which JSON forbids, becomes
    byte 1, which the parser refuses: it costs one record, not the cut between two. So
    `[{"a": 1},\n {"b": 2}]` gives ` {"a": 1}`, `  {"b": 2}`, and nothing behind.

    Brackets are counted, not checked, so a record with one too many ends the array; the rest is
    one reject. With `inside`, the stream begins at an element, not at the opening bracket.

    Raises:
        BrokenInputError: no array, an array that does not end, or text behind it.
    """
    state = _Scanner(depth=1 if inside else 0)
    steps = (c[i : i + _SCAN_BYTES] for c in chunks for i in range(0, len(c), _SCAN_BYTES))
    for step in steps:
        if not state.depth:
            _check_opening(step)
        lines, stop = state.rewrite(step)
        if stop < 0:
            yield lines
            continue
        yield lines[:stop]
        _check_tail(step[stop:], steps)
        return
    if state.depth:
        raise BrokenInputError("truncated input", "the JSON array has no closing bracket")


def _check_opening(step: bytes) -> None:
    head = step.lstrip(_WHITE)[:1]
    if head not in (b"", b"["):
        message = f"expected [ at the start of a JSON array, found {head!r}"
        raise BrokenInputError("malformed JSON", message)


def _check_tail(rest: bytes, steps: Iterator[bytes]) -> None:
    while not rest.strip(_WHITE):
        following = next(steps, None)
        if following is None:
            return
        rest = following
    message = "text behind the closing bracket of the array"
    raise BrokenInputError("malformed JSON", message, rest.lstrip(_WHITE)[:RAW_LIMIT_BYTES])


class _Scanner:
    """What has to be known of the bytes before: depth, in a string or not, an open backslash."""

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.in_string = 0
        self.escaping = False

    def rewrite(self, chunk: bytes) -> tuple[bytes, int]:
        """Give the chunk as lines, and where the array ends in it: behind its close, or -1."""
        view = np.frombuffer(chunk, dtype=np.uint8)
        at = self._tokens(chunk, view)
        if not len(at):
            return chunk, -1
        kinds = view[at]
        quotes = kinds == _QUOTE
        in_string = (np.cumsum(quotes) + self.in_string) & 1  # behind the byte; a quote is neither
        outside = ~quotes & (in_string == 0)
        closes = outside & (kinds | 0x20 == _CLOSE)
        opens = outside & (kinds | 0x20 == _OPEN)
        depth = self.depth + np.cumsum(opens.astype(np.int64) - closes)
        out = view.copy()
        out[at[outside & (kinds == _COMMA) & (depth == 1)]] = _NEWLINE
        breaks = (kinds == _NEWLINE) | (kinds == _RETURN)
        out[at[outside & breaks]] = ord(" ")
        out[at[~outside & (kinds == _NEWLINE)]] = 1
        if not self.depth and opens.any():
            out[at[np.argmax(opens)]] = ord(" ")
        self.in_string = int(in_string[-1])
        self.depth = int(depth[-1])
        return self._end(out, at, closes & (depth <= 0))

    @staticmethod
    def _end(
        out: npt.NDArray[np.uint8], at: npt.NDArray[np.int64], ends: npt.NDArray[np.bool_]
    ) -> tuple[bytes, int]:
        if not ends.any():
            return out.tobytes(), -1
        last = int(at[np.argmax(ends)])
        if out[last] == ord("]"):  # a } stays: it is one too many of the last record's
            out[last] = _NEWLINE
        return out.tobytes(), last + 1

    def _tokens(self, chunk: bytes, view: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
        """Give the positions of quotes that are not escaped, brackets, commas and line breaks."""
        folded = view | 0x20
        found = (folded == _OPEN) | (folded == _CLOSE) | (view == _QUOTE) | (view == _COMMA)
        found |= (view == _NEWLINE) | (view == _RETURN)
        if self.escaping or b"\\" in chunk:
            escaped = self._escaped(view)
            found[escaped[view[escaped] == _QUOTE]] = False
        return np.flatnonzero(found)

    def _escaped(self, view: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
        """Give the positions behind an odd run of backslashes; a run may begin chunks before."""
        slashes = np.flatnonzero(view == _BACKSLASH)
        breaks = np.flatnonzero(np.diff(slashes) != 1)
        firsts = slashes[np.concatenate([[0], breaks + 1])] if len(slashes) else slashes
        lasts = slashes[np.concatenate([breaks, [-1]])] if len(slashes) else slashes
        odd = (lasts - firsts) % 2 == 0
        if self.escaping and len(firsts) and firsts[0] == 0:
            odd[0] = not odd[0]
        elif self.escaping:
            lasts, odd = np.append(-1, lasts), np.append(True, odd)
        behind: npt.NDArray[np.int64] = lasts[odd] + 1
        self.escaping = bool(len(behind)) and int(behind[-1]) == len(view)
        return behind[behind < len(view)]
