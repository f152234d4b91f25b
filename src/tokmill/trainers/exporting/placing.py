"""Place the files of an export: as hard links, reflinks, copies, or written anew."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tokmill.dataset.checksum import FileEntry, digest_of
from tokmill.errors import StorageError
from tokmill.settings.schema import BLAKE3
from tokmill.storage import link, make_directory, share_blocks, storage_errors
from tokmill.trainers.source_sums import COPY_BYTES
from tokmill.trainers.trainer import Linked, Written

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tokmill.trainers.source_sums import SourceSums


@dataclass(frozen=True, slots=True)
class Placed:
    """A file of an export. `how`: `link`, `reflink`, `copy` or `written`."""

    entry: FileEntry
    how: str

    @property
    def name(self) -> str:
        """Return the path relative to the export."""
        return self.entry.name

    @property
    def n_bytes(self) -> int:
        """Return the size."""
        return self.entry.n_bytes

    def as_json(self) -> dict[str, Any]:
        """Return the file as plain values: name, bytes, checksum, how."""
        return {**self.entry.as_json(), "how": self.how}


def place(
    file: Linked | Written, folder: Path, owners: Mapping[Path, SourceSums], *, copy: bool
) -> Placed:
    """Place one file below `folder`, read-only and durable.

    `owners`: the checksums of the dataset that has a file which is linked; a copy is summed up.

    Raises:
        VerifyError: a file of the dataset is shorter than its manifest says.
        StorageError: there is no space, or the file cannot be written.
    """
    path = folder / file.name
    make_directory(path.parent)
    with storage_errors(path):
        if isinstance(file, Linked):
            owner = owners.get(file.source)
            how = _duplicate(file.source, path, owner, copy=copy)
            if owner is not None:
                known = owner.recorded(file.source)
                return Placed(replace(known, name=file.name, n_bytes=path.stat().st_size), how)
            with path.open("rb") as raw:
                return Placed(digest_of(raw, BLAKE3).entry(file.name), how)
        with path.open("x+b", buffering=1 << 20) as raw:
            file.write(raw)
            raw.flush()
            os.fchmod(raw.fileno(), 0o444)
            os.fsync(raw.fileno())
            raw.seek(0)
            return Placed(digest_of(raw, BLAKE3).entry(file.name), "written")


def _duplicate(source: Path, path: Path, owner: SourceSums | None, *, copy: bool) -> str:
    """Link a file, or share its blocks, or copy it; return which. Raises `OSError`."""
    if not copy and link(source, path):
        return "link"
    with source.open("rb") as old, path.open("xb") as new:
        how = "copy" if copy or not share_blocks(old, new) else "reflink"
        if how == "copy" and owner is not None:
            owner.copy(source, 0, os.fstat(old.fileno()).st_size, new)
        elif how == "copy":
            shutil.copyfileobj(old, new, COPY_BYTES)
        new.flush()
        os.fchmod(new.fileno(), 0o644 if copy else 0o444)  # a copy is the user's own
        os.fsync(new.fileno())
    return how


def check_names(files: Sequence[Linked | Written]) -> None:
    """Check that no two files of an export have one name; raises `StorageError`."""
    names = [file.name for file in files]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise StorageError(f"{twice}: two files of the export have this name")
