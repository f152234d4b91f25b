"""Whether the dataset at a path is still the one that was opened there."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tokmill.dataset.layout import MANIFEST
from tokmill.dataset.reader import read_manifest
from tokmill.errors import VerifyError
from tokmill.storage import storage_errors

if TYPE_CHECKING:
    from pathlib import Path

SECONDS = 1.0
"""Between two looks of `check_now_and_then`."""


class Edition:
    """The manifest of a dataset as it was opened, known by its sha256.

    The manifest has the sums of all files: another dataset at the same path has another one, even
    where its files have equal sizes. It is read again only when its file is not the same any more.
    """

    def __init__(self, directory: Path, sha256: str) -> None:
        self._directory, self._sha256 = directory, sha256
        self._seen: tuple[int, int, int, int] | None = None
        self._next_look_s = 0.0

    def check_now_and_then(self) -> None:
        """Check like `check` when the last time is a second ago; otherwise it costs 0.1 µs."""
        if time.monotonic() >= self._next_look_s:
            self.check()

    def check(self) -> None:
        """Check that the manifest is still there, unchanged.

        Raises:
            VerifyError: the dataset was replaced or removed.
            TokmillError: the manifest that is there now cannot be read.
        """
        path = self._directory / MANIFEST
        with storage_errors(path):
            try:
                found = path.stat()
            except FileNotFoundError:
                raise VerifyError(
                    f"{self._directory}: the dataset was moved or removed after it was opened"
                ) from None
        seen = (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size)
        if seen != self._seen and read_manifest(self._directory).get("sha256") != self._sha256:
            raise VerifyError(
                f"{self._directory}: the dataset was replaced after it was opened: open it again"
            )
        self._seen, self._next_look_s = seen, time.monotonic() + SECONDS
