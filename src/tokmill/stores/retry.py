"""Try a request to an object store again, after longer and longer waits, a bounded number of times.

Transient errors: broken connections, timeouts, and answers with which a server says that it is at
fault or too busy. All others are raised at once.
"""

from __future__ import annotations

import errno
import logging
import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from tokmill.errors import StorageError, TokmillError
from tokmill.words.plural import plural

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

_LOG = logging.getLogger("tokmill")

_PERMANENT = (
    FileNotFoundError,
    FileExistsError,
    PermissionError,
    IsADirectoryError,
    NotADirectoryError,
)
_PERMANENT_NUMBERS = {errno.EINVAL, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE}

_TRANSIENT_NAMES = {
    "HTTPClientError",
    "EndpointConnectionError",
    "ClientError",
    "ClientPayloadError",
    "IncompleteRead",
    "IncompleteReadError",
    "ResponseStreamingError",
    "ResponseParserError",
    "HTTPException",
    "ProtocolError",
    "ChecksumError",
}
"""Names of classes of aiohttp, botocore, urllib3 and gcsfs that are no `OSError`."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """How often a request is made, and the longest wait before each further attempt.

    The wait before attempt n is chosen by chance between half of `first_s` * 2^(n - 2) and all of
    it, at most `most_s`: many workers do not come back at the same moment.
    """

    attempts: int = 8
    first_s: float = 0.5
    most_s: float = 20.0

    def before(self, attempt: int) -> float:
        """Return the seconds to wait before an attempt; the first is number 1."""
        longest = min(self.most_s, self.first_s * 2.0 ** (attempt - 2))
        return longest * random.uniform(0.5, 1)  # noqa: S311  no secret


def retry(action: Callable[[], T], where: str, backoff: Backoff | None = None) -> T:
    """Return the result of `action`, called again after transient errors.

    `where`: the URL for messages, without secrets.

    Raises:
        StorageError: it failed with a transient error `backoff.attempts` times.
        Exception: another error of `action`, at once.
    """
    backoff = backoff or Backoff()
    for attempt in range(1, backoff.attempts + 1):
        if attempt > 1:
            time.sleep(backoff.before(attempt))
        try:
            return action()
        except TokmillError:
            raise
        except Exception as error:
            cause = _real(error)
            if not is_transient(cause):
                raise
            _LOG.debug("%s: attempt %d failed: %s", where, attempt, describe(cause))
    raise StorageError(
        f"{where}: failed {plural(backoff.attempts, 'time')}, last with: {describe(cause)}: see "
        "whether the store can be reached, then run the same command again"
    ) from None


def is_transient(error: BaseException) -> bool:
    """Return whether an error may be gone at the next attempt."""
    if _is_refused(error):
        return False
    if isinstance(error, OSError):
        return not isinstance(error, _PERMANENT) and error.errno not in _PERMANENT_NUMBERS
    if getattr(error, "code", None) in {429, 500, 502, 503, 504}:  # gcsfs
        return True
    return any(kind.__name__ in _TRANSIENT_NAMES for kind in type(error).__mro__)


def _is_refused(error: BaseException) -> bool:
    """Return whether a web server says that the fault is with the request."""
    status = getattr(error, "status", None)
    return isinstance(status, int) and 400 <= status < 500 and status not in {408, 429}


def _real(error: Exception) -> Exception:
    """Return why a web server could not be asked: fsspec calls that "file not found"."""
    cause = error.__cause__
    is_hidden = isinstance(error, FileNotFoundError) and type(cause).__module__.startswith(
        "aiohttp"
    )
    return cause if is_hidden and isinstance(cause, Exception) else error


def describe(error: BaseException) -> str:
    """Return an error as one short line."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]
