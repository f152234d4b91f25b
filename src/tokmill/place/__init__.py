"""Where a dataset stands, a directory or a prefix in an object store, and objects as input."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokmill.urls import is_store, local_path

if TYPE_CHECKING:
    from tokmill.dataset.place import Place


def open_place(place: str) -> Place:
    """Return the place of a path or a URL; nothing is made and nothing is asked yet.

    Raises:
        UsageError: the URL is none of a store that can be written to, or a package is missing.
    """
    if is_store(local_path(place)):
        from tokmill.place.bucket import Bucket

        return Bucket(place)
    from tokmill.place.directory import Directory

    return Directory(local_path(place))
