"""A dataset in an object store that is read through a cache on a local disk.

Whole files are fetched and compared with the sums of the manifest. A store that cannot be reached,
or refuses, is waited for: a training goes on when it answers again.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from tokmill.dataset.file_array import OPENERS, Opener, OpenFile
from tokmill.dataset.identity import identity_of, replaced
from tokmill.dataset.object_cache import NOW, ObjectCache, WrongSumError, name_of
from tokmill.dataset.reader import read_manifest
from tokmill.errors import StorageError, TokmillError, UsageError, VerifyError
from tokmill.stores.opening import connect_again, open_store
from tokmill.urls import shown_place, store_url
from tokmill.words import plural

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from tokmill.dataset.checksum import FileEntry
    from tokmill.dataset.manifest import Manifest

_LOG = logging.getLogger("tokmill")

PATIENCE_S = 1800.0
"""How long a store is waited for."""

_FIRST_WAIT_S, _MOST_WAIT_S = 0.5, 15.0
_SILENT_S = 10.0
"""A piece that takes longer is waited for with a word."""


class CachedDataset:
    """The files of a dataset in a store, in a cache. Safe to use from threads and after a fork.

    Attributes:
        directory: the path that the URL of the dataset became.
        entries: its files by name.
        cache: where they are.
        identity: of the dataset.
    """

    def __init__(self, directory: Path, manifest: Manifest, cache: ObjectCache) -> None:
        self.directory, self.cache = directory, cache
        self.entries: dict[str, FileEntry] = {entry.name: entry for entry in manifest.files}
        self._sums = {entry.name: name_of(entry) for entry in manifest.files}
        self._where = shown_place(directory)
        self.identity = identity_of(manifest, self._where)
        self._failing_since_s: float | None = None
        self._wait_s = _FIRST_WAIT_S

    def open(self, name: str) -> OpenFile:
        """Return a file, open; it is fetched if it is not in the cache.

        Raises:
            FileNotFoundError: the manifest lists no such file.
            VerifyError: its bytes are not those of the manifest, or the dataset was replaced.
            StorageError: the cache cannot be written to, or the store was waited for in vain.
        """
        file = self.cache.opened(self._sums.get(name, ""))
        if file is not None:
            return file
        if name not in self.entries:
            raise FileNotFoundError(2, "not listed in the manifest")
        entry = self.entries[name]
        self.check_fits(name)
        try:
            return self.cache.open(entry, lambda: self._pieces(entry))
        except WrongSumError:
            raise self._wrong(entry) from None

    def check_fits(self, name: str) -> None:
        """Check that a file fits into the cache; raises `UsageError`."""
        n_bytes = self.entries[name].n_bytes
        if n_bytes > self.cache.n_bytes:
            raise UsageError(
                f"cache_bytes: {self.cache.n_bytes:,} hold no shard of {self._where}: {name} has "
                f"{plural(n_bytes, 'byte')}: give at least that"
            )

    def fetch(self, name: str, rank: int = NOW) -> bool:
        """Make a file stand in the cache ahead of time; see `ObjectCache.fetch`, raises as `open`.

        `rank`: its place in the order of use.
        """
        entry = self.entries[name]
        try:
            return self.cache.fetch(entry, lambda: self._pieces(entry), rank)
        except WrongSumError:
            raise self._wrong(entry) from None

    def _pieces(self, entry: FileEntry) -> Iterator[bytes]:
        """Yield the bytes of a file, however long the store does not answer."""
        done = 0
        while done < entry.n_bytes:
            try:
                store = open_store(store_url(self.directory))
                for piece in store.pieces(
                    entry.name, done, entry.n_bytes, silent_s=_SILENT_S, waited=self._say_waiting
                ):
                    done += len(piece)
                    self._answered()
                    yield piece
            except (FileNotFoundError, StorageError, UsageError) as error:
                self._wait(entry, error)

    def _answered(self) -> None:
        if self._failing_since_s is not None:
            _LOG.warning("%s: the store answers again", self._where)
        self._failing_since_s, self._wait_s = None, _FIRST_WAIT_S

    def _say_waiting(self, why: str = "no answer yet") -> None:
        """Warn once that the store is waited for, until it answers again."""
        if self._failing_since_s is None:
            self._failing_since_s = time.monotonic()
            minutes = f"{PATIENCE_S / 60:.0f} minutes"
            _LOG.warning("%s: waiting for the store, up to %s: %s", self._where, minutes, why)

    def _wait(self, entry: FileEntry, error: Exception) -> None:
        """Wait before the next attempt; raise if that is of no use, or it took too long."""
        why = str(error)
        if isinstance(error, FileNotFoundError):
            why = f"no object {entry.name}"
            if self._has_manifest():
                raise VerifyError(
                    f"{self._where}/{entry.name}: missing in the store; see tokmill verify"
                ) from None
        self._say_waiting(why)
        since_s = self._failing_since_s or time.monotonic()
        if time.monotonic() - since_s > PATIENCE_S:
            raise StorageError(
                f"{self._where}/{entry.name}: the store did not answer for "
                f"{PATIENCE_S / 60:.0f} minutes: {why}"
            ) from None
        time.sleep(self._wait_s)
        self._wait_s = min(2 * self._wait_s, _MOST_WAIT_S)
        if isinstance(error, UsageError):  # credentials may have been rotated
            connect_again()

    def _has_manifest(self) -> bool:
        """Return whether the store has the manifest of this dataset; raises of another one."""
        try:
            now = read_manifest(self.directory)
        except (FileNotFoundError, TokmillError):
            return False
        if identity_of(now, self._where) != self.identity:
            raise replaced(self.directory)
        return True

    def _wrong(self, entry: FileEntry) -> VerifyError:
        """Return the error of bytes that are not those of the manifest; raises of another one."""
        self._has_manifest()
        return VerifyError(
            f"{self._where}/{entry.name}: its {plural(entry.n_bytes, 'byte')} are not those of the "
            f"manifest ({entry.algorithm}): the dataset is damaged; see tokmill verify"
        )


_CACHES: dict[tuple[Path, int], ObjectCache] = {}


def cached_dataset(
    directory: Path, manifest: Manifest, names: Collection[str], cache: Path, n_bytes: int
) -> CachedDataset:
    """Return a dataset whose files are read through a cache from now on, in all of this process.

    Args:
        directory: the path that its URL became.
        manifest: of the dataset.
        names: of the files that are read, of one shard at a time.
        cache: the directory; it is made if there is none.
        n_bytes: of all files in it, at most.

    Raises:
        UsageError: a file does not fit into the cache.
        StorageError: the cache cannot be written to.
    """
    found = CachedDataset(directory, manifest, _opened_cache(cache, n_bytes))
    sizes = {name: found.entries[name].n_bytes for name in names if name in found.entries}
    if sizes:
        found.check_fits(max(sizes, key=lambda name: sizes[name]))
    OPENERS[directory] = Opener(found.identity, found.open)
    return found


def _opened_cache(directory: Path, n_bytes: int) -> ObjectCache:
    key = directory, n_bytes
    if key not in _CACHES or not directory.is_dir():
        _CACHES[key] = ObjectCache(directory, n_bytes)
    return _CACHES[key]
