"""What a store says about an object: its size, and what changes whenever it is written."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from tokmill.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Mapping

_STAMPS = (
    "etag", "generation", "contentmd5", "md5hash", "blobid", "lastmodified", "updated", "mtime",
    "created",
)  # fmt: skip
"""Names, without case and signs, under which stores give a stamp; the most exact first."""


class Entry(NamedTuple):
    """The size of an object, and a stamp that changes whenever it is written; '' if unknown."""

    n_bytes: int
    stamp: str


def entry_of(info: Mapping[str, Any], where: str) -> Entry:
    """Return the size and the stamp of an object from what fsspec says about it.

    Raises:
        StorageError: the store does not state the size.

    Example:
        >>> entry_of({"size": 12, "ETag": '"5d41402a"'}, "s3://bucket/name")
        Entry(n_bytes=12, stamp='5d41402a')
    """
    if info.get("size") is None:
        raise StorageError(
            f"{where}: the server does not state the size: copy the file to a disk first"
        )
    plain = {"".join(filter(str.isalnum, key.lower())): value for key, value in info.items()}
    stamp = next((plain[name] for name in _STAMPS if plain.get(name)), "")
    if isinstance(stamp, datetime):  # some listings have a number instead
        stamp = stamp.timestamp()
    return Entry(int(info["size"]), str(stamp).strip('"'))
