"""The file system of fsspec behind a store, and how it makes an object only if there is none.

`AbstractFileSystem.pipe_file(mode="create")` looks whether the name is free, and then writes: two
runs may both find it free. A file system that has nothing better is refused.
"""

from __future__ import annotations

import errno
import os
import secrets
import threading
from pathlib import Path
from typing import Any

from tokmill.errors import UsageError
from tokmill.settings.secrets import refuse_secrets
from tokmill.stores.retry import describe
from tokmill.stores.urls import shown

S3 = ("s3", "s3a")

_LOOK_THEN_WRITE = (
    "fsspec.generic",
    "fsspec.implementations.cached",
    "fsspec.implementations.reference",
)
"""Modules of fsspec that replace `pipe_file` by what is no better."""

_NO_LINKS = {errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}

_memory_lock = threading.Lock()
"""Held while an object of this process is made: fsspec's memory looks first, then writes."""


def open_file_system(url: str) -> tuple[Any, str]:
    """Return the file system of a URL and the path in it.

    Requests fail fast: a store repeats them. Only single pieces of a large object are repeated by
    the library too, or all of it would be written again for one of them.

    Raises:
        UsageError: fsspec, or its package for this kind of URL, is not installed, or a password
            stands where S3 has none.
    """
    scheme = url.partition("://")[0]
    if scheme.rpartition("::")[2] in S3:  # s3fs would take them for the bucket, and name it
        refuse_secrets(url, shown(url))
    options: dict[str, Any] = {"use_listings_cache": False}
    if scheme in S3:
        retries = {"mode": "standard", "total_max_attempts": 3}
        options["config_kwargs"] = {"retries": retries, "max_pool_connections": 16}
    if scheme in ("file", "local"):
        options["auto_mkdir"] = True
    try:
        from fsspec.core import url_to_fs

        fs, root = url_to_fs(url, **options)
    except (ImportError, ValueError) as error:
        raise UsageError(
            f"{shown(url)}: cannot be opened ({describe(error)}): for s3:// install "
            "tokmill[s3], for gs:// gcsfs"
        ) from None
    if scheme in S3:
        fs.retries = 1
    return fs, str(root)


def create_object(fs: Any, path: str, data: bytes) -> None:
    """Write an object if there is none of that name; it appears whole, or not at all.

    Raises:
        FileExistsError: there is one.
        NotImplementedError: the file system could let two writers both win.
    """
    from fsspec.implementations.local import LocalFileSystem
    from fsspec.implementations.memory import MemoryFileSystem

    fs, path = _innermost(fs, path)
    if isinstance(fs, LocalFileSystem):
        _create_file(Path(fs._strip_protocol(path)), data)
        return
    if not has_own_create(type(fs)):
        raise NotImplementedError(f"{type(fs).__name__} looks first, and then writes")
    if isinstance(fs, MemoryFileSystem):
        with _memory_lock:
            fs.pipe_file(path, data, mode="create")
        return
    try:
        fs.pipe_file(path, data, mode="create")
    except OSError as error:
        if _is_condition(error):
            raise FileExistsError(path) from None
        raise


def has_own_create(kind: Any) -> bool:
    """Return whether a class of file systems writes small objects in a way of its own.

    Such a class hands the condition to its server. One that ignores it fails the test of a lease.
    """
    from fsspec import AbstractFileSystem
    from fsspec.asyn import AsyncFileSystem

    own, base = kind.pipe_file, AbstractFileSystem.pipe_file
    if own is base and issubclass(kind, AsyncFileSystem):  # made from this one
        own, base = kind._pipe_file, AsyncFileSystem._pipe_file
    return own is not base and own.__module__ not in _LOOK_THEN_WRITE


def _innermost(fs: Any, path: str) -> tuple[Any, str]:
    """Return the file system that does the work of wrappers, and the path in it."""
    from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper
    from fsspec.implementations.dirfs import DirFileSystem

    while True:
        if isinstance(fs, DirFileSystem):
            fs, path = fs.fs, fs._join(path)
        elif isinstance(fs, AsyncFileSystemWrapper):
            fs = fs.sync_fs
        else:
            return fs, path


def _create_file(target: Path, data: bytes) -> None:
    """Write a file of this machine under another name, and link it to its own if that is free."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}-{secrets.token_hex(8)}")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(temporary, target)
        except OSError as error:
            if error.errno in _NO_LINKS:
                raise NotImplementedError("a file system without hard links") from None
            raise
    finally:
        temporary.unlink(missing_ok=True)


def _is_condition(error: OSError) -> bool:
    """Return whether a store refused to replace an object: some do not say by which condition."""
    answer = getattr(error.__cause__, "response", None) or {}
    return answer.get("Error", {}).get("Code") in ("PreconditionFailed", "412")
