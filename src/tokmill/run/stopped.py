"""What a run that is interrupted tells: what is kept of its work, and how to go on."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from tokmill.dataset.checkpoint import unfinished_records
from tokmill.dataset.layout import PARTS, is_part_record
from tokmill.words.plural import plural

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tokmill.run.plan import Plan

STDIN_STOPPED = "interrupted; standard input cannot be continued: begin anew, with --overwrite"


@contextlib.contextmanager
def explain_interrupt(plan: Plan, directory: Path) -> Iterator[None]:
    """Raise an interrupt again with a message that says what the directory holds."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_message(plan, directory)) from None


def _message(plan: Plan, directory: Path) -> str:
    if any(piece.file.path == "-" for part in plan.parts[:1] for piece in part.slices):
        return STDIN_STOPPED
    n_done = sum(is_part_record(path.name) for path in (directory / PARTS).iterdir())
    n_records = unfinished_records(directory)
    kept = [f"{n_done:,} of {plural(len(plan.parts), 'part')}"] if n_done else []
    kept += [plural(n_records, "record") + " of others" * (n_done > 0)] if n_records else []
    if not kept:
        return "interrupted; nothing is kept yet: the same command begins anew"
    are = "is" if n_done + n_records == 1 else "are"
    return f"interrupted; {' and '.join(kept)} {are} kept: the same command continues"
