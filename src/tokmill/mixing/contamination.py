"""Documents of a mix that share a run of n ids with a held-out text: found, marked, reported.

A chunk is searched in blocks of whole documents, so memory is that of a block and of the index.
Each chunk leaves its lines of the report, which are put together in the order of the documents.
"""

from __future__ import annotations

import json
from functools import cached_property, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.errors import UsageError
from tokmill.inspect.samples import text_decoder
from tokmill.mixing.batch import bounds, records_of, values
from tokmill.mixing.held_out import open_index, read_about, tokenizer_of_mix
from tokmill.mixing.ngrams import Found
from tokmill.mixing.settings import WORDS
from tokmill.mixing.words import known_numbers, words_of
from tokmill.storage import write_chunks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy.typing as npt
    import pyarrow as pa

    from tokmill.mixing.inputs import Chunk, Inputs
    from tokmill.mixing.ngrams import Ids
    from tokmill.mixing.settings import MixSettings
    from tokmill.mixing.temporary import Temporary

BLOCK_TOKENS = 1 << 20
"""Tokens that are searched at once, in whole documents."""

MOST_TEXTS = 10
"""Held-out texts that the report names of a document: an instruction may stand in thousands."""

MOST_SHOWN = 256
"""Tokens of a run whose text the report shows."""

_DECODED = 1 << 12
_FLAGS, _MARKS = "contaminated", "contaminated-marks"
_REPORT = "mix.report"


class Search:
    """Searches the chunks of a mix; the index of held-out texts is in `temporary`."""

    def __init__(self, inputs: Inputs, settings: MixSettings, temporary: Temporary) -> None:
        self._inputs, self._temporary = inputs, temporary
        self._index = open_index(temporary, settings.ngram)
        self._about = read_about(temporary)
        is_of_words = settings.ngram_unit == WORDS
        self._units = _Words(inputs, self._about["words"]) if is_of_words else _Tokens(inputs)

    def search(
        self, chunk: Chunk, batch: pa.RecordBatch, wanted: npt.NDArray[np.bool_]
    ) -> npt.NDArray[np.bool_]:
        """Return which of the wanted documents share a run: (n,) bool; write their lines."""
        ends, ids = bounds(batch, self._inputs.dtype), values(batch, self._inputs.dtype)
        ends = ends - ends[0]
        flags = np.zeros(len(batch), np.bool_)
        with self._temporary.new(_lines_name(chunk)) as file:
            for start, stop in _blocks(ends):
                of_block = ends[start : stop + 1]
                units, offsets = self._units.of(
                    ids[of_block[0] : of_block[-1]], of_block - of_block[0]
                )
                for document, found in _by_document(self._index.find(units, offsets), offsets):
                    number = start + document
                    if wanted[number]:
                        flags[number] = True
                        length = int(offsets[document + 1] - offsets[document])
                        file.write(self._lines(chunk, batch, number, found, length))
        return flags

    def _lines(
        self, chunk: Chunk, batch: pa.RecordBatch, number: int, found: Found, length: int
    ) -> bytes:
        """Return the lines of a document of a chunk; `length`: its tokens or words."""
        inputs, document = self._inputs, batch.slice(number, 1)
        (row,), (record,) = records_of(document, inputs)
        ids = values(document, inputs.dtype)
        own = {
            "dataset": inputs.datasets[chunk.input].place,
            "split": chunk.split,
            "document": chunk.in_input + number,
            "source": inputs.rows[row].path,
            "record": int(record),
        }
        lines = []
        for overlap in self._index.overlaps(found, MOST_TEXTS):
            stop = overlap.start + min(overlap.n_run, MOST_SHOWN)
            unit = self._units.name
            shared = {
                unit: overlap.n_tokens,
                f"document_{unit}": length,
                "run": self._units.text(ids, overlap.start, stop),
                "run_start": overlap.start,
                f"run_{unit}": overlap.n_run,
                "in_texts": overlap.n_texts,
            }
            lines.append(_line({**own, **_place(self._about, overlap.text), **shared}))
        return b"".join(lines)


