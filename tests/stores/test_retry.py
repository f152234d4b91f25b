"""Requests are made again after errors that pass, a bounded number of times."""

from __future__ import annotations

import errno
import logging

import pytest

from tokmill.errors import StateError, StorageError
from tokmill.stores.retry import Backoff, is_transient, retry

AT_ONCE = Backoff(attempts=4, first_s=0.0)


class HttpError(Exception):
    """Like the error of gcsfs."""

    def __init__(self, code: int) -> None:
        super().__init__(f"{code}, message")
        self.code = code


class HTTPClientError(Exception):
    """Like the error of botocore."""


class ReadTimeoutError(HTTPClientError):
    """Like the error of botocore."""


def failing(n_times: int, error: Exception):
    """Return an action that fails so often, and the list of its calls."""
    calls: list[int] = []

    def act() -> str:
        calls.append(1)
        if len(calls) <= n_times:
            raise error
        return "done"

    return act, calls


def test_errors_that_pass_are_tried_again(caplog):
    act, calls = failing(3, ConnectionResetError("cut"))
    with caplog.at_level(logging.DEBUG, "tokmill"):
        assert retry(act, "s3://bucket/a", AT_ONCE) == "done"
    assert len(calls) == 4
    assert caplog.messages[0] == "s3://bucket/a: attempt 1 failed: ConnectionResetError: cut"


def test_too_many_failures_end_in_one_line_that_names_the_last():
    act, calls = failing(9, TimeoutError("no answer\nin time"))
    with pytest.raises(StorageError) as raised:
        retry(act, "s3://bucket/a", AT_ONCE)
    assert str(raised.value) == (
        "s3://bucket/a: failed 4 times, last with: TimeoutError: no answer in time: see whether "
        "the store can be reached, then run the same command again"
    )
    assert len(calls) == 4


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError("a"), PermissionError("a"), FileExistsError("a"), KeyError("a"),
        OSError(errno.EINVAL, "a"), OSError(errno.ENOSPC, "a"), HttpError(400), StateError("a"),
    ],
)  # fmt: skip
def test_errors_that_last_are_raised_at_once(error):
    act, calls = failing(1, error)
    with pytest.raises(type(error)):
        retry(act, "s3://bucket/a", AT_ONCE)
    assert len(calls) == 1


@pytest.mark.parametrize(
    "error",
    [
        ConnectionResetError(), TimeoutError(), OSError(errno.EIO, "500"), HttpError(503),
        ReadTimeoutError(), OSError(errno.EBUSY, "slow down"),
    ],
)  # fmt: skip
def test_errors_of_a_busy_or_broken_server_pass(error):
    assert is_transient(error)


def test_waits_grow_to_a_limit_and_differ():
    backoff = Backoff(first_s=0.5, most_s=3.0)
    for attempt, longest in ((2, 0.5), (3, 1.0), (4, 2.0), (5, 3.0), (40, 3.0)):
        found = {backoff.before(attempt) for _ in range(20)}
        assert longest / 2 <= min(found) < max(found) <= longest
