"""Probes: hidden files or objects with a random nonce, by which nodes recognise an output.

A driver on Ray has one while it works. An array has one from its plan until it is finished, as its
tasks may begin at any time; drivers leave it alone.
"""

from __future__ import annotations

import contextlib
import re
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from tokmill.dataset.layout import PARTS
from tokmill.lock import remove_part_locks
from tokmill.run.array_status import failure_name
from tokmill.storage import open_regular, remove_file, storage_errors
from tokmill.stores.urls import is_store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokmill.stores.store import Store

ARRAY, NODES = "array", "node"
"""Whose probe: that of an array, or that of a driver for its nodes."""

_NONCE = re.compile(r"[0-9a-f]{32}")


def is_nonce(text: str) -> bool:
    """Return whether a text is a nonce: a part of it becomes the name of a file."""
    return _NONCE.fullmatch(text) is not None


def probe_name(place: str, kind: str, nonce: str) -> str:
    """Return the name of a probe: hidden, so no part of a dataset."""
    return _beginning(place, kind) + nonce[:8]


def _beginning(place: str, kind: str) -> str:
    return f".{kind}-proofs/" if is_store(place) else f".{kind}-proof-"


def probes(place: str, kind: str) -> list[str]:
    """Return the names of the probes of a kind, and of what checks that were killed have left."""
    beginning = _beginning(place, kind)
    if is_store(place):
        return _store(place).names(beginning.rstrip("/"))
    found = Path(place).glob(f"{beginning}*")
    return sorted(path.name for path in found if path.is_symlink() or path.is_file())


def write_probe(place: str, name: str, nonce: str) -> None:
    """Write a probe into a directory or a store; raises `StorageError`."""
    if is_store(place):
        _store(place).write(name, nonce.encode())
        return
    with storage_errors(Path(place) / name):
        (Path(place) / name).write_text(nonce)


def remove_probe(place: str, name: str) -> None:
    """Remove a probe from a directory or a store: tasks that look for it then end."""
    if is_store(place):
        _store(place).remove(name)
        return
    with storage_errors(Path(place) / name):
        (Path(place) / name).unlink(missing_ok=True)


def has_file(place: str, name: str) -> bool:
    """Return whether a file or an object of an output is there, such as a probe."""
    return (
        _store(place).size(name) is not None if is_store(place) else (Path(place) / name).exists()
    )


def array_nonce(place: str) -> str:
    """Return the nonce of the array's probe; write one if there is none.

    A plan that is written again keeps it, so that tasks with a copy of the earlier plan go on.

    Raises:
        StorageError: the probe cannot be written.
    """
    for name in probes(place, ARRAY):
        nonce = _content(place, name)
        if is_nonce(nonce) and name == probe_name(place, ARRAY, nonce):
            return nonce
    nonce = secrets.token_hex(16)
    write_probe(place, probe_name(place, ARRAY, nonce), nonce)
    return nonce


def _content(place: str, name: str) -> str:
    """Return the text of a probe; '' if it cannot be read."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        if is_store(place):
            return _store(place).read(name).decode()
        with open_regular(Path(place) / name) as file:
            return file.read(64).decode()
    return ""


def remove_array_probes(place: str, *, keep: str = "") -> None:
    """Remove the probes of arrays from an output, but `keep`, the one with that nonce."""
    for name in probes(place, ARRAY):
        if not keep or name != probe_name(place, ARRAY, keep):
            remove_probe(place, name)


@contextlib.contextmanager
def array_ended(directory: Path) -> Iterator[None]:
    """Remove what arrays left in a directory in which a whole run makes the dataset.

    If the run is stopped, it stays: the tasks of an array may go on with it.
    """
    yield
    end_array(directory)


def end_array(directory: Path) -> None:
    """Remove what an array left; the caller holds the lock of the directory: no task is working."""
    for note in (directory / PARTS).glob(failure_name("*", "*")):
        remove_file(note)
    remove_part_locks(str(directory))
    remove_array_probes(str(directory))


def _store(place: str) -> Store:
    from tokmill.stores.store import Store  # few runs need one

    return Store(place)
