"""What a mix would write, and how long it would take; nothing is written."""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.dataset.layout import SIDECARS
from tokmill.mixing.batch import bounds, read_chunk
from tokmill.mixing.begin import check_output, is_linked
from tokmill.mixing.checks import InputFiles
from tokmill.mixing.contamination import check_report
from tokmill.mixing.drop_list import write_drop_lists
from tokmill.mixing.duplicates import hashes_of
from tokmill.mixing.held_out import read_held_out
from tokmill.mixing.inputs import open_inputs, warn_of_copies, warn_of_rules
from tokmill.mixing.make import report_alone
from tokmill.mixing.selection import Selection, choose, everything
from tokmill.mixing.settings import requests
from tokmill.mixing.tasks import n_workers_of
from tokmill.place import open_place

if TYPE_CHECKING:
    from tokmill.mixing.inputs import Chunk, Inputs
    from tokmill.mixing.make import Watcher
    from tokmill.mixing.settings import MixSettings

_SAMPLE_TOKENS = 4 << 20
_BYTES_OF_DOCUMENT = 25
"""Of the index and the origin."""

_PASSES = 4
"""Times that a document is copied in a shuffle, each about as long as a read with its hash."""

_CHECK_PASSES = 0.3
"""A checksum of a whole file takes a third of the time of hashes of its documents."""


def plan_mix(settings: MixSettings, watcher: Watcher) -> dict[str, Any]:
    """Return what a mix would write; raises what `mix` raises before it writes.

    The report of documents that share tokens with held-out texts is written, if settings name it.

    Returns:
        `sources`, as in the manifest of a mix; `tokens` of train and val together; `disk_bytes` at
        the end, and `peak_disk_bytes` while it is made; `checked_bytes` of the inputs, which are
        compared with their manifests before they are read; `time_s`, a lower and an upper value;
        `before_filters`: whether filters or duplicates will leave documents out of these amounts;
        with a report, `contaminated`: documents that share tokens with held-out texts.
    """
    if settings.report:
        check_report(settings.report)
    inputs = open_inputs(requests(settings), settings)
    check_output(open_place(settings.output), inputs, settings)
    held_out = read_held_out(settings, inputs)
    with TemporaryDirectory(prefix="tokmill-mix-") as folder:
        write_drop_lists(settings.drop, inputs, Path(folder))
    warn_of_rules(inputs, watcher.warned)
    warn_of_copies(inputs, settings, watcher.warned)
    linked, checks = is_linked(settings, inputs), InputFiles(inputs, settings)
    looks = bool(settings.dedup or settings.has_filters)
    searched = {}
    if settings.report:
        searched["contaminated"] = report_alone(settings, inputs, held_out, watcher)
    if looks or not linked:
        checks.check_first()
    chunks = tuple(inputs.chunks()) if looks or not linked else ()
    taken = everything(inputs)
    if not linked:
        taken = choose(inputs, settings, chunks, Selection(inputs, settings, None), watcher.warned)
    of_val = sum(dataset.n_tokens("val") for dataset in inputs.datasets)
    tokens = sum(of_source.tokens for of_source in taken) + of_val
    written, time_s = 0, 0.5
    if not linked:
        share = tokens / max(1, inputs.n_tokens)
        item = inputs.dtype.itemsize + sum(SIDECARS[ending].itemsize for ending in inputs.sidecars)
        written = tokens * item + round(share * sum(map(len, chunks))) * _BYTES_OF_DOCUMENT
        time_s = _seconds(inputs, chunks[0], settings) * share
    return {
        "sources": [of_source.as_json() for of_source in taken],
        "tokens": tokens,
        "disk_bytes": written,
        "peak_disk_bytes": written * (1 + settings.is_shuffled),
        "checked_bytes": checks.bytes_to_check(chunks, is_linked=linked),
        "time_s": [0.5 * time_s, 2 * time_s],
        "before_filters": looks,
        **searched,
    }


def _seconds(inputs: Inputs, chunk: Chunk, settings: MixSettings) -> float:
    """Return the seconds that all documents take, from reading and hashing a few of them."""
    batch = read_chunk(inputs, chunk)
    ends = bounds(batch, inputs.dtype)
    sample = batch.slice(0, max(1, int(np.searchsorted(ends - ends[0], _SAMPLE_TOKENS))))
    start = time.perf_counter()
    hashes_of(sample)
    of_token = (time.perf_counter() - start) / int(np.ptp(bounds(sample, inputs.dtype)))
    looks = bool(settings.dedup or settings.has_filters or settings.against)
    passes = looks + (_PASSES if settings.is_shuffled else 2) + _CHECK_PASSES
    return of_token * passes * inputs.n_tokens / n_workers_of(inputs, settings)
