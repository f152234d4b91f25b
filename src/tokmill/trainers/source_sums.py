"""Checksums of the files of a dataset, computed while they are copied, against its manifest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokmill.dataset.checksum import Digest, FileEntry
from tokmill.errors import VerifyError
from tokmill.storage import read_errors
from tokmill.words.plural import plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path
    from typing import BinaryIO

COPY_BYTES = 4 << 20
"""Bytes that are read, summed and written at once."""


class SourceSums:
    """The running checksums of the files of a dataset.

    A file that is copied from its beginning to its end, in one piece or in several, is read once:
    `check` reads only what no copy has read.
    """

    def __init__(self, directory: Path, manifest: Mapping[str, Any]) -> None:
        entries = map(FileEntry.from_json, manifest["files"])
        self._known = {directory / entry.name: entry for entry in entries}
        self._digests: dict[Path, Digest] = {}

    def paths(self) -> Iterator[Path]:
        """Yield the files of the manifest."""
        return iter(self._known)

    def recorded(self, path: Path) -> FileEntry:
        """Return the entry of a file in the manifest."""
        return self._known[path]

    def copy(self, path: Path, start: int, stop: int, file: BinaryIO | None) -> None:
        """Append bytes start:stop of a file of the dataset to `file`; None: only sum them up.

        Raises:
            VerifyError: the file is shorter, or cannot be read.
            OSError: `file` cannot be written.
        """
        digest = self._digest(path)
        with read_errors(path):
            old = path.open("rb", buffering=0)
        with old:
            old.seek(start)
            while start < stop:
                with read_errors(path):
                    chunk = old.read(min(COPY_BYTES, stop - start))
                if not chunk:
                    raise VerifyError(f"{path}: ends at byte {start:,}, expected {stop:,}")
                if file is not None:
                    file.write(chunk)
                if start == digest.n_bytes:
                    digest.update(chunk)
                start += len(chunk)

    def check(self, path: Path) -> None:
        """Check that a file is the one that the manifest records.

        Raises:
            VerifyError: it is damaged, or cannot be read.
        """
        entry, digest = self._known[path], self._digest(path)
        self.copy(path, digest.n_bytes, entry.n_bytes, None)
        if digest.checksum() != entry.checksum:
            raise VerifyError(
                f"{path}: its {plural(entry.n_bytes, 'byte')} are not those of the manifest "
                f"({entry.algorithm}): the dataset is damaged; see tokmill verify"
            )

    def _digest(self, path: Path) -> Digest:
        if path not in self._digests:
            self._digests[path] = Digest(self.recorded(path).algorithm)
        return self._digests[path]
