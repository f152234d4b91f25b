"""Columns of ids, labels and masks to samples: padding is cut, packed rows are divided.

All columns become flat arrays with an entry for each token of each row; a row that contradicts
itself is refused, and nothing of it is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc

from tokmill.offsets import indices_of, offsets_of
from tokmill.recipes.row_columns import (
    BOUNDS,
    IGNORE_INDEX,
    LENGTHS,
    NEXT,
    POSITIONS,
    STARTS,
    RowRules,
)
from tokmill.words import plural

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt
    import pyarrow as pa

    Flags = npt.NDArray[np.bool_]
    Numbers = npt.NDArray[np.int64]

Why = tuple[str, str]
"""Reason and message of a row that is refused."""

LABELS_DIFFER = "labels are not the ids"
_LENGTHS_DIFFER = "lengths differ"
_NOTHING = "nothing in a column"
"""Reasons; an audit knows them all."""


@dataclass(frozen=True, slots=True)
class RowSamples:
    """The samples of some rows, end to end.

    `ids`: (n_tokens,) int64. `lengths`: (n,) tokens of each, at least 1. `rows`: (n,), not
    decreasing, the row of each. `weights`: (n_tokens,) float32, or bool without a column of
    weights; the first token of a sample has 0; None if all tokens are trained. `began_trained`:
    (n,) whether the row trained it. `padding`: (n,) tokens of padding that were cut off the row,
    at its first sample. `refused`: by row. `n_rows`: of all rows.
    """

    ids: Numbers
    lengths: Numbers
    rows: Numbers
    weights: npt.NDArray[Any] | None
    began_trained: Flags
    padding: Numbers
    refused: dict[int, Why]
    n_rows: int


@dataclass(slots=True)
class _Lists:
    """The lists of a column, end to end, and the length of each."""

    values: npt.NDArray[Any]
    lengths: Numbers


@dataclass(slots=True)
class _Rows:
    """Rows whose columns have an entry for each token.

    `numbers`: (n,) the row of each in the batch. `offsets`: (n + 1,) into the tokens. `labels`,
    `attention`: (n_tokens,) or None. `is_trained`: (n_tokens,) what masks say, None without any.
    `weights`: (n_tokens,) float64, None without. `columns`: others that are read, by name.
    """

    numbers: Numbers
    offsets: Numbers
    ids: Numbers
    labels: Numbers | None
    attention: Numbers | None
    is_trained: Flags | None
    weights: npt.NDArray[np.float64] | None
    columns: dict[str, _Lists]

    def sums(self, flags: Flags) -> Numbers:
        """Return how many flags each row has: (n,)."""
        before = _before(flags)
        of_rows: Numbers = before[self.offsets[1:]] - before[self.offsets[:-1]]
        return of_rows

    def rows_of(self, tokens: Numbers) -> Numbers:
        """Return the rows of tokens."""
        return np.searchsorted(self.offsets, tokens, "right") - 1

    def firsts(self, is_real: Flags) -> Numbers:
        """Return the first token of each row that has one, that is no padding where it has one."""
        has_one = np.diff(self.offsets) > 0
        real = np.append(np.flatnonzero(is_real), len(is_real))
        first = real[np.searchsorted(real, self.offsets[:-1])]
        inside = np.where(first < self.offsets[1:], first, self.offsets[:-1])
        found: Numbers = inside[has_one]
        return found

    def lasts(self) -> Numbers:
        """Return the last token of each row that has one."""
        found: Numbers = self.offsets[1:][np.diff(self.offsets) > 0] - 1
        return found


class _Refusals:
    """Collects why rows are refused; the first reason of a row counts."""

    def __init__(self) -> None:
        self.by_row: dict[int, Why] = {}

    def add_rows(self, rows: Numbers, reason: str, message: Callable[[int], str]) -> None:
        """Refuse rows of the batch; `message` takes a row."""
        for row in rows.tolist():
            self.by_row.setdefault(row, (reason, message(row)))

    def add_tokens(
        self, rows: _Rows, is_bad: Flags, reason: str, message: Callable[[int, int], str]
    ) -> None:
        """Refuse the rows of bad tokens; `message` takes the first, and its place in its row."""
        bad = np.flatnonzero(is_bad)
        if not len(bad):
            return
        of_rows, first = np.unique(rows.rows_of(bad), return_index=True)
        for row, token in zip(of_rows.tolist(), bad[first].tolist(), strict=True):
            why = reason, message(token, token - int(rows.offsets[row]))
            self.by_row.setdefault(int(rows.numbers[row]), why)


def samples_of(batch: pa.RecordBatch, rules: RowRules) -> RowSamples:
    """Return the samples of rows, whose columns are those of the rules."""
    refusals = _Refusals()
    rows = _read(batch, rules, refusals)
    is_real = _real_tokens(rows, refusals)
    starts = _starts(rows, rules, is_real, refusals)
    targets = _targets(rows, refusals)
    if targets is not None:
        is_real = is_real & ~_padding_by_position(rows, is_real, starts, targets)
    appended = np.zeros(0, np.int64)
    if targets is not None and rules.alignment == NEXT:
        _check_next(rows, is_real, starts, targets, refusals)
        targets, appended = _shifted(rows, is_real, starts, targets, refusals)
    elif targets is not None and rows.labels is not None:
        differs = is_real & (rows.labels != IGNORE_INDEX) & (rows.labels != rows.ids)
        refusals.add_tokens(rows, differs, LABELS_DIFFER, _label_message(rows))
    return _cut(rows, is_real, starts, targets, appended, refusals, batch.num_rows)


@dataclass(frozen=True, slots=True)
class Agreement:
    """How the labels of n rows agree with their ids: whether they do, (n,) bool, by alignment.

    A row agrees if a label is the id of its token (`own`) or of the next one (`next`), and no label
    is another one. `is_trained`: (n,) whether a row has a label at all. `numbers`: (n,) the rows.
    `refused`: others, by row.
    """

    own: Flags
    next: Flags
    is_trained: Flags
    numbers: Numbers
    refused: dict[int, Why]


def agreement(batch: pa.RecordBatch, rules: RowRules) -> Agreement:
    """Return how labels agree with ids in rows that are not refused for another reason."""
    refusals = _Refusals()
    rows = _read(batch, rules, refusals)
    is_real = _real_tokens(rows, refusals)
    starts = _starts(rows, rules, is_real, refusals)
    if rows.labels is None:
        raise ValueError("rows without labels")
    is_label = is_real & (rows.labels != IGNORE_INDEX)
    is_own = rows.labels == rows.ids
    is_next = np.append(rows.labels[:-1] == rows.ids[1:], False)[: len(is_own)]
    has_next = is_label & ~_ends(rows, is_real, starts)

    def agrees(is_same: Flags, where: Flags) -> Flags:
        has_one = rows.sums(where & is_same) > 0
        differs = rows.sums(where & ~is_same) > 0
        return has_one & ~differs

    own, following = agrees(is_own, is_label), agrees(is_next, has_next)
    is_trained = rows.sums(is_label) > 0
    return Agreement(own, following, is_trained, rows.numbers, refusals.by_row)


def _before(flags: Flags) -> Numbers:
    """Return how many flags stand before each place, and at the end: (n + 1,)."""
    return offsets_of(flags.astype(np.uint8))


def _read(batch: pa.RecordBatch, rules: RowRules, refusals: _Refusals) -> _Rows:
    """Return the rows whose columns are all there, and have an entry for each token."""
    numbers = np.arange(batch.num_rows)
    columns = {name: _lists(batch.column(name), name, refusals) for name in rules.columns}
    for name in rules.absent:
        column = batch.column(name)
        if column.null_count < len(column):
            present = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
            why = f"{name}: the first rows have no such column: import the files with it apart"
            for row in present.tolist():
                refusals.by_row.setdefault(row, ("unexpected column", why))
    n_ids = sum((columns[name].lengths for name in rules.ids), np.zeros(len(numbers), np.int64))
    n_last = columns[rules.ids[-1]].lengths
    about_rows = {name for name in rules.ends if name != POSITIONS}
    for name in columns.keys() - about_rows - set(rules.ids):
        n_values = columns[name].lengths
        fits = n_values == n_ids
        if len(rules.ids) > 1 and name in (*rules.masks, rules.weights):
            fits |= n_values == n_last  # of the completion alone
        _refuse_lengths(refusals, numbers[~fits], name, n_values, n_ids)
    if refusals.by_row:
        numbers = np.delete(numbers, sorted(refusals.by_row))
        batch = batch.take(numbers)
        columns = {name: _lists(batch.column(name), name, _Refusals()) for name in rules.columns}
    return _aligned(columns, rules, numbers, refusals)


def _refuse_lengths(
    refusals: _Refusals, rows: Numbers, name: str, n_values: Numbers, n_ids: Numbers
) -> None:
    refusals.add_rows(
        rows,
        _LENGTHS_DIFFER,
        lambda row: (
            f"{name}: {plural(int(n_values[row]), 'value')} for {plural(int(n_ids[row]), 'id')}"
        ),
    )


def _lists(column: pa.Array, name: str, refusals: _Refusals) -> _Lists:
    """Return the lists of a column; rows without a list or with a null in it are refused."""
    if column.null_count:
        missing = np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))
        refusals.add_rows(missing, _NOTHING, lambda _: f"{name}: expected a list, found nothing")
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    lengths = lengths.astype(np.int64)
    values = column.flatten()
    if values.null_count:
        holes = np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))
        of_holes = np.unique(np.searchsorted(offsets_of(lengths), holes, "right") - 1)
        refusals.add_rows(of_holes, _NOTHING, lambda _: f"{name}: holds null, expected numbers")
        values = pc.fill_null(values, values.type.to_pandas_dtype()(0))
    return _Lists(values.to_numpy(zero_copy_only=False), lengths)


def _aligned(
    columns: dict[str, _Lists], rules: RowRules, numbers: Numbers, refusals: _Refusals
) -> _Rows:
    """Return columns as arrays with an entry for each token; values that are wrong are refused."""
    ids = columns[rules.ids[0]]
    is_completion: Flags | None = None
    if len(rules.ids) > 1:
        ids, is_completion = _joined(ids, columns[rules.ids[1]])
    offsets = offsets_of(ids.lengths)

    def per_token(name: str) -> npt.NDArray[Any]:
        """Return a column; that of completions alone has 0 before them."""
        column = columns[name]
        if len(column.values) == len(ids.values):
            return column.values
        whole = np.zeros(len(ids.values), column.values.dtype)
        whole[indices_of(offsets[1:] - column.lengths, column.lengths)] = column.values
        return whole

    rows = _Rows(
        numbers, offsets, ids.values,
        labels=per_token(rules.labels) if rules.labels else None,
        attention=per_token(rules.attention).astype(np.int64) if rules.attention else None,
        is_trained=is_completion,
        weights=per_token(rules.weights) if rules.weights else None,
        columns={name: columns[name] for name in rules.ends},
    )  # fmt: skip
    for name in rules.masks:
        flags = _flags(rows, name, per_token(name), refusals)
        rows.is_trained = flags if rows.is_trained is None else rows.is_trained & flags
    if rows.weights is not None:
        weights = rows.weights
        refusals.add_tokens(
            rows, ~(np.isfinite(weights) & (weights >= 0)), "no weight",
            lambda token, at: f"{rules.weights}[{at}]: expected 0 or more, found {weights[token]}",
        )  # fmt: skip
    return rows


def _joined(prompts: _Lists, completions: _Lists) -> tuple[_Lists, Flags]:
    """Return prompts, each with its completion behind it, and which tokens are of completions."""
    lengths = prompts.lengths + completions.lengths
    starts = offsets_of(lengths)[:-1]
    ids = np.empty(int(lengths.sum()), np.int64)
    of_completions = indices_of(starts + prompts.lengths, completions.lengths)
    ids[indices_of(starts, prompts.lengths)] = prompts.values
    ids[of_completions] = completions.values
    is_completion = np.zeros(len(ids), bool)
    is_completion[of_completions] = True
    return _Lists(ids, lengths), is_completion


def _flags(rows: _Rows, name: str, values: npt.NDArray[Any], refusals: _Refusals) -> Flags:
    if values.dtype == np.bool_:
        return values.copy()
    flags: Flags = values == 1
    refusals.add_tokens(
        rows, ~flags & (values != 0), "no mask",
        lambda token, at: f"{name}[{at}]: expected 0 or 1, found {values[token]:g}: "
        "if these are weights, name the column with --weights, and give --mask none",
    )  # fmt: skip
    return flags


def _real_tokens(rows: _Rows, refusals: _Refusals) -> Flags:
    """Return which tokens are no padding; it may stand at both ends of a row alone."""
    if rows.attention is None:
        return np.ones(len(rows.ids), bool)
    is_real: Flags = rows.attention > 0
    if not is_real.all():
        before = _before(is_real)
        lengths = np.diff(rows.offsets)
        is_leading = before[:-1] == np.repeat(before[rows.offsets[:-1]], lengths)
        is_trailing = before[:-1] == np.repeat(before[rows.offsets[1:]], lengths)
        is_inside = ~is_real & ~is_leading & ~is_trailing
        refusals.add_tokens(
            rows, is_inside, "padding inside", lambda _, at: f"attention_mask[{at}] is 0, between 1"
        )
    return is_real


def _starts(rows: _Rows, rules: RowRules, is_real: Flags, refusals: _Refusals) -> Flags:
    """Return which tokens begin a sample: the first one of a row, and where its columns say so.

    Columns that contradict each other are refused.
    """
    firsts = rows.firsts(is_real)
    starts = np.zeros(len(rows.ids), bool)
    starts[firsts] = True
    if rows.attention is not None:
        follows = is_real[1:] & is_real[:-1]
        starts[1:] |= follows & (rows.attention[1:] != rows.attention[:-1])
    is_divided = False
    for name in rules.ends:
        if name == POSITIONS:
            found = _starts_by_position(rows, is_real, refusals)
        else:
            found = _starts_by_number(rows, name, is_real, refusals)
        found[firsts] = True
        differs = is_real & (found != starts)
        if is_divided:
            refusals.add_tokens(
                rows, differs, "ends differ",
                lambda _, at: f"{' and '.join(rules.ends)} do not agree at token {at}",
            )  # fmt: skip
        starts |= found
        is_divided = True
    return starts


def _starts_by_position(rows: _Rows, is_real: Flags, refusals: _Refusals) -> Flags:
    """Return where positions begin again with 0; others are one more than that before them."""
    positions = rows.columns[POSITIONS].values
    is_zero: Flags = positions == 0
    goes_on = np.append(False, positions[1:] == positions[:-1] + 1)[: len(positions)]
    goes_on[rows.firsts(is_real)] = True
    is_bad = is_real & ~is_zero & ~goes_on
    refusals.add_tokens(
        rows, is_bad, "wrong position",
        lambda token, at: f"position_ids[{at}]: expected {positions[token - 1] + 1}, or 0 where a "
        f"sample begins, found {positions[token]}",
    )  # fmt: skip
    return is_zero


def _starts_by_number(rows: _Rows, name: str, is_real: Flags, refusals: _Refusals) -> Flags:
    """Return where samples begin by their lengths, or by numbers of their first tokens.

    Lengths are those of all tokens of the row, or of those that are no padding.
    """
    column, n_tokens = rows.columns[name], np.diff(rows.offsets)
    offsets = offsets_of(column.lengths)
    values = column.values
    n_real = rows.sums(is_real)
    if name in LENGTHS:
        sums = offsets_of(values)
        totals = sums[offsets[1:]] - sums[offsets[:-1]]
        begins = sums[:-1] - np.repeat(sums[offsets[:-1]], column.lengths)
        rises = values > 0
    else:
        totals = n_tokens.copy()
        has_any = column.lengths > 0
        if name == BOUNDS:
            totals[has_any] = values[offsets[1:][has_any] - 1]
        begins = values
        rises = np.append(True, values[1:] >= values[:-1])[: len(values)]
        rises[offsets[:-1][has_any]] = values[offsets[:-1][has_any]] == 0
        rises &= values <= np.repeat(n_tokens - (name == STARTS), column.lengths)
    is_whole = totals == n_tokens
    bad_rows = ~is_whole & (totals != n_real)
    falls = _before(~rises)
    bad_rows |= falls[offsets[1:]] > falls[offsets[:-1]]
    refusals.add_rows(
        rows.numbers[bad_rows], "wrong ends",
        lambda row: f"{name}: does not divide the tokens of the row",
    )  # fmt: skip
    origin = rows.offsets[:-1].copy()
    origin[n_tokens > 0] = rows.firsts(is_real)
    origin = np.where(is_whole, rows.offsets[:-1], origin)
    is_used = np.repeat(~bad_rows, column.lengths)
    places = (begins + np.repeat(origin, column.lengths))[is_used]
    ends = np.repeat(rows.offsets[1:], column.lengths)[is_used]
    found = np.zeros(len(rows.ids), bool)
    found[places[places < ends]] = True  # the last bound is the end of the row
    return found


def _targets(rows: _Rows, refusals: _Refusals) -> npt.NDArray[Any] | None:
    """Return the weight of each token, at the place of its label; None if nothing is masked."""
    is_target = rows.is_trained
    if rows.labels is not None:
        is_label = rows.labels != IGNORE_INDEX
        is_target = is_label if is_target is None else is_target & is_label
    if rows.weights is None:
        return is_target
    weights = rows.weights.astype(np.float32)
    return weights if is_target is None else np.where(is_target, weights, np.float32(0))


def _padding_by_position(
    rows: _Rows, is_real: Flags, starts: Flags, targets: npt.NDArray[Any]
) -> Flags:
    """Return which tokens are samples of one untrained token at the end of a packed row.

    LLaMA-Factory pads so: with position 0, and 1 in the attention mask.
    """
    if POSITIONS not in rows.columns:
        return np.zeros(len(rows.ids), bool)
    is_padding = ~is_real | (starts & _ends(rows, is_real, starts) & (targets == 0))
    after = _before(~is_padding)
    is_trailing = after[:-1] == np.repeat(after[rows.offsets[1:]], np.diff(rows.offsets))
    found: Flags = is_padding & is_trailing
    return found


def _ends(rows: _Rows, is_real: Flags, starts: Flags) -> Flags:
    """Return the last token of each sample, before its padding."""
    ends = np.zeros(len(starts), bool)
    ends[:-1] = starts[1:] | (is_real[:-1] & ~is_real[1:])
    ends[rows.lasts()] = True
    return ends


def _label_message(rows: _Rows) -> Callable[[int, int], str]:
    labels = rows.labels
    if labels is None:
        raise ValueError("rows without labels")
    return lambda token, at: (
        f"labels[{at}] is {labels[token]}, and the id of this token is {rows.ids[token]}"
    )


def _check_next(
    rows: _Rows, is_real: Flags, starts: Flags, targets: npt.NDArray[Any], refusals: _Refusals
) -> None:
    """Check that labels are the ids of the tokens behind them."""
    if rows.labels is None:
        return
    labels = rows.labels
    is_same = np.append(labels[:-1] == rows.ids[1:], False)[: len(labels)]
    is_label = is_real & (labels != IGNORE_INDEX)
    refusals.add_tokens(
        rows, is_label & ~is_same & ~_ends(rows, is_real, starts), LABELS_DIFFER,
        lambda token, at: f"labels[{at}] is {labels[token]}, and the id of the next token is "
        f"{rows.ids[token + 1]}",
    )  # fmt: skip


def _shifted(
    rows: _Rows, is_real: Flags, starts: Flags, targets: npt.NDArray[Any], refusals: _Refusals
) -> tuple[npt.NDArray[Any], Numbers]:
    """Return the weights at the place of the token that they are of, and tokens to be followed.

    The label at the last token of a sample is a token that stands in no row. Or the labels of a
    packed row were shifted as one: then each is the first id of the next sample, which it does not
    predict.
    """
    is_end = _ends(rows, is_real, starts)
    shifted = np.zeros_like(targets)
    shifted[1:] = np.where(is_end[:-1] | ~is_real[:-1], 0, targets[:-1])
    last = np.flatnonzero(is_end & is_real & (targets > 0))
    following = np.minimum(last + 1, len(is_real) - 1)
    of_row = rows.rows_of(last)
    is_inside = is_real[following] & (rows.rows_of(following) == of_row) & (following > last)
    if rows.labels is None:
        behind = np.zeros(len(targets), bool)
        behind[last[~is_inside]] = True
        refusals.add_tokens(
            rows, behind, "no such token",
            lambda _, at: f"token {at} is the last one, and its mask trains the one behind it",
        )  # fmt: skip
        return shifted, np.zeros(0, np.int64)
    differs = is_inside & (rows.labels[last] != rows.ids[following])
    is_shifted_as_one = ~np.isin(of_row, of_row[differs])
    return shifted, last[~(is_inside & is_shifted_as_one)]


def _cut(
    rows: _Rows,
    is_real: Flags,
    starts: Flags,
    targets: npt.NDArray[Any] | None,
    appended: Numbers,
    refusals: _Refusals,
    n_rows: int,
) -> RowSamples:
    """Return the samples without padding, with the tokens that follow `appended` ones."""
    is_kept = is_real
    if refusals.by_row:
        is_refused = np.isin(rows.numbers, list(refusals.by_row))
        is_kept = is_real & np.repeat(~is_refused, np.diff(rows.offsets))
    ids, n_kept = rows.ids, rows.sums(is_kept)
    n_cut = np.where(n_kept > 0, np.diff(rows.offsets) - n_kept, 0)
    if not is_kept.all():
        starts, ids = starts[is_kept], ids[is_kept]
        targets = None if targets is None else targets[is_kept]
    firsts = offsets_of(n_kept)[:-1][n_kept > 0]
    starts[firsts] = True
    begins = np.flatnonzero(starts)
    of_row = np.repeat(np.arange(len(rows.numbers)), n_kept)[begins]
    lengths = np.diff(begins, append=len(ids))
    if len(appended):
        after = appended[is_kept[appended]]
        places = _before(is_kept)[after] + 1
        sources, values = rows.labels, rows.weights
        if sources is None or targets is None:
            raise ValueError("rows without labels")
        added = np.ones(len(after), targets.dtype) if values is None else values[after]
        owner = np.searchsorted(begins, places - 1, "right") - 1
        np.add.at(lengths, owner, 1)
        ids = np.insert(ids, places, sources[after])
        targets = np.insert(targets, places, added)
        begins = offsets_of(lengths)[:-1]
    began_trained = np.zeros(len(begins), bool)
    if targets is not None:
        began_trained = targets[begins] > 0
        targets[begins] = 0
    is_first = np.append(True, of_row[1:] != of_row[:-1])[: len(of_row)]
    padding = n_cut[of_row] * is_first
    return RowSamples(
        ids, lengths, rows.numbers[of_row], targets, began_trained, padding, refusals.by_row, n_rows
    )