def _blocks(ends: npt.NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Yield ranges of documents with at most `BLOCK_TOKENS`, but at least one document."""
    start, n = 0, len(ends) - 1
    while start < n:
        fitting = int(np.searchsorted(ends, ends[start] + BLOCK_TOKENS, "right")) - 1
        stop = max(start + 1, fitting)
        yield start, stop
        start = stop


def _by_document(found: Found, offsets: npt.NDArray[np.int64]) -> Iterator[tuple[int, Found]]:
    """Yield each document that has runs, with its runs at places inside it."""
    documents = np.searchsorted(offsets, found.starts, "right") - 1
    distinct, firsts = np.unique(documents, return_index=True)
    borders = [*firsts.tolist(), len(documents)]
    for document, (first, stop) in zip(distinct.tolist(), pairwise(borders), strict=True):
        starts = found.starts[first:stop] - offsets[document]
        yield document, Found(starts, found.grams[first:stop])


class _Tokens:
    """Runs are of the ids of documents."""

    name = "tokens"

    def __init__(self, inputs: Inputs) -> None:
        self._inputs = inputs

    def of(self, ids: Ids, offsets: npt.NDArray[np.int64]) -> tuple[Ids, npt.NDArray[np.int64]]:
        """Return what is searched of documents, end to end, and where each begins."""
        return ids, offsets

    def text(self, ids: Ids, start: int, stop: int) -> str:
        """Return the text of a part of a document."""
        return self._decoded(ids[start:stop].tobytes())

    @cached_property
    def _decoded(self) -> Callable[[bytes], str]:
        """Return a function that decodes ids; the runs of an instruction are the same ones."""
        decode, dtype = _decoder(self._inputs), self._inputs.dtype
        return lru_cache(_DECODED)(lambda ids: decode(np.frombuffer(ids, dtype).tolist()))


class _Words:
    """Runs are of the words of documents, which are decoded."""

    name = "words"

    def __init__(self, inputs: Inputs, words: Sequence[str]) -> None:
        self._decode = _decoder(inputs)
        self._numbers = {word: number for number, word in enumerate(words)}

    def of(self, ids: Ids, offsets: npt.NDArray[np.int64]) -> tuple[Ids, npt.NDArray[np.int64]]:
        """Return what is searched of documents, end to end, and where each begins."""
        documents = [
            known_numbers(self._words(ids[start:stop]), self._numbers)
            for start, stop in pairwise(offsets.tolist())
        ]
        ends = np.cumsum([0, *map(len, documents)], dtype=np.int64)
        return np.concatenate(documents), ends

    def text(self, ids: Ids, start: int, stop: int) -> str:
        """Return the words of a part of a document."""
        return " ".join(self._words(ids)[start:stop])

    def _words(self, ids: Ids) -> list[str]:
        return words_of(self._decode(ids.tolist()))


def _decoder(inputs: Inputs) -> Callable[[Sequence[int]], str]:
    return text_decoder(inputs.manifest, tokenizer_of_mix(inputs))


def _place(about: dict[str, Any], text: int) -> dict[str, Any]:
    """Return where a held-out text stands: file, row, field."""
    file, row, field = about["places"][text]
    return {"against": about["files"][file], "row": row, "field": field}


def _line(values: dict[str, Any]) -> bytes:
    return json.dumps(values, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"


def _lines_name(chunk: Chunk) -> str:
    return f"overlaps-{chunk.first}"


# The report


def check_report(path: str) -> None:
    """Check that a report may be written: it replaces nothing but a report; raises `UsageError`."""
    report = Path(path)
    if report.exists() and not report.is_file():
        raise UsageError(f"{path}: not a file: expected the name of a file to write", _REPORT)
    if not report.resolve().parent.is_dir():
        raise UsageError(f"{path}: its folder is not there", _REPORT)
    if report.is_file() and report.stat().st_size and not _is_report(report):
        raise UsageError(f"{path}: is there, and no report of a mix: name another file", _REPORT)


def _is_report(path: Path) -> bool:
    beginnings = (b'{"dataset": ', b'{"against": ')
    with path.open("rb") as file:
        return file.read(len(beginnings[0])) in beginnings


def write_report(
    path: str, chunks: Sequence[Chunk], settings: MixSettings, temporary: Temporary
) -> None:
    """Write the report: what the documents share, then the texts that are too short.

    Raises:
        StorageError: it cannot be written.
    """
    target = Path(path).resolve()
    write_chunks(target.parent, target.name, _report(chunks, settings, temporary), replace=True)
    target.chmod(0o644)  # no file of a dataset: its owner may change it


def _report(
    chunks: Sequence[Chunk], settings: MixSettings, temporary: Temporary
) -> Iterator[bytes]:
    for chunk in chunks:
        yield temporary.read(_lines_name(chunk))
    about = read_about(temporary)
    for text, length in enumerate(about["lengths"]):
        if length < settings.ngram:
            why = {
                "not_checked": f"shorter than {settings.ngram_in_words}",
                settings.ngram_unit: length,
            }
            yield _line({**_place(about, text), **why})


# Which documents are contaminated


def make_flags(temporary: Temporary, n_documents: int) -> None:
    """Make the file with a flag of each document of all inputs, all 0, unless it is there."""
    temporary.make_zeros(_FLAGS, n_documents)


def open_flags(temporary: Temporary) -> npt.NDArray[np.uint8]:
    """Map the flags of all documents of all inputs: (n,) uint8, which can be written."""
    return temporary.map_writable(_FLAGS)


def make_contaminated_marks(temporary: Temporary, n_documents: int) -> None:
    """Make the file of marks of the documents of the mix, all 0, unless it is there."""
    temporary.make_zeros(_MARKS, n_documents)


def open_contaminated_marks(temporary: Temporary) -> npt.NDArray[np.uint8]:
    """Map the marks of all documents of the mix, val first: (n,) uint8, which can be written."""
    return temporary.map_writable(_MARKS)
