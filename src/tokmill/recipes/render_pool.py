"""Child processes that render conversations, because threads share one interpreter lock.

A child holds a template but no tokenizer, so it starts in half a second and takes 80 MB. Children
are started after `START_AFTER_S` of rendering, so a small dataset never waits for them. A template
from outside tokmill is rendered by children only, which bounds its time and memory; one child is
started with the first block, the others after `START_AFTER_S`.
"""

from __future__ import annotations

import threading
import time
import weakref
from queue import SimpleQueue
from typing import TYPE_CHECKING

from tokmill.chat.worker import MEMORY_BYTES, OUT_OF_MEMORY, OUT_OF_TIME, TIME_S
from tokmill.children import Child, ChildEndedError
from tokmill.errors import TokmillError, WorkerError

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from tokmill.chat.control_strings import Vocabulary
    from tokmill.chat.records import RecordWriter, Written
    from tokmill.settings.sft import SftSettings

START_AFTER_S = 0.5
"""Seconds of rendering after which children are started; their start takes as long."""


class RenderPool:
    """Renders records in this process at first, then in children; safe to share between threads.

    `setup`: settings, template source and vocabulary, from which a child makes its own writer.
    `n_processes`: the number of children; with fewer than two, none is started. `children_only`:
    nothing may be rendered in this process, so at least one child is started.
    """

    def __init__(
        self,
        writer: RecordWriter,
        setup: tuple[SftSettings, str, Vocabulary],
        n_processes: int,
        *,
        children_only: bool = False,
    ) -> None:
        self._write_here: Callable[[pa.LargeStringArray], Written] = writer.write
        self._setup = setup
        self._n_at_first = int(children_only)
        self._n_processes = max(n_processes if n_processes >= 2 else 0, self._n_at_first)
        self._spent_s = 0.0
        self._lock = threading.Lock()
        self._children: list[Child] = []
        self._idle: SimpleQueue[Child] = SimpleQueue()
        self.close = weakref.finalize(self, _kill_all, self._children)
        """Ends the children; garbage collection of the pool also does."""

    def write(self, text: pa.LargeStringArray) -> Written:
        """Return the segments of n records.

        Raises:
            WorkerError: a child died.
            TokmillError: the template cannot be used for these records.
        """
        if not self._start_children():
            start = time.thread_time()
            written = self._write_here(text)
            self._spent_s += time.thread_time() - start
            return written
        child = self._idle.get()
        start = time.perf_counter()
        try:
            child.send(text)
            answer: Written | TokmillError = child.receive()
        except ChildEndedError as error:
            raise WorkerError(_death(error)) from None
        finally:
            self._spent_s += time.perf_counter() - start
            self._idle.put(child)
        if isinstance(answer, TokmillError):
            raise answer
        return answer

    def _start_children(self) -> bool:
        """Start the children that are needed by now; return whether any child is needed."""
        wanted = self._n_processes if self._spent_s > START_AFTER_S else self._n_at_first
        with self._lock:
            for _ in range(wanted - len(self._children)):
                self._start()
        return wanted > 0

    def _start(self) -> None:
        child = Child("tokmill.chat.worker")
        child.work = "the rendering of chats"
        self._children.append(child)
        try:
            child.send(self._setup)
        except ChildEndedError as error:
            raise WorkerError(_death(error)) from None
        finally:
            self._idle.put(child)  # even if it died: no thread must wait for it forever


def _kill_all(children: list[Child]) -> None:
    while children:
        children.pop().kill()


def _death(error: ChildEndedError) -> str:
    if error.stopped:
        return f"{error.stopped}: run the same command again"
    status = error.status
    if status == OUT_OF_TIME:
        return (
            f"the chat template took more than {TIME_S} s of processor time for one block of "
            "records: use another --template, or a smaller run.block_bytes"
        )
    if status == OUT_OF_MEMORY:
        return (
            f"the chat template took more than {MEMORY_BYTES >> 30} GiB for one block of records: "
            "use another --template, or a smaller run.block_bytes"
        )
    return (
        f"a process that renders chats died (exit status {status}): run the same command again, "
        "with --threads=1 if it does so again"
    )
