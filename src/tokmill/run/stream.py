"""The road of a record in steps, with nothing written: records, documents, ids.

Blocks are read by the calling thread, worked on by threads a few ahead, and yielded in order. What
is rejected, dropped or not read counts as in a run, and stops a stream where it stops a run.
"""

from __future__ import annotations

from collections import Counter, deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from tokmill.dataset.counts import Counts
from tokmill.dataset.writer import describe_reject
from tokmill.engines.engine import engine_threads
from tokmill.errors import ParityError, RecordError, UnreadInputError
from tokmill.machine.limits import usable_cores
from tokmill.recipes.document_renderer import DocumentRenderer
from tokmill.recipes.spec import Part
from tokmill.recipes.table import Recipes
from tokmill.rendering.where import DROPPED_BY_WHERE, make_filter
from tokmill.run.part import blocks_of_part, bundles, count_block
from tokmill.run.prepare import choose_run_engine, prepare
from tokmill.run.readings import find_readings, inputs_of
from tokmill.run.reject_limits import FRACTION_CHECKED_FROM, check_totals, describe_unread
from tokmill.sources.formats import open_slice
from tokmill.sources.slices import Slice
from tokmill.timing import StageTimer
from tokmill.values import WHOLE_RECORD

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence

    import numpy.typing as npt

    from tokmill.chat.render_pool import ChatRenderer
    from tokmill.recipes.encoded import EncodedBlock
    from tokmill.recipes.table import Recipe
    from tokmill.settings.schema import Config, LimitSettings
    from tokmill.sources.formats import Block
    from tokmill.sources.slices import SourceFile
    from tokmill.values import DocumentBatch, Records, Reject, SampleBatch, UnreadInput

Item = TypeVar("Item")
Result = TypeVar("Result")
Content = TypeVar("Content")
Key = TypeVar("Key")

_AHEAD = 2
"""Results that wait besides those in work: the one to yield, and the next."""


@dataclass(frozen=True, slots=True)
class Batch(Generic[Content]):
    """What became of a block of a file.

    `numbers`: (n,) int64, for each record, document or sample the number of its record in the file,
    from 1.
    """

    path: str
    numbers: npt.NDArray[np.int64]
    content: Content


def in_order(
    items: Iterable[Item], work: Callable[[Item], Result], n_threads: int
) -> Generator[Result, None, None]:
    """Yield what `work` makes of each item, in order, on threads that are a few items ahead.

    Close it: this waits for the items that are in work, and begins no other.
    """
    pool = ThreadPoolExecutor(n_threads, "tokmill")
    pending = deque[Future[Result]]()
    try:
        for item in items:
            pending.append(pool.submit(work, item))
            if len(pending) >= n_threads + _AHEAD:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def read_records(config: Config) -> Iterator[Batch[pa.LargeStringArray]]:
    """Yield the records of all inputs as JSON, in the order of the files.

    Raises:
        TokmillError: a file or a setting is at fault, or too much is rejected.
    """
    losses = _Losses(config.limits)
    for source in inputs_of(config, None):
        for file in source.discovery.files:
            yield from _batches(file, source.config, _AsJson(), losses)
    losses.check()


def render_documents(config: Config) -> Iterator[Batch[DocumentBatch]]:
    """Yield the documents that a run of pretraining would encode, in its order.

    Raises:
        TokmillError: a file or a setting is at fault, or too much is rejected.
    """
    losses = _Losses(config.limits)
    for group in find_readings(inputs_of(config, None), None):
        reading = group.reading
        own = replace(config, input=reading.input, render=reading.render)
        for file in group.files:
            yield from _batches(file, own, _AsDocuments(own), losses)
    losses.check()


def render_samples(config: Config) -> Iterator[Batch[SampleBatch]]:
    """Yield the samples that a run of SFT would encode, in its order.

    Raises:
        TokmillError: a file or a setting is at fault, or too much is rejected.
    """
    from tokmill.recipes.sft_setup import make_chat_renderer

    losses, prepared = _Losses(config.limits), prepare(config)
    for group in prepared.readings:
        own = replace(prepared.config, input=group.reading.input, sft=group.reading.sft)
        chats = make_chat_renderer(own, prepared.tokenizer, prepared.template)
        for file in group.files:
            yield from _batches(file, own, _AsSamples(chats), losses)
    losses.check()


