"""A place: where a dataset stands. Only the package `place` knows which kind it is.

Files are written to `local`, a directory of this machine, under their names in the dataset, and
then kept. A directory is its own `local`; an object store has a temporary one, from which `keep`
uploads. Small files (plan, records, manifest) are created or written whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tokmill.dataset.layout import FOLDERS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from datetime import datetime
    from pathlib import Path

    from tokmill.dataset.checksum import FileEntry


class Place(Protocol):
    """Where a dataset stands. Every method but `read` and `chunks` raises `StorageError` alone."""

    @property
    def where(self) -> str:
        """Return the path or the URL, without secrets, for messages."""

    @property
    def local(self) -> Path:
        """Return the directory of this machine in which files of the dataset are written."""

    @property
    def mapped(self) -> Path | None:
        """Return the directory if its files can be memory-mapped, else None."""

    def held(self, *, is_shared: bool = False) -> AbstractContextManager[None]:
        """Keep other runs out, as far as the place can; tasks of one array share it.

        Raises:
            StateError: another run holds the place.
        """

    def holder(self) -> str:
        """Return who holds the place: `lock.RUN` or `lock.TASKS`; '' if nobody, as far as known."""

    def last_written(self) -> datetime | None:
        """Return the time of the newest file; None where a lock says whether anybody writes."""

    def make_folders(self) -> None:
        """Make the folders of a dataset in `local`; the place is held."""

    def entries(self, folders: Sequence[str] = FOLDERS) -> dict[str, int | None]:
        """Return the bytes of everything by relative name, sorted; None for what is no file.

        `folders`: relative names. Of these, real folders are not listed, what stands in them is.
        """

    def stamp(self, name: str) -> str:
        """Return what changes whenever a file is written; '' if it is not there."""

    def read(self, name: str) -> bytes:
        """Return the content of a small file; raises `FileNotFoundError`."""

    def chunks(self, name: str) -> Iterator[bytes | memoryview]:
        """Yield the content of a file; raises `FileNotFoundError`."""

    def create(self, name: str, chunks: Iterable[bytes]) -> bool:
        """Write a file if there is none; return whether what stands there now has these bytes.

        The first one wins. For small files, and for plans.
        """

    def write(self, name: str, data: bytes) -> None:
        """Write a small file; one that is there is replaced."""

    def keep(self, entry: FileEntry, check: Callable[[], None]) -> None:
        """Make a file that was written to `local` stand in the place.

        `check` is called as late as possible before it does; it may raise.
        """

    def take(self, other: Place, entry: FileEntry, name: str) -> None:
        """Make a file of another place of this kind stand here, too: linked, or copied where it is.

        `entry`: what the other place says of the file. `name`: its name here.

        Raises:
            VerifyError: the file is missing, or has another size.
            UsageError: the other place is of another kind.
        """

    def fetch(self, names: Iterable[str]) -> None:
        """Make files of the place stand in `local`, too."""

    def rescue(
        self, names: Mapping[str, str], processes: Collection[int] | None, check: Callable[[], None]
    ) -> None:
        """Make files that killed processes were writing stand in the place, under other names.

        `names`: the relative name of each, with the other one in the same folder. `processes`: the
        ids of processes of this machine; None: all that wrote to the place, if that can be known.
        `check`: see `keep`.
        """

    def differs(self, entry: FileEntry) -> bool:
        """Return whether a file is missing, or another one than the entry says, if that is cheap.

        Its size is compared, and the sum that `keep` has stored beside an object.
        """

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""

    def remove_folder(self, name: str) -> None:
        """Remove an empty folder, if it is there."""

    def sync(self) -> None:
        """Make durable what was removed or taken so far, before what comes next."""

    def close(self) -> None:
        """Remove what is left in a temporary `local`."""
