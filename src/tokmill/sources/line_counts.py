"""Count the lines and bytes of a file before a slice, to report places in the file.

Only a report of a place needs them. Counts are kept, so that a process reads each byte of a file
at most once to count lines, however many places it reports.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import closing
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

from tokmill.sources.raw_blocks import count_newlines
from tokmill.sources.streams import BrokenInputError, ByteStream
from tokmill.values import Place

if TYPE_CHECKING:
    from tokmill.sources.slices import Slice, SourceFile

_MOST_FILES = 64
"""Number of files whose counts are kept; parts come in the order of the files."""


class _Known(NamedTuple):
    """`place`: lines and bytes before a slice. `is_broken`: input breaks off before the slice."""

    place: Place
    is_broken: bool = False


class LineCounts:
    """Counts the lines before slices, and keeps the counts.

    A count depends on the file alone, not on earlier counts or on where slices end.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._files: OrderedDict[SourceFile, dict[int, _Known]] = OrderedDict()

    def find(self, slice_: Slice) -> Place:
        """Return the lines and bytes before a slice.

        Cost: reads the file from the nearest earlier slice whose count is known.
        """
        with self._lock:
            known = self._known(slice_.file)
            if slice_.start not in known:
                last = max(start for start in known if start < slice_.start)
                known[slice_.start] = _counted(slice_.file, last, slice_.start, known[last])
            return known[slice_.start].place

    def learn(self, slice_: Slice, n_lines: int, n_bytes: int) -> None:
        """Record the lines and decompressed bytes of a slice that was read to its end."""
        with self._lock:
            known = self._known(slice_.file)
            before = known.get(slice_.start)
            if before is not None and not before.is_broken:
                known[slice_.stop] = _Known(Place(n_lines, n_bytes).shifted(before.place))

    def _known(self, file: SourceFile) -> dict[int, _Known]:
        known = self._files.setdefault(file, {0: _Known(Place(0, 0))})
        self._files.move_to_end(file)
        while len(self._files) > _MOST_FILES:
            self._files.popitem(last=False)
        return known


def _counted(file: SourceFile, start: int, stop: int, before: _Known) -> _Known:
    """Return the lines and bytes before `stop`, from those before `start`."""
    if before.is_broken:
        return before
    n_lines, is_broken = 0 if start else 1, False  # also count the line that continues at `stop`
    with closing(ByteStream(file.path, file.compression, start, stop)) as stream:
        try:
            for chunk in stream.inside():
                n_lines += count_newlines(chunk)
        except BrokenInputError:  # reported by the slice that owns it
            is_broken = True
    return _Known(Place(n_lines, stream.decompressed).shifted(before.place), is_broken)


LINE_COUNTS = LineCounts()
"""The counts of this process."""
