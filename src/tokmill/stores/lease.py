"""The lease of a directory in an object store: one run at a time writes there.

An object `.lock/N`, made only if there is none of that name. Its holder writes it again every few
seconds; one that was not written for `LEASE_S`, by the clock of the store, belongs to a run that
ended. Whoever makes `.lock/N+1` then holds the lease.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import socket
import threading
import time
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tokmill.errors import StateError, StorageError, TokmillError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tokmill.stores.store import Store

FOLDER = ".lock"
TASKS = ".tasks"
"""The tasks of an array hold a lease each, in a folder of their own below this one."""

LEASE_S = 60.0
"""A run that did not renew its lease for so long has ended, or cannot reach the store."""

_LOG = logging.getLogger("tokmill")
_RENEWALS = 4
"""Renewals in the time of a lease: some may fail."""

_INSTEAD = "write to a directory, and copy the dataset"


class Lease:
    """The lease that a run holds; renewed by a thread of its own."""

    def __init__(self, store: Store, name: str, body: bytes, lease_s: float) -> None:
        self._store, self._name, self._body, self._lease_s = store, name, body, lease_s
        self._renewed_s = time.monotonic()
        self._lost = ""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew_often, name="lease", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Check that this run still holds the lease; raises `StateError`."""
        if not self._lost and time.monotonic() - self._renewed_s > self._lease_s:
            self._renew()  # this process slept, or the store could not be reached
        if self._lost:
            raise StateError(self._lost)

    def _renew_often(self) -> None:
        while not self._ended.wait(self._lease_s / _RENEWALS) and not self._lost:
            try:
                self._renew()
            except Exception as error:  # `check` tries again, and raises
                _LOG.debug("%s: the lease was not renewed: %s", self._store.url, error)

    def _renew(self) -> None:
        started_s = time.monotonic()
        if self._is_taken():
            self._lost = (
                f"{self._store.url}: another run took over while this one could not renew its "
                f"lease for {self._lease_s:.0f} seconds: wait for its end"
            )
            return
        self._store.write(self._name, self._body)
        self._renewed_s = started_s

    def _is_taken(self) -> bool:
        return any(_number(name) > _number(self._name) for name in self._store.names(FOLDER))

    def release(self) -> None:
        """Remove the lease; a later run then begins at once."""
        self._ended.set()
        self._thread.join()
        with suppress(TokmillError):  # it expires
            self._store.remove(self._name)


@contextmanager
def leased(store: Store, note: Path, *, lease_s: float = LEASE_S) -> Iterator[Lease]:
    """Take the lease of a directory in a store, and release it at the end.

    `note`: a private file that remembers the lease on this machine, which nobody else may use
    now: after a kill, the next run here need not wait until the lease has expired.

    Raises:
        StateError: another run holds it.
        StorageError: the store has no conditional writes, or does not say when it wrote an object.
    """
    now = _checked_time(store)
    body = json.dumps(
        {"host": socket.gethostname(), "pid": os.getpid(), "key": secrets.token_hex(16)}
    ).encode()
    old = [name for name in store.names(FOLDER) if _number(name)]
    number = 1 + max(map(_number, old), default=0)
    _refuse_held(store, old, now, note, lease_s)
    name = f"{FOLDER}/{number:010d}"
    # Before the object: a run that is killed while it waits for the answer knows its lease again.
    note.write_bytes((note.read_bytes() if note.is_file() else b"") + body)
    if store.create(name, body) != body:
        raise StateError(f"{store.url}: another run has just begun here: wait for its end")
    note.write_bytes(body)
    lease = Lease(store, name, body, lease_s)
    try:
        # Two runs may have looked at the same time, and made different numbers.
        others = [other for other in store.names(FOLDER) if _number(other) and other != name]
        _refuse_held(store, [one for one in others if one not in old], now, note, lease_s)
        for one in old:
            store.remove(one)
        yield lease
    finally:
        lease.release()
        note.unlink(missing_ok=True)


def refuse_held(store: Store, folder: str) -> None:
    """Check that nobody holds a lease in a folder of a store.

    Raises:
        StateError: somebody does.
    """
    names = [name for name in store.names(folder) if _number(name)]
    if names:
        _refuse_held(store, names, _checked_time(store), None, LEASE_S)


def is_fresh(written: datetime, lease_s: float = LEASE_S) -> bool:
    """Return whether a lease of this time is held, as far as the clock of this machine can tell."""
    return (datetime.now(UTC) - written).total_seconds() <= lease_s


def _number(name: str) -> int:
    """Return the number of a lease; 0 for another name."""
    last = name.rpartition("/")[2]
    return int(last) if last.isdecimal() else 0


def _checked_time(store: Store) -> datetime:
    """Return the time of the store, after checking that it does what a lease needs."""
    name = f"{FOLDER}/probe-{secrets.token_hex(8)}"
    try:
        store.create(name, b"1")
        if store.create(name, b"2") != b"1":
            raise StorageError(
                f"{store.url}: this store replaces an object that it was told to keep (no "
                f"conditional writes): two runs could not be kept apart: {_INSTEAD}"
            )
        return store.modified(name)
    except NotImplementedError:
        raise StorageError(
            f"{store.url}: this store does not say when it wrote an object: two runs could not be "
            f"kept apart: {_INSTEAD}"
        ) from None
    finally:
        with suppress(TokmillError):
            store.remove(name)


def _refuse_held(
    store: Store, names: list[str], now: datetime, note: Path | None, lease_s: float
) -> None:
    """Raise `StateError` if one of the leases is held by a run that goes on."""
    mine = note.read_bytes() if note is not None and note.is_file() else b""
    for name in names:
        try:
            age_s, body = (now - store.modified(name)).total_seconds(), store.read(name)
        except FileNotFoundError:  # released just now
            continue
        if age_s > lease_s or (body and body in mine):
            continue
        raise StateError(
            f"{store.url}: another run is writing there ({_holder(body)}, seen "
            f"{max(0, round(age_s))} s ago): wait for its end; if it was killed, its lease ends "
            f"in {max(1, round(lease_s - age_s))} s"
        )


def _holder(body: bytes) -> str:
    try:
        found = json.loads(body)
        return f"process {int(found['pid'])} on {str(found['host'])[:80]!r}"
    except (ValueError, KeyError, TypeError, RecursionError):
        return "unknown"
