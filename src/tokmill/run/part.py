"""Write one part: read its slices, encode blocks on threads, write shards, rejects, and the record.

The calling thread reads and writes; a pool parses, renders and encodes a few blocks ahead. A part
that is stopped leaves nothing but its rejects, under a name of their own, and begins again.

A slow block holds up the results of those behind it, not their work: threads go on as long as the
finished blocks fit in the memory that blocks may take.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, cast

import numpy as np

from tokmill.dataset.counts import USUAL, Counts, Increments, add_fields
from tokmill.dataset.layout import ORIGIN
from tokmill.dataset.origins import origin_numbers
from tokmill.dataset.part_writer import EncodedDocuments, PartWriter
from tokmill.dataset.sidecars import METADATA
from tokmill.dataset.writer import describe_reject
from tokmill.errors import ParityError, RecordError
from tokmill.interrupts import DelayedInterrupts
from tokmill.recipes.left_out import is_weighed_slice
from tokmill.recipes.memory_bounds import BLOCK_COPIES, FINISHED_COPIES, blocks_bytes
from tokmill.run.plan import check_plan
from tokmill.sources.formats import open_slice
from tokmill.sources.slices import check_unchanged
from tokmill.timing import LIBRARIES, StageSeconds, StageTimer, library_cpu_s

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    import numpy.typing as npt

    from tokmill.dataset.counts import SliceLength
    from tokmill.dataset.part_record import PartRecord
    from tokmill.dataset.place import Place
    from tokmill.recipes.encoded import EncodedBlock
    from tokmill.recipes.rows import SplitBlock
    from tokmill.recipes.spec import Part, RunSpec
    from tokmill.recipes.table import Recipe, RecordRecipe
    from tokmill.recipes.tokens import TokenBlock, TokenReader, TokenRecipe
    from tokmill.settings.schema import Config
    from tokmill.sources.formats import Block as RecordBlock
    from tokmill.sources.formats import SliceReader
    from tokmill.sources.slices import Slice
    from tokmill.values import RecordPlace, UnreadKeys

    Block: TypeAlias = RecordBlock | SplitBlock | TokenBlock
    Reader = SliceReader | TokenReader
    _Work = tuple[tuple[int, Reader], Block | None]


_LOOK_S = 0.2  # an interrupt waits at most so long for a block that is being encoded

_BUNDLE_BYTES = 256 << 10
_MOST_BUNDLED = 1024
"""Smaller blocks, as small files give them, are encoded together up to these limits."""


def run_part(
    spec: RunSpec, part: Part, place: Place, recipe: Recipe, report: Callable[[Increments], None]
) -> PartRecord:
    """Write one part to the place of its dataset, and return its record.

    `report` gets increments; an exception that it raises stops the part.

    Raises:
        StateError: the plan in the place is another one than that of the run.
        TokmillError: nothing of the part is kept, but its rejects.
    """
    fingerprint, spec = part.fingerprint(spec), spec.for_part(part)
    check = partial(check_plan, place, spec.plan_stamp)
    writer = BlockWriter(place, part.index, fingerprint, spec.config, check)
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
    writer: BlockWriter,
    interrupts: DelayedInterrupts,
    timer: StageTimer,
    report: Callable[[Increments], None],
) -> None:
    """Write the blocks of a part in order, as the pool has encoded them."""
    works = blocks_of_part(spec, part, recipe, timer)
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


def blocks_of_part(spec: RunSpec, part: Part, recipe: Recipe, timer: StageTimer) -> Iterator[_Work]:
    """Yield the blocks of all slices, each with its slice, and None at the end of each slice.

    `timer` gets the seconds of reading.
    """
    for i, piece in enumerate(part.slices):
        timer.skip()
        check_unchanged(piece.file)
        with _opened(spec, recipe, piece, is_weighed=is_weighed_slice(i)) as (reader, blocks):
            for block in blocks:
                timer.end("read")
                yield (i, reader), block
                timer.skip()
            timer.end("read")
            yield (i, reader), None


@contextmanager
def _opened(
    spec: RunSpec, recipe: Recipe, piece: Slice, *, is_weighed: bool
) -> Iterator[tuple[Reader, Iterator[Block]]]:
    """Open a slice, and yield its reader and its blocks."""
    if spec.tokens is not None:
        with cast("TokenRecipe", recipe).open(piece) as tokens:
            yield tokens, tokens.blocks()
        return
    recipe = cast("RecordRecipe", recipe)
    settings, block_bytes = spec.config.input, spec.config.run.block_bytes
    with open_slice(piece, settings, recipe.schema, block_bytes, samples_head=is_weighed) as reader:
        yield reader, recipe.blocks_of(piece, reader.blocks())


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


Key = TypeVar("Key")
"""Says where a block belongs."""


@dataclass(slots=True)
class _Bundle(Generic[Key]):
    """Blocks that are encoded together, of `n_bytes`; `keys`: each with whether it has a block."""

    keys: Sequence[tuple[Key, bool]]
    n_bytes: int
    encoded: Future[Sequence[EncodedBlock]] = field(init=False)
    is_done: bool = False

    def encode(self, recipe: Recipe, blocks: Sequence[Any]) -> Sequence[EncodedBlock]:
        """Encode the blocks, on a thread."""
        try:
            return recipe.process(blocks) if blocks else ()
        finally:
            self.is_done = True


def encode_ahead(
    spec: RunSpec,
    recipe: Recipe,
    blocks: Iterable[tuple[Key, Block | None]],
    interrupts: DelayedInterrupts,
) -> Generator[tuple[Key, EncodedBlock | None], None, None]:
    """Yield each key with its encoded block, or with None if it has no block, in order.

    Close the iterator: this waits for the blocks that are being encoded, and begins no other.

    Interrupts are delayed while executor and futures are called: one that comes inside their
    conditions, which are Python code, can leave a lock locked, and a thread would wait for ever.
    """
    # No thread waits for the reader: while the calling thread writes, they take blocks that wait.
    most_unfinished = spec.n_threads + max(2, spec.n_threads // 4)
    most_bytes = blocks_bytes(spec)
    pool, pending = ThreadPoolExecutor(spec.n_threads, "tokmill"), deque[_Bundle[Key]]()

    def has_room(n_bytes: int) -> bool:
        """Return whether blocks may be begun; those that are alone always may."""
        n_unfinished, memory = 0, BLOCK_COPIES * n_bytes
        for bundle in pending:
            is_done = bundle.is_done  # it may change between the next two lines
            n_unfinished += not is_done
            memory += (FINISHED_COPIES if is_done else BLOCK_COPIES) * bundle.n_bytes
        return not pending or (n_unfinished < most_unfinished and memory <= most_bytes)

    def wait_for_one(bundles: Iterable[_Bundle[Key]]) -> None:
        """Wait for a bundle that is not done yet; a block may take minutes, an interrupt not."""
        unfinished = [bundle for bundle in bundles if not bundle.is_done]
        while unfinished and not any(bundle.is_done for bundle in unfinished):
            with interrupts.delayed():
                wait([bundle.encoded for bundle in unfinished], _LOOK_S, FIRST_COMPLETED)

    def oldest() -> Iterator[tuple[Key, EncodedBlock | None]]:
        wait_for_one([pending[0]])
        with interrupts.delayed():
            encoded = iter(pending[0].encoded.result())
        for key, has_block in pending[0].keys:
            yield key, next(encoded) if has_block else None
        pending.popleft()

    try:
        for bundled, n_bytes in bundles(blocks):
            # One result for each bundle that is read: neither side waits for the other to end.
            if pending and pending[0].is_done:
                yield from oldest()
            while not has_room(n_bytes):
                if pending[0].is_done:
                    yield from oldest()
                else:
                    wait_for_one(pending)
            bundle = _Bundle([(key, block is not None) for key, block in bundled], n_bytes)
            of_bundle = [block for _, block in bundled if block is not None]
            with interrupts.delayed():
                bundle.encoded = pool.submit(bundle.encode, recipe, of_bundle)
                pending.append(bundle)
            del bundled, of_bundle  # or they would stay in memory until the next are read
        while pending:
            yield from oldest()
    finally:
        with interrupts.delayed():
            pool.shutdown(cancel_futures=True)


def bundles(
    blocks: Iterable[tuple[Key, Block | None]],
) -> Iterator[tuple[list[tuple[Key, Block | None]], int]]:
    """Yield small blocks in bundles, a large one alone, and the bytes of each bundle."""
    bundled: list[tuple[Key, Block | None]] = []
    n_bytes = 0
    for key, block in blocks:
        block_bytes = 0 if block is None else block.n_bytes
        if bundled and (n_bytes + block_bytes > _BUNDLE_BYTES or len(bundled) >= _MOST_BUNDLED):
            yield bundled, n_bytes
            bundled, n_bytes = [], 0
        bundled.append((key, block))
        n_bytes += block_bytes
        del block
        if n_bytes >= _BUNDLE_BYTES:
            yield bundled, n_bytes
            bundled, n_bytes = [], 0
    if bundled:
        yield bundled, n_bytes


class BlockWriter(PartWriter):
    """Writes the encoded blocks of the slices of a part: documents, rejects and counts.

    `config`: of the run; the rest: see `PartWriter`.
    """

    def __init__(
        self, place: Place, part: int, fingerprint: str, config: Config, check: Callable[[], None]
    ) -> None:
        super().__init__(place, part, fingerprint, config.output, check)
        self._on_error = config.limits.on_error

    def add(
        self, slice_index: int, source: str, block: EncodedBlock, origin: Callable[[], RecordPlace]
    ) -> Increments:
        """Write one block, and end each shard that it fills.

        `source` is the path of its file; `origin` returns the place where its slice begins there.

        Raises:
            RecordError: the block has a reject and `on_error` is `fail`.
        """
        counts = self.counts_of(slice_index)
        first_reject = ""
        for reject in block.rejects:
            place = reject.place.shifted(origin())
            first_reject = first_reject or describe_reject(source, place, reject)
            self.reject(source, place, reject)
            if self._on_error == "fail":
                raise RecordError(f"{first_reject}; --on-error=skip counts it and goes on")
        if block.n_documents:
            for split, documents in _documents_of(slice_index, block).by_split(block.is_val):
                self.append(split, documents)
        progress = count_block(counts, block)
        if block.unread is not None:
            place = block.unread.place.shifted(origin())
            counts.unread.append(replace(block.unread, place=place))
        return replace(progress, first_reject=first_reject)

    def end_slice(
        self, slice_index: int, input_bytes: int, length: SliceLength | None = None
    ) -> None:
        """Count a slice of `input_bytes` that was read to its end; `length`: see `Counts`."""
        counts = self.counts_of(slice_index)
        counts.input_bytes += input_bytes
        counts.length = length
        counts.compacted()


def _documents_of(slice_index: int, block: EncodedBlock) -> EncodedDocuments:
    """Return the documents of a block of a slice, with their sidecars."""
    of_documents: dict[str, Any] = {}
    if block.has_places:
        of_documents[ORIGIN] = origin_numbers(slice_index, block.places)
    if block.metadata is not None:
        of_documents[METADATA] = block.metadata
    return EncodedDocuments(
        block.tokens, block.offsets, block.sidecars, of_documents, records=block.rows
    )


def count_block(counts: Counts, block: EncodedBlock) -> Increments:
    """Add a block, but not its break, to the counts of its slice; return it as increments."""
    drops = {reason: len(rows) for reason, rows in block.drops.items() if len(rows)}
    rejects = Counter(reject.reason for reject in block.rejects)
    progress = Increments(
        block.input_bytes,
        int(block.text_bytes.sum()),
        block.n_records,
        block.n_documents,
        len(block.tokens),
        drops,
        rejects,
        {name: int(n.sum()) for name, n in block.counters.items()},
    )
    counts.records += progress.records
    counts.documents += progress.documents
    counts.tokens += progress.tokens
    counts.text_bytes += progress.text_bytes
    counts.drops.update(drops)
    counts.rejects.update(rejects)
    # Outcomes after the first of a record.
    counts.extra += progress.documents + sum(drops.values()) + len(block.rejects) - progress.records
    counts.trained_tokens += int(np.count_nonzero(block.sidecars.get("mask", ())))
    lost = {reason: int(rows[:, 1].sum()) for reason, rows in block.lost.items()}
    checks = {name: int(n.sum()) for name, n in block.checks.items()}
    for sums, of_block in (
        (counts.counters, progress.counters),
        (counts.checks, checks),
        (counts.lost_tokens, lost),
        (counts.renderers, dict.fromkeys(block.renderers, progress.documents)),
        (counts.named, {label: int(is_there.sum()) for label, is_there in block.named.items()}),
    ):
        sums.update({name: n for name, n in of_block.items() if n})  # 0 depends on the block
    for name, n in progress.counters.items():
        if n and name not in USUAL and block.has_places:
            counts.notice(name, block.places[block.counters[name] > 0, 0].tolist())
    if block.unread_keys is not None:
        _count_unread_keys(counts, block.unread_keys, block.rows)
    for _, fields in block.fields:
        add_fields(counts.fields, fields)
    return progress


def _count_unread_keys(counts: Counts, keys: UnreadKeys, rows: npt.NDArray[np.int64]) -> None:
    """Count the unread keys of records with documents, in the order of their first record.

    That order decides which keys get a name, and does not depend on the size of blocks.
    """
    of_record = keys.of_row[np.unique(rows)]
    kinds, first, n_records = np.unique(
        of_record[of_record >= 0], return_index=True, return_counts=True
    )
    for i in np.argsort(first):
        for key in keys.sets[int(kinds[i])]:
            counts.add_unread_key(key, int(n_records[i]))
