"""Child processes of tokmill, and the messages that a child and its parent exchange over a socket.

A child imports a module of tokmill and calls its `main`. The main module of the calling program is
never imported there, so a script without a `__main__` guard, a notebook, `python -c` and a daemonic
worker of `multiprocessing` can all be the parent. A child finds packages where its parent does.

A message is a pickle. A child ends with its parent.
"""

from __future__ import annotations

import os
import pickle
import select
import selectors
import signal
import subprocess
import sys
import threading
import traceback
from contextlib import ExitStack
from multiprocessing.connection import Connection, Pipe
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Self

from tokmill.errors import TokmillError, WorkerError
from tokmill.interrupts import sigint_blocked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    Send = Callable[[object], None]
    """Sends a message to the parent."""

    Do = Callable[[Any, Send], Any]
    """Does an item, and returns its outcome; may send what it has done so far."""

_START = (
    "import sys; module, sys.path[:] = sys.argv[1], sys.argv[2:]; "
    "from tokmill.own_process import begin_process, end_process; begin_process(); "
    "import importlib; importlib.import_module(module).main(); end_process(0)"
)
_LOOK_MS = 1000

LOOK_S, MOST_LOOKS = 5.0, 6
"""A child that is found stopped at so many looks in a row is killed."""


class ChildEndedError(Exception):
    """A child ended before it answered; `status` is its exit status, negative for a signal.

    `stopped`: a sentence if it was killed because it had been stopped; else ''.
    """

    def __init__(self, status: int, stopped: str) -> None:
        super().__init__(f"a child process ended with status {status}")
        self.status, self.stopped = status, stopped


