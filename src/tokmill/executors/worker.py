"""A worker process: receives a run, then its parts one by one, and answers with their records."""

from __future__ import annotations

import pickle
import traceback
from contextlib import closing
from typing import TYPE_CHECKING

from tokmill.children import Parent
from tokmill.errors import TokmillError
from tokmill.place import open_place
from tokmill.recipes.table import Recipes
from tokmill.run.part import run_part

if TYPE_CHECKING:
    from tokmill.recipes.spec import Part, RunSpec


def main() -> None:
    """Work through the parts that the parent sends, until it sends None."""
    parent = Parent()
    spec: RunSpec = parent.receive()
    recipes = Recipes(spec)
    with closing(open_place(spec.config.output.dir)) as place:
        while True:
            part: Part | None = parent.receive()
            if part is None:
                return
            try:
                parent.send(run_part(spec, part, place, recipes.of(part), parent.send))
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
