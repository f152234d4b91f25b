"""The counts of a mix, and what its manifest states."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokmill.dataset.counts import Counts, documents_by_length
from tokmill.dataset.finish import Statement
from tokmill.dataset.layout import MIX_ENGINE
from tokmill.dataset.manifest import UnreadTotals
from tokmill.dataset.rules import joined_rules
from tokmill.mixing.batch import read_chunk, rows_of, trained
from tokmill.mixing.survey import LEFT_OUT
from tokmill.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from tokmill.dataset.checksum import FileEntry
    from tokmill.dataset.manifest import MaskEntry, ShardRow, SourceEntry, Usage
    from tokmill.dataset.part_record import PartRecord
    from tokmill.mixing.inputs import Inputs
    from tokmill.mixing.tasks import Job

_NOT_TAKEN = "not in the share"
"""Why a document is left out that no filter has refused."""


@dataclass(frozen=True, slots=True)
class Written:
    """What a mix has of each source; n: the sources of all inputs.

    `by_row`: (4, n) int64, documents, tokens, trained tokens and repeats. `left_out`: (n, 6)
    int64, documents by the reason why they are left out.
    """

    by_row: npt.NDArray[np.int64]
    left_out: npt.NDArray[np.int64]


def count(job: Job) -> Written:
    """Count what the pieces of a mix hold; reads lengths, origins and masks of all inputs."""
    inputs, selection = job.inputs, job.selection()
    by_row = np.zeros((4, len(inputs.rows)), np.int64)
    left_out = np.zeros((len(inputs.rows), 1 + max(LEFT_OUT)), np.int64)
    for chunk in job.chunks:
        times, lengths = selection.times(chunk), selection.lengths(chunk)
        rows = rows_of(inputs, chunk)
        amounts = [times, times * lengths, times * 0, np.maximum(times - 1, 0)]
        if "mask" in inputs.sidecars:
            amounts[2] = times * trained(read_chunk(inputs, chunk))
        for of_row, amount in zip(by_row, amounts, strict=True):
            np.add.at(of_row, rows, amount)
        if selection.reasons is not None:
            np.add.at(left_out, (rows, selection.reasons[chunk.numbers]), 1)
    return Written(by_row, left_out)


def _sources(job: Job, written: Written | None) -> list[SourceEntry]:
    """Return the sources of all inputs, with the counts of what was written of each.

    Records and rejects stay. A document that is left out is a drop, and one that is repeated is an
    `extra`. Bytes of text are in proportion to the tokens: nobody knows those of a document.
    `written`: None if all documents of all inputs are.
    """
    sources = []
    for number, source in enumerate(job.inputs.rows):
        name = source.name or _request_name(job.inputs, number)
        counts = source.counts if written is None else _written_of(source, written, number)
        sources.append(replace(source, name=name, reading=None, counts=counts))
    return sources


def _written_of(source: SourceEntry, written: Written, number: int) -> Counts:
    """Return the counts of what was written of a source; `number`: of it among those of inputs."""
    before = source.counts
    documents, tokens, trained_tokens, repeats = written.by_row[:, number].tolist()
    left = {why: int(written.left_out[number, reason]) for reason, why in LEFT_OUT.items()}
    left[_NOT_TAKEN] = before.documents - (documents - repeats) - sum(left.values())
    drops = Counter(before.drops)
    drops.update({why: n for why, n in left.items() if n})
    return replace(
        before,
        documents=documents,
        tokens=tokens,
        trained_tokens=trained_tokens,
        text_bytes=round(before.text_bytes * tokens / max(1, before.tokens)),
        extra=before.extra + repeats,
        drops=drops,
    )


def _request_name(inputs: Inputs, row: int) -> str:
    """Return the name that a source without one has in the mix: that of its dataset."""
    dataset = max((d for d in inputs.datasets if d.first_row <= row), key=lambda d: d.first_row)
    return dataset.place


def engine_of(inputs: Inputs) -> dict[str, Any]:
    """Return the entry for the engine of plan and manifest: nothing was encoded."""
    engines = dict.fromkeys(d.manifest.engine.name for d in inputs.datasets)
    return {
        "name": MIX_ENGINE,
        "version": __version__,
        "reason": f"documents of finished datasets, encoded by {', '.join(engines)}",
        "mb_per_s": {},
        "n_checked": sum(d.manifest.engine.n_checked for d in inputs.datasets),
        "refused": {},
    }


def statement_of(
    job: Job,
    files: Sequence[FileEntry],
    shards: Sequence[ShardRow],
    length_histogram: Sequence[int],
    written: Written | None,
    mix: Mapping[str, Any],
    run: Usage,
) -> Statement:
    """Return what the manifest states.

    `mix`: what was asked and got. `written`: None if all documents of all inputs are.
    """
    inputs, sources = job.inputs, _sources(job, written)
    totals = Counts()
    for source in sources:
        totals.add(source.counts)
    return Statement(
        kind=inputs.kind,
        rules=joined_rules(inputs.rules),
        config=_config(job),
        tokenizer=inputs.manifest.tokenizer,
        engine=engine_of(inputs),
        totals=totals,
        unread=_unread(inputs),
        length_histogram=length_histogram,
        sources=sources,
        shards=shards,
        files=files,
        run=run,
        mask=_mask(inputs),
        keep=inputs.keep,
        mix=mix,
    )


def _unread(inputs: Inputs) -> UnreadTotals | None:
    """Return the sums of what was not read of the inputs; None if all was."""
    found = [d.manifest.unread for d in inputs.datasets if d.manifest.unread is not None]
    if not found:
        return None
    return UnreadTotals(
        sum(one.files for one in found),
        sum(one.text_bytes for one in found),
        sum(one.stored_bytes for one in found),
    )


def _config(job: Job) -> dict[str, Any]:
    """Return the settings of the first input, with inputs, output and rows of the mix.

    Documents are not packed: `tokmill pack` is what packs them.
    """
    config: dict[str, Any] = {**job.inputs.manifest.plain["config"]}
    config["output"] = asdict(job.output)
    config["input"] = {**config["input"], "paths": [d.place for d in job.inputs.datasets]}
    if "sft" not in config:
        return config
    inputs = job.inputs
    rule = {"packing": inputs.packing, "packed_rows": inputs.has_packed_rows}
    config["sft"] = {**config["sft"], **rule}
    config["sft"].pop("max_samples_per_row", None)
    if inputs.max_samples_per_row:
        config["sft"]["max_samples_per_row"] = inputs.max_samples_per_row
    return config


def _mask(inputs: Inputs) -> MaskEntry | None:
    """Return the entry for the masks: the rule of all, and their templates; None without masks."""
    masks = [d.manifest.mask for d in inputs.datasets if d.manifest.mask is not None]
    if not masks:
        return None
    templates = " and ".join(dict.fromkeys(mask.template for mask in masks))
    return masks[0]._replace(template=templates, cut=sum(mask.cut for mask in masks))


class PartSums(NamedTuple):
    """The parts of a mix, summed up: files, rows of the manifest, documents by length."""

    files: Sequence[FileEntry]
    shards: Sequence[ShardRow]
    length_histogram: Sequence[int]


def sums_of(records: Mapping[int, PartRecord], algorithm: str) -> PartSums:
    """Return the sums of all parts, in their order; `algorithm`: of the checksums.

    Slices of origins are numbered over all inputs, so each shard begins with slice 0.
    """
    files: list[FileEntry] = []
    shards: list[ShardRow] = []
    by_length = documents_by_length(np.zeros(0, np.int64))
    for _, record in sorted(records.items()):
        shards += [shard.as_row() for shard in record.shards]
        files += [*record.files(), record.entry(algorithm)]
        by_length[: len(record.length_histogram)] += record.length_histogram
    return PartSums(files, shards, np.trim_zeros(by_length, "b").tolist())


def linked_histogram(inputs: Inputs) -> list[int]:
    """Return the documents of all inputs by length."""
    pairs = zip_longest(*(d.manifest.length_histogram for d in inputs.datasets), fillvalue=0)
    return [sum(pair) for pair in pairs]
