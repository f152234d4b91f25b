"""The bill as tables: disk, host RAM and GPU memory, each with a verdict."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rich.text import Text

from tokmill.bill.remedies.advice import gpu_verdict
from tokmill.bill.states.precision import precision_of
from tokmill.bill.text.disk import disk_tables, lengths_table
from tokmill.bill.text.summary import largest_text
from tokmill.bill.text.tables import bill_view, indented, one_line, rows_table
from tokmill.bill.verdict import FITS
from tokmill.words.plural import plural
from tokmill.words.units import count, memory, seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.console import RenderableType

    from tokmill.bill.compute import Compute, LongDocuments
    from tokmill.bill.formula import Bill
    from tokmill.bill.full_bill import BillSettings, FullBill, ModelBill
    from tokmill.bill.gpus import Gpu
    from tokmill.bill.models.model import Model
    from tokmill.bill.remedies.advice import Advice
    from tokmill.bill.remedies.search import Offer

NO_MODEL = (
    "GPU memory: add --model, and --gpu "
    "(tokmill memory --models and --known-gpus list the built-in ones)"
)

_STYLES = {"fits": "green", "does not fit": "red", "unknown": ""}
"""Colours of verdicts; all others are yellow."""


def bill_tables(found: FullBill, *, explain: bool = False) -> Iterator[RenderableType]:
    """Yield all tables, with an empty line between two.

    `explain`: also yield the formula, symbols and source of every amount.
    """
    tables = _all_tables(found, explain=explain)
    first = next(tables)
    if first != Text(""):  # without a model a table is the first
        yield first
    yield from tables


def _all_tables(found: FullBill, *, explain: bool) -> Iterator[RenderableType]:
    if found.of_model is not None:
        yield _model_line(found.of_model.model)
        yield from _settings_lines(found.settings, found.of_model.model)
    told: set[str] | None = set() if explain else None
    yield from disk_tables(found, told=told)
    yield from _host_tables(found, told=told)
    if found.disk is not None:
        size, context = found.disk.size, found.settings.training.sequence
        what = "samples" if size.kind == "sft" else "documents"
        yield Text("")
        yield lengths_table(size.length_histogram, context, what=what)
    if found.of_model is None:
        yield Text("")
        yield Text(NO_MODEL)
    else:
        yield from _gpu_tables(found.of_model, found.settings, told=told)


def _model_line(model: Model) -> Text:
    active = model.active_parameters
    of_token = f", {active:,} active per token" if active != model.parameters else ""
    modules = ", ".join(f"{name} {n:,}" for name, n in model.by_module().items())
    named = f"{model.name} ({model.family})" if model.name != model.family else model.name
    return one_line(f"model: {named}, {model.parameters:,} parameters{of_token}: {modules}")


def _settings_lines(settings: BillSettings, model: Model) -> Iterator[Text]:
    """Yield the main settings of training, and notes on settings files."""
    how = settings.training
    parts = [
        f"precision {precision_of(how)}", f"optimizer {how.optimizer}",
        f"micro batch {how.micro_batch:,}", f"sequence {how.sequence:,}",
        f"attention {model.style.attention(how.attention)}", f"checkpointing {how.checkpointing}",
    ]  # fmt: skip
    parts += [f"{how.adapter} of rank {how.adapter_rank}"] if how.adapter != "none" else []
    parts += [f"{how.gpus:,} GPUs, {how.sharding}"] if how.gpus > 1 else []
    yield one_line(f"training: {', '.join(parts)}")
    for note in settings.notes:
        yield one_line(f"note: {note}")
    if settings.not_read:
        keys = ", ".join(settings.not_read)
        yield one_line(f"not read from settings files: {keys}", style="yellow")


def _gpu_tables(
    found: ModelBill, settings: BillSettings, *, told: set[str] | None
) -> Iterator[RenderableType]:
    peak = found.training.peak
    yield from bill_view(peak, told=told)
    if found.gpu is None:
        yield indented("add --gpu to see whether it fits")
    elif found.advice is not None:
        yield from _verdict(peak, found.gpu)
        yield from _advice(found.advice, settings)
    yield Text("")
    moments = (
        (bill.title.partition(": ")[2], memory(bill.n_bytes)) for bill in found.training.moments
    )
    yield rows_table("GPU memory, training: peak in each phase", ("expected",), moments)
    yield from bill_view(found.inference, told=told)
    if found.gpu is not None:
        yield from _verdict(found.inference, found.gpu)
    if found.compute is not None and found.long_documents is not None:
        yield Text("")
        rows = _compute_rows(found.compute, found.long_documents, settings)
        yield rows_table("training on this dataset", ("",), rows, words=("",))


def _host_tables(found: FullBill, *, told: set[str] | None) -> Iterator[RenderableType]:
    """Yield host RAM at every moment, then memory that the system can reclaim, and the verdict."""
    host = found.host
    for bill in host.moments:
        # All moments leave out the same costs: shown once.
        shown = bill if bill is host.moments[-1] else replace(bill, leaves_out=())
        yield from bill_view(shown, told=told)
    for bill in (host.shared, host.page_cache):
        if bill.n_bytes:
            yield from bill_view(bill, told=told)
    yield indented(str(host.verdict), _STYLES.get(host.verdict.said, "yellow"))


def _verdict(bill: Bill, gpu: Gpu) -> Iterator[RenderableType]:
    said = gpu_verdict(bill, gpu)
    style = _STYLES.get(said, "yellow")
    room = gpu.memory_bytes - bill.n_bytes
    rest = f"{memory(room)} left" if room >= 0 else f"{memory(-room)} missing"
    yield indented(f"{said} on {gpu.name} ({memory(gpu.memory_bytes)}): {rest}", style)


def _advice(advice: Advice, settings: BillSettings) -> Iterator[RenderableType]:
    """Yield the largest training that fits, or the options that make it fit."""
    if advice.largest_micro_batch:
        yield indented(largest_text(advice, settings))
    if advice.plan:
        options = " ".join(option for step in advice.plan for option in step.options)
        peak = memory(advice.plan[-1].peak_bytes)
        yield indented(f"fits with {options} ({peak})", "bold")
    elif advice.verdict == "does not fit":
        yield indented("no option makes it fit", "red")
    if advice.steps:
        yield Text("")
        yield _measures(advice.steps)


def _measures(steps: Iterable[Offer]) -> RenderableType:
    """Return a table of the options that save memory, in order of their cost."""
    rows = [
        (
            " ".join(step.options),
            memory(step.saved_bytes),
            memory(step.peak_bytes),
            FITS if step.fits else "",
            step.cost,
        )
        for step in steps
    ]
    return rows_table(
        "options that save memory", ("saves", "peak", "", "cost"), rows, words=("cost",)
    )


def _compute_rows(
    found: Compute, long: LongDocuments, settings: BillSettings
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
        yield ("time", f"about {seconds(found.seconds)} at {how.mfu:.0%} MFU")
    yield (
        f"documents over {plural(long.context, 'token')}",
        f"about {long.documents:,} ({long.share:.1%}), with {count(long.tokens_beyond)} tokens "
        "over that length",
    )
    yield from (("note", note) for note in found.notes)
