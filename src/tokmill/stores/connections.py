"""Connections to object stores: by obstore, and by fsspec to what obstore does not know.

Both name objects relative to a prefix. obstore tries requests again by itself; those to a file
system of fsspec are tried again here.
"""

from __future__ import annotations

import os
import random
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import lru_cache, partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import quote

from tokmill.errors import StorageError, TokmillError, UsageError
from tokmill.urls import refuse_secrets, shown
from tokmill.words import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

T = TypeVar("T")

S3 = ("s3", "s3a")
OBSTORE = (*S3, "gs", "az", "azure", "abfs", "abfss", "adl")
"""Schemes of URLs that obstore opens. A web server is read by fsspec, which knows its sizes."""

_RETRY_S, _REQUEST_S, _CONNECT_S = 180, 300, 10
_TRIES, _FIRST_WAIT_S, _MOST_WAIT_S = 7, 0.5, 20.0

PIECE_BYTES = 8 << 20
"""Bytes of one request for a large object."""

_CONCURRENT = 4
"""Requests for one object at a time."""

_REFUSED = ("PermissionDeniedError", "UnauthenticatedError", "403 Forbidden", "ExpiredToken")
"""Names of errors and words in their texts: the credentials are not enough."""

_STAMPS = (
    "etag", "generation", "contentmd5", "md5hash", "blobid", "lastmodified", "updated", "mtime",
    "created",
)  # fmt: skip
"""Names, without case and signs, under which file systems give a stamp; the most exact first."""


class Entry(NamedTuple):
    """The size of an object, and a stamp that changes whenever it is written; '' if unknown."""

    n_bytes: int
    stamp: str


class Store(ABC):
    """Objects below a prefix; `url` is the prefix without secrets, for messages.

    All methods raise `StorageError` if the store cannot be reached or refuses.
    """

    def __init__(self, url: str) -> None:
        self.url = shown(url).rstrip("/")

    @abstractmethod
    def entries(self) -> dict[str, Entry]:
        """Return every object by relative name, sorted."""

    @abstractmethod
    def entry(self, name: str) -> Entry | None:
        """Return the size and the stamp of an object; None if it is not there."""

    def read_range(self, name: str, start: int, stop: int) -> bytes:
        """Return the bytes `start` to `stop` of an object; raises `FileNotFoundError`.

        An answer that breaks off is asked for again.
        """
        where = f"{self.url}/{name}"

        def get() -> bytes:
            data = self._range(name, start, stop)
            if len(data) < stop - start:
                n_bytes = plural(stop - start, "byte")
                raise TimeoutError(f"{where}: {len(data):,} of {n_bytes} came")
            if len(data) > stop - start:
                raise StorageError(
                    f"{where}: the server does not answer with the bytes that were asked for: copy "
                    "the file to a disk first"
                )
            return data

        return retried(get, where)

    def read(self, name: str) -> bytes:
        """Return the content of a small object; raises `FileNotFoundError`."""
        return retried(lambda: self._content(name), f"{self.url}/{name}")

    def pieces(
        self,
        name: str,
        start: int,
        stop: int,
        *,
        silent_s: float | None = None,
        waited: Callable[[], None] = lambda: None,
    ) -> Iterator[bytes]:
        """Yield the bytes `start` to `stop` of an object in order; some pieces come at a time.

        Args:
            name: of the object.
            start: the first byte.
            stop: the byte after the last.
            silent_s: a piece that takes longer is told to `waited`; None: none is.
            waited: is called then.

        Raises:
            FileNotFoundError: there is no such object.
        """
        waiting: deque[Future[bytes]] = deque()

        def next_piece() -> bytes:
            future = waiting.popleft()
            while True:
                try:
                    return future.result(silent_s)
                except TimeoutError:
                    if future.done():
                        raise
                    waited()

        for first in range(start, stop, PIECE_BYTES):
            last = min(first + PIECE_BYTES, stop)
            waiting.append(begun(partial(self.read_range, name, first, last)))
            if len(waiting) == _CONCURRENT:
                yield next_piece()
        while waiting:
            yield next_piece()

    def last_written(self) -> datetime | None:
        """Return the time of the newest object; None if there is none, or it is not known."""
        return None

    @abstractmethod
    def _range(self, name: str, start: int, stop: int) -> bytes:
        """Ask once for a range of an object."""

    @abstractmethod
    def _content(self, name: str) -> bytes:
        """Ask once for a whole object."""


def connect(url: str) -> Store:
    """Return the objects below a URL for a process that was not forked; see `open_store`."""
    scheme = url.partition("://")[0].lower()
    return StoreObjects(url) if scheme in OBSTORE else FileSystemObjects(url)


