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
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from tokmill.errors import StateError, StorageError, TokmillError
from tokmill.stores.retry import Backoff
from tokmill.stores.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

FOLDER = ".lock"
TASKS = ".tasks"
"""The tasks of an array hold a lease each, in a folder of their own below this one."""

LEASE_S = 60.0
"""A run that did not renew its lease for so long has ended, or cannot reach the store."""

_LOG = logging.getLogger("tokmill")
_RENEWALS = 4
"""Renewals in the time of a lease: some may fail."""

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""A clock that goes on while the machine is suspended, where there is one."""

_RELEASE_S = 2.0
"""How long the end of a run waits for a renewal that is under way."""

_LOOK_S = 0.5
"""Between two looks of somebody who waits."""

_PROBE = "probe-"
"""What looks for the store's abilities; one that is old is of a process that was killed."""

_INSTEAD = "write to a directory, and copy the dataset"


class Lease:
    """The lease that a run holds; renewed by a thread of its own."""

    def __init__(self, store: Store, name: str, body: bytes, lease_s: float) -> None:
        self._store, self._name, self._body, self._lease_s = store, name, body, lease_s
        self._quick = store.with_backoff(Backoff(attempts=2))
        self._renewing = threading.Lock()
        self._renewed_s = time.clock_gettime(_CLOCK)
        self._lost = ""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew_often, name="lease", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Check that this run still holds the lease; raises `StateError`."""
        if self._is_old():
            with self._renewing:
                if self._is_old():  # this process stood still, or the store could not be reached
                    self._renew(self._store)
        if self._lost:
            raise StateError(self._lost)

    def _is_old(self) -> bool:
        return not self._lost and time.clock_gettime(_CLOCK) - self._renewed_s > self._lease_s

    def _renew_often(self) -> None:
        while not self._ended.wait(self._lease_s / _RENEWALS) and not self._lost:
            try:
                with self._renewing:
                    self._renew(self._quick)
            except Exception as error:  # the next renewal may succeed; `check` raises
                _LOG.debug("%s: the lease was not renewed: %s", self._store.url, error)

    def _renew(self, store: Store) -> None:
        started_s = time.clock_gettime(_CLOCK)
        if self._is_taken(store):
            self._lost = (
                f"{self._store.url}: another run took over while this one could not renew its "
                f"lease for {self._lease_s:.0f} seconds: wait for its end"
            )
            return
        store.write(self._name, self._body)
        self._renewed_s = started_s

    def _is_taken(self, store: Store) -> bool:
        """Return whether another run has or had the lease; numbers begin again after each run."""
        mine = _number(self._name)
        return not self._is_mine(store) or any(_number(n) > mine for n in store.names(FOLDER))

    def _is_mine(self, store: Store) -> bool:
        try:
            return store.read(self._name) == self._body
        except FileNotFoundError:
            return False

    def release(self) -> bool:
        """Remove the lease, and return whether it is gone; a later run then begins at once.

        Where the store does not answer, the lease is left to expire: the user is to see the error
        of the run without waiting for more requests.
        """
        self._ended.set()
        self._thread.join(_RELEASE_S)
        if self._thread.is_alive():
            return False
        try:
            if self._is_mine(self._quick):
                self._quick.remove(self._name)
        except TokmillError:
            return False
        return True


@contextmanager
def leased(
    store: Store,
    note: Path,
    *,
    lease_s: float = LEASE_S,
    wait: Callable[[str], None] | None = None,
) -> Iterator[Lease]:
    """Take the lease of a directory in a store, and release it at the end.

    `note`: a private file that remembers the lease on this machine, which nobody else may use
    now: after a kill, the next run here need not wait until the lease has expired. `wait`: if
    somebody holds the lease, it is called with a line, and this waits until the lease is renewed
    (then it is refused), released or expired; without it, it is refused at once.

    Raises:
        StateError: another run holds it.
        StorageError: the store has no conditional writes, or does not say when it wrote an object.
    """
    now = _checked_time(store)
    body = json.dumps(
        {"host": socket.gethostname(), "pid": os.getpid(), "key": secrets.token_hex(16)}
    ).encode()
    if wait is not None:
        now = _waited(store, now, note, lease_s, wait)
    names = store.names(FOLDER)
    old = [name for name in names if _number(name)]
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
        for one in (*old, *_left_probes(store, names, now, lease_s)):
            store.remove(one)
        yield lease
    finally:
        if lease.release():
            note.unlink(missing_ok=True)


def _waited(
    store: Store, now: datetime, note: Path, lease_s: float, wait: Callable[[str], None]
) -> datetime:
    """Wait while a lease is held and not renewed; return the time of the store after that."""
    started_s, written = time.clock_gettime(_CLOCK), _times(store)
    is_told = False
    while True:
        at = now + timedelta(seconds=time.clock_gettime(_CLOCK) - started_s)
        found = _times(store)
        try:
            _refuse_held(store, list(found), at, note, lease_s)
        except StateError as error:
            if any(found[name] != before for name, before in written.items() if name in found):
                raise  # it was renewed
            if not is_told:
                wait(f"{error}; this one waits until then")
                is_told = True
            written = {**found, **written}
            time.sleep(_LOOK_S)
        else:
            return at


def _times(store: Store) -> dict[str, datetime]:
    """Return when each lease was written."""
    found = {}
    for name in filter(_number, store.names(FOLDER)):
        with suppress(FileNotFoundError):
            found[name] = store.modified(name)
    return found


def _left_probes(store: Store, names: list[str], now: datetime, lease_s: float) -> Iterator[str]:
    """Yield the probes of processes that were killed."""
    for name in names:
        if name.rpartition("/")[2].startswith(_PROBE):
            with suppress(FileNotFoundError):
                if (now - store.modified(name)).total_seconds() > lease_s:
                    yield name


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
    name = f"{FOLDER}/{_PROBE}{secrets.token_hex(8)}"
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
        with suppress(TokmillError, NotImplementedError):
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
