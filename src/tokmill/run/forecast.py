"""Forecast a run from its settings: prepare it, sample its input, choose an engine, predict."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from heapq import nlargest
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokmill.bill.on_disk import DatasetSize, OnDisk, predicted_disk
from tokmill.dataset.counts import documents_by_length
from tokmill.dataset.layout import FRAGMENT
from tokmill.dataset.packing import pack_documents
from tokmill.engines.choose import comparison_cost
from tokmill.engines.engine import engine_threads
from tokmill.errors import RecordError, TokmillError, UnreadInputError, UsageError
from tokmill.machine.limits import usable_memory
from tokmill.recipes.left_out import check_read_fields, fields_read
from tokmill.recipes.memory_bounds import BASE_BYTES, long_text_bytes, worker_bytes
from tokmill.rendering.fields import noted_sources, percent
from tokmill.run.prepare import choose_run_engine, prepare
from tokmill.run.reject_limits import (
    are_too_many,
    check_chats,
    check_empty,
    check_sources,
    check_unknown,
    no_document,
    too_many,
)
from tokmill.run.sample import Estimate, InputSample, encoded_sample
from tokmill.run.unmatched import COMPARED_BEFORE, unmatched
from tokmill.sources.formats import format_named
from tokmill.storage import free_bytes
from tokmill.tokenizer.kept import packed_tokenizer
from tokmill.tokenizer.unknown_text import unknown_line
from tokmill.values import EMPTY
from tokmill.words import counted, plural

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tokmill.bill.formula import Bill
    from tokmill.dataset.counts import Counts
    from tokmill.recipes.spec import Part, RunSpec
    from tokmill.run.prepare import Prepared
    from tokmill.run.sample import Renderers
    from tokmill.settings.schema import Config, LimitSettings


SAMPLE_FRACTION = 0.049
"""Share of a large input that is sampled."""

COMPLETE_BYTES = 4 << 20
"""An input of at most these bytes is read completely: a twentieth of it would show little."""

LEAST_SAMPLE_BYTES, MOST_SAMPLE_BYTES = 2 << 20, 8 << 20

PACKED_DOCUMENTS = 1 << 15
"""Samples that are packed to measure how full rows get."""

LONG_RECORD_COPIES = 12
"""Copies of a record that is longer than a block, measured with fastokens; gigatoken has 7."""

_SURE_RECORDS = 10
"""If a sample has fewer records of a file, all of them may be rejected by chance."""

LONGER = 2
"""The longest record, as a multiple of the longest in a sample."""

PAGED_FILES = 64
"""Files whose footers are read for the size of their pages."""

FILE_BYTES = 800
"""Memory for each file in the process that plans and finishes, measured with a million."""

START_S = 1.0
"""Starting the interpreter and loading packages; finding the input and choosing the engine are
timed, as a forecast does them like a run."""

FILE_S = 130e-6
"""Time to find, open, read, check and count a small file, measured with a million."""

SLOWER, LATER_S = 2.0, 2.0
"""The upper value of the time is so many times the expected time, and so many seconds more."""


class Predicted(NamedTuple):
    """A forecast as plain values, the dataset, and the error with which the run would stop."""

    values: dict[str, Any]
    on_disk: OnDisk
    problem: TokmillError | None


def forecast_run(
    config: Config, warn: Callable[[str], None], note: Callable[[str], None]
) -> Predicted:
    """Return the forecast of a run; `warn` and `note` get lines for the user.

    Raises:
        TokmillError: the run could not start, or nothing can be predicted from the sample.
    """
    if "-" in config.input.all_paths:
        raise UsageError("standard input can be read only once: plan needs files")
    start_s = perf_counter()
    prepared = prepare(config, leave_bad_out=True)
    for warning in (*prepared.discovery.warnings, *prepared.discovery.unmatched):
        warn(warning)
    for line in prepared.bad:
        warn(f"{line} (left out of this forecast)")
    for line in prepared.notes(with_fields=False):
        note(line)
    with engine_threads(prepared.threads):
        return _forecast(prepared, warn, note, start_s)


def _forecast(
    prepared: Prepared,
    warn: Callable[[str], None],
    note: Callable[[str], None],
    start_s: float,
) -> Predicted:
    """Return what `forecast_run` does; `start_s`: when it began to prepare."""
    config, parts, workers = prepared.config, prepared.parts, prepared.workers
    engine = choose_run_engine(prepared, note)
    taken_s = perf_counter() - start_s
    spec = prepared.spec(engine)
    renderers = prepared.renderers()
    sampled = encoded_sample(spec, parts, renderers, _sample_bytes(_input_bytes(parts)))
    counts = sampled.totals()
    _check_not_empty(sampled)
    for named, line in unmatched(spec, _records_of_parts(parts, sampled), counts, "the sample"):
        if named.setting not in COMPARED_BEFORE:
            warn(line)
    if spec.config.sft is not None:
        for line in _chat_notes(counts.counters):
            note(line)
    size, disk = predict(spec, parts, sampled)
    tokens, documents, text = map(sampled.total, ("tokens", "documents", "text_bytes"))
    compare_s, compare_bytes = comparison_cost(
        prepared.tokenizer, config.run.engine, text.high, prepared.threads
    )
    n_slices = sum(len(part.slices) for part in parts)
    before_s = START_S + max(taken_s, compare_s)
    time_s, time_high_s = (
        before_s + (n_bytes / sampled.bytes_per_s + n_slices * FILE_S) / workers
        for n_bytes in (text.value, text.high)
    )
    held = _page_bytes(parts) + _long_record_bytes(sampled, config)
    workers_bytes = workers * worker_bytes(spec, text.high)
    n_records = max(1, counts.records)
    values = {
        "schema": 1,
        "kind": spec.kind,
        "files": len(prepared.discovery.files),
        "input_bytes": _input_bytes(parts),
        "sampled_bytes": sampled.read_bytes,
        "heads_only": sampled.heads_only,
        "is_counted": sampled.is_complete,
        "parts": len(parts),
        "part_bytes": max(sum(piece.n_bytes for piece in part.slices) for part in parts),
        **{f"documents{end}": n for end, n in _ends(documents)},
        **{f"tokens{end}": n for end, n in _ends(tokens)},
        "text_bytes": text.value,
        "disk_bytes": disk.n_bytes,
        "time_s": time_s,
        "time_high_s": LATER_S + SLOWER * time_high_s,
        "memory_bytes": workers * held
        + n_slices * FILE_BYTES
        + max(workers_bytes, BASE_BYTES + compare_bytes),
        "reject_fraction": counts.rejects.total() / n_records,
        "max_reject_fraction": config.limits.max_reject_fraction,
        "has_too_many_rejects": _has_too_many_rejects(config.limits, sampled),
        "counters": dict(sorted(counts.counters.items())),
        "encoded_documents": counts.documents,
        "unknown": unknown_line(counts.counters, counts.tokens, counts.text_bytes),
        "can_separate": not config.input.text_separator
        and any(file.format == "text" for file in prepared.discovery.files),
        "drop_fraction": counts.drops.total() / n_records,
        "size": asdict(size),
        "disk": disk.as_json(),
        "usable_memory_bytes": usable_memory(),
        "workers": workers,
        "threads": prepared.threads,
        "renderer": _renderer_names(renderers, counts),
        "fields": prepared.fields_note(),
        "left_out": _left_out(prepared, sampled),
        "tokenizer": prepared.tokenizer.name,
        "eos": {"id": prepared.tokenizer.eos.id, "token": prepared.tokenizer.eos.content},
        "dtype": config.output.dtype,
        "engine": engine.as_json(),
    }
    directory = config.output.dir or "."
    on_disk = OnDisk(directory, size, disk, free_bytes(Path(directory)))
    return Predicted(values, on_disk, _problem(prepared, spec, sampled))


def _records_of_parts(parts: Sequence[Part], sampled: InputSample) -> list[tuple[Part, int]]:
    """Return the parts, each with its number of records; none if not all of them were read."""
    if not sampled.is_complete:
        return []
    n_records = Counter[str]()
    for piece in sampled.pieces:
        n_records[piece.file.path] += piece.counts.records
    return [
        (part, sum(n_records[path] for path in dict.fromkeys(s.file.path for s in part.slices)))
        for part in parts
    ]


def _renderer_names(renderers: Renderers, counts: Counts) -> str:
    """Return the names of the renderers; of sections with their shares, if there are both."""
    names = dict.fromkeys(renderer.name for _, renderer in renderers.values())
    by_script = counts.renderers
    if len(by_script) < 2:
        return ", ".join(names)
    shares = [f"{name} {percent(n / by_script.total())}" for name, n in by_script.most_common()]
    others = [name for name in names if name not in by_script]
    return ", ".join([*others, *shares]) + " of the documents, by the script of each file"


def _chat_notes(counters: Counter[str]) -> list[str]:
    """Return what a sample of chats shows of text that the template inserts."""
    from tokmill.chat.inserted import INSERTED, thinking_note

    found = [counted(counters[name], name) for name in INSERTED if counters[name]]
    lines = [f"in the sample: {', '.join(found)}"] if found else []
    return [*lines, *filter(None, [thinking_note(counters)])]


def _check_not_empty(sampled: InputSample) -> None:
    """Check that a sample has a document to predict from; raises `RecordError`."""
    counts = sampled.totals()
    if counts.documents:
        return
    if not counts.records:
        what = f" ({sampled.unread[0]})" if sampled.unread else ""
        raise RecordError(f"the sample of the input holds no record{what}: nothing to predict from")
    record = "record" if sampled.is_complete else "sampled record"
    first = sampled.first_reject
    raise RecordError(no_document("the run would make no document", counts, record, first))


def predict(spec: RunSpec, parts: Sequence[Part], sample: InputSample) -> tuple[DatasetSize, Bill]:
    """Return the dataset that is expected from a sample with a document, and its disk."""
    config, sft, val = spec.config, spec.config.sft, spec.config.output.val_fraction
    tokens, documents = sample.total("tokens"), sample.total("documents")
    size = DatasetSize(
        kind=spec.kind,
        tokens=tokens.value,
        documents=documents.value,
        item_bytes=np.dtype(config.output.dtype).itemsize,
        mask=sft is not None,
        weights=sft is not None and sft.weights == "file",
        shards=max(len(parts), -(-tokens.value // config.output.shard_tokens)),
        largest_shard_tokens=min(tokens.value, config.output.shard_tokens),
        vocabulary=spec.tokenizer.vocab_size,
        length_histogram=_histogram(sample, documents.value),
        capacity=config.output.packing if sft is None else sft.packing,
        packed_rows=sft is not None and sft.packed_rows,
        val_tokens=round(tokens.value * val),
        val_documents=round(documents.value * val),
    )
    per_token = size.bytes_per_token * (2 if size.packed_rows else 1)
    low, value, high = (
        per_token * getattr(tokens, end) + 24 * getattr(documents, end)
        for end in ("low", "value", "high")
    )
    disk = predicted_disk(
        size,
        slices=sum(len(part.slices) for part in parts),
        rows=_rows(sample, size, (config.output if sft is None else sft).max_samples_per_row),
        splits=max(1, len(np.unique(sample.is_val))),
        tokenizer_bytes=len(packed_tokenizer(spec.tokenizer, spec.template)),
        error=max(high / value, value / max(1, low)) - 1,
    )
    return size, disk


def _sample_bytes(input_bytes: int) -> int:
    """Return the bytes that a forecast reads: all of a small input."""
    if input_bytes <= COMPLETE_BYTES:
        return input_bytes
    return min(max(int(input_bytes * SAMPLE_FRACTION), LEAST_SAMPLE_BYTES), MOST_SAMPLE_BYTES)


def _input_bytes(parts: Sequence[Part]) -> int:
    return sum(piece.n_bytes for part in parts for piece in part.slices)


def _ends(estimate: Estimate) -> list[tuple[str, int]]:
    return [("", estimate.value), ("_low", estimate.low), ("_high", estimate.high)]


def _histogram(sampled: InputSample, documents: int) -> tuple[int, ...]:
    """Return the expected number of documents of 2^i to 2^(i+1)-1 tokens."""
    counts = np.trim_zeros(documents_by_length(np.maximum(sampled.lengths, 1)), "b")
    return tuple(round(n * documents / len(sampled.lengths)) for n in counts.tolist())


def _rows(sampled: InputSample, size: DatasetSize, max_samples: int) -> int:
    """Return the expected number of packed rows, from packing samples of the same lengths.

    `max_samples`: in a row; 0: any number.
    """
    if not size.capacity:
        return 0
    n_rows = n_tokens = 0
    for split in (False, True):
        lengths = sampled.lengths[sampled.is_val == split]
        if len(lengths):
            share = round(size.documents * len(lengths) / len(sampled.lengths))
            lengths = np.resize(lengths, max(len(lengths), min(PACKED_DOCUMENTS, share)))
            packs = pack_documents([lengths], size.capacity, FRAGMENT, max_samples)
            n_rows += sum(one.n_rows for one in packs)
            n_tokens += int(lengths.sum())
    return max(1, round(n_rows * size.tokens / n_tokens))


def _long_record_bytes(sampled: InputSample, config: Config) -> int:
    """Return the memory of the longest record: of encoding it, and of its copies over a block."""
    longest_block = max(block.n_bytes for piece in sampled.pieces for block in piece.blocks)
    longest_text = sampled.longest_text
    if not sampled.is_complete:
        longest_block *= LONGER
        most = max(longest_text, config.input.max_record_bytes)
        longest_text = min(LONGER * longest_text, most)
    copies = LONG_RECORD_COPIES if longest_block > config.run.block_bytes else 0
    return copies * longest_block + long_text_bytes(longest_text)


def _page_bytes(parts: Sequence[Part]) -> int:
    """Return the memory of the largest page that a worker unpacks at once.

    Large pages are in large files, and a file of an object store takes two requests.
    """
    files = {piece.file for part in parts for piece in part.slices if piece.n_bytes}
    largest = nlargest(PAGED_FILES, files, key=lambda file: file.n_bytes)
    held = [(format_named(file.format).held_bytes, file) for file in largest]
    return max((bytes_of(file) for bytes_of, file in held if bytes_of), default=0)


def _problem(prepared: Prepared, spec: RunSpec, sampled: InputSample) -> TokmillError | None:
    """Return the error with which the run would stop, if the sample has one."""
    if prepared.bad:
        return UsageError(f"the run would stop: {prepared.bad[0]}")
    try:
        check_sample(prepared.config.limits, sampled)
        check_read_fields(spec, prepared.parts, sampled.sources)
    except RecordError as error:
        return error
    return None


def check_sample(limits: LimitSettings, sampled: InputSample) -> None:
    """Check by a sample that the run would not stop: what it shows is expected of all records.

    Raises:
        UnreadInputError: a sampled file breaks off.
        RecordError: the sample has too many rejects, or replies that train no end.
    """
    counts, unread, first = sampled.totals(), sampled.unread, sampled.first_reject
    if unread and limits.on_unread == "error":
        raise UnreadInputError(
            f"the run would fail: {unread[0]}; --on-unread=skip accepts the loss", tuple(unread)
        )
    n_rejects = counts.rejects.total()
    if n_rejects and limits.on_error == "fail":
        raise RecordError(f"the run would stop at a broken record: {first}")
    if _has_too_many_rejects(limits, sampled):
        records = plural(counts.records, "record" if sampled.is_complete else "sampled record")
        told = too_many(counts.rejects, records, limits.max_reject_fraction, first)
        raise RecordError(f"the run would stop: {told}")
    check_empty(limits, counts.drops[EMPTY], counts.records)
    check_chats(limits, counts.counters, counts.documents)
    check_unknown(limits, counts.counters, counts.tokens, counts.text_bytes)
    least = 1 if sampled.is_complete else _SURE_RECORDS
    try:
        check_sources(limits, sampled.counted_files, sampled.first_reject_of, least_records=least)
    except RecordError as error:
        raise RecordError(f"the run would stop: {error}") from None


def _has_too_many_rejects(limits: LimitSettings, sampled: InputSample) -> bool:
    """Return whether a run stops if all of its input is like the sample."""
    counts, n_records = sampled.totals(), sampled.total("records").value
    share = counts.rejects.total() / max(1, counts.records)
    return are_too_many(limits, share * n_records, n_records)


def _left_out(prepared: Prepared, sampled: InputSample) -> str:
    """Return the sources that use less than 90% of their text; '' if none."""
    noted = []
    for group in prepared.readings:
        paths = {file.path for file in group.files}
        own = [(one.path, one.counts.fields) for one in sampled.sources if one.path in paths]
        noted.append(noted_sources(own, fields_read(group.reading)))
    return ", ".join(filter(None, noted))
