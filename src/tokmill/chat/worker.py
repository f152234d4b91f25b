"""A child process that renders records, because threads share one interpreter lock.

The first message holds the settings, the template and the vocabulary; each later one is a column of
records, and the answer is what `RecordWriter` makes of it, or the error that ends the run. Time and
memory per message are bounded.
"""

from __future__ import annotations

import resource
import signal
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tokmill.chat.records import RecordWriter
from tokmill.chat.templates import make_template
from tokmill.chat.weights import mask_rule
from tokmill.children import Parent
from tokmill.errors import TokmillError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokmill.chat.records import Written


def main() -> None:
    """Answer every message of the parent."""
    parent = Parent()
    settings, source, vocabulary = parent.receive()
    with guarded(0):
        template = make_template(source, settings, vocabulary)
        writer = RecordWriter(settings, template, mask_rule(settings), vocabulary)
    while True:
        text = parent.receive()
        with guarded(text.nbytes):
            try:
                answer: Written | TokmillError = writer.write(text)
            except TokmillError as error:  # ends the run, in the parent's words
                answer = error
        parent.send(answer)


TIME_S, TIME_OF_MIB_S = 120, 60
"""Processor time, not wall time, so that other jobs do not count. A MiB of chats takes a second."""

MEMORY_BYTES, MEMORY_TIMES_INPUT = 4 << 30, 64

OUT_OF_TIME, OUT_OF_MEMORY = -signal.SIGPROF, 86
"""Exit statuses of the process, as its parent sees them."""

_STATM = Path("/proc/self/statm")


@contextmanager
def guarded(n_bytes: int) -> Iterator[None]:
    """Bound the work on a message of `n_bytes`; only in the main thread.

    Raises:
        SystemExit: the memory is used up. When the time is used up, the process ends at once.
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
    """Let this process map at most `n_bytes` more than now; does nothing without /proc."""
    try:
        mapped = int(_STATM.read_text().split()[0]) * resource.getpagesize()
    except OSError:
        return
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    wanted = mapped + n_bytes
    soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