def encode_records(config: Config) -> Iterator[Batch[EncodedBlock]]:
    """Yield the tokens that a run would write, of train and val, in the order of the records.

    Raises:
        TokmillError: a file or a setting is at fault, too much is rejected, or the engine's ids
            are not the reference's.
    """
    prepared, losses = prepare(config), _Losses(config.limits)
    with engine_threads(prepared.threads):
        spec = prepared.spec(choose_run_engine(prepared))
    recipes = Recipes(spec)
    for number, group in enumerate(prepared.readings):
        whole = tuple(Slice(file, 0, -1, file.n_bytes) for file in group.files)
        part = Part(number, whole, number)
        recipe = recipes.of(part)
        works = blocks_of_part(spec.for_part(part), part, recipe, StageTimer())
        encode = partial(_encoded, recipe)
        with closing(in_order(bundles(works), encode, prepared.threads)) as bundled:
            for (index, _), block in chain.from_iterable(bundled):
                path = group.files[index].path
                count_block(losses.counts, block)
                losses.add(path, block.rejects, block.unread)
                for record, line in block.differences:
                    raise ParityError(f"{path}: record {record}: {line}")
                if block.n_documents:
                    yield Batch(path, block.places[:, 0], block)
    losses.check()


def _encoded(
    recipe: Recipe, bundle: tuple[Sequence[tuple[Key, Any]], int]
) -> list[tuple[Key, EncodedBlock]]:
    """Return the blocks of a bundle, encoded; what has no block ends a file."""
    keys = [key for key, block in bundle[0] if block is not None]
    blocks = [block for _, block in bundle[0] if block is not None]
    return list(zip(keys, recipe.process(blocks), strict=True)) if blocks else []


# Records to what is made of them


class _Made(NamedTuple):
    """What was made of the records of a block.

    `places`: (n, 2) int64, the line and the byte of the record of each. `n_records`: of the block,
    with those that were left out or rejected.
    """

    content: Any
    places: npt.NDArray[np.int64]
    n_records: int
    drops: Mapping[str, int]
    rejects: Sequence[Reject]
    unread: UnreadInput | None


class _Outcome(NamedTuple):
    """What a maker returns: content, the row of each, rows that were dropped, and rejects."""

    content: Any
    rows: npt.NDArray[np.int64]
    drops: Mapping[str, npt.NDArray[np.int64]]
    refused: Sequence[Reject]


class _Maker(Protocol):
    """Makes records into something; threads may share one."""

    schema: pa.Schema

    def blocks_of(self, piece: Slice, blocks: Iterator[Block]) -> Iterator[Block]:
        """Return the blocks of a file, with what the file decides."""

    def names_of(self, block: Block, records: Records) -> Sequence[str]:
        """Return the renderer of a block, where each file has its own, by all of its records."""

    def make(self, records: Records, names: Sequence[str]) -> _Outcome:
        """Return what becomes of the records of a block; `names`: its renderer."""


def _batches(
    file: SourceFile, config: Config, maker: _Maker, losses: _Losses
) -> Iterator[Batch[Any]]:
    """Yield what a maker makes of the records of a file, block by block."""
    keep = make_filter(config.input)

    def made_of(block: Block) -> _Made:
        records = block.parse()
        rejects, drops = list(records.rejects), Counter[str]()
        n_records = records.batch.num_rows + len(rejects)
        unread, names = records.unread, maker.names_of(block, records)
        if keep is not None:
            kept = keep(records)
            records, drops[DROPPED_BY_WHERE] = kept.records, len(kept.dropped)
            rejects += kept.refused.values()
        outcome = maker.make(records, names)
        drops.update({reason: len(rows) for reason, rows in outcome.drops.items()})
        rejects += outcome.refused
        rejects.sort(key=lambda reject: reject.place)
        places = records.places[outcome.rows]
        return _Made(outcome.content, places, n_records, +drops, rejects, unread)

    piece = Slice(file, 0, -1, file.n_bytes)
    n_threads = config.run.threads or usable_cores()
    with (
        open_slice(piece, config.input, maker.schema, config.run.block_bytes) as reader,
        closing(in_order(maker.blocks_of(piece, reader.blocks()), made_of, n_threads)) as batches,
    ):
        for made in batches:
            losses.counts.drops.update(made.drops)
            losses.counts.rejects.update(reject.reason for reject in made.rejects)
            losses.counts.records += made.n_records
            losses.add(file.path, made.rejects, made.unread)
            if len(made.places):
                yield Batch(file.path, made.places[:, 0], made.content)