class StoreObjects(Store):
    """Objects below a prefix, by obstore. `store`: of obstore, at that prefix."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        refuse_secrets(url, self.url)
        _users.add(os.getpid())
        variables = sorted(item for item in os.environ.items() if item[0].startswith("AWS_"))
        self.store = _connected(url.rstrip("/"), tuple(variables))

    def entries(self) -> dict[str, Entry]:
        """Return every object by relative name, sorted."""
        import obstore

        listed = request(
            lambda: [meta for chunk in obstore.list(self.store) for meta in chunk], self.url
        )
        # An empty object with the name of a folder stands for the folder, as some consoles make it.
        return {
            meta["path"]: _entry(meta)
            for meta in sorted(listed, key=itemgetter("path"))
            if meta["size"] or (meta["path"] and not meta["path"].endswith("/"))
        }

    def last_written(self) -> datetime | None:
        """Return the time of the newest object; None if there is none."""
        import obstore

        times = request(
            lambda: [meta["last_modified"] for chunk in obstore.list(self.store) for meta in chunk],
            self.url,
        )
        return max(times, default=None)

    def entry(self, name: str) -> Entry | None:
        """Return the size and the stamp of an object; None if it is not there."""
        import obstore

        try:
            return _entry(request(lambda: obstore.head(self.store, name), f"{self.url}/{name}"))
        except FileNotFoundError:
            return None

    def _range(self, name: str, start: int, stop: int) -> bytes:
        import obstore

        return bytes(
            begun(lambda: obstore.get_range(self.store, name, start=start, end=stop)).result()
        )

    def _content(self, name: str) -> bytes:
        import obstore

        return begun(lambda: bytes(obstore.get(self.store, name).bytes())).result()


class FileSystemObjects(Store):
    """Objects below a prefix, by fsspec."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        try:
            from fsspec.core import url_to_fs

            self._fs, root = url_to_fs(url, use_listings_cache=False)
        except (ImportError, ValueError) as error:
            raise UsageError(
                f"{self.url}: cannot be opened ({_describe(error)}): install the package of fsspec "
                "for this kind of URL"
            ) from None
        self._root = str(root).rstrip("/")
        _users.add(os.getpid())

    def entries(self) -> dict[str, Entry]:
        """Return every object by relative name, sorted."""
        try:
            self._fs.invalidate_cache()
            listed: Mapping[str, Any] = retried(
                lambda: self._fs.find(self._root, detail=True), self.url
            )
        except FileNotFoundError:
            return {}
        prefix = f"{self._root}/".lstrip("/")
        return {
            path.lstrip("/")[len(prefix) :]: _stated(info, path)
            for path, info in sorted(listed.items())
            if path.lstrip("/").startswith(prefix)
        }

    def entry(self, name: str) -> Entry | None:
        """Return the size and the stamp of an object; None if it is not there."""
        where = f"{self.url}/{name}"
        try:
            info: Mapping[str, Any] = retried(lambda: self._fs.info(f"{self._root}/{name}"), where)
        except FileNotFoundError:
            return None
        return None if info.get("type") == "directory" else _stated(info, where)

    def _range(self, name: str, start: int, stop: int) -> bytes:
        data: bytes = self._fs.cat_file(f"{self._root}/{name}", start=start, end=stop)
        return data

    def _content(self, name: str) -> bytes:
        data: bytes = self._fs.cat_file(f"{self._root}/{name}")
        return data


@lru_cache(256)
def _connected(url: str, variables: tuple[tuple[str, str], ...]) -> Any:
    """Return obstore's store at the prefix of a URL; a new one loses the open connections.

    `variables`: those of the environment that decide the connection to S3.
    """
    scheme, _, rest = url.partition("://")
    bucket, _, inside = rest.partition("/")
    if not bucket:
        raise UsageError(f"{shown(url)}: expected a bucket and a name, as in s3://bucket/name")
    try:
        from obstore.store import from_url
    except ImportError:
        raise UsageError(
            f"{shown(url)}: the package obstore is missing: pip install 'tokmill[s3]'"
        ) from None
    options: dict[str, Any] = {
        "retry_config": {"max_retries": 12, "retry_timeout": timedelta(seconds=_RETRY_S)},
        "client_options": {
            "timeout": timedelta(seconds=_REQUEST_S),
            "connect_timeout": timedelta(seconds=_CONNECT_S),
        },
    }
    try:
        if scheme in S3:
            options |= _s3_options(variables)
            if options.get("endpoint", os.environ.get("AWS_ENDPOINT_URL", "")).startswith("http:"):
                options["client_options"]["allow_http"] = True
        return from_url(f"{scheme}://{bucket}/{quote(inside)}", **options)
    except TokmillError:
        raise
    except Exception as error:
        raise UsageError(f"{shown(url)}: cannot be opened ({_describe(error)})") from None