class Child:
    """A process that runs `main` of a module; as a context manager it is killed at the end.

    Args:
        module: its `main` makes a `Parent` and answers what that receives.
        defaults: environment variables of the child, where this process has none of their name.
        errors: a file that gets its standard error; None: that of this process.
    """

    def __init__(
        self,
        module: str,
        *,
        defaults: Mapping[str, str] | None = None,
        errors: IO[bytes] | None = None,
    ) -> None:
        paths = [path for path in sys.path if isinstance(path, str)]
        self._connection, theirs = Pipe()
        with theirs, sigint_blocked():
            self._process = subprocess.Popen(
                [sys.executable, "-c", _START, module, *paths],
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=errors,
                env={**(defaults or {}), **os.environ},
            )
        self.work = "its start"
        """What it was asked to do, for a message."""
        self._watch = _StopWatch(self._process.pid, LOOK_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def process(self) -> int:
        """Return the id of the process."""
        return self._process.pid

    def fileno(self) -> int:
        """Return the descriptor that can be read when the child has written."""
        return self._connection.fileno()

    def send(self, message: object) -> None:
        """Write a message; blocks until the child has read most of it.

        Raises:
            ChildEndedError: the child has ended.
        """
        try:
            self._connection.send(message)
        except ConnectionError:
            raise self._ended() from None

    def receive(self) -> Any:
        """Read the next message of the child.

        Raises:
            ChildEndedError: the child has ended.
        """
        try:
            return self._connection.recv()
        except (EOFError, OSError):  # an OSError: it died inside a message
            raise self._ended() from None

    def poll(self, seconds: float) -> bool:
        """Wait for at most so long; return whether there is a message, or the child has ended."""
        return self._connection.poll(seconds)

    def memory_bytes(self) -> int:
        """Return the resident memory of the child, 0 if it has ended."""
        import psutil  # takes 10 ms

        try:
            return int(psutil.Process(self._process.pid).memory_info().rss)
        except psutil.Error:
            return 0

    def wait(self) -> int:
        """Wait for the end of the child and return its exit status."""
        status = self._process.wait()
        self._watch.ended.set()
        return status

    def _ended(self) -> ChildEndedError:
        stopped = (
            f"process {self._process.pid} was stopped by a signal (SIGSTOP) and did not go on "
            f"within {LOOK_S * MOST_LOOKS:g} s, during {self.work}"
        )
        return ChildEndedError(self.wait(), stopped if self._watch.has_killed else "")

    def stop(self) -> None:
        """Kill the child and return at once; `kill` must follow."""
        self._process.kill()

    def kill(self) -> None:
        """Kill the child if it still runs, and close the connection."""
        self._process.kill()
        self.wait()
        self._connection.close()


class Done(NamedTuple):
    """An item that a worker has done."""

    item: Any
    outcome: Any


def work_on(
    n_workers: int,
    module: str,
    job: object,
    items: Iterable[Any],
    named: Callable[[Any], str],
    done: Callable[[Any, Any], None],
    heard: Callable[[Any], None],
    *,
    variables: Mapping[str, str] | None = None,
    killed: Callable[[set[int]], None] = lambda _: None,
) -> None:
    """Start workers, give each the job, and then one item after another.

    Args:
        n_workers: at most one for each item.
        module: its `main` runs in each, and calls `do_items`.
        job: what all items have in common.
        items: what is sent, in order; a worker gets its next within a millisecond.
        named: says what a worker is asked to do, for a message.
        done: gets each item that is done, with its outcome.
        heard: gets what workers send meanwhile. What it or `done` raises ends the work.
        variables: of the environment of workers, where it has none of their name.
        killed: is called with the ids of all processes, once they are killed, if the work is
            stopped by whatever it is.

    Raises:
        WorkerError: a worker died.
        BaseException: what a worker has raised; items under way are stopped.
    """
    workers: list[Child] = []
    try:
        with ExitStack() as stack:
            for _ in range(n_workers):
                child = Child(module, defaults=variables or {})
                workers.append(stack.enter_context(child))  # is killed at the end
            for worker in workers:
                worker.send(job)
            _share_out(workers, items, named, done, heard)
    except BaseException as error:
        killed({worker.process for worker in workers})
        if not isinstance(error, ChildEndedError):
            raise
        how = error.stopped or "process died (killed, or out of memory)"
        fewer = "" if error.stopped else ", with fewer --workers if memory is short"
        raise WorkerError(
            f"a worker {how}: what is done is kept; run the same command again to continue{fewer}"
        ) from None


def _share_out(
    children: Sequence[Child],
    items: Iterable[Any],
    named: Callable[[Any], str],
    done: Callable[[Any, Any], None],
    heard: Callable[[Any], None],
) -> None:
    """Send each child one item after another, then None; arguments: see `work_on`.

    Raises:
        ChildEndedError: a child has ended before its last item was answered.
    """
    waiting = iter(items)

    def send_next(child: Child) -> bool:
        item = next(waiting, None)
        child.work = "its end" if item is None else named(item)
        child.send(item)
        return item is not None

    with selectors.DefaultSelector() as selector:
        for child in children:
            if send_next(child):
                selector.register(child, selectors.EVENT_READ, child)
        while selector.get_map():
            for key, _ in selector.select():
                child, message = key.data, key.data.receive()
                if isinstance(message, BaseException):
                    raise message
                if not isinstance(message, Done):
                    heard(message)
                    continue
                done(*message)
                if not send_next(child):
                    selector.unregister(child)
    for child in children:
        child.wait()


def do_items(begin: Callable[[Any], AbstractContextManager[Do]]) -> None:
    """Do, in a worker, the items that the parent sends until it sends None; see `work_on`.

    `begin` gets the job, and yields what does one item.
    """
    parent = Parent()
    with begin(parent.receive()) as do:
        while (item := parent.receive()) is not None:
            try:
                parent.send(Done(item, do(item, parent.send)))
            except BaseException as error:  # a panic of native code is no Exception
                parent.send(portable(error))


def portable(error: BaseException) -> BaseException:
    """Return an error as another process can read it; one that is a bug keeps its traceback."""
    if isinstance(error, TokmillError):
        return error
    trace = traceback.format_exc().rstrip()
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301  what we have just written
    except Exception:  # whatever its own class raises; its text and traceback go on below
        error = RuntimeError(f"{type(error).__name__}: {error}")
    error.add_note(f"in a worker process:\n{trace}")
    return error


class _StopWatch:
    """Kills a process that was stopped (SIGSTOP): whoever waits for its answer waits for ever.

    A process that waits for a disk, a network or another process is in another state, and one that
    `cpulimit` stops again and again spends processor time. Looks are counted, not seconds: Ctrl-Z
    stops this process too, and after `fg` no look finds the child stopped.
    """

    def __init__(self, pid: int, look_s: float) -> None:
        self.ended = threading.Event()
        self.has_killed = False
        threading.Thread(target=self._look, args=(pid, look_s), daemon=True).start()

    def _look(self, pid: int, look_s: float) -> None:
        n_found, process = 0, None
        spent: object = None
        while not self.ended.wait(look_s):
            import psutil  # takes 10 ms

            try:
                process = process or psutil.Process(pid)  # later another may have its id
                before, spent = spent, process.cpu_times()
                is_stopped = process.status() == psutil.STATUS_STOPPED and spent == before
                n_found = n_found + 1 if is_stopped else 0
                if n_found >= MOST_LOOKS:
                    self.has_killed = True
                    process.kill()
            except psutil.Error:  # it has ended
                return


def watch_this_process(look_s: float) -> Child:
    """Start a child that kills this process when it is stopped, as a parent does with its child.

    For a process that somebody else has started, who does not look. The child ends with it.
    `look_s`: seconds between two looks; see `MOST_LOOKS`.
    """
    watcher = Child(__name__)
    watcher.send(look_s)
    return watcher


def main() -> None:
    """Watch, in the child of `watch_this_process`, the parent until that ends."""
    parent = Parent()
    _StopWatch(os.getppid(), parent.receive())
    parent.receive()  # nothing comes: this process ends with its parent


class Parent:
    """The parent of this process: a child makes one before all else, in its main thread.

    What is printed in the child from then on goes to standard error, and Ctrl-C is ignored: the
    parent alone answers it. When the parent ends, so does this process, whatever it does, without
    a word.
    """

    def __init__(self) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._connection = Connection(os.dup(0))
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.dup2(2, 1)
        watch = (self._connection, os.getppid())
        threading.Thread(target=_end_with_parent, args=watch, daemon=True).start()

    def send(self, message: object) -> None:
        """Write a message."""
        try:
            self._connection.send(message)
        except ConnectionError:
            raise SystemExit(1) from None

    def receive(self) -> Any:
        """Read the next message."""
        try:
            return self._connection.recv()
        except (EOFError, OSError):  # an OSError: it died inside a message
            raise SystemExit(1) from None


def _end_with_parent(connection: Connection, parent: int) -> None:
    """End this process when nobody can write to it, or it has another parent.

    The first alone would not do: a process that the parent forked meanwhile may hold the other end.
    """
    poll = select.poll()
    poll.register(connection, 0)
    while not poll.poll(_LOOK_MS) and os.getppid() == parent:
        pass
    os._exit(1)
