"""The limit of decompression: a small file that becomes terabytes fills disks and days."""

from __future__ import annotations

from tokmill.errors import StorageError

UNCHECKED_BYTES = 1 << 30
"""Data up to this size may have any ratio: the same line a million times compresses 1000:1."""


def check_ratio(where: str, stored_bytes: int, plain_bytes: int, max_ratio: int) -> None:
    """Refuse data that is over `UNCHECKED_BYTES` and over `max_ratio` times its stored size.

    `max_ratio` 0: no limit.

    Raises:
        StorageError: it is over both limits.
    """
    if max_ratio and plain_bytes > UNCHECKED_BYTES and plain_bytes > max_ratio * stored_bytes:
        raise StorageError(
            f"{where}: expected at most {max_ratio:,} bytes of data for each stored byte, found "
            f"over {plain_bytes:,} bytes in the first {stored_bytes:,}: if you trust this file, "
            "raise input.max_decompression_ratio (0: no limit)"
        )