@lru_cache(4)
def _s3_options(_variables: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    """Return endpoint, region and credentials as the tools of AWS find them, which takes 0.1 s.

    With boto3, that is from profiles, single sign-on and roles, too; without it, from variables and
    the machine's own role.
    """
    try:
        from boto3 import Session
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError:
        return {}
    session = Session()
    endpoint = str(session.client("s3").meta.endpoint_url)
    options: dict[str, Any] = {} if endpoint.endswith(".amazonaws.com") else {"endpoint": endpoint}
    if session.region_name:
        options["region"] = session.region_name
    if session.get_credentials() is None:
        return {**options, "skip_signature": True}  # a public bucket
    return {**options, "credential_provider": Boto3CredentialProvider(session)}


def _entry(meta: Mapping[str, Any]) -> Entry:
    stamp = meta["e_tag"] or meta["version"] or meta["last_modified"].isoformat()
    return Entry(int(meta["size"]), str(stamp).strip('"'))


def _stated(info: Mapping[str, Any], where: str) -> Entry:
    """Return the size and the stamp of an object from what fsspec says about it.

    Raises:
        StorageError: the server does not state the size.
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


_users: set[int] = set()
"""The process that has used a store, and those before its fork."""


def is_forked() -> bool:
    """Return whether only a process before a fork has used a store: its connections hang here."""
    return bool(_users) and os.getpid() not in _users


def forget_connections() -> None:
    """Make new connections from now on, which read the credentials again."""
    _connected.cache_clear()
    _s3_options.cache_clear()


def begun(action: Callable[[], T]) -> Future[T]:
    """Begin an action on a thread of its own.

    An interrupt ends the wait for its result at once, which native code would not. The thread ends
    with the process: nothing waits for a request that nobody needs any more.
    """
    future: Future[T] = Future()

    def work() -> None:
        try:
            future.set_result(action())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=work, name="store", daemon=True).start()
    return future


def request(action: Callable[[], T], where: str) -> T:
    """Return the result of a request that obstore makes, and tries again by itself.

    Raises:
        FileNotFoundError, FileExistsError: there is no such object, or one already.
        TokmillError: see `store_errors`.
    """
    with store_errors(where):
        return begun(action).result()


def retried(action: Callable[[], T], where: str) -> T:
    """Return the result of an action; one that fails is tried again, after longer and longer waits.

    One that took long has been tried again by obstore.

    Raises:
        FileNotFoundError, FileExistsError: at once.
        TokmillError: the last attempt has failed, or the store refuses.
    """
    for attempt in range(1, _TRIES + 1):
        since_s = time.monotonic()
        try:
            with store_errors(where):
                return action()
        except StorageError:
            if attempt == _TRIES or time.monotonic() - since_s > _REQUEST_S / 10:
                raise
            wait_s = min(_MOST_WAIT_S, _FIRST_WAIT_S * 2.0 ** (attempt - 1))
            time.sleep(wait_s * random.uniform(0.5, 1.0))  # noqa: S311  workers come back apart
    raise AssertionError


@contextmanager
def store_errors(where: str) -> Iterator[None]:
    """Turn what a store raises into one line; `FileNotFoundError`, `FileExistsError` stay.

    Raises:
        UsageError: the store refuses the credentials: trying again is of no use.
        StorageError: in place of any other error.
    """
    try:
        yield
    except (TokmillError, FileNotFoundError, FileExistsError):
        raise
    except Exception as error:
        said = f"{type(error).__name__} {error}"
        if "NoSuchBucket" in said:
            raise StorageError(f"{where}: no such bucket: make it first") from None
        if "InvalidPath" in said:  # the whole listing fails: what is passed over would be lost
            raise StorageError(
                f"{where}: holds an object whose name cannot be read ({_describe(error)}): rename "
                "or remove it, as by `aws s3 mv`"
            ) from None
        if isinstance(error, PermissionError) or any(word in said for word in _REFUSED):
            raise UsageError(
                f"{where}: the store refused ({_describe(error)}): check the credentials and their "
                "rights: to list, read, write and remove"
            ) from None
        raise StorageError(f"{where}: {_describe(error)}") from None


def _describe(error: BaseException) -> str:
    """Return the first line of an error, shortened; obstore adds all that it knows below it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    line = lines[0] if lines else type(error).__name__
    return line if len(line) <= 300 else f"{line[:299]}…"
