"""The bill as tables: GPU memory, host RAM, disk, time, inference."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from tokmill.bill.compute import Compute
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
    moments_table,
    rows_table,
)  # fmt: skip
from tokmill.words.plural import plural
from tokmill.words.units import count, memory, seconds, size

_SHORT = {FITS: "fits", BARELY: "may fit", AT_LEAST: "at least"}


def bill_tables(
    full: FullBill, parts: Collection[str], *, explain: bool = False
) -> Iterator[RenderableType]:
    """Yield the tables of the named parts of a bill, with an empty line before each.

    `explain`: also yield formula, symbols and source of each amount.
    """
    of_model = full.of_model
    if of_model is not None:
        if {"gpu", "inference"} & set(parts):
            yield from _parameters(of_model.model)
        if "gpu" in parts:
            yield from _gpu_tables(of_model, explain=explain)
    if "host" in parts:
        yield from _host_tables(full.host, explain=explain)
    if "disk" in parts:
        yield from disk_tables(full, explain=explain)
    if of_model is not None:
        if "time" in parts and of_model.compute is not None:
            epochs = full.settings.training.epochs
            rows = _time_rows(of_model.compute, epochs)
            yield from _after_empty_line(rows_table("training", ("",), rows, words=("",)))
        if "inference" in parts:
            yield from bill_view(of_model.inference, explain=explain)


def _after_empty_line(*tables: RenderableType) -> Iterator[RenderableType]:
    for table in tables:
        yield Text("")
        yield table


def _parameters(model: Model) -> Iterator[RenderableType]:
    modules = [(name, f"{n:,}") for name, n in model.by_module().items()]
    rows = [*modules, ("total", f"{model.parameters:,}")]
    yield from _after_empty_line(rows_table("parameters", ("",), rows))


def _gpu_tables(of_model: ModelBill, *, explain: bool) -> Iterator[RenderableType]:
    """Yield the tables of training: peak, moments, pipeline stages, savings."""
    training = of_model.training
    peak, title = training.peak, f"GPU memory at the peak, {moment(training.peak)}"
    yield from bill_view(replace(peak, title=title), explain=explain)
    title = "GPU memory at each moment of a training step"
    yield from _after_empty_line(moments_table(title, training.moments))
    if len(training.stages) > 1:
        stages = [
            (f"{each.number + 1:,}: {moment(each.peak)}", each.peak, "") for each in training.stages
        ]
        title = "GPU memory at the peak of pipeline stages"
        yield from _after_empty_line(amounts_table(title, stages))
    if of_model.advice is not None and of_model.advice.steps:
        yield from _after_empty_line(_offers_table(of_model.advice.steps))


def _offers_table(offers: Sequence[Offer]) -> Table:
    """Return a row for each saving: its options, memory and verdict."""
    rows = (
        (
            " ".join(offer.options),
            memory(offer.saved_bytes),
            memory(offer.peak_bytes),
            _SHORT.get(offer.verdict, ""),
        )
        for offer in offers
    )
    return rows_table("options that save memory", ("saves", "peak", ""), rows)


def _host_tables(host: HostBill, *, explain: bool) -> Iterator[RenderableType]:
    title = f"host RAM per node at the peak, {moment(host.peak)}"
    yield from bill_view(replace(host.peak, title=title), explain=explain)
    yield from _after_empty_line(moments_table("host RAM at each moment", host.moments))
    for bill in (host.shared, host.page_cache):
        if bill.n_bytes:
            yield from bill_view(bill, explain=explain)


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


def disk_tables(full: FullBill, *, explain: bool) -> Iterator[RenderableType]:
    """Yield the sizes of dataset, checkpoints and optional files.

    `explain`: also yield the formulas.
    """
    disk = full.disk
    bills = [] if disk is None else [disk.bill]
    if full.of_model is not None:
        bills.append(full.of_model.checkpoints)
    for bill in bills:
        yield from bill_view(bill, explain=explain, binary=False)
    if disk is None:
        return
    if disk.found is not None:
        ratios = rows_table("totals", ("",), _ratios(disk.found), words=("",))
        yield from _after_empty_line(ratios)
    rows = [(f"{line.name}: {line.note}".removesuffix(": "), line, "") for line in full.additions]
    yield from _after_empty_line(amounts_table("disk: optional files", rows, binary=False))
    if explain:
        yield from explanation(full.additions)


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


def _time_rows(compute: Compute, epochs: float) -> Iterator[tuple[str, str]]:
    """Yield tokens per parameter, steps and FLOP; the summary has the time."""
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
    passes = "epoch" if epochs == 1 else "epochs"
    yield ("FLOP", f"{compute.operations_with_recompute:.3g} in {epochs:g} {passes}")
