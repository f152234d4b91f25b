"""Write one part: read its slices, encode blocks on threads, write them in order, commit.

The calling thread reads and writes; a pool parses, renders and encodes a few blocks ahead. A part
that is stopped leaves nothing, and begins again.
"""

from __future__ import annotations

import math
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from tokmill.errors import ParityError, RecordError
from tokmill.interrupts import DelayedInterrupts
from tokmill.recipes.left_out import is_weighed_slice
from tokmill.recipes.spec import Increments
from tokmill.run.block_pool import encode_ahead
from tokmill.run.part_writer import PartWriter
from tokmill.run.plan import check_plan
from tokmill.sources.formats import open_slice
from tokmill.sources.slices import check_unchanged
from tokmill.timing import LIBRARIES, StageSeconds, StageTimer, library_cpu_s

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tokmill.dataset.part_record import PartRecord
    from tokmill.dataset.place import Place
    from tokmill.recipes.encoded import EncodedBlock
    from tokmill.recipes.spec import Part, RunSpec
    from tokmill.recipes.table import Recipe
    from tokmill.sources.formats import Block, SliceReader

    _Work = tuple[tuple[int, SliceReader], Block | None]


def run_part(
    spec: RunSpec,
    part: Part,
    place: Place,
    recipe: Recipe,
    report: Callable[[Increments], None],
) -> PartRecord:
    """Write one part to the place of its dataset, and return its record.

    `report` gets increments; an exception that it raises stops the part.

    Raises:
        StateError: the plan in the place is another one than that of the run.
        TokmillError: nothing of the part is kept.
    """
    fingerprint, spec = part.fingerprint(spec), spec.for_part(part)
    output = spec.config.output
    writer = PartWriter(
        place,
        part.index,
        fingerprint,
        recipe.dtype,
        output.checksum,
        output.shard_tokens,
        fail_on_reject=spec.config.limits.on_error == "fail",
        check=partial(check_plan, place, spec.plan_stamp),
    )
    try:
        timer, library_s = StageTimer(), library_cpu_s()
        with DelayedInterrupts() as interrupts:
            _write_blocks(spec, part, recipe, writer, interrupts, timer, report)
            with interrupts.delayed():
                writer.end()
        record = writer.finish()
        library_s = max(0.0, library_cpu_s() - library_s)
        libraries = {LIBRARIES: StageSeconds(0.0, library_s, math.inf)} if library_s else {}
        report(Increments(stage_s={**timer.seconds, **writer.stage_s, **libraries}))
        return record
    except BaseException:
        writer.close()
        raise


def _write_blocks(
    spec: RunSpec,
    part: Part,
    recipe: Recipe,
    writer: PartWriter,
    interrupts: DelayedInterrupts,
    timer: StageTimer,
    report: Callable[[Increments], None],
) -> None:
    """Write the blocks of a part in order, as the pool has encoded them."""
    works = _works(spec, part, recipe, timer)
    with closing(encode_ahead(spec, recipe, works, interrupts)) as blocks:
        last_slice = -1
        for (slice_index, reader), encoded in blocks:
            piece = part.slices[slice_index]
            if encoded is None:
                check_unchanged(piece.file)
                length = None if piece.is_whole else reader.length()
                writer.end_slice(slice_index, piece.n_bytes, length)
                continue
            source = piece.file.path
            for number, line in encoded.differences:
                raise ParityError(f"{source}: record {number} of its slice: {line}")
            if slice_index != last_slice:
                _check_first_block(spec, source, encoded)
                last_slice = slice_index
            if encoded.rejects or encoded.unread is not None:
                reader.origin()  # may read the file up to here: not inside `delayed`
            with interrupts.delayed():
                progress = writer.add(slice_index, source, encoded, reader.origin)
            writer.keep_ended()
            report(replace(progress, stage_s=encoded.stage_s))
            del encoded  # or it would stay in memory beside the next block


def _works(spec: RunSpec, part: Part, recipe: Recipe, timer: StageTimer) -> Iterator[_Work]:
    """Yield the blocks of all slices, each with its slice, and None at the end of each slice.

    `timer` gets the seconds of reading.
    """
    for i, piece in enumerate(part.slices):
        timer.skip()
        check_unchanged(piece.file)
        options = (spec.config.input, recipe.schema, spec.config.run.block_bytes)
        with open_slice(piece, *options, samples_head=is_weighed_slice(i)) as reader:
            for block in reader.blocks():
                timer.end("read")
                yield (i, reader), block
                timer.skip()
            timer.end("read")
            yield (i, reader), None


def _check_first_block(spec: RunSpec, path: str, encoded: EncodedBlock) -> None:
    """Check that a file's first block has the fields that the run reads.

    Raises:
        RecordError: no record has them.
    """
    is_named = spec.config.sft is None and spec.readings[0].is_named
    if encoded.n_documents or len(encoded.rejects) < 2 or is_named:
        return
    if all(reject.reason == "no such fields" for reject in encoded.rejects):
        raise RecordError(
            f"{path}: no record can be read: {encoded.rejects[0].message}; it differs from the "
            "files of this folder whose first records were read before the run: give it its own "
            "[[source]], or leave it out"
        )
