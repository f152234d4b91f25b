"""Objects below a prefix for a process that was forked: a child of its own makes the requests.

The threads that wait for a store do not outlive a fork, and a request there never ends. Workers of
torch's DataLoader are forked.
"""

from __future__ import annotations

import os
import threading
from typing import Any

from tokmill.children import Child, ChildEndedError, Parent
from tokmill.errors import StorageError, TokmillError
from tokmill.stores.connections import Entry, Store, connect, store_errors


class _Channel:
    """A child process that answers for one prefix."""

    def __init__(self, url: str) -> None:
        self._lock = threading.Lock()
        self._child = Child(__name__)
        self._child.send(url)

    def ask(self, where: str, method: str, *arguments: Any) -> Any:
        """Return what a method of the store in the child returns, or raise what it raises."""
        try:
            with self._lock:
                self._child.send((method, arguments))
                answer, error = self._child.receive()
        except ChildEndedError as ended:
            raise StorageError(f"{where}: {ended}") from None
        if error is not None:
            raise error
        return answer

    def close(self) -> None:
        """End the child."""
        self._child.kill()


_channels: dict[tuple[int, str], _Channel] = {}
"""By process and prefix; a process forks with those of its parent, and never uses them."""


class ChildObjects(Store):
    """Objects below a prefix, by a child process."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        key = os.getpid(), url
        if key not in _channels:
            _channels[key] = _Channel(url)
        self._key = key

    def _ask(self, method: str, *arguments: Any) -> Any:
        try:
            return _channels[self._key].ask(self.url, method, *arguments)
        except StorageError:
            raise
        except KeyError:
            raise StorageError(f"{self.url}: the connection was closed") from None

    def entries(self) -> dict[str, Entry]:
        """Return every object by relative name, sorted."""
        return dict(self._ask("entries"))

    def entry(self, name: str) -> Entry | None:
        """Return the size and the stamp of an object; None if it is not there."""
        found: Entry | None = self._ask("entry", name)
        return found

    def _range(self, name: str, start: int, stop: int) -> bytes:
        return bytes(self._ask("_range", name, start, stop))

    def _content(self, name: str) -> bytes:
        return bytes(self._ask("_content", name))


def close_channels() -> None:
    """End the children of this process: the next request has a new connection."""
    for key in [key for key in _channels if key[0] == os.getpid()]:
        _channels.pop(key).close()


def main() -> None:
    """Answer for a prefix, in the child of a forked process."""
    parent = Parent()
    store = connect(parent.receive())
    while True:
        method, arguments = parent.receive()
        answer: Any = None
        error: Exception | None = None
        try:
            with store_errors(store.url):
                answer = getattr(store, method)(*arguments)
        except (TokmillError, FileNotFoundError, FileExistsError) as raised:
            error = raised
        parent.send((answer, error))
