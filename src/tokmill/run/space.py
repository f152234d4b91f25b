"""Whether the dataset fits on the disk, before the run begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokmill.errors import StorageError
from tokmill.run.forecast.dataset_size import expected_disk, expected_size
from tokmill.run.prepare import sample
from tokmill.storage import file_sizes, free_bytes
from tokmill.words.units import size

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tokmill.engines.engine import Engine
    from tokmill.memory.bill import Bill
    from tokmill.run.prepare import Prepared

AMPLE = 100
"""With this many times the input free, nothing is sampled: no usual corpus grows so."""

SAMPLE_BYTES = 256 << 10

SURELY, SURELY_FROM_HEADS = 0.5, 0.25
"""A dataset takes at least this much of what its sample foretells; less where it saw only heads."""


def check_space(
    prepared: Prepared,
    reference: Callable[[], Engine],
    directory: Path,
    warn: Callable[[str], None],
) -> None:
    """Compare what a run will write with what is free; what it wrote before counts as free.

    Nothing is known of standard input.

    Raises:
        StorageError: the output cannot fit; where it only may not, `warn` hears so.
    """
    held, free = sum(file_sizes(directory).values()), free_bytes(directory)
    n_bytes = sum(file.n_bytes for file in prepared.files)
    if not n_bytes or held + free >= AMPLE * n_bytes:
        return
    found = sample(prepared, SAMPLE_BYTES)
    if not found.texts:
        return
    parts = prepared.parts
    expected = expected_size(prepared.config, prepared.tokenizer, parts, found, reference())
    needed = expected_disk(expected, parts, found)
    sure = SURELY_FROM_HEADS if found.heads_only else SURELY
    _compare(needed, sure, held + free, directory, warn)


def _compare(
    needed: Bill, sure: float, room: int, directory: Path, warn: Callable[[str], None]
) -> None:
    least = needed.n_bytes * sure
    if least > room:
        raise StorageError(
            f"{directory}: no room for this dataset: about {size(needed.n_bytes)} are needed, "
            f"at least {size(least)}, and {size(room)} are free or its own: make room, or choose "
            "another --output"
        )
    if needed.n_bytes > room:
        warn(
            f"{directory}: this dataset may not fit: about {size(needed.n_bytes)} are "
            f"needed, {size(room)} are free or its own"
        )
