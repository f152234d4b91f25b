"""The filter of records: a function of one record that says whether it is kept.

    def keep(record: dict) -> bool: ...

It sees the whole record, before its text is made: also fields that no renderer reads. A record for
which it is false is a drop, and one for which it raises is a reject. Threads may call it at the
same time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from textwrap import shorten
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from tokmill.errors import UsageError
from tokmill.rendering.user_functions import beginning, find_function, parameter_of, raised_by

if TYPE_CHECKING:
    import numpy.typing as npt

    from tokmill.settings.schema import InputSettings
    from tokmill.values import Records, Reject

DROPPED_BY_WHERE = "left out by where"
RAISED = "the function of where raised an error"
_NOT_READ = "a record that Python cannot read"


class Filtered(NamedTuple):
    """The records that a filter keeps.

    `rows`: (n,) int64, the row of each before. `dropped`: (m,) int64, the rows that it leaves out.
    `refused`: rows for which it raised, with their rejects.
    """

    records: Records
    rows: npt.NDArray[np.int64]
    dropped: npt.NDArray[np.int64]
    refused: Mapping[int, Reject]


class RecordFilter:
    """Calls a function for each record, and checks what it returns.

    `name`: the setting `where`: a dotted path, or a function of this process.
    """

    def __init__(self, name: str) -> None:
        function = find_function("where", name).value
        if not callable(function):
            raise UsageError(f"where {name}: expected a function, found {type(function).__name__}")
        parameter_of(function, f"where {name}")
        self._name, self._function = name, function

    def __call__(self, records: Records) -> Filtered:
        """Return the records for which the function is true.

        Raises:
            UsageError: it returns something else than True or False.
        """
        kept: list[int] = []
        dropped: list[int] = []
        refused: dict[int, Reject] = {}
        for row, record in enumerate(records.whole()):
            if record is None:
                refused[row] = records.reject(row, _NOT_READ, "it is nested too deeply")
                continue
            try:
                is_kept = self._function(record)
            except (Exception, SystemExit) as error:  # whatever somebody else's function raises
                refused[row] = records.reject(row, RAISED, raised_by(error))
                continue
            if not isinstance(is_kept, bool | np.bool_):
                raise self._wrong_value(is_kept, records.raw(row))
            (kept if is_kept else dropped).append(row)
        rows = np.array(kept, np.int64)
        return Filtered(_taken(records, rows), rows, np.array(dropped, np.int64), refused)

    def _wrong_value(self, value: Any, record: bytes) -> UsageError:
        return UsageError(
            f"where {self._name} returned a wrong value: expected True or False, found "
            f"{shorten(repr(value), 60)} for {beginning(record)}"
        )


def make_filter(settings: InputSettings) -> RecordFilter | None:
    """Return the filter of some settings, if they have one.

    Raises:
        UsageError: there is no such function, or it is none of one record.
    """
    return RecordFilter(settings.where) if settings.where else None


def _taken(records: Records, rows: npt.NDArray[np.int64]) -> Records:
    """Return some of the records, whose rows increase."""
    if len(rows) == records.batch.num_rows:
        return records
    new_rows = {row: i for i, row in enumerate(rows.tolist())}
    metadata = records.metadata
    n_before = np.searchsorted(rows, [end.n_rows for end in records.ends]).tolist()
    return replace(
        records,
        batch=records.batch.take(pa.array(rows)),
        places=records.places[rows],
        raw=lambda row: records.raw(int(rows[row])),
        keys=lambda row: records.keys(int(rows[row])),
        whole=tuple,
        ends=[end._replace(n_rows=n) for end, n in zip(records.ends, n_before, strict=True)],
        samples=[(new_rows[row], record) for row, record in records.samples if row in new_rows],
        metadata=None if metadata is None else metadata.take(pa.array(rows)),
        replaced={new_rows[row]: n for row, n in records.replaced.items() if row in new_rows},
        doubtful={new_rows[row]: why for row, why in records.doubtful.items() if row in new_rows},
    )
