"""The chat renderer, and its child processes, because threads share one interpreter lock.

A child runs `main` of this module. It holds a template but no tokenizer, so it starts in half a
second and takes 80 MB. Children are started after `START_AFTER_S` of rendering, so a small dataset
never waits for them. A template from outside tokmill and a pattern of --weigh are programs, which
may never end, or take all memory: they are read, compiled and run in children only, within
`chat.limits`. To this process the text of such a template is a string that it sends. One child is
started with the first question, the others after `START_AFTER_S`.
"""

from __future__ import annotations

import tempfile
import threading
import time
import weakref
from dataclasses import replace
from functools import lru_cache
from mmap import mmap
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tokmill.chat.conversation import ChatError, Conversation
from tokmill.chat.limits import (
    IS_LIMITED,
    OUT_OF_MEMORY,
    ChildLimits,
    Unlimited,
    death_at_limit,
    too_much,
)
from tokmill.chat.mask_rule import mask_rule
from tokmill.chat.records import RecordWriter
from tokmill.chat.template_source import is_foreign, make_template, written_tokens
from tokmill.children import Child, ChildEndedError, Parent
from tokmill.errors import TemplateLimitError, TokmillError, WorkerError
from tokmill.values import WHOLE_RECORD

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from tokmill.chat.control_strings import Vocabulary
    from tokmill.chat.records import Written
    from tokmill.settings.sft import SftSettings
    from tokmill.values import Records, SampleBatch

START_AFTER_S = 0.5
"""Seconds of rendering after which children are started; their start takes as long."""

_LOOK_S = 1.0

WATCHED_BYTES, WATCHED_TIMES_INPUT = 4 << 30, 64
"""The most memory of a child that cannot limit its own, with what it has already written."""

_MOST_KEPT = 16
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
            (row, records.reject(row, *records.doubtful.get(row, (reason, message))))
            for row, reason, message in written.refused
        ]
        return replace(written.samples, refused=refused)

    def render_conversation(self, conversation: Conversation) -> SampleBatch:
        """Return the samples of one conversation; raises `ChatError` if it has none."""
        return self._write(conversation).samples


class RenderPool:
    """Renders with one template, here at first, then in children; threads may share one.

    `source`: the template. `n_processes`: the most children; with fewer than two there are none,
    but one for a template from outside or a --weigh.
    """

    def __init__(self, source: str, n_processes: int = 0) -> None:
        self.source = source
        self.n_processes = n_processes
        self._writers = None if is_foreign(source) else Writers(source, Unlimited())
        self._spent_s = 0.0
        self._lock = threading.Lock()
        self._children: list[_Renderer] = []
        self._idle: SimpleQueue[_Renderer] = SimpleQueue()
        self.close = weakref.finalize(self, _kill_all, self._children)
        """Ends the children; garbage collection of the pool also does."""

    def emitted(self, added: Collection[str]) -> set[str]:
        """Return the added tokens that the template itself writes; raises what `write` does."""
        if self._writers is not None:
            return self._writers.emitted(added)
        written: set[str] = self._ask(1, 0, "emitted", added)
        return written

    def check(self, vocabulary: Vocabulary, settings: SftSettings) -> None:
        """Check the template with some settings; raises what `write` does."""
        self.write(vocabulary, settings, pa.array([], pa.large_string()))

    def write(
        self,
        vocabulary: Vocabulary,
        settings: SftSettings,
        message: pa.LargeStringArray | Conversation,
    ) -> Written:
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
                return writers.write(vocabulary, settings, message)
            n_bytes = getattr(message, "nbytes", 0)
            written: Written = self._ask(n_wanted, n_bytes, "write", vocabulary, settings, message)
            return written
        finally:
            self._spent_s += clock() - start

    def _ask(self, n_wanted: int, n_bytes: int, question: str, *arguments: object) -> Any:
        """Return the answer of a child, of so many, to a message of so many bytes; or raise it."""
        self._start_children(n_wanted)
        child = self._idle.get()
        try:
            return child.answer(question, arguments, n_bytes)
        finally:
            self._idle.put(child)

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
                    child.begin(self.source)
                finally:
                    self._idle.put(child)  # even if it died: no thread must wait for it forever


_POOLS: weakref.WeakValueDictionary[str, RenderPool] = weakref.WeakValueDictionary()


def shared_pool(source: str, n_processes: int = 0) -> RenderPool:
    """Return the pool of this process for a template, with at least so many processes.

    It ends when nobody holds it any more.
    """
    pool = _POOLS.get(source)
    if pool is None:
        pool = _POOLS[source] = RenderPool(source)
    pool.n_processes = max(pool.n_processes, n_processes)
    return pool


@lru_cache(_MOST_KEPT)
def emitted_strings(source: str, added: frozenset[str]) -> frozenset[str]:
    """Return the added tokens that a template itself writes, special or not.

    None if it is not valid Jinja: `RenderPool.check` reports that.

    Raises:
        TemplateLimitError: to read the template takes too much time or memory.
    """
    return frozenset(shared_pool(source).emitted(added))


