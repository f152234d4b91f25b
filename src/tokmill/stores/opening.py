"""Open the objects below a URL, in any process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokmill.stores.connections import connect, forget_connections, is_forked

if TYPE_CHECKING:
    from tokmill.stores.connections import Store


def open_store(url: str) -> Store:
    """Return the objects below a URL; no request is made.

    In a process that was forked after its parent had used a store, a child makes the requests.

    Raises:
        UsageError: the URL has no bucket, or a password where none belongs, or a package is
            missing.
    """
    if is_forked():
        from tokmill.stores.forked import ChildObjects  # few processes are

        return ChildObjects(url)
    return connect(url)


def connect_again() -> None:
    """Make new connections from now on, which read the credentials again."""
    if is_forked():
        from tokmill.stores.forked import close_channels

        close_channels()
    forget_connections()
