"""The bill as tables: GPU memory, host RAM, disk, time, inference."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from tokmill.bill.bill_settings import BillSettings
from tokmill.bill.compute import Compute
from tokmill.bill.dataset_size import LongDocuments
from tokmill.bill.full_bill import FullBill, ModelBill
from tokmill.bill.gpus import AT_LEAST, BARELY, FITS
from tokmill.bill.host_ram.host import HostBill
from tokmill.bill.measuring.process_tree import Measured
from tokmill.bill.models.model import Model
from tokmill.bill.on_disk import DatasetDisk
from tokmill.bill.remedies.search import Offer
from tokmill.bill.text.tables import (
    amounts_table,
    bill_view,
    explanation,
    moment,
    rows_table,
    totals_table,
)  # fmt: skip
from tokmill.words.plural import plural
from tokmill.words.units import count, memory, seconds, size

_MOST_SOURCES = 12
_SHORT = {FITS: "fits", BARELY: "may fit", AT_LEAST: "at least"}
_BAR = 20
"""Characters of the longest bar."""


def bill_tables(
    full: FullBill, parts: Collection[str], *, explain: bool = False
) -> Iterator[RenderableType]:
    """Yield the tables of the named parts of a bill, with an empty line before each.

    `explain`: also yield formula, symbols and source of each amount.
    """
    shown: set[str] | None = set() if explain else None
    of_model = full.of_model
    if of_model is not None:
        if {"gpu", "inference"} & set(parts):
            yield from _parameters(of_model.model)
        if "gpu" in parts:
            yield from _gpu_tables(of_model, shown=shown)
    if "host" in parts:
        yield from _host_tables(full.host, shown=shown)
    if "disk" in parts:
        yield from disk_tables(full, shown=shown)
    if of_model is not None:
        if "time" in parts and of_model.compute is not None:
            rows = _time_rows(of_model.compute, of_model.long_documents, full.settings)
            yield from _after_empty_line(rows_table("training", ("",), rows, words=("",)))
        if "inference" in parts:
            yield from bill_view(of_model.inference, shown=shown)


def _after_empty_line(*tables: RenderableType) -> Iterator[RenderableType]:
    for table in tables:
        yield Text("")
        yield table


def _parameters(model: Model) -> Iterator[RenderableType]:
    modules = [(name, f"{n:,}") for name, n in model.by_module().items()]
    rows = [*modules, ("total", f"{model.parameters:,}")]
    yield from _after_empty_line(rows_table("parameters", ("",), rows))


def _gpu_tables(of_model: ModelBill, *, shown: set[str] | None) -> Iterator[RenderableType]:
    """Yield the tables of training: peak, moments, pipeline stages, savings."""
    training = of_model.training
    peak, title = training.peak, f"GPU memory at the peak, {moment(training.peak)}"
    yield from bill_view(replace(peak, title=title), shown=shown)
    moments = [(moment(bill), bill) for bill in training.moments]
    yield from _after_empty_line(
        totals_table("GPU memory at each moment of a training step", moments)
    )
    if len(training.stages) > 1:
        stages = [
            (f"{each.number + 1:,}: {moment(each.peak)}", each.peak) for each in training.stages
        ]
        yield from _after_empty_line(
            totals_table("GPU memory at the peak of pipeline stages", stages)
        )
    if of_model.advice is not None and of_model.advice.steps:
        yield from _after_empty_line(_offers_table(of_model.advice.steps))


def _offers_table(offers: Sequence[Offer]) -> Table:
    """Return a row for each saving: its options, memory, verdict and cost."""
    rows = (
        (
            " ".join(offer.options),
            memory(offer.saved_bytes),
            memory(offer.peak_bytes),
            _SHORT.get(offer.verdict, ""),
            offer.cost,
        )
        for offer in offers
    )
    return rows_table(
        "options that save memory", ("saves", "peak", "", "cost"), rows, words=("cost",)
    )


def _host_tables(host: HostBill, *, shown: set[str] | None) -> Iterator[RenderableType]:
    title = f"host RAM per node at the peak, {moment(host.peak)}"
    yield from bill_view(replace(host.peak, title=title), shown=shown)
    moments = [(moment(bill), bill) for bill in host.moments]
    yield from _after_empty_line(totals_table("host RAM at each moment", moments))
    for bill in (host.shared, host.page_cache):
        if bill.n_bytes:
            yield from bill_view(bill, shown=shown)


def measured_table(measured: Measured, host: HostBill) -> Table:
    """Return the host RAM of a training beside its bill: of each moment, and the largest."""
    peak = measured.peak
    error = f"{host.peak.n_bytes / max(1, peak.committed) - 1:+.1%}"
    shared, cache = (memory(peak.shared), memory(peak.file)) if peak.exact else ("not known",) * 2
    rows = [
        *((moment(bill), memory(bill.n_bytes), "", "") for bill in host.moments),
        ("peak", memory(host.peak.n_bytes), memory(peak.committed), error),
        ("of it shared (/dev/shm)", memory(host.shared.n_bytes), shared, ""),
        ("page cache, mapped files", memory(host.page_cache.n_bytes), cache, ""),
    ]
    title = f"host RAM, process {measured.pid}, {seconds(measured.seconds)}"
    return rows_table(title, ("predicted", "measured", "error"), rows)


def disk_tables(full: FullBill, *, shown: set[str] | None) -> Iterator[RenderableType]:
    """Yield the sizes of dataset, checkpoints and optional files, and the lengths of documents.

    `shown`: formulas that were shown already; None: formulas are not shown.
    """
    disk = full.disk
    bills = [] if disk is None else [disk.bill]
    if full.of_model is not None:
        bills.append(full.of_model.checkpoints)
    for bill in bills:
        yield from bill_view(bill, shown=shown, binary=False)
    if disk is None:
        return
    if disk.found is not None:
        yield from _after_empty_line(*_dataset_tables(disk.found))
    additions = amounts_table("disk: optional files", full.additions, binary=False)
    yield from _after_empty_line(additions)
    if shown is not None:
        yield from explanation(full.additions, shown)
    things = "samples" if disk.size.kind == "sft" else "documents"
    context = full.settings.training.sequence
    yield from _after_empty_line(lengths_table(disk.size.length_histogram, context, things))


def _dataset_tables(disk: DatasetDisk) -> Iterator[Table]:
    """Yield documents, tokens and bytes by split and by source, and the bytes per token."""
    for title, shares in (("by split", disk.splits), ("by source", disk.sources)):
        rows = [
            (each.name, f"{each.documents:,}", f"{each.tokens:,}", size(each.n_bytes))
            for each in shares[:_MOST_SOURCES]
        ]
        more = len(shares) - len(rows)
        rest = [(f"and {more:,} more", "", "", "")] if more else []
        yield rows_table(title, ("documents", "tokens", "on disk"), [*rows, *rest])
    yield rows_table("totals", ("",), _ratios(disk), words=("",))


def _ratios(disk: DatasetDisk) -> Iterator[tuple[str, str]]:
    """Yield the size per token, relative to text and input, and files that are not listed."""
    n_bytes = disk.bill.n_bytes
    yield ("bytes per token", f"{n_bytes / max(1, disk.tokens):.3f} ({disk.dtype})")
    of = {"size relative to the text": disk.text_bytes, "relative to the input": disk.input_bytes}
    for name, total in of.items():
        if total:
            yield (name, f"{n_bytes / total:.1%} of {size(total)}")
    if disk.unlisted:
        yield ("files not in the manifest", ", ".join(disk.unlisted))


def lengths_table(histogram: Sequence[int], context: int, things: str) -> Table:
    """Return a table of a length histogram: share, bar, and whether documents fit in `context`.

    `histogram[i]` counts documents of 2^i to 2^(i+1) - 1 tokens; empty classes before the first
    and after the last are left out. `things`: "documents" or "samples".
    """
    headings = (things, "share", "", f"{context:,} tokens")
    rows = _length_rows(histogram, context)
    return rows_table("lengths, tokens", headings, rows, words=headings[2:])


def _length_rows(histogram: Sequence[int], context: int) -> Iterator[tuple[str, ...]]:
    total, most = sum(histogram), max(histogram, default=0)
    filled = [i for i, n in enumerate(histogram) if n]
    for i in range(filled[0], filled[-1] + 1) if filled else ():
        low, high, n = 1 << i, (2 << i) - 1, histogram[i]
        span = f"{low:,}" if low == high else f"{low:,} to {high:,}"
        side = "fit" if high <= context else "too long" if low > context else "some fit"
        yield span, count(n), f"{n / total:.1%}", "#" * round(_BAR * n / most), side


def _time_rows(
    compute: Compute, long: LongDocuments | None, settings: BillSettings
) -> Iterator[tuple[str, str]]:
    """Yield tokens per parameter, steps, FLOP, time, long documents and notes."""
    how = settings.training
    yield (
        "tokens per parameter",
        f"{compute.tokens_per_parameter:.3g} (compute-optimal is about 20: "
        f"{count(compute.chinchilla_tokens)} tokens)",
    )
    yield (
        "steps per epoch",
        f"{compute.steps_per_epoch:,} of {plural(compute.step_sequences, 'sequence')}, "
        f"{count(compute.step_tokens)} tokens",
    )
    epochs = "epoch" if how.epochs == 1 else "epochs"
    yield ("FLOP", f"{compute.operations_with_recompute:.3g} in {how.epochs:g} {epochs}")
    if compute.seconds is not None:
        yield ("time", f"about {seconds(compute.seconds)} at {how.mfu:.0%} MFU")
    if compute.gpu_hours is not None:
        yield ("GPU hours", f"{compute.gpu_hours:,.0f}")
    if long is not None:
        yield (
            f"documents over {plural(long.context, 'token')}",
            f"about {long.documents:,} ({long.share:.1%}), with {count(long.tokens_beyond)} tokens "
            "over that length",
        )
    yield from (("note", note) for note in compute.notes)