class _Renderer:
    """A child that renders."""

    def __init__(self) -> None:
        self._child = Child("tokmill.chat.render_pool")
        self._child.work = "the rendering of chats"
        self.kill = self._child.kill

    def begin(self, source: str) -> None:
        """Send the template."""
        # Closed, and so removed, when the child has opened it.
        self._file = tempfile.NamedTemporaryFile(prefix="tokmill-")  # noqa: SIM115
        self._file.write(bytes(RowNote.N_BYTES))
        self._file.flush()
        self._note = RowNote(self._file.name)
        self._note.write(None)
        try:
            self._child.send((source, self._file.name))
        except ChildEndedError as error:
            raise self._death(error) from None

    def answer(self, question: str, arguments: tuple[object, ...], n_bytes: int) -> Any:
        """Return the child's answer to a question, see `main`, or raise it."""
        try:
            self._child.send((question, arguments))
            if not self._file.closed:
                self._child.receive()  # it has opened the file
                self._file.close()
            while not self._child.poll(_LOOK_S):
                if not IS_LIMITED:
                    self._check_memory(n_bytes)
            answer = self._child.receive()
        except ChildEndedError as error:
            raise self._death(error) from None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _check_memory(self, n_bytes: int) -> None:
        """Kill the child if its memory is over the limit of a message of `n_bytes`."""
        if self._child.memory_bytes() > WATCHED_BYTES + WATCHED_TIMES_INPUT * n_bytes:
            self._child.stop()
            limit = f"{WATCHED_BYTES >> 20} MiB of memory"
            share = f"{WATCHED_TIMES_INPUT} bytes for each byte of a block"
            raise too_much(limit, share, self._note.read())

    def _death(self, error: ChildEndedError) -> WorkerError:
        """Return the error of a child that has ended before it answered."""
        if error.stopped:
            return WorkerError(f"{error.stopped}: run the same command again")
        if at_limit := death_at_limit(error.status, self._note.read()):
            return at_limit
        return WorkerError(
            f"a process that renders chats died (exit status {error.status}): run the same command "
            "again, with --threads=1 if it does so again"
        )


def _kill_all(children: list[_Renderer]) -> None:
    while children:
        children.pop().kill()


class Writers:
    """The writers of one template; the files of a run may be read with several settings.

    `limits`: of what the template does.
    """

    def __init__(self, source: str, limits: Unlimited) -> None:
        self._source, self._limits = source, limits
        self._made: dict[SftSettings, tuple[Vocabulary, RecordWriter]] = {}

    def emitted(self, added: Collection[str]) -> set[str]:
        """Return the added tokens that the template itself writes."""
        with self._limits:
            return written_tokens(self._source, added)

    def write(
        self,
        vocabulary: Vocabulary,
        settings: SftSettings,
        message: pa.LargeStringArray | Conversation,
    ) -> Written:
        """Return the samples of records, each the text of a JSON object, or of a conversation.

        Raises:
            UsageError: the template is wrong, or does not fit the tokenizer or the settings.
            ChatError: the template cannot write the conversation.
            TemplateLimitError: it writes too much.
        """
        of_vocabulary, writer = self._made.get(settings, (None, None))
        if writer is None or of_vocabulary != vocabulary:
            with self._limits:
                writer = self._writer(vocabulary, settings)
            self._made[settings] = vocabulary, writer
        if isinstance(message, Conversation):
            return writer.write_conversation(message)
        return writer.write(message)

    def _writer(self, vocabulary: Vocabulary, settings: SftSettings) -> RecordWriter:
        template = make_template(self._source, settings, vocabulary)
        return RecordWriter(settings, template, mask_rule(settings), vocabulary, self._limits)


class RowNote:
    """The number of the record in work, or None, in a file that a parent can read after a death."""

    N_BYTES = 8

    def __init__(self, path: str) -> None:
        with Path(path).open("r+b") as file:
            self._bytes = mmap(file.fileno(), self.N_BYTES)

    def write(self, row: int | None) -> None:
        """Write the number of a record."""
        number = -1 if row is None else row
        self._bytes[:] = number.to_bytes(self.N_BYTES, "little", signed=True)

    def read(self) -> int | None:
        """Return the number that was written last."""
        number = int.from_bytes(self._bytes[:], "little", signed=True)
        return None if number < 0 else number


def main() -> None:
    """Answer every message of the parent, in a child.

    The first message holds the template and the file of `RowNote`. Each later one is the name of a
    method of `Writers` and its arguments; the answer is what that returns, or the error that it
    raises.
    """
    parent = Parent()
    source, path = parent.receive()
    writers = Writers(source, ChildLimits(RowNote(path).write))
    parent.send(None)  # the file may go
    while True:
        question, arguments = parent.receive()
        try:
            answer: object = getattr(writers, question)(*arguments)
        except (TokmillError, ChatError) as error:
            answer = error
        except MemoryError:
            raise SystemExit(OUT_OF_MEMORY) from None
        parent.send(answer)
