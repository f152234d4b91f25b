"""Rows of another trainer, and shards of a dataset, as blocks of samples for an audit."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc

from tokmill.chat.mask_rule import EMPTY_BLOCK, mask_rule
from tokmill.dataset.documents import Documents
from tokmill.dataset.sample_checks import Samples, samples_in
from tokmill.inspect.audit import Block
from tokmill.recipes.row_columns import BOUNDS, IGNORE_INDEX, NEXT, OWN, POSITIONS, RowRules
from tokmill.recipes.row_samples import LABELS_DIFFER, agreement, samples_of
from tokmill.sources.formats import open_slice
from tokmill.sources.slices import Slice

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import numpy.typing as npt
    import pyarrow as pa

    from tokmill.dataset.manifest import Manifest
    from tokmill.inspect.audit import Auditor
    from tokmill.recipes.row_samples import RowSamples
    from tokmill.settings.schema import InputSettings
    from tokmill.sources.slices import SourceFile
    from tokmill.values import Records

    Flags = npt.NDArray[np.bool_]
    Numbers = npt.NDArray[np.int64]

BLOCK_TOKENS, BLOCK_BYTES = 1 << 20, 8 << 20
"""Tokens, and bytes of rows, that are looked at at a time; a larger sample or row is one alone."""

_KINDS = {
    "unexpected column": "other-columns",
    "lengths differ": "lengths-differ",
    "nothing in a column": "missing-value",
    "no mask": "bad-mask",
    "no weight": "bad-mask",
    "padding inside": "padding-inside",
    "wrong position": "positions-jump",
    "wrong ends": "ends-differ",
    "ends differ": "ends-differ",
    "no such token": "target-behind-end",
    LABELS_DIFFER: "labels-differ",
}
"""The kinds of rows that contradict themselves, by the reason for which an import refuses them."""


def meant_kinds(manifest: Manifest) -> frozenset[str]:
    """Return the kinds that are no faults in a dataset, since its run was told to train so."""
    mask, sft = manifest.mask, manifest.config.sft
    if mask is None or sft is None or mask.preset == "imported":
        return frozenset()
    meant = set()
    rule = mask_rule(sft)
    if rule.trains_all or sft.schema in ("text", "mixed"):
        meant |= {"all-trained", "trained-past-end"}
    if not {"eot", "eot_outside", "end"} & set(mask.trained):
        meant.add("end-untrained")
    if sft.weigh:
        meant.add("begin-untrained")
    if not mask.ends.last_ids:
        meant.add("cut-off")
    if EMPTY_BLOCK not in [pattern for pattern, _ in rule.weighed]:
        meant.add("empty-thinking")
    return frozenset(meant)


def audit_shards(auditor: Auditor, directory: Path, manifest: Manifest) -> None:
    """Audit the samples of a finished dataset.

    Raises:
        VerifyError: a file is missing or damaged.
        StorageError: it cannot be read.
    """
    n_before = 0
    for shard in Documents(directory, manifest).shards():
        for first, samples in samples_in(shard, BLOCK_TOKENS):
            began = np.zeros(len(samples.lengths), bool)
            began[() if samples.mask is None else samples.training_first()] = True
            number = n_before + first
            kind = "document" if samples.mask is None else "sample"

            def where(at: int, number: int = number, kind: str = kind) -> str:
                return f"{kind} {number + at:,}"

            auditor.add(Block(samples, where, shard.split, began))
        n_before += len(shard.lengths)


def audit_rows(
    auditor: Auditor,
    files: Iterable[tuple[str, SourceFile]],
    rules: RowRules,
    settings: InputSettings,
) -> None:
    """Audit the rows of files, each with its split.

    Raises:
        TokmillError: a file cannot be read.
    """
    for split, file in files:
        rows = _Rows(auditor, rules, split, file.path)
        whole = Slice(file, 0, -1, file.n_bytes)
        with open_slice(whole, settings, rules.schema(), BLOCK_BYTES) as reader:
            for block in reader.blocks():
                rows.add(block.parse())


class _Rows:
    """Reads the rows of a file for an audit."""

    def __init__(self, auditor: Auditor, rules: RowRules, split: str, path: str) -> None:
        self._auditor, self._rules = auditor, rules
        self._split, self._path = split, path

    def add(self, records: Records) -> None:
        """Audit the rows of a block."""
        for reject in records.rejects:
            place = f"{self._path}: row {reject.place.line:,}"
            self._auditor.add_row("unreadable", place, reject.message, partial(bytes, reject.raw))
        if (unread := records.ends[-1].unread if records.ends else None) is not None:
            place = f"{self._path}: row {unread.place.line:,}"
            self._auditor.add_row("unreadable", place, unread.message, bytes)
        batch = records.batch
        if not batch.num_rows:
            return
        found = samples_of(batch, self._rules)
        differ = [row for row, why in found.refused.items() if why[0] == LABELS_DIFFER]
        shifted = self._shifted(batch, np.array(sorted(differ), np.int64))
        self._add_refused(records, found, set(shifted.tolist()))
        self._add_samples(records, found, np.arange(batch.num_rows), batch)
        if len(shifted):
            self._add_shifted(records, shifted)

    def _where(self, records: Records, row: int) -> str:
        return f"{self._path}: row {int(records.places[row, 0]):,}"

    def _shifted(self, batch: pa.RecordBatch, rows: Numbers) -> Numbers:
        """Return those of some rows whose labels are the ids of the next tokens."""
        if not len(rows) or self._rules.alignment != OWN:
            return rows[:0]
        agrees = agreement(batch.take(rows), self._rules)
        return rows[agrees.numbers[agrees.next & ~agrees.own]]

    def _add_shifted(self, records: Records, rows: Numbers) -> None:
        """Audit rows whose labels are shifted as what they would be at their own tokens."""
        batch = records.batch.take(rows)
        found = samples_of(batch, replace(self._rules, alignment=NEXT))
        for row, (_, message) in found.refused.items():
            number = int(rows[row])
            place, raw = self._where(records, number), partial(records.raw, number)
            self._auditor.add_row("labels-differ", place, message, raw)
        block = self._add_samples(records, found, rows, batch)
        firsts = np.flatnonzero(np.diff(found.rows, prepend=-1))
        self._auditor.found_samples("labels-shifted", block, firsts)

    def _add_refused(self, records: Records, found: RowSamples, shifted: set[int]) -> None:
        """Count empty rows, and those that contradict themselves, but for shifted labels."""
        run_on: Flags | None = None
        for row, (reason, message) in found.refused.items():
            if row in shifted:
                continue
            kind = _KINDS[reason]
            if reason == "ends differ" and POSITIONS in self._rules.ends:
                if run_on is None:
                    run_on = _run_on(records.batch, self._rules)
                kind = "positions-run-on" if run_on[row] else kind
            raw = partial(records.raw, row)
            self._auditor.add_row(kind, self._where(records, row), message, raw)
        is_empty = np.bincount(found.rows, minlength=found.n_rows) == 0
        is_empty[list(found.refused)] = False
        for row in np.flatnonzero(is_empty).tolist():
            raw = partial(records.raw, row)
            self._auditor.add_row("empty", self._where(records, row), "no ids", raw)

    def _add_samples(
        self, records: Records, found: RowSamples, numbers: Numbers, batch: pa.RecordBatch
    ) -> Block:
        """Audit the samples of rows; `numbers`: of the rows of `batch` in the records."""
        per_row = np.bincount(found.rows, minlength=found.n_rows)
        firsts = np.searchsorted(found.rows, found.rows)

        def where(at: int) -> str:
            row = int(found.rows[at])
            inside = f", sample {at - int(firsts[at])}" if per_row[row] > 1 else ""
            return f"{self._where(records, int(numbers[row]))}{inside}"

        mask = None if found.weights is None else found.weights > 0
        others = [name for name in self._rules.ends if name != POSITIONS]
        run_on = None
        if POSITIONS in self._rules.ends:
            run_on = per_row[found.rows] == 1
        block = Block(
            Samples(found.ids, found.lengths, mask),
            where,
            self._split,
            found.began_trained,
            are_packed=bool(others) or (run_on is not None and not run_on.all()),
            run_on=run_on,
        )
        self._auditor.add(block)
        if self._rules.attention and len(self._rules.ids) == 1:
            good = np.delete(np.arange(found.n_rows), list(found.refused))
            taken = batch.take(good) if found.refused else batch
            self._check_attention(records, taken, numbers[good])
        return block

    def _check_attention(self, records: Records, batch: pa.RecordBatch, numbers: Numbers) -> None:
        """Look for trained padding, and for positions that go on in the next sample of a row."""
        rules = self._rules
        attention = _flat(batch, rules.attention)
        is_bad = np.zeros(len(attention), bool)
        is_trained = _are_trained(batch, rules)
        if is_trained is not None:
            is_bad = (attention == 0) & is_trained
        runs_on = np.zeros(len(attention), bool)
        if POSITIONS in rules.ends:
            begins = (attention[1:] > 0) & (attention[:-1] > 0) & (attention[1:] != attention[:-1])
            runs_on[1:] = begins & (_flat(batch, POSITIONS)[1:] != 0)
        if not (is_bad.any() or runs_on.any()):
            return
        lengths = _list_lengths(batch, rules.ids[0])
        samples = Samples(_flat(batch, rules.ids[0]), lengths, is_trained)
        runs_on[samples.starts[lengths > 0]] = False
        block = Block(
            samples,
            lambda at: self._where(records, int(numbers[at])),
            self._split,
            np.zeros(len(lengths), bool),
        )
        for kind, flags in (("padding-trained", is_bad), ("positions-run-on", runs_on)):
            tokens = np.flatnonzero(flags)
            self._auditor.found(kind, block, samples.of(tokens), tokens)


def _flat(batch: pa.RecordBatch, name: str) -> npt.NDArray[Any]:
    """Return the values of a column of lists without nulls, end to end."""
    values: npt.NDArray[Any] = batch.column(name).flatten().to_numpy(zero_copy_only=False)
    return values


def _are_trained(batch: pa.RecordBatch, rules: RowRules) -> Flags | None:
    """Return which tokens, padding among them, labels and masks train; None without any."""
    flags = [_flat(batch, rules.labels) != IGNORE_INDEX] if rules.labels else []
    flags += [_flat(batch, name) > 0 for name in (*rules.masks, rules.weights) if name]
    return np.logical_and.reduce(flags) if flags else None


def _run_on(batch: pa.RecordBatch, rules: RowRules) -> Flags:
    """Return which rows have fewer positions of 0 than samples by another column: (n,)."""
    other = next(name for name in rules.ends if name != POSITIONS)
    n_samples = _list_lengths(batch, other) - (other == BOUNDS)
    rows = np.repeat(np.arange(batch.num_rows), _list_lengths(batch, POSITIONS))
    is_zero = _flat(batch, POSITIONS) == 0
    n_restarts = np.bincount(rows[is_zero], minlength=batch.num_rows)
    fewer: Flags = n_restarts < n_samples
    return fewer


def _list_lengths(batch: pa.RecordBatch, name: str) -> Numbers:
    lengths = pc.fill_null(pc.list_value_length(batch.column(name)), 0)
    return np.asarray(lengths.to_numpy(zero_copy_only=False), np.int64)
