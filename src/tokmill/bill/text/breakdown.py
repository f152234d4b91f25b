"""The bill as tables, part by part: GPU memory, host RAM, disk, time, inference."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rich.text import Text

from tokmill.bill.text.disk import disk_tables, lengths_table
from tokmill.bill.text.phrases import moment, speed_text
from tokmill.bill.text.tables import bill_view, rows_table, totals_table
from tokmill.bill.verdict import FITS
from tokmill.words.plural import plural
from tokmill.words.units import count, memory, seconds

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from rich.console import RenderableType

    from tokmill.bill.bill_settings import BillSettings
    from tokmill.bill.compute import Compute
    from tokmill.bill.full_bill import FullBill, ModelBill
    from tokmill.bill.host_ram.host import HostBill
    from tokmill.bill.long_documents import LongDocuments
    from tokmill.bill.models.model import Model
    from tokmill.bill.remedies.search import Offer


def bill_tables(
    found: FullBill, parts: Collection[str], *, explain: bool = False
) -> Iterator[RenderableType]:
    """Yield the tables of some parts of a bill, each after an empty line.

    `explain`: also yield the formula, symbols and source of every amount.
    """
    told: set[str] | None = set() if explain else None
    of_model = found.of_model
    if of_model is not None:
        if {"gpu", "inference"} & set(parts):
            yield from _parameters(of_model.model)
        if "gpu" in parts:
            yield from _gpu_tables(of_model, told=told)
    if "host" in parts:
        yield from _host_tables(found.host, told=told)
    if "disk" in parts:
        yield from disk_tables(found, told=told)
        yield from _lengths(found)
    if of_model is not None:
        if "time" in parts:
            yield from _time_table(of_model, found.settings)
        if "inference" in parts:
            yield from bill_view(of_model.inference, told=told)


def _parameters(model: Model) -> Iterator[RenderableType]:
    yield Text("")
    modules = [(name, f"{n:,}") for name, n in model.by_module().items()]
    yield rows_table("parameters", ("",), [*modules, ("total", f"{model.parameters:,}")])


def _gpu_tables(found: ModelBill, *, told: set[str] | None) -> Iterator[RenderableType]:
    peak = found.training.peak
    titled = replace(peak, title=f"GPU memory at the peak, {moment(peak)}")
    yield from bill_view(titled, told=told)
    yield Text("")
    moments = [(moment(bill), bill) for bill in found.training.moments]
    yield totals_table("GPU memory at each moment of a training step", moments)
    if len(found.training.stages) > 1:
        stages = [
            (f"{one.number + 1:,}: {moment(one.peak)}", one.peak) for one in found.training.stages
        ]
        yield Text("")
        yield totals_table("GPU memory at the peak of pipeline stages", stages)
    if found.advice is not None and found.advice.steps:
        yield Text("")
        yield _offers(found.advice.steps)


def _host_tables(host: HostBill, *, told: set[str] | None) -> Iterator[RenderableType]:
    titled = replace(host.peak, title=f"host RAM per node at the peak, {moment(host.peak)}")
    yield from bill_view(titled, told=told)
    yield Text("")
    yield totals_table("host RAM at each moment", [(moment(bill), bill) for bill in host.moments])
    for bill in (host.shared, host.page_cache):
        if bill.n_bytes:
            yield from bill_view(bill, told=told)


def _lengths(found: FullBill) -> Iterator[RenderableType]:
    if found.disk is not None:
        size, context = found.disk.size, found.settings.training.sequence
        yield Text("")
        what = "samples" if size.kind == "sft" else "documents"
        yield lengths_table(size.length_histogram, context, what=what)


def _offers(offers: Iterable[Offer]) -> RenderableType:
    """Return a table of the options that save memory, in order of their cost."""
    rows = (
        (
            " ".join(offer.options),
            memory(offer.saved_bytes),
            memory(offer.peak_bytes),
            FITS if offer.fits else "",
            offer.cost,
        )
        for offer in offers
    )
    return rows_table(
        "options that save memory", ("saves", "peak", "", "cost"), rows, words=("cost",)
    )


def _time_table(found: ModelBill, settings: BillSettings) -> Iterator[RenderableType]:
    if found.compute is not None:
        rows = _compute_rows(found.compute, found.long_documents, settings)
        yield Text("")
        yield rows_table("training", ("",), rows, words=("",))


def _compute_rows(
    found: Compute, long: LongDocuments | None, settings: BillSettings
) -> Iterable[tuple[str, str]]:
    how = settings.training
    yield (
        "tokens per parameter",
        f"{found.tokens_per_parameter:.3g} (compute-optimal is about 20: "
        f"{count(found.chinchilla_tokens)} tokens)",
    )
    yield (
        "steps per epoch",
        f"{found.steps_per_epoch:,} of {plural(found.step_sequences, 'sequence')}, "
        f"{count(found.step_tokens)} tokens",
    )
    epochs = "epoch" if how.epochs == 1 else "epochs"
    yield ("FLOP", f"{found.operations_with_recompute:.3g} in {how.epochs:g} {epochs}")
    if found.seconds is not None:
        yield ("time", f"about {seconds(found.seconds)} {speed_text(how)}")
    if found.gpu_hours is not None:
        yield ("GPU hours", f"{found.gpu_hours:,.0f}")
    if found.tokens_per_second is not None:
        each = found.tokens_per_second / how.gpus
        yield ("tokens per second", f"{found.tokens_per_second:,.0f}, {each:,.0f} per GPU")
    if long is not None:
        yield (
            f"documents over {plural(long.context, 'token')}",
            f"about {long.documents:,} ({long.share:.1%}), with {count(long.tokens_beyond)} tokens "
            "over that length",
        )
    yield from (("note", note) for note in found.notes)
