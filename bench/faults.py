"""Faults at every step at which a run changes its output directory: for the tests and the soak.

A step is a call that writes, syncs, renames, links, removes or creates something below the output
directory, seen twice: before and after. A command runs in a fork of this process, in which the
modules are imported already, so a round takes a tenth of a second; at one step the fork is killed,
gets a signal, or its call fails as the system would let it fail. The product knows nothing of this.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import importlib
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

KILL, TERMINATE, INTERRUPT, TWICE = "SIGKILL", "SIGTERM", "Ctrl-C", "Ctrl-C twice"
FULL, BROKEN, NO_FILES = "no space", "I/O error", "too many open files"
SIGNALS = {TERMINATE: (signal.SIGTERM,), INTERRUPT: (signal.SIGINT,), TWICE: (signal.SIGINT,) * 2}
ERRORS = {FULL: errno.ENOSPC, BROKEN: errno.EIO, NO_FILES: errno.EMFILE}
KINDS = (KILL, *SIGNALS, *ERRORS)

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # or numpy starts threads, which a fork would not have

_BY_PATH = ("replace", "rename", "link", "unlink", "mkdir", "rmdir")
_BY_DESCRIPTOR = ("fsync", "fdatasync", "fchmod", "ftruncate")
_NO_COMMAND = 98
_RAISED = 99


@dataclass(frozen=True)
class Fault:
    """What happens, and at which step of the run, from 1; step 0: never."""

    kind: str
    step: int


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit status (negative: a signal), and what it printed as errors.

    `steps`: their names in order, if it ended by itself.
    """

    status: int
    errors: str
    steps: tuple[str, ...] = ()

    @property
    def has_traceback(self) -> bool:
        """Return whether an error came out that nobody had explained."""
        return "Traceback" in self.errors or self.status in (_NO_COMMAND, _RAISED)


