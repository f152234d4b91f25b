"""A child process that renders records, because threads share one interpreter lock.

It is also the only process that runs templates from outside tokmill: a template is a program, which
may never end, or take all memory. Processor time and memory per message are bounded.

The first message holds the template, the vocabulary and the file of `RowNote`. Each later one is
settings and what to write with them, see `Writers.write`, or None to check them; the answer is what
that returns, or the error that it raises.
"""

from __future__ import annotations

import resource
import signal
from contextlib import contextmanager
from mmap import mmap
from pathlib import Path
from typing import TYPE_CHECKING

from tokmill.chat.conversation import ChatError, Conversation
from tokmill.chat.mask_rule import mask_rule
from tokmill.chat.records import RecordWriter
from tokmill.chat.template_source import make_template
from tokmill.children import Parent
from tokmill.errors import TokmillError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from tokmill.chat.control_strings import Vocabulary
    from tokmill.chat.records import Written
    from tokmill.settings.sft import SftSettings


class Writers:
    """The writers of one template; the files of a run may be read with several settings."""

    def __init__(self, source: str, vocabulary: Vocabulary) -> None:
        self._source, self._vocabulary = source, vocabulary
        self._made: dict[SftSettings, RecordWriter] = {}

    def writer(self, settings: SftSettings) -> RecordWriter:
        """Return the writer for some settings.

        Raises:
            UsageError: the template is wrong, or does not fit the tokenizer or the settings.
        """
        if settings not in self._made:
            template = make_template(self._source, settings, self._vocabulary)
            rule = mask_rule(settings)
            self._made[settings] = RecordWriter(settings, template, rule, self._vocabulary)
        return self._made[settings]

    def write(
        self,
        settings: SftSettings,
        message: pa.LargeStringArray | Conversation,
        note: Callable[[int], None] = lambda _: None,
    ) -> Written:
        """Return the samples of records, each the text of a JSON object, or of a conversation.

        `note` gets the number of each record before its turn.

        Raises:
            UsageError: see `writer`.
            ChatError: the template cannot write the conversation.
        """
        if isinstance(message, Conversation):
            return self.writer(settings).write_conversation(message)
        return self.writer(settings).write(message, note)


class RowNote:
    """The number of the record in work, in a file that a parent can read after a death."""

    N_BYTES = 8

    def __init__(self, path: str) -> None:
        with Path(path).open("r+b") as file:
            self._bytes = mmap(file.fileno(), self.N_BYTES)

    def write(self, row: int) -> None:
        """Write the number of a record."""
        self._bytes[:] = row.to_bytes(self.N_BYTES, "little")

    def read(self) -> int:
        """Return the number that was written last."""
        return int.from_bytes(self._bytes[:], "little")


def main() -> None:
    """Answer every message of the parent."""
    parent = Parent()
    source, vocabulary, path = parent.receive()
    writers, note = Writers(source, vocabulary), RowNote(path)
    parent.send(None)  # the file may go
    while True:
        settings, message = parent.receive()
        with guarded(getattr(message, "nbytes", 0)):
            try:
                answer: object = None
                if message is None:
                    writers.writer(settings)
                else:
                    answer = writers.write(settings, message, note.write)
            except (TokmillError, ChatError) as error:
                answer = error
        parent.send(answer)


TIME_S, TIME_OF_MIB_S, EXAMPLE_TIME_S = 120, 60, 10
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
    limit_memory(most_memory(n_bytes))
    signal.setitimer(signal.ITIMER_PROF, most_seconds(n_bytes))
    try:
        yield
    except MemoryError:
        raise SystemExit(OUT_OF_MEMORY) from None
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def most_seconds(n_bytes: int) -> float:
    """Return the processor time that `n_bytes` of records may take; 0: an example of tokmill's."""
    return TIME_S + TIME_OF_MIB_S * (n_bytes >> 20) if n_bytes else EXAMPLE_TIME_S


def most_memory(n_bytes: int) -> int:
    """Return the bytes of memory that a message of `n_bytes` may take."""
    return MEMORY_BYTES + MEMORY_TIMES_INPUT * n_bytes


def limit_memory(n_bytes: int) -> None:
    """Let this process map at most `n_bytes` more than now.

    Does nothing without /proc: there the parent watches (`RenderPool`).
    """
    try:
        mapped = int(_STATM.read_text().split()[0]) * resource.getpagesize()
    except OSError:
        return
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    wanted = mapped + n_bytes
    soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
