"""Write one part: read its slices, encode blocks on threads, write them in order, commit.

The calling thread reads and writes; a pool parses, renders and encodes a few blocks ahead. A killed
part continues here: `PartWriter.resume` finds the last commit record or checkpoint of the part, and
reading begins at the place that it names.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from tokmill.dataset.commit_record import PartRecord, read_committed
from tokmill.dataset.counts import Counts
from tokmill.dataset.layout import PARTS, part_name
from tokmill.errors import ParityError, TokmillError
from tokmill.interrupts import DelayedInterrupts
from tokmill.recipes.left_out import is_weighed_slice
from tokmill.recipes.spec import Increments
from tokmill.run.block_pool import BlockPool, Work
from tokmill.run.part_writer import CHECKPOINT_S, PartWriter
from tokmill.run.readings import check_first_block
from tokmill.sources.formats import open_slice
from tokmill.sources.slices import check_unchanged
from tokmill.timing import LIBRARIES, StageSeconds, StageTimer, library_cpu_s
from tokmill.values import Place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tokmill.dataset.commit_record import ResumePoint
    from tokmill.recipes.encoded import EncodedBlock
    from tokmill.recipes.spec import Part, RunSpec
    from tokmill.recipes.table import Recipe


def run_part(
    spec: RunSpec,
    part: Part,
    recipe: Callable[[], Recipe],
    report: Callable[[Increments], None],
    *,
    checkpoint_s: float = CHECKPOINT_S,
    ready: Callable[[], object] = lambda: None,
) -> PartRecord:
    """Write one part and return its record; a part that is finished is not written again.

    `recipe` returns this process's recipe, and is called only if there is work. `report` gets
    increments; an exception that it raises stops the part. `ready`: called before anything is
    written, while blocks are read and encoded ahead; it may wait, or raise.

    Raises:
        TokmillError: commits and the last checkpoint stay.
    """
    directory = Path(spec.config.output.dir)
    fingerprint = part.fingerprint(spec)
    done = read_committed(directory / PARTS / part_name(part.index), fingerprint, directory)
    if done is not None:
        report(as_resumed(done.counts()))
        return done
    loaded, spec = recipe(), spec.for_part(part)
    is_read_once = any(piece.file.path == "-" for piece in part.slices)
    writer = PartWriter(
        directory,
        part.index,
        fingerprint,
        loaded.dtype,
        spec.config.output.checksum,
        spec.config.output.shard_tokens,
        fail_on_reject=spec.config.limits.on_error == "fail",
        checkpoint_s=math.inf if is_read_once else checkpoint_s,
    )
    try:
        start, counts = writer.resume()
        if start is not None:
            report(as_resumed(counts))
        timer, library_s = StageTimer(), library_cpu_s()
        _write_blocks(spec, part, loaded, writer, start, timer, report, ready)
        with DelayedInterrupts() as interrupts, interrupts.delayed():
            # Interrupted here, the shards would have no record, and the commit would begin again.
            record = writer.finish()
        library_s = max(0.0, library_cpu_s() - library_s)
        libraries = {LIBRARIES: StageSeconds(0.0, library_s, math.inf)} if library_s else {}
        report(Increments(stage_s={**timer.seconds, **writer.stage_s, **libraries}))
        return record
    except ParityError:
        writer.discard()  # the same engine wrote the open commit
        raise
    except BaseException:
        writer.close()
        raise


def _write_blocks(
    spec: RunSpec,
    part: Part,
    recipe: Recipe,
    writer: PartWriter,
    start: ResumePoint | None,
    timer: StageTimer,
    report: Callable[[Increments], None],
    ready: Callable[[], object],
) -> None:
    works = _timed(_works(spec, part, recipe, start), timer)
    with DelayedInterrupts() as interrupts, BlockPool(spec, recipe, works, interrupts) as blocks:
        last_slice = -1
        try:
            for work, encoded in blocks:
                ready()
                source = part.slices[work.slice_index].file
                if encoded is None:
                    _end_slice(writer, part, work, interrupts)
                    continue
                _check_parity(encoded, source.path)
                if work.slice_index != last_slice:
                    check_first_block(spec, source.path, encoded)
                    last_slice = work.slice_index
                if encoded.rejects or encoded.unread is not None:
                    work.reader.origin()  # may read the file up to here: not inside `delayed`
                with interrupts.delayed():
                    progress = writer.add(
                        work.slice_index, source.path, encoded, work.reader.origin
                    )
                report(replace(progress, stage_s=encoded.stage_s))
                del encoded  # or it would stay in memory beside the next block
        except (KeyboardInterrupt, TokmillError) as error:
            if not isinstance(error, ParityError):
                _last_checkpoint(writer, part, blocks, interrupts)
            raise


def _end_slice(writer: PartWriter, part: Part, work: Work, interrupts: DelayedInterrupts) -> None:
    piece = part.slices[work.slice_index]
    check_unchanged(piece.file)
    length = None if piece.is_whole else work.reader.length()
    with interrupts.delayed():
        writer.end_slice(work.slice_index, piece.n_bytes, length)


def _last_checkpoint(
    writer: PartWriter, part: Part, blocks: BlockPool, interrupts: DelayedInterrupts
) -> None:
    """Write a last checkpoint, if the place of the next record is known.

    Waits for blocks that are being encoded, as the pool would in any case. Before the first block,
    nothing may be written yet: see `ready` of `run_part`.
    """
    if not writer.n_added or not writer.is_between_blocks:
        return
    with suppress(TokmillError):  # the first error is raised
        for work, encoded in blocks.finished_from(writer.n_added):
            if encoded is not None:
                writer.checkpoint_before(work.slice_index, encoded)
                return
            _end_slice(writer, part, work, interrupts)


def _timed(works: Iterator[Work], timer: StageTimer) -> Iterator[Work]:
    timer.skip()
    for work in works:
        timer.end("read")
        yield work
        timer.skip()


def _works(spec: RunSpec, part: Part, recipe: Recipe, start: ResumePoint | None) -> Iterator[Work]:
    """Yield the blocks of all slices from `start` on, and a work for the end of each slice."""
    first, numbers = 0 if start is None else start.slice, count()
    for i, piece in enumerate(part.slices[first:], first):
        place = Place(start.line, start.byte_offset) if start and i == first else None
        settings, run = spec.config.input, spec.config.run
        options = (settings, recipe.schema, run.batch_bytes, place)
        with open_slice(piece, *options, samples_head=is_weighed_slice(i)) as reader:
            for block in reader.blocks():
                yield Work(next(numbers), i, reader, block)
            yield Work(next(numbers), i, reader, None, is_end=True)


def _check_parity(encoded: EncodedBlock, source: str) -> None:
    """Raise `ParityError` for the first text whose ids differ from the reference's."""
    for row, line in encoded.differences:
        place = encoded.lookup.place(row)
        raise ParityError(f"{source}: record {place.line} of its slice: {line}")


def as_resumed(counts: Counts) -> Increments:
    """Return the counts of what an earlier attempt committed, as increments."""
    return Increments(
        input_bytes=counts.input_bytes,
        text_bytes=counts.text_bytes,
        records=counts.records,
        documents=counts.documents,
        tokens=counts.tokens,
        drops=counts.drops,
        rejects=counts.rejects,
        resumed=True,
    )
