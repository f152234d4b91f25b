"""Processes that write records of chats, for what one interpreter alone is too slow for.

They hold a template and no tokenizer, so that one starts in half a second and takes 80 MB. They are
started when writing here has taken some time, so that a small set never waits for them.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import weakref
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING

from tokmill.errors import WorkerError
from tokmill.interrupts import children_spared
from tokmill.render.chat.worker import receive, send

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from tokmill.config import SftSettings
    from tokmill.render.chat.records import RecordWriter, Written
    from tokmill.render.chat.templates import Vocabulary

START_AFTER_S = 0.5
"""Seconds of writing in this process after which others are started: what their start takes."""

_Process = subprocess.Popen[bytes]


class RenderPool:
    """Writes records here at first, then on processes; safe to call from several threads.

    Args:
        writer: writes in this process.
        how: settings, template source and vocabulary, from which a process makes its own writer.
        n_processes: how many to start; fewer than two: none.
    """

    def __init__(
        self,
        writer: RecordWriter,
        how: tuple[SftSettings, str, Vocabulary],
        n_processes: int,
    ) -> None:
        self._write_here: Callable[[pa.LargeStringArray], Written] = writer.write
        self._how = how
        self._n_processes = n_processes
        self._here_s = 0.0
        self._lock = threading.Lock()
        self._processes: list[_Process] = []
        self._idle: SimpleQueue[_Process] = SimpleQueue()
        self.close = weakref.finalize(self, _end, self._processes)
        """Ends the processes; the pool's own end does so too."""

    def write(self, text: pa.LargeStringArray) -> Written:
        """Return the segments of n records.

        Raises:
            WorkerError: a process died.
        """
        if self._n_processes < 2 or not self._started():
            start = time.thread_time()
            written = self._write_here(text)
            self._here_s += time.thread_time() - start
            return written
        process = self._idle.get()
        try:
            return _answer(process, text)
        finally:
            self._idle.put(process)

    def _started(self) -> bool:
        with self._lock:
            if not self._processes and self._here_s > START_AFTER_S:
                for _ in range(self._n_processes):
                    with children_spared():
                        process = subprocess.Popen(
                            [sys.executable, "-m", "tokmill.render.chat.worker"],
                            stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE,
                        )
                    self._processes.append(process)
                    self._idle.put(process)  # a dead one too: others must not wait for it
                    _tell(process, self._how)
            return bool(self._processes)


def _end(processes: list[_Process]) -> None:
    while processes:
        process = processes.pop()
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()


def _answer(process: _Process, text: pa.LargeStringArray) -> Written:
    _tell(process, text)
    with _death_told(process):
        if process.stdout is None:
            raise EOFError
        written: Written = receive(process.stdout)
    return written


def _tell(process: _Process, message: object) -> None:
    with _death_told(process):
        if process.stdin is None:
            raise EOFError
        send(process.stdin, message)


@contextmanager
def _death_told(process: _Process) -> Iterator[None]:
    """Turn the end of a pipe into a `WorkerError`: its process has died."""
    try:
        yield
    except (EOFError, BrokenPipeError):
        status = process.wait()
        raise WorkerError(
            f"a process that renders chats died (exit status {status}): run the same command "
            "again, with --threads 1 if it does so again"
        ) from None
