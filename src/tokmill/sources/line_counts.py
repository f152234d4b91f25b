"""Where slices begin: the lines and bytes of the file before them.

Only a report of a place asks for it. What has been read or counted once is kept, so that a process
reads no byte of a file twice to count its lines, however many places it reports.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

from tokmill.sources.raw_blocks import count_newlines
from tokmill.sources.streams import BrokenInputError, ByteStream
from tokmill.values import Place

if TYPE_CHECKING:
    from tokmill.sources.slices import Slice, SourceFile

_MOST_FILES = 64
"""Files whose slices are kept; parts come in the order of the files."""


class _Known(NamedTuple):
    """`place`: lines and bytes before a slice. `is_broken`: only those before a break in front."""

    place: Place
    is_broken: bool = False


class LineCounts:
    """Counts lines up to slices of files, and keeps the counts.

    The answer depends on the file alone: not on what was known before, nor on where slices end.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._files: OrderedDict[SourceFile, dict[int, _Known]] = OrderedDict()

    def find(self, piece: Slice) -> Place:
        """Return the lines before a slice's first, and the bytes before the slice.

        Cost: reads the file from the last slice before whose origin is known.
        """
        with self._lock:
            known = self._known(piece.file)
            if piece.start not in known:
                last = max(start for start in known if start < piece.start)
                known[piece.start] = _counted(piece.file, last, piece.start, known[last])
            return known[piece.start].place

    def learn(self, piece: Slice, n_lines: int, n_bytes: int) -> None:
        """Note that a slice was read to its end: its own lines, and its decompressed bytes."""
        with self._lock:
            known = self._known(piece.file)
            before = known.get(piece.start)
            if before is not None and not before.is_broken:
                known[piece.stop] = _Known(Place(n_lines, n_bytes).shifted(before.place))

    def _known(self, file: SourceFile) -> dict[int, _Known]:
        known = self._files.setdefault(file, {0: _Known(Place(0, 0))})
        self._files.move_to_end(file)
        while len(self._files) > _MOST_FILES:
            self._files.popitem(last=False)
        return known


def _counted(file: SourceFile, start: int, stop: int, before: _Known) -> _Known:
    """Return what is before `stop`, given what is before `start`."""
    if before.is_broken:
        return before
    stream = ByteStream(file.path, file.compression, start, stop)
    n_lines, is_broken = 0 if start else 1, False  # the line that runs into `stop` is one more
    try:
        for chunk in stream.inside():
            n_lines += count_newlines(chunk)
    except BrokenInputError:  # the slice that owns it says so
        is_broken = True
    finally:
        stream.close()
    return _Known(Place(n_lines, stream.unpacked).shifted(before.place), is_broken)


LINE_COUNTS = LineCounts()
"""Those of this process."""
