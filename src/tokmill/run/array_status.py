"""What the parts of an array have come to, and why tasks of it stopped."""

from __future__ import annotations

import contextlib
import json
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokmill.dataset.canonical import canonical_json
from tokmill.dataset.layout import PARTS
from tokmill.errors import StateError, StorageError
from tokmill.stores.urls import shown
from tokmill.words.plural import plural

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from tokmill.run.plan import Plan

_MOST_NAMED = 10


@dataclass(frozen=True, slots=True)
class ArrayStatus:
    """What the parts of an array have come to, by number.

    Attributes:
        directory: the output directory; of an object store, its URL as text, without secrets.
        parts: how many the plan has.
        done: those that are committed.
        running: those that a task holds.
        failed: those that are not done and belong to a task that stopped with an error.
        missing: all others: not begun, or their task was killed.
        errors: for each task that failed, one line: which task, its machine, its error.
        is_finished: whether `tokmill finish` has written the manifest.
    """

    directory: Path | str
    parts: int
    done: tuple[int, ...]
    running: tuple[int, ...]
    failed: tuple[int, ...]
    missing: tuple[int, ...]
    errors: tuple[str, ...]
    is_finished: bool

    @property
    def undone(self) -> tuple[int, ...]:
        """Return the parts that are not done."""
        return tuple(sorted((*self.running, *self.failed, *self.missing)))


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a task stopped, as it is kept in a hidden file of `parts/` until the task is done."""

    index: int
    n_tasks: int
    host: str
    error: str

    def as_bytes(self) -> bytes:
        """Return the content of the file."""
        note = {"index": self.index, "of": self.n_tasks, "host": self.host, "error": self.error}
        return canonical_json(note)


def failure_name(index: int | str, n_tasks: int | str) -> str:
    """Return the name of the file of a task; with `*`, a pattern."""
    return f".failed-task-{index}-of-{n_tasks}.json"


def is_failure(name: str) -> bool:
    """Return whether an object of a store is the note of a task that stopped."""
    return name.startswith(f"{PARTS}/{failure_name('*', '*').partition('*')[0]}")


def failure_of(index: int, n_tasks: int, error: Exception) -> Failure:
    """Return why a task on this machine stopped."""
    return Failure(index, n_tasks, platform.node(), str(error))


def failures(contents: Iterable[bytes]) -> Iterator[Failure]:
    """Yield the failures that files say; damaged files are left out."""
    for content in contents:
        with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
            note: dict[str, Any] = json.loads(content)
            index, n_tasks = int(note["index"]), int(note["of"])
            if 0 <= index < n_tasks:
                yield Failure(index, n_tasks, str(note["host"]), str(note["error"]))


def array_status_of(
    directory: Path | str,
    n_parts: int,
    done: Collection[int],
    running: Collection[int],
    found: Collection[Failure],
    *,
    is_finished: bool,
) -> ArrayStatus:
    """Return the status of an array of which these parts are done, and these are held by tasks."""
    undone = [part for part in range(n_parts) if part not in done]
    failed = {
        part
        for part in undone
        if part not in running and any(part % note.n_tasks == note.index for note in found)
    }
    return ArrayStatus(
        directory,
        n_parts,
        tuple(sorted(done)),
        tuple(sorted(running)),
        tuple(sorted(failed)),
        tuple(part for part in undone if part not in running and part not in failed),
        tuple(f"task {n.index} of {n.n_tasks} on {n.host}: {n.error}" for n in found),
        is_finished,
    )


def check_kept(share: Plan, done: Collection[int]) -> None:
    """Check that the parts of a share are still there when its task ends.

    Raises:
        StorageError: the record or a file of one was removed meanwhile.
    """
    lost = [part.index for part in share.parts if part.index not in done]
    if lost:
        raise StorageError(
            f"{shown(share.spec.config.output.dir)}: {plural(len(lost), 'part')} "
            f"of this task {'was' if len(lost) == 1 else 'were'} removed while it worked, the "
            f"first of them {lost[0]}: start it again"
        )


def check_done(status: ArrayStatus, path: Path) -> None:
    """Check that all parts of an array are done; `path`: its plan. Raises `StateError`."""
    undone = status.undone
    if undone:
        named = ", ".join(map(str, undone[:_MOST_NAMED])) + ", …" * (len(undone) > _MOST_NAMED)
        error = f" ({status.errors[0]})" if status.errors else ""
        raise StateError(
            f"{status.directory}: {len(undone):,} of {plural(status.parts, 'part')} "
            f"{'is' if len(undone) == 1 else 'are'} not done: {named}{error}: start their tasks "
            f"again (tokmill status {path} says more), then finish"
        )
