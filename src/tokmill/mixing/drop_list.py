"""Lists of documents to leave out: read once, kept as sorted arrays, which every worker maps.

A record takes 8 bytes on disk, a hash 16; memory is that of the pages that are looked at, and all
workers share them. A list may come through a pipe, which can be read only once.
"""

from __future__ import annotations

import hashlib
import json
import os
import select
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from stat import S_ISFIFO, S_ISREG
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from tokmill.dataset.checksum import HASH_BYTES
from tokmill.errors import UsageError
from tokmill.mixing.batch import records_of
from tokmill.mixing.duplicates import hashes_of
from tokmill.storage import storage_errors
from tokmill.words import size

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

    from tokmill.mixing.inputs import Inputs
    from tokmill.mixing.temporary import Temporary

MOST_PIPE_BYTES = 256 << 20
"""Bytes of a list that comes through a pipe: nobody knows where it ends."""

MOST_LINE_BYTES = 1 << 20
WAIT_S = 10.0
"""How long nobody may have opened a pipe for writing."""

_RECORD_BITS = 40
_FILES = {"drop-records": np.dtype("<i8"), "drop-hashes": np.dtype(f"S{HASH_BYTES}")}
"""Sorted arrays, without a header. Two hashes of 16 bytes that NumPy takes as equal are equal."""

_AT_ONCE = 1 << 20
_SETTING = "mix.drop"


def write_drop_lists(paths: Sequence[str], inputs: Inputs, folder: Path) -> list[str]:
    """Write the arrays of all lists into a folder; return the sha256 of each list.

    Raises:
        UsageError: a list cannot be read, is too long, or has a wrong line.
        StorageError: an array cannot be written.
    """
    if not paths:
        return []
    rows: dict[str, list[int]] = {}
    for number, source in enumerate(inputs.rows):
        rows.setdefault(source.path, []).append(number)
    records, hashes = (folder / name for name in _FILES)
    with storage_errors(folder):
        with records.open("wb") as keys, hashes.open("wb") as digests:
            sums = [_write(path, rows, keys, digests) for path in paths]
        for name, dtype in _FILES.items():
            _sort(folder / name, dtype)
    return sums


def _write(path: str, rows: dict[str, list[int]], keys: BinaryIO, digests: BinaryIO) -> str:
    """Append the entries of a list to two files; return its sha256."""
    digest = hashlib.sha256()
    for number, line in enumerate(_lines(path), 1):
        digest.update(line)
        if text := line.strip():
            found = _entry(text, f"{path}, line {number}", rows)
            if isinstance(found, bytes):
                digests.write(found)
            else:
                keys.write(np.array(found, _FILES["drop-records"]).tobytes())
    return digest.hexdigest()


def _entry(line: bytes, where: str, rows: dict[str, list[int]]) -> bytes | list[int]:
    """Return the hash of a line, or the keys of its record: one for each source of that name."""
    expected = 'expected {"source": PATH, "record": NUMBER} or {"hash": 32 hex digits}'
    try:
        entry = json.loads(line.decode())
        if "hash" in entry:
            digest = bytes.fromhex(entry["hash"])
            if len(digest) != HASH_BYTES:
                raise ValueError
            return digest
        source, record = entry["source"], entry["record"]
        if type(record) is not int or not 0 < record < 1 << _RECORD_BITS:
            raise ValueError
        of_source = rows.get(source)
    except (ValueError, TypeError, KeyError, RecursionError):
        found = line[:80].decode(errors="replace")
        raise UsageError(f"{where}: {expected}, found {found!r}") from None
    if of_source is None:
        raise UsageError(f"{where}: no dataset of the mix has the source {source!r}")
    return [(row << _RECORD_BITS) + record for row in of_source]


def _lines(path: str) -> Iterator[bytes]:
    """Yield the lines of a file, or of what a program writes to a pipe; raises `UsageError`."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            mode = os.fstat(descriptor).st_mode
            begun = _wait_for_writer(descriptor, path) if S_ISFIFO(mode) else b""
            os.set_blocking(descriptor, True)
            n_bytes = 0
            while line := begun + file.readline(MOST_LINE_BYTES + 1):
                begun, n_bytes = b"", n_bytes + len(line)
                if len(line) > MOST_LINE_BYTES:
                    most = size(MOST_LINE_BYTES)
                    raise UsageError(f"{path}: expected lines of at most {most}", _SETTING)
                if n_bytes > MOST_PIPE_BYTES and not S_ISREG(mode):
                    raise UsageError(
                        f"{path}: more than {size(MOST_PIPE_BYTES)} through a pipe: write a longer "
                        "list to a file",
                        _SETTING,
                    )
                yield line
    except (OSError, ValueError) as error:  # a path with a zero is a ValueError
        said = (getattr(error, "strerror", "") or str(error)).lower()
        raise UsageError(f"{path}: cannot be read: {said}", _SETTING) from None


def _wait_for_writer(descriptor: int, path: str) -> bytes:
    """Wait until somebody has opened a pipe for writing; return what was read of it meanwhile."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    if poll.poll(WAIT_S * 1000):
        return b""
    try:
        begun = os.read(descriptor, 1)
    except BlockingIOError:  # somebody has, and writes later
        return b""
    if not begun:
        raise UsageError(f"{path}: a pipe to which nobody writes", _SETTING)
    return begun


def _sort(path: Path, dtype: np.dtype[Any]) -> None:
    """Sort the values of a file, and leave each in it once; the system pages it in and out."""
    if not path.stat().st_size:
        return
    values = np.memmap(path, dtype, "r+")
    values.sort()
    n_kept = 0
    for start in range(0, len(values), _AT_ONCE):
        some = np.array(values[start : start + _AT_ONCE])
        is_new = np.ones(len(some), bool)
        is_new[1:] = some[1:] != some[:-1]
        if n_kept:
            is_new[0] = some[0] != values[n_kept - 1]
        kept = some[is_new]
        values[n_kept : n_kept + len(kept)] = kept
        n_kept += len(kept)
    values.flush()
    os.truncate(path, n_kept * dtype.itemsize)


def keep_drop_lists(folder: Path, temporary: Temporary) -> None:
    """Copy the arrays from the folder in which they were written to where workers map them."""
    for name in _FILES:
        if (folder / name).exists():
            with (folder / name).open("rb") as written, temporary.new(name) as file:
                shutil.copyfileobj(written, file, _AT_ONCE)


class DropList:
    """The documents of all lists, by source and record, or by the hash of their ids."""

    def __init__(self, temporary: Temporary, inputs: Inputs) -> None:
        self._inputs = inputs
        self._records, self._hashes = (temporary.map(name, dtype) for name, dtype in _FILES.items())

    def has(self, batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Return which documents are listed: (n,) bool."""
        rows, records = records_of(batch, self._inputs)
        listed = _is_in(self._records, (rows << _RECORD_BITS) + records)
        if len(self._hashes):
            hashes = np.frombuffer(b"".join(hashes_of(batch)), self._hashes.dtype)
            listed |= _is_in(self._hashes, hashes)
        return listed


def _is_in(values: npt.NDArray[Any], wanted: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return which of the wanted are among sorted values: (n,) bool."""
    if not len(values):
        return np.zeros(len(wanted), bool)
    places = np.minimum(np.searchsorted(values, wanted), len(values) - 1)
    found: npt.NDArray[np.bool_] = values[places] == wanted
    return found
