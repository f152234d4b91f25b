"""Files of records, and slices of them."""

from __future__ import annotations

import os
from dataclasses import dataclass

from tokmill.errors import StorageError
from tokmill.sources.streams import unreadable
from tokmill.urls import is_store
from tokmill.words import plural


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file of records.

    `path`: as given or found, with forward slashes; '-' is standard input, 'hf:NAME' a Hub dataset,
    a URL an object in a store. `format`: a name in the table of formats. `compression`: '', gz or
    zst. `mtime_ns`: 0 for an object, which has `stamp`: what its store changes whenever it is
    written. `stamp` is the revision of a Hub dataset, and '' for a file.
    """

    path: str
    format: str
    compression: str
    n_bytes: int
    mtime_ns: int
    stamp: str

    @property
    def is_stream(self) -> bool:
        """Return whether this is standard input or a Hub dataset: no file with a size and time."""
        return self.path == "-" or self.format == "hub"


@dataclass(frozen=True, slots=True)
class Slice:
    """A piece of a file that can be read alone; 0 to -1 is the whole file.

    `start`, `stop`: stored bytes of JSON Lines, units of other formats (row groups of Parquet,
    record batches of Arrow). `n_bytes`: its share of the file's stored bytes.
    """

    file: SourceFile
    start: int
    stop: int
    n_bytes: int

    @property
    def is_whole(self) -> bool:
        """Return whether the slice is a whole file."""
        return (self.start, self.stop) == (0, -1)


def check_unchanged(file: SourceFile) -> None:
    """Check that a file is still the one that the plan was made from.

    Raises:
        StorageError: its size, time or stamp has changed, or it is gone.
    """
    if file.is_stream:
        return
    if is_store(file.path):
        from tokmill.stores.objects import look

        entry = look(file.path)
        n_bytes, mtime_ns, stamp = entry.n_bytes, 0, entry.stamp
    else:
        try:
            stat = os.stat(file.path)  # noqa: PTH116  asked of every file, and half of it is Path's
        except OSError as error:
            raise unreadable(file.path, error) from None
        n_bytes, mtime_ns, stamp = stat.st_size, stat.st_mtime_ns, file.stamp
    if (n_bytes, mtime_ns, stamp) != (file.n_bytes, file.mtime_ns, file.stamp):
        change = (
            "modified, with as many bytes as before"
            if n_bytes == file.n_bytes
            else f"{plural(file.n_bytes, 'byte')} when the run began, {n_bytes:,} now"
        )
        raise StorageError(
            f"{file.path}: changed while it was read: {change}; run again with --overwrite when "
            "nothing writes to it"
        )