class _OfWholeRecords:
    """Makes something of each record alone, whatever its file."""

    schema = pa.schema([(WHOLE_RECORD, pa.large_string())])

    def blocks_of(self, _: Slice, blocks: Iterator[Block]) -> Iterator[Block]:
        """Return the blocks of a file."""
        return blocks

    def names_of(self, _block: Block, _records: Records) -> Sequence[str]:
        """Return nothing."""
        return ()


class _AsJson(_OfWholeRecords):
    """Makes the JSON of records."""

    def make(self, records: Records, _: Sequence[str]) -> _Outcome:
        """Return a column of JSON; a record with what is no text is rejected."""
        refused = [records.reject(row, *why) for row, why in records.doubtful.items()]
        rows = np.delete(np.arange(records.batch.num_rows), list(records.doubtful))
        return _Outcome(records.batch.column(0).take(pa.array(rows)), rows, {}, refused)


class _AsDocuments:
    """Makes the documents of pretraining."""

    def __init__(self, config: Config) -> None:
        self._renderer = DocumentRenderer(config)
        self.schema = self._renderer.renderer.schema
        self.blocks_of = self._renderer.blocks_of

    def names_of(self, block: Block, records: Records) -> Sequence[str]:
        """Return the renderer of a block."""
        return self._renderer.names_of([block], records)

    def make(self, records: Records, names: Sequence[str]) -> _Outcome:
        """Return a `DocumentBatch`."""
        documents = self._renderer.render(records, names)
        refused = list(documents.refused.values())
        return _Outcome(documents, documents.rows, documents.drops, refused)


class _AsSamples(_OfWholeRecords):
    """Makes the samples of SFT."""

    def __init__(self, chats: ChatRenderer) -> None:
        self._chats = chats

    def make(self, records: Records, _: Sequence[str]) -> _Outcome:
        """Return a `SampleBatch`."""
        samples = self._chats.render(records)
        refused = [reject for _, reject in samples.refused]
        return _Outcome(samples, samples.rows, samples.drops, refused)


class _Losses:
    """Counts what becomes of the records of a stream, and stops it as a run is stopped."""

    def __init__(self, limits: LimitSettings) -> None:
        self.counts = Counts()
        self._limits, self._first = limits, ""
        self._unread: list[str] = []

    def add(self, path: str, rejects: Sequence[Reject], unread: UnreadInput | None) -> None:
        """Add the rejects of a block, which are counted, and a break behind it.

        Raises:
            RecordError: there is a reject, and none is accepted; or there are too many.
        """
        for reject in rejects[:1]:
            line = describe_reject(path, reject.place, reject)
            self._first = self._first or line
            if self._limits.on_error == "fail":
                raise RecordError(f"{line}; --on-error=skip counts it and goes on")
        if unread is not None:
            self._unread.append(describe_unread(path, unread))
        if self.counts.records >= FRACTION_CHECKED_FROM:
            check_totals(self._limits, self.counts, self._first)

    def check(self) -> None:
        """Check the limits at the end; raises `RecordError` or `UnreadInputError`."""
        check_totals(self._limits, self.counts, self._first)
        if self._unread and self._limits.on_unread == "error":
            raise UnreadInputError(
                f"input breaks off: {self._unread[0]}; --on-unread=skip accepts the loss",
                tuple(self._unread),
            )
