"""Documents of a mix that share a run of n ids with a held-out text: found, marked, reported.

A chunk is searched in blocks of whole documents, so memory is that of a block and of the index.
Each chunk leaves its lines of the report, which are put together in the order of the documents.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.errors import UsageError
from tokmill.inspect.samples import text_decoder
from tokmill.mixing.batch import bounds, records_of, values
from tokmill.mixing.held_out import open_index, read_about, tokenizer_of_mix
from tokmill.mixing.inputs import cut_documents
from tokmill.mixing.ngrams import Found
from tokmill.storage import write_chunks
from tokmill.words import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy.typing as npt
    import pyarrow as pa

    from tokmill.mixing.inputs import Chunk, Inputs
    from tokmill.mixing.ngrams import Overlap
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
        self._lines: _Lines | None = None

    def search(
        self, chunk: Chunk, batch: pa.RecordBatch, wanted: npt.NDArray[np.bool_]
    ) -> npt.NDArray[np.bool_]:
        """Return which of the wanted documents share a run: (n,) bool; write their lines."""
        ends, ids = bounds(batch, self._inputs.dtype), values(batch, self._inputs.dtype)
        ends = ends - ends[0]
        flags = np.zeros(len(batch), np.bool_)
        with self._temporary.new(_lines_name(chunk)) as file:
            for start, stop in cut_documents(np.diff(ends), BLOCK_TOKENS):
                offsets = ends[start : stop + 1]
                here = ids[offsets[0] : offsets[-1]]
                found = self._index.find(here, offsets - offsets[0])
                if not len(found.starts):
                    continue
                for document, own in _by_document(found, offsets - offsets[0]):
                    number = start + document
                    if wanted[number]:
                        flags[number] = True
                        file.write(self._lines_of(chunk, batch, number, own))
        return flags

    def _lines_of(self, chunk: Chunk, batch: pa.RecordBatch, number: int, found: Found) -> bytes:
        """Return the lines of a document; `found`: of it alone."""
        if self._lines is None:
            self._lines = _Lines(self._inputs, self._temporary)
        overlaps = self._index.overlaps(found, MOST_TEXTS)
        return self._lines.of(chunk, batch.slice(number, 1), number, overlaps)


def _by_document(found: Found, offsets: npt.NDArray[np.int64]) -> Iterator[tuple[int, Found]]:
    """Yield each document that has runs, with its runs at places inside it."""
    documents = np.searchsorted(offsets, found.starts, "right") - 1
    distinct, firsts = np.unique(documents, return_index=True)
    stops = np.append(firsts[1:], len(documents))
    for document, first, stop in zip(
        distinct.tolist(), firsts.tolist(), stops.tolist(), strict=True
    ):
        starts = found.starts[first:stop] - offsets[document]
        yield document, Found(starts, found.grams[first:stop])


class _Lines:
    """Writes the lines of the report."""

    def __init__(self, inputs: Inputs, temporary: Temporary) -> None:
        self._inputs, self._about = inputs, read_about(temporary)
        decode = text_decoder(inputs.manifest, tokenizer_of_mix(inputs))
        self._decode: Callable[[bytes], str] = lru_cache(_DECODED)(
            lambda ids: decode(np.frombuffer(ids, inputs.dtype).tolist())
        )

    def of(
        self, chunk: Chunk, document: pa.RecordBatch, number: int, overlaps: Sequence[Overlap]
    ) -> bytes:
        """Return the lines of a document; `number`: of it in the chunk."""
        inputs = self._inputs
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
        for overlap in overlaps:
            stop = overlap.start + overlap.n_run
            shown = ids[overlap.start : min(stop, overlap.start + MOST_SHOWN)]
            found = {
                "tokens": overlap.n_tokens,
                "document_tokens": len(ids),
                "run": self._decode(shown.tobytes()),
                "run_start": overlap.start,
                "run_tokens": overlap.n_run,
                "in_texts": overlap.n_texts,
            }
            lines.append(_line({**own, **held_out_place(self._about, overlap.text), **found}))
        return b"".join(lines)


def held_out_place(about: dict[str, Any], text: int) -> dict[str, Any]:
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
    write_chunks(
        target.parent, target.name, _report(chunks, settings.ngram, temporary), replace=True
    )
    target.chmod(0o644)  # no file of a dataset: its owner may change it


def _report(chunks: Sequence[Chunk], n: int, temporary: Temporary) -> Iterator[bytes]:
    for chunk in chunks:
        yield temporary.read(_lines_name(chunk))
    about = read_about(temporary)
    for text, length in enumerate(about["lengths"]):
        if length < n:
            why = {"not_checked": f"shorter than {plural(n, 'token')}", "tokens": length}
            yield _line({**held_out_place(about, text), **why})


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
