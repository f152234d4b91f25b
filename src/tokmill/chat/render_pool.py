"""The chat renderer, and its child processes, because threads share one interpreter lock.

A child runs `main` of this module. It holds a template but no tokenizer, so it starts in half a
second and takes 80 MB. Children are started after `START_AFTER_S` of rendering, so a small dataset
never waits for them. A template from outside tokmill and a pattern of --weigh are programs, which
may never end, or take all memory: they run in children only, whose time and memory is bounded. One
child is started with the first message, the others after `START_AFTER_S`.
"""

from __future__ import annotations

import pickle
import resource
import signal
import tempfile
import threading
import time
import weakref
from contextlib import contextmanager
from dataclasses import replace
from mmap import mmap
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING

import pyarrow as pa

from tokmill.chat.conversation import ChatError, Conversation
from tokmill.chat.mask_rule import mask_rule
from tokmill.chat.records import RecordWriter
from tokmill.chat.template_source import is_foreign, make_template
from tokmill.children import Child, ChildEndedError, Parent
from tokmill.errors import TemplateLimitError, TokmillError, WorkerError
from tokmill.values import WHOLE_RECORD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tokmill.chat.control_strings import Vocabulary
    from tokmill.chat.records import Written
    from tokmill.settings.sft import SftSettings
    from tokmill.values import Records, SampleBatch

START_AFTER_S = 0.5
"""Seconds of rendering after which children are started; their start takes as long."""

_LOOK_S = 1.0
_STATM = Path("/proc/self/statm")
IS_LIMITED = _STATM.exists()
"""Whether a child limits its own memory; else it is watched from here."""

TIME_S, TIME_OF_MIB_S, EXAMPLE_TIME_S = 30, 60, 10
"""Of a record, of the processor, so that other jobs do not count. A MiB of chats takes 1 s."""

MEMORY_BYTES, MEMORY_TIMES_INPUT = 4 << 30, 64

OUT_OF_TIME, OUT_OF_MEMORY = -signal.SIGPROF, 86
"""Exit statuses of the process, as its parent sees them."""

_SHOWN_BYTES = 80


class ChatRenderer:
    """Turns records into samples; threads may share one.

    `settings.schema`: a schema, `auto` resolved. `template`: its name. `write`: returns the samples
    of a column of records or of one conversation, see `Writers.write`.
    """

    schema = pa.schema([(WHOLE_RECORD, pa.large_string())])

    def __init__(
        self,
        settings: SftSettings,
        template: str,
        write: Callable[[pa.LargeStringArray | Conversation], Written],
    ) -> None:
        is_rendered = settings.schema == "text" and settings.rendered_text == "parse"
        self.name = f"{settings.schema} as {'it is' if is_rendered else template}"
        self._write = write

    def render(self, records: Records) -> SampleBatch:
        """Return the samples of a block's records, in order.

        Raises:
            TemplateLimitError: a record took too much of a template's time or memory.
        """
        try:
            written = self._write(records.batch.column(0))
        except TemplateLimitError as error:
            if error.row is None:
                raise
            beginning = records.raw(error.row)[:_SHOWN_BYTES].decode(errors="replace")
            raise TemplateLimitError(f"{error}, which begins {beginning!r}") from None
        refused = [
            (row, records.reject(row, reason, message)) for row, reason, message in written.refused
        ]
        return replace(written.samples, refused=refused)

    def render_conversation(self, conversation: Conversation) -> SampleBatch:
        """Return the samples of one conversation; raises `ChatError` if it has none."""
        return self._write(conversation).samples