class Steps:
    """Counts the steps of this process, and lets the fault happen at its step."""

    def __init__(self, directory: Path, fault: Fault) -> None:
        self._directory = os.fspath(directory)
        self._fault = fault
        self.names: list[str] = []

    def watch(self) -> None:
        """Replace the functions of `os`, and methods of pending files, while this process lives."""
        from tokmill.storage import PendingFile, storage_errors

        for name in _BY_PATH:
            setattr(os, name, self._watched(name, getattr(os, name), _path_in))
        for name in _BY_DESCRIPTOR:
            if hasattr(os, name):
                setattr(os, name, self._watched(name, getattr(os, name), _path_of))
        opened, written = PendingFile.__init__, PendingFile.write

        def of_new(file: Any, directory: Path, name: str) -> None:
            path = directory / name
            with storage_errors(path):
                self._at(f"open {path.name}", path, is_before=True)
            opened(file, directory, name)
            self._at(f"opened {path.name}", path)

        def of_data(file: Any, data: Any) -> None:
            view = memoryview(data).cast("B")
            name = file.path.name
            with storage_errors(file.path):
                self._at(f"write {name}", file.path, is_before=True)
            written(file, view[: len(view) // 2])
            with storage_errors(file.path):
                self._at(f"half of {name}", file.path, is_before=True)
            written(file, view[len(view) // 2 :])
            self._at(f"written {name}", file.path)

        PendingFile.__init__ = of_new  # type: ignore[method-assign, assignment]
        PendingFile.write = of_data  # type: ignore[method-assign, assignment]

    def _watched(
        self, name: str, call: Callable[..., Any], path_of: Callable[..., str]
    ) -> Callable[..., Any]:
        def watched(first: Any, *rest: Any, **options: Any) -> Any:
            path = path_of(first, **options)
            self._at(f"{name} {Path(path).name}", path, is_before=True)
            found = call(first, *rest, **options)
            self._at(f"after {name} {Path(path).name}", path)
            return found

        return watched

    def _at(self, name: str, path: Any, *, is_before: bool = False) -> None:
        if not os.fspath(path).startswith(self._directory):
            return
        self.names.append(name)
        if len(self.names) != self._fault.step:
            return
        kind = self._fault.kind
        if kind == KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        for number in SIGNALS.get(kind, ()):
            os.kill(os.getpid(), number)
        if kind in ERRORS and is_before:
            raise OSError(ERRORS[kind], os.strerror(ERRORS[kind]))


def _path_of(descriptor: int) -> str:
    return os.fspath(Path(f"/proc/self/fd/{descriptor}").readlink())


def _path_in(
    path: Any, *, dir_fd: int | None = None, src_dir_fd: int | None = None, **_: object
) -> str:
    """Return the path of a name, which may be relative to the folder of a descriptor."""
    folder = dir_fd if src_dir_fd is None else src_dir_fd
    return os.fspath(path) if folder is None else f"{_path_of(folder)}/{os.fspath(path)}"


def warm(*commands: Sequence[str]) -> None:
    """Import what the commands import, without running them in this process.

    Raises:
        RuntimeError: threads run here: a fork would not have them.
    """
    for command in commands:
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            _quietly(os.devnull)
            _main(command)
            os.write(writer, json.dumps(sorted(sys.modules)).encode())
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader, "rb") as file:
            names = json.loads(file.read())
        os.waitpid(child, 0)
        for name in names:
            if name != "__main__":
                try:
                    importlib.import_module(name)
                except ImportError:  # made by another module, under another name
                    continue
    names = {(task / "comm").read_text() for task in Path("/proc/self/task").iterdir()}
    if len(names - {"jemalloc_bg_thd\n"}) > 1 or threading.active_count() > 1:
        raise RuntimeError(f"threads run in this process, which cannot be forked: {names}")


def run(
    commands: Sequence[Sequence[str]],
    directory: Path,
    fault: Fault | None = None,
    *,
    prepare: Callable[[], object] = lambda: None,
    kill_after_s: float = 0.0,
) -> Ended:
    """Run commands one after the other in a fork, until one fails; return how the last ended.

    `directory`: the output directory. `prepare` is called in the fork. `kill_after_s`: kill it
    after that time, if it still runs.
    """
    printed = directory.parent / f".{directory.name}.errors"
    printed.touch()
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        _run_here(commands, directory, fault or Fault(KILL, 0), printed, writer, prepare)
    os.close(writer)
    if kill_after_s:
        time.sleep(kill_after_s)
        os.kill(child, signal.SIGKILL)
    with os.fdopen(reader, "rb") as file:
        steps = file.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    errors = printed.read_text(encoding="utf-8", errors="replace")
    printed.unlink()
    return Ended(status, errors, tuple(json.loads(steps)) if steps else ())


def _run_here(
    commands: Sequence[Sequence[str]],
    directory: Path,
    fault: Fault,
    printed: Path,
    writer: int,
    prepare: Callable[[], object],
) -> NoReturn:
    """Run commands in this fork, and end it."""
    status = _NO_COMMAND
    try:
        _quietly(os.fspath(printed))
        from tokmill import interrupts

        interrupts.SAME_INTERRUPT_S = 0.0  # a second Ctrl-C counts at once
        steps = Steps(directory, fault)
        prepare()
        steps.watch()
        for command in commands:
            status = _main(command)
            if status:
                break
        with os.fdopen(writer, "wb") as file:
            file.write(json.dumps(steps.names).encode())
    except BaseException:
        traceback.print_exc()
        status = _RAISED
    finally:
        sys.stderr.flush()
        os._exit(status)


def _main(command: Sequence[str]) -> int:
    """Return the exit code of a command of tokmill, run in this process."""
    from tokmill.cli.main import main

    sys.argv = ["tokmill", *command]
    try:
        main()
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else 0
    return _NO_COMMAND


def _quietly(path: str) -> None:
    """Send what is printed to a file."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for number in (1, 2):
        os.dup2(descriptor, number)
    os.close(descriptor)


# The files of a dataset


def sums(directory: Path) -> dict[str, str]:
    """Return the sha256 of each file, by name, but hidden ones and those in hidden folders.

    Of the manifest and the plan, only what is the same in every run: they also say how long it
    took, and how its engine was chosen.
    """
    found: dict[str, str] = {}
    for path in sorted(directory.rglob("*")):
        name = path.relative_to(directory).as_posix()
        if path.is_dir() or any(part.startswith(".") for part in Path(name).parts):
            continue
        data = path.read_bytes()
        if name in ("manifest.json", "plan.json"):
            with contextlib.suppress(ValueError):  # bytes that are no JSON are compared as they are
                data = _lasting(json.loads(data))
        found[name] = hashlib.sha256(data).hexdigest()
    return found


def _lasting(content: dict[str, Any]) -> bytes:
    """Return what is the same in every run, of a manifest or a plan."""
    for key in ("run", "sha256", "fingerprint", "engine", "config"):
        content.pop(key, None)
    content["files"] = [f for f in content["files"] if "plan.json" not in str(f)]
    return json.dumps(content, sort_keys=True).encode()


def hidden(directory: Path) -> list[str]:
    """Return the hidden files of a directory, except its lock."""
    found = (path.relative_to(directory).as_posix() for path in directory.rglob(".*"))
    return sorted(name for name in found if name != ".lock")


def half_written(directory: Path, expected: dict[str, str]) -> list[str]:
    """Return the files whose bytes are not those of the finished dataset."""
    if not directory.exists():
        return []
    return [name for name, digest in sums(directory).items() if expected.get(name) != digest]
