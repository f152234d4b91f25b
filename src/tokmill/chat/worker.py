"""A process that writes records: `python -m tokmill.chat.worker`.

Per-record work holds the interpreter, so that only processes make it faster. Messages come on
standard input and are answered on standard output: 8 bytes of length, little-endian, then a pickle.
The first one says how to write, every other one is a column of records. The process ends with its
input, so that it cannot outlive its parent.
"""

from __future__ import annotations

import pickle
import resource
import signal
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokmill.chat.records import RecordWriter
from tokmill.chat.templates import make_template
from tokmill.chat.weights import mask_rule

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import IO

_LENGTH_BYTES = 8


def send(pipe: IO[bytes], value: Any) -> None:
    """Write a message."""
    data = pickle.dumps(value, protocol=5)
    pipe.write(len(data).to_bytes(_LENGTH_BYTES, "little"))
    pipe.write(data)
    pipe.flush()


def receive(pipe: IO[bytes]) -> Any:
    """Read a message, from a process of one's own.

    Raises:
        EOFError: the other side has ended.
    """
    length = int.from_bytes(_exactly(pipe, _LENGTH_BYTES), "little")
    return pickle.loads(_exactly(pipe, length))  # noqa: S301  from our own process


def _exactly(pipe: IO[bytes], n_bytes: int) -> bytes:
    data = pipe.read(n_bytes)
    if len(data) < n_bytes:
        raise EOFError
    return data


def main() -> None:
    """Answer until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt ends the parent, and so the input
    messages, answers = sys.stdin.buffer, sys.stdout.buffer
    try:
        settings, source, vocabulary = receive(messages)
        with guarded(0):
            template = make_template(source, settings, vocabulary)
            writer = RecordWriter(settings, template, mask_rule(settings), vocabulary)
        while True:
            text = receive(messages)
            with guarded(text.nbytes):
                written = writer.write(text)
            send(answers, written)
    except (EOFError, BrokenPipeError):
        return


TIME_S, TIME_OF_MIB_S = 120, 60
"""Processor time, not wall time: a busy machine takes none of it. A MiB of chats takes a second."""

MEMORY_BYTES, MEMORY_TIMES_INPUT = 4 << 30, 64

OUT_OF_TIME, OUT_OF_MEMORY = -signal.SIGPROF, 86
"""Exit statuses of a process, as its parent sees them."""

_STATM = Path("/proc/self/statm")


@contextmanager
def guarded(n_bytes: int) -> Iterator[None]:
    """Bound what is done with a message of `n_bytes`; to be called from the main thread.

    Raises:
        SystemExit: there is no more memory. With no more time, the process ends at once.
    """
    limit_memory(MEMORY_BYTES + MEMORY_TIMES_INPUT * n_bytes)
    signal.setitimer(signal.ITIMER_PROF, TIME_S + TIME_OF_MIB_S * (n_bytes >> 20))
    try:
        yield
    except MemoryError:
        raise SystemExit(OUT_OF_MEMORY) from None
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def limit_memory(n_bytes: int) -> None:
    """Let this process map `n_bytes` more than it does now; without /proc nothing is bounded."""
    try:
        mapped = int(_STATM.read_text().split()[0]) * resource.getpagesize()
    except OSError:
        return
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    wanted = mapped + n_bytes
    soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


if __name__ == "__main__":
    main()