class RenderPool:
    """Renders with one template, here at first, then in children; threads may share one.

    `source`, `vocabulary`: the template and the control tokens, from which every process makes its
    own writers. `n_processes`: the most children; with fewer than two there are none, but one for a
    template from outside or a --weigh.
    """

    def __init__(self, source: str, vocabulary: Vocabulary, n_processes: int = 0) -> None:
        self._setup = source, vocabulary
        self._writers = None if is_foreign(source) else Writers(source, vocabulary)
        self.n_processes = n_processes
        self._spent_s = 0.0
        self._lock = threading.Lock()
        self._children: list[_Renderer] = []
        self._idle: SimpleQueue[_Renderer] = SimpleQueue()
        self.close = weakref.finalize(self, _kill_all, self._children)
        """Ends the children; garbage collection of the pool also does."""

    def check(self, settings: SftSettings) -> None:
        """Check the template with some settings; raises what `write` does."""
        self.write(settings, pa.array([], pa.large_string()))

    def write(self, settings: SftSettings, message: pa.LargeStringArray | Conversation) -> Written:
        """Return what `Writers.write` does.

        Raises:
            WorkerError: a child died.
            TemplateLimitError: a child died of the template.
            UsageError, ChatError: see there.
        """
        n_wanted = self._wanted(settings)
        writers = None if n_wanted else self._writers
        # Other threads hold the interpreter lock for a part of the time that passes here.
        clock = time.perf_counter if writers is None else time.thread_time
        start = clock()
        try:
            if writers is not None:
                return writers.write(settings, message)
            self._start_children(n_wanted)
            child = self._idle.get()
            try:
                return child.answer(settings, message)
            finally:
                self._idle.put(child)
        finally:
            self._spent_s += clock() - start

    def _wanted(self, settings: SftSettings) -> int:
        """Return the children that are needed by now."""
        is_long = self._spent_s > START_AFTER_S and self.n_processes >= 2
        return self.n_processes if is_long else int(self._writers is None or bool(settings.weigh))

    def _start_children(self, n: int) -> None:
        with self._lock:
            for _ in range(n - len(self._children)):
                child = _Renderer()
                self._children.append(child)
                try:
                    child.begin(*self._setup)
                finally:
                    self._idle.put(child)  # even if it died: no thread must wait for it forever


_POOLS: weakref.WeakValueDictionary[bytes, RenderPool] = weakref.WeakValueDictionary()


def shared_pool(source: str, vocabulary: Vocabulary, n_processes: int = 0) -> RenderPool:
    """Return the pool of this process for a template, with at least so many processes.

    It ends when nobody holds it any more.
    """
    key = pickle.dumps((source, vocabulary))
    pool = _POOLS.get(key)
    if pool is None:
        pool = _POOLS[key] = RenderPool(source, vocabulary)
    pool.n_processes = max(pool.n_processes, n_processes)
    return pool


class _Renderer:
    """A child that renders."""

    def __init__(self) -> None:
        self._child = Child("tokmill.chat.render_pool")
        self._child.work = "the rendering of chats"
        self.kill = self._child.kill

    def begin(self, source: str, vocabulary: Vocabulary) -> None:
        """Send what each process makes its writers of."""
        # Closed, and so removed, when the child has opened it.
        self._file = tempfile.NamedTemporaryFile(prefix="tokmill-")  # noqa: SIM115
        self._file.write(bytes(RowNote.N_BYTES))
        self._file.flush()
        self._note = RowNote(self._file.name)
        try:
            self._child.send((source, vocabulary, self._file.name))
        except ChildEndedError as error:
            raise _death(error, None, None) from None

    def answer(self, settings: SftSettings, message: pa.LargeStringArray | Conversation) -> Written:
        """Return the child's answer to a message, or raise it."""
        n_bytes = getattr(message, "nbytes", 0)
        try:
            self._child.send((settings, message))
            if not self._file.closed:
                self._child.receive()  # it has opened the file
                self._file.close()
            while not self._child.poll(_LOOK_S):
                if not IS_LIMITED and self._child.memory_bytes() > most_memory(n_bytes):
                    self._child.stop()
                    raise _too_much(f"{most_memory(n_bytes) >> 30} GiB", self._row(n_bytes))
            answer: Written | Exception = self._child.receive()
        except ChildEndedError as error:
            raise _death(error, message, self._row(n_bytes)) from None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _row(self, n_bytes: int) -> int | None:
        """Return the number of the record in work, None if it is an example of tokmill's own."""
        return self._note.read() if n_bytes else None


def _kill_all(children: list[_Renderer]) -> None:
    while children:
        children.pop().kill()


