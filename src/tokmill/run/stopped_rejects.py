"""The rejects that a stopped run had met: kept, named in its message, replaced by the next attempt.

A part that is stopped writes them itself, see `run.part.PartWriter.close`. A worker process that is
killed leaves a temporary file, which gets the same name.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from tokmill.dataset.layout import (
    REJECTS,
    STOPPED_REJECTS,
    rejects_name,
    stopped_rejects_name,
)
from tokmill.errors import RecordError, TokmillError
from tokmill.words import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from tokmill.dataset.place import Place
    from tokmill.recipes.spec import Part


def is_stopped_rejects(name: str) -> bool:
    """Return whether a name, relative to the place, is one of a stopped part's rejects."""
    return STOPPED_REJECTS.fullmatch(name) is not None


def remove_stopped_rejects(place: Place, parts: Sequence[Part] | None = None) -> None:
    """Remove what earlier attempts have left, at some parts or at any; raises `StorageError`."""
    numbers = None if parts is None else {part.index for part in parts}
    for name, n_bytes in place.entries().items():
        stopped = STOPPED_REJECTS.fullmatch(name)
        is_meant = stopped and (numbers is None or int(stopped["stopped"]) in numbers)
        if is_meant and n_bytes is not None:  # no link, no folder
            place.remove(name)


def keep_rejects_of_killed(
    place: Place,
    parts: Sequence[Part],
    processes: Collection[int] | None,
    check: Callable[[], None],
) -> None:
    """Keep the rejects that worker processes were writing when they were killed.

    `processes`: their ids; None: of other machines. Nothing is raised: there is an error already.
    """
    names = {
        f"{REJECTS}/{rejects_name(part.index)}": f"{REJECTS}/{stopped_rejects_name(part.index)}"
        for part in parts
    }
    with suppress(TokmillError):
        place.rescue(names, processes, check)


@contextmanager
def naming_rejects(place: Place, parts: Sequence[Part]) -> Iterator[None]:
    """Add to the message of whatever stops a run where the rejects of its parts stand.

    Raises:
        BaseException: what was raised inside; only errors of tokmill and an interrupt say more.
    """
    try:
        yield
    except (TokmillError, KeyboardInterrupt) as error:
        where = ""
        with suppress(TokmillError):
            where = _where_rejects_stand(place, parts, of_done=isinstance(error, RecordError))
        if where and error.args and error.args[0]:
            error.args = (f"{error.args[0]}; all rejects until then: {where}", *error.args[1:])
        raise


def _where_rejects_stand(place: Place, parts: Sequence[Part], *, of_done: bool) -> str:
    """Return the file of rejects, or their folder if there are several; '' if there is none.

    `of_done`: those of parts that are done count too.
    """
    owned = {f"{REJECTS}/{stopped_rejects_name(part.index)}" for part in parts}
    if of_done:
        owned |= {f"{REJECTS}/{rejects_name(part.index)}" for part in parts}
    names = sorted(owned & place.entries().keys())
    if len(names) == 1:
        return f"{place.where}/{names[0]}"
    return f"{place.where}/{REJECTS} ({plural(len(names), 'file')})" if names else ""
