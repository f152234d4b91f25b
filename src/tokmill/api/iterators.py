"""The road of a run in steps that can be iterated: `read`, `render`, `encode`; nothing is written.

Each step gives batches, of Arrow or of NumPy, and with `rows()` plain Python. Memory does not grow
with the input. What stops a run stops these: a broken file, too many rejects, ids that are not the
reference's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, Unpack

import pyarrow as pa
import pyarrow.compute as pc

from tokmill.api.encoder import Tokens, encode_texts
from tokmill.api.in_memory import GivenInputs, spilled_for_now
from tokmill.api.jobs import Inputs, read_config, run_config
from tokmill.errors import UsageError
from tokmill.offsets import byte_offsets
from tokmill.run.stream import encode_records, read_records, render_documents, render_samples
from tokmill.settings.names import by_keyword, keyword_errors
from tokmill.settings.rows import brief
from tokmill.settings.schema import ENCODE_SETTINGS, PRETRAIN_SECTIONS, READ_SETTINGS
from tokmill.settings.signature import with_settings
from tokmill.tokenizer.objects import tokenizer_path

if TYPE_CHECKING:
    from tokmill.run.stream import Batch
    from tokmill.settings.arguments import EncodeArguments, PlanArguments, ReadArguments
    from tokmill.settings.schema import Config
    from tokmill.tokenizer.objects import TokenizerObject
    from tokmill.values import DocumentBatch, SampleBatch

Item = TypeVar("Item")
Row = TypeVar("Row")


class Stream(Generic[Item, Row]):
    """Batches that are made while they are iterated; again from the first one each time.

    Rows that an iterator gave can be iterated once.
    """

    def __init__(
        self, batches: Callable[[], Iterator[Item]], rows: Callable[[Item], Iterable[Row]]
    ):
        self._batches, self._rows = batches, rows

    def __iter__(self) -> Iterator[Item]:
        with keyword_errors():
            yield from self._batches()

    def rows(self) -> Iterator[Row]:
        """Yield what the batches hold as plain Python, one by one."""
        for batch in self:
            yield from self._rows(batch)


class DocumentStream(Stream["pa.RecordBatch", dict[str, Any]]):
    """Documents, or samples of chats, as `tokmill.render` makes them."""

    def __init__(self, road: _Road) -> None:
        self._road = road
        super().__init__(self._documents, lambda batch: batch.to_pylist())

    def _documents(self) -> Iterator[pa.RecordBatch]:
        with self._road.config() as config:
            if config.sft is None:
                yield from map(_document_columns, render_documents(config))
            else:
                yield from map(_sample_columns, render_samples(config))

    def tokens(self, tokenizer: Any = None) -> Iterator[Tokens]:
        """Yield the tokens that a run would write; `tokenizer`: if `render` had none."""
        with keyword_errors(), self._road.config(tokenizer) as config:
            for batch in encode_records(config):
                block = batch.content
                yield Tokens(
                    block.tokens,
                    block.offsets,
                    block.sidecars.get("mask"),
                    block.sidecars.get("weight"),
                    batch.path,
                    batch.numbers,
                )


@dataclass(slots=True)
class _Road:
    """The arguments of a call, from which settings are made when a stream is iterated.

    `recipe`: `read` for records alone.
    """

    recipe: Literal["read", "pretrain", "sft"] | None
    inputs: GivenInputs
    config_file: str | Path | None
    arguments: dict[str, Any]
    is_read: bool = False

    @contextmanager
    def config(self, tokenizer: Any = None) -> Iterator[Config]:
        """Yield the settings; rows in memory stand in a temporary file meanwhile.

        Raises:
            UsageError: an iterator of rows was read before.
        """
        if self.is_read and self.inputs.has_rows_once:
            raise UsageError(
                "inputs: an iterator gives its rows once, and was read before: give a function "
                "that returns one"
            )
        self.is_read = True
        arguments = dict(self.arguments)
        given = arguments.get("tokenizer") if tokenizer is None else tokenizer
        with tokenizer_path(given) as path, spilled_for_now(self.inputs) as (files, sources):
            arguments |= {"tokenizer": path, "source": sources}
            if self.recipe == "read":
                del arguments["tokenizer"]
                yield read_config(files, self.config_file, arguments)
            else:
                yield run_config(self.recipe, files, self.config_file, arguments)

    def check(self) -> None:
        """Check the settings now, where no rows need to be read for it."""
        if not self.inputs.has_rows:
            with self.config():
                pass


@keyword_errors()
@with_settings(by_keyword(READ_SETTINGS).values())
def read(
    inputs: Inputs = (),
    *,
    config: str | Path | None = None,
    **settings: Unpack[ReadArguments],
) -> Stream[pa.RecordBatch, dict[str, Any]]:
    """Return the records of inputs, as a run reads them.

    Batches have the columns `record` (as JSON), `path` and `number` (of the record in its file,
    from 1). `rows()` yields each record as a dict.

    Args:
        inputs: see `tokmill.pretrain`; also rows in memory.
        config: a TOML file with settings.
        **settings: the settings listed below, such as `where=lambda record: record["n"] > 5`.

    Raises:
        TokmillError: a setting is wrong; and while iterating, a file cannot be read or too many
            records are rejected.

    Example:
        >>> for record in tokmill.read("corpus/*.jsonl").rows():
        ...     print(record.get("title"))
    """
    road = _Road("read", GivenInputs(inputs, settings.get("source")), config, dict(settings))
    road.check()

    def batches() -> Iterator[pa.RecordBatch]:
        with road.config() as chosen:
            for batch in read_records(chosen):
                yield _columns(batch, record=batch.content)

    return Stream(batches, _as_dicts)


@keyword_errors()
@with_settings(by_keyword((*PRETRAIN_SECTIONS, "sft")).values())
def render(
    inputs: Inputs = (),
    *,
    recipe: Literal["pretrain", "sft"] | None = None,
    tokenizer: str | Path | TokenizerObject | None = None,
    config: str | Path | None = None,
    **settings: Unpack[PlanArguments],
) -> DocumentStream:
    """Return the documents of inputs, or the samples of chats, as a run would encode them.

    Batches have the columns `text`, `path` and `number` (of the record in its file, from 1); of
    chats also `segments`: of each, its text, the id of a control token or -1, and its weight in the
    loss. `rows()` yields a dict for each.

    Args:
        inputs: see `tokmill.pretrain`; also rows in memory.
        recipe: which run; None: by the settings, else by the first records.
        tokenizer: of chats, whose template it has; documents need none.
        config: a TOML file with settings.
        **settings: the settings of the run; those of the output and the workers change nothing.

    Raises:
        TokmillError: a setting is wrong; and while iterating, what stops a run.

    Example:
        >>> for row in tokmill.render("corpus/*.jsonl").rows():
        ...     print(row["text"][:80])
    """
    arguments = {"tokenizer": tokenizer, **settings}
    road = _Road(recipe, GivenInputs(inputs, settings.get("source")), config, arguments)
    road.check()
    return DocumentStream(road)


@keyword_errors()
@with_settings(by_keyword(ENCODE_SETTINGS).values())
def encode(
    texts: Iterable[str] | DocumentStream | pa.Array | pa.ChunkedArray,
    tokenizer: str | Path | TokenizerObject | None = None,
    *,
    eos: bool = True,
    **settings: Unpack[EncodeArguments],
) -> Stream[Tokens, list[int]]:
    """Return the ids of texts, as a run writes them: by a fast engine that is compared first.

    Batches are `Tokens`: ids and offsets, arrays of NumPy. `rows()` yields a list of ids for each
    text. Of what `tokmill.render` returned, they are the tokens that a run would write: with
    control tokens, masks and limits, without what it drops.

    Args:
        texts: an iterable, read once and in pieces; a column of Arrow, pandas or polars; or what
            `tokmill.render` returned.
        tokenizer: see `tokmill.pretrain`; of `render`, by default its own.
        eos: end each text with eos, and begin it with bos if the settings have one. Without, a text
            is its own ids alone.
        **settings: the settings listed below.

    Raises:
        TokmillError: a setting or the tokenizer is wrong; and while iterating, a text is none, or
            the engine's ids are not the reference's.

    Example:
        >>> tokens = next(iter(tokmill.encode(["hello", "there"], "gpt2/")))
        >>> tokens.ids, tokens.offsets, tokens[1]
    """
    if isinstance(texts, DocumentStream):
        if settings or not eos:
            raise UsageError("encode: documents of render take their settings there")
        documents = texts
        return Stream(lambda: documents.tokens(tokenizer), Tokens.to_pylist)
    if isinstance(texts, Stream):
        raise UsageError("texts: expected texts, found records: render them first")
    if isinstance(texts, str | bytes | Path):
        raise UsageError(f"texts: expected several texts, found {brief(texts)}: give [TEXT]")
    if tokenizer is None:
        raise UsageError("tokenizer: expected one, found None")
    return Stream(lambda: encode_texts(texts, tokenizer, eos, settings), Tokens.to_pylist)


def _columns(batch: Batch[Any], **columns: Any) -> pa.RecordBatch:
    """Return columns, and where each row is from."""
    path = pa.repeat(pa.scalar(batch.path, pa.large_string()), len(batch.numbers))
    return pa.RecordBatch.from_pydict({**columns, "path": path, "number": pa.array(batch.numbers)})


def _document_columns(batch: Batch[DocumentBatch]) -> pa.RecordBatch:
    return _columns(batch, text=batch.content.text)


def _sample_columns(batch: Batch[SampleBatch]) -> pa.RecordBatch:
    """Return samples: their text, and their segments."""
    samples = batch.content
    token = pc.max_element_wise(pa.array(samples.control), -1)
    segments = pa.StructArray.from_arrays(
        [samples.text, token, pa.array(samples.weights)], ["text", "token", "weight"]
    )
    offsets = pa.array(samples.offsets)
    ends = byte_offsets(samples.text)[samples.offsets]  # the segments of a sample stand end to end
    buffers = [None, pa.py_buffer(ends), samples.text.buffers()[2]]
    text = pa.Array.from_buffers(pa.large_string(), len(ends) - 1, buffers)
    return _columns(batch, text=text, segments=pa.LargeListArray.from_arrays(offsets, segments))


def _as_dicts(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """Yield records of JSON as dicts."""
    return map(json.loads, batch.column("record").to_pylist())
