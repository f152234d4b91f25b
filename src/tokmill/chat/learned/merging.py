"""The samples of two writers as one, in the order of their rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tokmill.chat.records import Written
from tokmill.chat.segments import Columns, SegmentTable
from tokmill.offsets import indices_of, offsets_of
from tokmill.values import UnreadKeys

if TYPE_CHECKING:
    import numpy.typing as npt


def merged(first: Written, second: Written) -> Written:
    """Return the samples of both by their rows, which differ; both know the same rows."""
    rows = np.concatenate([first.rows, second.rows])
    order = np.argsort(rows, kind="stable")
    noticed = {
        name: np.concatenate(
            [part.noticed.get(name, np.zeros(len(part.rows), np.int64)) for part in (first, second)]
        )[order]
        for name in {**first.noticed, **second.noticed}
    }
    return Written(
        selected(_joined(first.columns, second.columns), order),
        rows[order],
        sorted([*first.refused, *second.refused]),
        {
            reason: sorted([*first.drops.get(reason, ()), *second.drops.get(reason, ())])
            for reason in {**first.drops, **second.drops}
        },
        _all_unread(first.unread, second.unread),
        noticed,
    )


def placed(written: Written, rows: npt.NDArray[np.int64], n_rows: int) -> Written:
    """Return what was written of some rows, with their numbers among all `n_rows`."""
    unread = written.unread
    if unread is not None:
        of_row = np.full(n_rows, -1, np.int32)
        of_row[rows] = unread.of_row
        unread = UnreadKeys(unread.sets, of_row)
    return written._replace(
        rows=rows[written.rows],
        refused=[(int(rows[row]), reason, message) for row, reason, message in written.refused],
        drops={reason: rows[of_reason].tolist() for reason, of_reason in written.drops.items()},
        unread=unread,
    )


def _all_unread(first: UnreadKeys | None, second: UnreadKeys | None) -> UnreadKeys | None:
    if first is None or second is None:
        return first or second
    later = np.where(second.of_row < 0, -1, second.of_row + len(first.sets))
    of_row = np.where(first.of_row < 0, later, first.of_row).astype(np.int32)
    return UnreadKeys([*first.sets, *second.sets], of_row)


def selected(columns: Columns, samples: npt.NDArray[np.int64]) -> Columns:
    """Return some samples, in this order."""
    table, offsets = columns.table, columns.offsets
    lengths = np.diff(offsets)[samples]
    index = indices_of(offsets[samples], lengths)
    first_turns = np.searchsorted(table.samples, np.arange(len(offsets)))
    n_turns = np.diff(first_turns)[samples]
    turns = indices_of(first_turns[samples], n_turns)
    shift = offsets_of(n_turns)[:-1] - first_turns[samples]
    return Columns(
        columns.text.take(pa.array(index)),
        columns.ids[index],
        SegmentTable(
            table.kinds[index],
            table.turns[index] + np.repeat(shift, lengths),
            table.roles[turns],
            table.given[turns],
            np.repeat(np.arange(len(samples)), n_turns),
        ),
        offsets_of(lengths),
    )


def equal(left: Columns, right: Columns) -> bool:
    """Return whether two writers have written the same."""
    one, other = left.table, right.table
    pairs = (
        (left.ids, right.ids),
        (left.offsets, right.offsets),
        (one.kinds, other.kinds),
        (one.turns, other.turns),
        (one.roles, other.roles),
        (one.samples, other.samples),
    )
    return (
        bool(left.text.equals(right.text))
        and all(np.array_equal(*pair) for pair in pairs)
        and np.array_equal(one.given, other.given, equal_nan=True)
    )


def _joined(first: Columns, second: Columns) -> Columns:
    n_turns, n_samples = len(first.table.roles), len(first.offsets) - 1
    one, other = first.table, second.table
    return Columns(
        pa.concat_arrays([first.text, second.text]),
        np.concatenate([first.ids, second.ids]),
        SegmentTable(
            np.concatenate([one.kinds, other.kinds]),
            np.concatenate([one.turns, other.turns + n_turns]),
            np.concatenate([one.roles, other.roles]),
            np.concatenate([one.given, other.given]),
            np.concatenate([one.samples, other.samples + n_samples]),
        ),
        np.concatenate([first.offsets, second.offsets[1:] + len(first.ids)]),
    )