def _death(error: ChildEndedError, message: object, row: int | None) -> WorkerError:
    if error.stopped:
        return WorkerError(f"{error.stopped}: run the same command again")
    if error.status == OUT_OF_TIME:
        return _too_much(f"{most_seconds(message, row):g} s of processor time", row)
    if error.status == OUT_OF_MEMORY:
        return _too_much(f"{most_memory(getattr(message, 'nbytes', 0)) >> 30} GiB", row)
    return WorkerError(
        f"a process that renders chats died (exit status {error.status}): run the same command "
        "again, with --threads=1 if it does so again"
    )


def _too_much(limit: str, row: int | None) -> TemplateLimitError:
    if row is None:
        return TemplateLimitError(
            f"the chat template took more than {limit} for a chat of two messages: use another "
            "--template"
        )
    return TemplateLimitError(
        f"the chat template, or a --weigh, took more than {limit}: use another, or a lower "
        "--max-record-bytes, which leaves long records out; it stopped at record "
        f"{row + 1} of the block",
        row,
    )


class Writers:
    """The writers of one template; the files of a run may be read with several settings."""

    def __init__(self, source: str, vocabulary: Vocabulary) -> None:
        self._source, self._vocabulary = source, vocabulary
        self._made: dict[SftSettings, RecordWriter] = {}

    def write(
        self,
        settings: SftSettings,
        message: pa.LargeStringArray | Conversation,
        note: Callable[[int], None] = lambda _: None,
    ) -> Written:
        """Return the samples of records, each the text of a JSON object, or of a conversation.

        `note` gets the number of each record before its turn.

        Raises:
            UsageError: the template is wrong, or does not fit the tokenizer or the settings.
            ChatError: the template cannot write the conversation.
        """
        writer = self._made.get(settings)
        if writer is None:
            template = make_template(self._source, settings, self._vocabulary)
            writer = RecordWriter(settings, template, mask_rule(settings), self._vocabulary)
            self._made[settings] = writer
        if isinstance(message, Conversation):
            return writer.write_conversation(message)
        return writer.write(message, note)


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
    """Answer every message of the parent, in a child.

    The first message holds the template, the vocabulary and the file of `RowNote`. Each later one
    is settings and what to write with them, see `Writers.write`; the answer is what that returns,
    or the error that it raises.
    """
    parent = Parent()
    source, vocabulary, path = parent.receive()
    writers, note = Writers(source, vocabulary), RowNote(path)
    parent.send(None)  # the file may go

    def begin(row: int) -> None:
        note.write(row)
        signal.setitimer(signal.ITIMER_PROF, most_seconds(message, row))

    while True:
        settings, message = parent.receive()
        with guarded(getattr(message, "nbytes", 0)):
            try:
                answer: object = writers.write(settings, message, begin)
            except (TokmillError, ChatError) as error:
                answer = error
        parent.send(answer)


@contextmanager
def guarded(n_bytes: int) -> Iterator[None]:
    """Bound the memory for a message of `n_bytes`, and the time to its first record.

    Only in the main thread. Without /proc the memory is not bounded here: there the parent watches.

    Raises:
        SystemExit: the memory is used up. When the time is used up, the process ends at once.
    """
    if IS_LIMITED:
        mapped = int(_STATM.read_text().split()[0]) * resource.getpagesize()
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        wanted = mapped + most_memory(n_bytes)
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    signal.setitimer(signal.ITIMER_PROF, EXAMPLE_TIME_S)
    try:
        yield
    except MemoryError:
        raise SystemExit(OUT_OF_MEMORY) from None
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def most_seconds(message: object, row: int | None) -> float:
    """Return the processor time that a record of a column may take, or an example of tokmill's."""
    if row is None or not isinstance(message, pa.LargeStringArray):
        return EXAMPLE_TIME_S
    return TIME_S + TIME_OF_MIB_S * (int(message[row].as_buffer().size) >> 20)


def most_memory(n_bytes: int) -> int:
    """Return the bytes of memory that a message of `n_bytes` may take."""
    return MEMORY_BYTES + MEMORY_TIMES_INPUT * n_bytes
