"""Look at each document by itself: filters, lists of documents, hashes.

The outcome is a byte for every document, in one file that workers map: `KEPT`, or the reason why it
is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tokmill.errors import UsageError
from tokmill.extensions import find_path, one_line
from tokmill.mixing.batch import bounds, records_of, values
from tokmill.mixing.contamination import Search, open_flags
from tokmill.mixing.drop_list import DropList
from tokmill.mixing.duplicates import hashes_name, write_hashes
from tokmill.words import plural

if TYPE_CHECKING:
    import numpy.typing as npt

    from tokmill.mixing.inputs import Chunk, Inputs
    from tokmill.mixing.settings import MixSettings
    from tokmill.mixing.temporary import Temporary


KEPT, DUPLICATE, LISTED, SHORT, LONG, FILTERED, CONTAMINATED = range(7)
LEFT_OUT = {
    DUPLICATE: "duplicate",
    LISTED: "in a drop list",
    SHORT: "fewer than min_tokens",
    LONG: "more than max_tokens",
    FILTERED: "refused by where",
    CONTAMINATED: "shares tokens with a held-out text",
}
"""Why a document is left out, as the manifest says it."""

_REASONS = "reasons"


@dataclass(frozen=True, slots=True)
class Origins:
    """The records that the documents of a batch were made from: what `--where` gets.

    Attributes:
        paths: the input files of all datasets.
        sources: (n,) int64, the number of each document's file in `paths`.
        records: (n,) int64, the number of its record in the file, from 1.
    """

    paths: Sequence[str]
    sources: npt.NDArray[np.int64]
    records: npt.NDArray[np.int64]


Filter = Callable[[Any, Any, Origins], Any]


class Survey:
    """The filters of a mix, ready to look at batches; `temporary` has the arrays of its lists."""

    def __init__(self, inputs: Inputs, settings: MixSettings, temporary: Temporary) -> None:
        self._inputs, self._settings = inputs, settings
        self._paths = [source.path for source in inputs.rows]
        self._listed = DropList(temporary, inputs) if settings.drop else None
        self._where: Filter | None = None
        if settings.where:
            self._where = find_path("where", settings.where).value
        self._search = Search(inputs, settings, temporary) if settings.against else None

    @property
    def drops_contaminated(self) -> bool:
        """Return whether documents that share tokens with held-out texts are left out."""
        return self._settings.drop_contaminated

    def reasons(self, batch: pa.RecordBatch) -> npt.NDArray[np.uint8]:
        """Return `KEPT`, or why a document is left out: (n,) uint8; the first reason counts."""
        reasons = np.full(len(batch), KEPT, np.uint8)
        settings, lengths = self._settings, np.diff(bounds(batch, self._inputs.dtype))
        if settings.min_tokens:
            reasons[lengths < settings.min_tokens] = SHORT
        if settings.max_tokens:
            reasons[lengths > settings.max_tokens] = LONG
        if self._listed is not None:
            reasons[(reasons == KEPT) & self._listed.has(batch)] = LISTED
        if self._where is not None:
            reasons[(reasons == KEPT) & ~self._accepted(self._where, batch)] = FILTERED
        return reasons

    def contaminated(
        self, chunk: Chunk, batch: pa.RecordBatch, compared: npt.NDArray[np.bool_]
    ) -> npt.NDArray[np.bool_] | None:
        """Return which compared documents share tokens with held-out texts; None: nobody asked."""
        return None if self._search is None else self._search.search(chunk, batch, compared)

    def _accepted(self, where: Filter, batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Return which documents the function of `--where` accepts: (n,) bool."""
        origins = Origins(self._paths, *records_of(batch, self._inputs))
        ids, lengths = values(batch, self._inputs.dtype), np.diff(bounds(batch, self._inputs.dtype))
        ids.flags.writeable = False  # they are hashed after it
        try:
            accepted = np.asarray(where(ids, lengths, origins))
        except (Exception, SystemExit) as error:  # whatever it raises; also: it is no function
            raise UsageError(f"where {self._settings.where} raised {one_line(error)}") from error
        shape = " x ".join(map(str, accepted.shape)) or "1"
        if accepted.shape != (len(batch),) or accepted.dtype != np.bool_:
            raise UsageError(
                f"where {self._settings.where}: expected a boolean for each of "
                f"{plural(len(batch), 'document')}, found {accepted.dtype} of shape {shape}"
            )
        return accepted


def survey_batch(
    inputs: Inputs,
    survey: Survey,
    chunk: Chunk,
    batch: pa.RecordBatch,
    temporary: Temporary,
    *,
    has_hashes: bool,
) -> None:
    """Write the reasons of the documents of a chunk, its flags, and the run of its hashes.

    Documents that are left out, or whose source nobody asked for, are not compared with any.
    """
    reasons = survey.reasons(batch)
    rows, _ = records_of(batch, inputs)
    is_compared = (reasons == KEPT) & (inputs.request_of_row[rows] >= 0)
    flags = survey.contaminated(chunk, batch, is_compared)
    if flags is not None:
        open_flags(temporary)[chunk.numbers] = flags
        if survey.drops_contaminated:
            reasons[flags] = CONTAMINATED
            is_compared &= ~flags
    open_reasons(temporary)[chunk.numbers] = reasons
    if has_hashes:
        compared = np.flatnonzero(is_compared)
        own = batch if len(compared) == len(batch) else batch.take(pa.array(compared))
        write_hashes(temporary, hashes_name(chunk), own, compared + chunk.first)


def make_reasons(temporary: Temporary, n_documents: int) -> None:
    """Make the file of reasons, all `KEPT`, unless it is there."""
    temporary.make_zeros(_REASONS, n_documents)


def open_reasons(temporary: Temporary) -> npt.NDArray[np.uint8]:
    """Map the reasons of all documents: (n,) uint8, which can be written."""
    return temporary.map_writable(_REASONS)
