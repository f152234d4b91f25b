"""One part, from slices to committed shards: bounded, ordered, streaming.

The calling thread reads and writes; a pool parses, renders and encodes a few blocks ahead, bounded
in number and in bytes. Results are written in the order of the blocks.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tokmill.batch import Place
from tokmill.encode.spot import SpotCheck
from tokmill.laps import Laps
from tokmill.pipeline.bounds import ahead_bytes
from tokmill.pipeline.encoded import Encoded
from tokmill.pipeline.spec import Progress
from tokmill.pipeline.steps import StepWriter
from tokmill.shards.layout import PARTS, part_name
from tokmill.shards.record import Counts, PartRecord, read_committed
from tokmill.sources.open import open_slice
from tokmill.sources.slices import check_unchanged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tokmill.pipeline.roads import Road
    from tokmill.pipeline.spec import Part, RunSpec
    from tokmill.shards.record import Next
    from tokmill.sources.blocks import Block, SliceReader

_BUNDLE_BYTES = 256 << 10
_MOST_BUNDLED = 1024
"""Smaller blocks, which small files give, are processed together up to here."""


@dataclass(frozen=True, slots=True)
class _Work:
    """A block with the slice it came from, or the end of a slice, which has none."""

    slice_index: int
    reader: SliceReader
    block: Block | None
    is_end: bool = False


class _Bundle(NamedTuple):
    """What is processed in one go, of `n_bytes`."""

    works: Sequence[_Work]
    n_bytes: int

    def without_blocks(self) -> _Bundle:
        """Give what is needed later, so that the blocks can go."""
        return _Bundle([replace(work, block=None) for work in self.works], self.n_bytes)


def run_part(
    spec: RunSpec, part: Part, road: Callable[[], Road], report: Callable[[Progress], None]
) -> PartRecord:
    """Write one part, or give the record of an earlier attempt that finished it.

    Args:
        spec: the run.
        part: the part.
        road: gives this process's road; called only if there is work.
        report: gets increments; what it raises stops the part.

    Raises:
        TokmillError: nothing uncommitted stays behind.
    """
    directory = Path(spec.config.output.dir)
    fingerprint = part.fingerprint(spec)
    done = read_committed(directory / PARTS / part_name(part.index), fingerprint, directory)
    if done is not None:
        report(_resumed(done.counts()))
        return done
    loaded = road()
    writer = StepWriter(
        directory,
        part.index,
        fingerprint,
        dtype=loaded.dtype,
        shard_tokens=spec.config.output.shard_tokens,
        fail_on_reject=spec.config.limits.on_error == "fail",
        algorithm=spec.config.output.checksum,
    )
    try:
        start, counts = writer.resume()
        if start is not None:
            report(_resumed(counts))
        laps = Laps()
        _write_blocks(spec, part, loaded, writer, start, laps, report)
        record = writer.finish()
        report(Progress(stage_s={**laps.seconds, **writer.stage_s}))
        return record
    except BaseException:
        writer.discard()
        raise


def _write_blocks(
    spec: RunSpec,
    part: Part,
    road: Road,
    writer: StepWriter,
    start: Next | None,
    laps: Laps,
    report: Callable[[Progress], None],
) -> None:
    spot = None if road.reference is None else SpotCheck(road.reference, road.continuation)
    with ThreadPoolExecutor(spec.n_threads, "tokmill") as pool:
        works = _timed(_works(spec, part, road, start), laps)
        for work, encoded in _in_order(pool, road, works, spec):
            laps.skip()
            source = part.slices[work.slice_index].file
            if encoded is None:
                check_unchanged(source)
                writer.end_slice(work.slice_index, part.slices[work.slice_index].n_bytes)
                continue
            n_checked = 0 if spot is None else _spot_check(spot, work, encoded, source.path)
            laps.end("spot check")
            progress = writer.add(work.slice_index, source.path, encoded, work.reader.origin)
            report(replace(progress, n_checked=n_checked, stage_s=encoded.stage_s))
            del encoded  # or a long record's tokens would stay beside the next block


def _timed(works: Iterator[_Work], laps: Laps) -> Iterator[_Work]:
    laps.skip()
    for work in works:
        laps.end("read")
        yield work
        laps.skip()


def _works(spec: RunSpec, part: Part, road: Road, start: Next | None) -> Iterator[_Work]:
    """Give the blocks of all slices, each slice followed by its end, from `start` on."""
    first = 0 if start is None else start.slice
    for i, piece in enumerate(part.slices[first:], first):
        place = Place(start.line, start.byte_offset) if start and i == first else None
        settings, run = spec.config.input, spec.config.run
        with open_slice(piece, settings, road.schema, run.batch_bytes, place) as reader:
            for block in reader.blocks():
                yield _Work(i, reader, block)
            yield _Work(i, reader, None, is_end=True)


def _in_order(
    pool: ThreadPoolExecutor, road: Road, works: Iterator[_Work], spec: RunSpec
) -> Iterator[tuple[_Work, Encoded | None]]:
    """Process blocks on the pool, a bounded number ahead, and give the results in order."""
    pending: deque[tuple[_Bundle, Future[list[Encoded]]]] = deque()
    limit_bytes = ahead_bytes(spec)
    in_flight = 0
    try:
        for bundle in _bundles(works):
            while pending and (
                in_flight + bundle.n_bytes > limit_bytes or len(pending) > spec.n_threads + 1
            ):
                in_flight -= pending[0][0].n_bytes
                yield from _results(*pending.popleft())
            pending.append((bundle.without_blocks(), pool.submit(_process, road, bundle)))
            in_flight += bundle.n_bytes
            del bundle
        while pending:
            yield from _results(*pending.popleft())
    finally:
        for _, future in pending:
            future.cancel()


def _bundles(works: Iterator[_Work]) -> Iterator[_Bundle]:
    """Put small blocks together; a large one goes alone, behind what was before it."""
    held: list[_Work] = []
    n_bytes = 0
    for work in works:
        weight = 0 if work.block is None else work.block.n_bytes
        if held and (n_bytes + weight > _BUNDLE_BYTES or len(held) >= _MOST_BUNDLED):
            yield _Bundle(held, n_bytes)
            held, n_bytes = [], 0
        held.append(work)
        n_bytes += weight
        del work
        if n_bytes >= _BUNDLE_BYTES:
            yield _Bundle(held, n_bytes)
            held, n_bytes = [], 0
    if held:
        yield _Bundle(held, n_bytes)


def _process(road: Road, bundle: _Bundle) -> list[Encoded]:
    blocks = [work.block for work in bundle.works if work.block is not None]
    return road.process(blocks) if blocks else []


def _results(
    bundle: _Bundle, future: Future[list[Encoded]]
) -> Iterator[tuple[_Work, Encoded | None]]:
    encoded = iter(future.result())
    for work in bundle.works:
        yield work, None if work.is_end else next(encoded)


def _spot_check(spot: SpotCheck, work: _Work, encoded: Encoded, source: str) -> int:
    before = spot.n_checked
    spot.earn(int(encoded.text_bytes.sum()))
    for candidate, row in zip(encoded.spot, encoded.spot_rows, strict=True):
        place = encoded.lookup.place(int(row))
        where = f"{source}: record {place.line} of its slice"
        spot.check(candidate, where)
    return spot.n_checked - before


def _resumed(counts: Counts) -> Progress:
    return Progress(
        input_bytes=counts.input_bytes,
        text_bytes=counts.text_bytes,
        records=counts.records,
        documents=counts.documents,
        tokens=counts.tokens,
        drops=counts.drops,
        rejects=counts.rejects,
        resumed=True,
    )
