"""The bill in at most ten (label, text) rows, for the end of a run or a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokmill.bill.remedies.advice import gpu_verdict
from tokmill.bill.states.precision import precision_of
from tokmill.words.plural import plural
from tokmill.words.units import count, memory, seconds, size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokmill.bill.compute import Compute
    from tokmill.bill.formula import Bill
    from tokmill.bill.full_bill import BillSettings, FullBill, ModelBill, OnDisk
    from tokmill.bill.gpus import Gpu
    from tokmill.bill.remedies.advice import Advice

Rows = list[tuple[str, str]]


def bill_rows(found: FullBill) -> Rows:
    """Return the bill of a model and a dataset in at most ten rows; none without a model.

    `tokmill report` shows the complete tables.
    """
    return [] if found.of_model is None else list(_rows(found, found.of_model))


def _rows(found: FullBill, of_model: ModelBill) -> Iterator[tuple[str, str]]:
    model, settings = of_model.model, found.settings
    yield "model", f"{model.name}, {model.parameters:,} parameters"
    yield "training", _training(settings)
    yield "disk", _disk(found.disk, of_model.checkpoints)
    yield "host RAM", f"{found.host.verdict} ({_moment(found.host.peak)})"
    peak = of_model.training.peak
    yield "GPU memory", f"training {_amount(peak)}{_fits(peak, of_model.gpu)}"
    if of_model.advice is not None:
        yield "", _advice(of_model.advice, settings)
    yield "", f"{_moment(of_model.inference)} {_amount(of_model.inference)}"
    if of_model.compute is not None:
        yield "epoch", _epoch(of_model.compute, settings)
    if settings.notes:
        yield "note", "; ".join(settings.notes)


def _training(settings: BillSettings) -> str:
    how = settings.training
    adapter = "" if how.adapter == "none" else f", {how.adapter} of rank {how.adapter_rank}"
    gpus = "" if how.gpus == 1 else f", {how.gpus:,} GPUs, {how.sharding}"
    return (
        f"{precision_of(how)}, {how.optimizer}, micro batch {how.micro_batch:,}, "
        f"sequence {how.sequence:,}{adapter}{gpus}"
    )


def _disk(disk: OnDisk | None, checkpoints: Bill) -> str:
    text = f"checkpoints up to {size(checkpoints.high_bytes)}"
    if disk is None:
        return text
    if disk.free_bytes is None:
        return f"dataset {size(disk.bill.n_bytes)}, {text}"
    done = 0 if disk.found is None else disk.bill.n_bytes
    needed = disk.bill.high_bytes - done + checkpoints.high_bytes
    room = f"{size(disk.free_bytes)} free"
    if needed > disk.free_bytes:
        room += f": TOO LITTLE, {size(needed)} still to write"
    return f"dataset {size(disk.bill.n_bytes)}, {text}; {room}"


def _moment(bill: Bill) -> str:
    return bill.title.partition(": ")[2] if "RAM" in bill.title else bill.title.split(", ", 1)[1]


def _amount(bill: Bill) -> str:
    return f"{memory(bill.n_bytes)} ({memory(bill.low_bytes)} to {memory(bill.high_bytes)})"


def _fits(bill: Bill, gpu: Gpu | None) -> str:
    if gpu is None:
        return "; add --gpu to see whether it fits"
    return f": {gpu_verdict(bill, gpu)} on {gpu.name} ({memory(gpu.memory_bytes)})"


def _advice(advice: Advice, settings: BillSettings) -> str:
    """Return the largest training that fits, or the options that make it fit."""
    if advice.plan:
        options = " ".join(option for step in advice.plan for option in step.options)
        return f"fits with {options} ({memory(advice.plan[-1].peak_bytes)})"
    if not advice.largest_micro_batch:
        return "no option makes it fit"
    return largest_text(advice, settings)


def largest_text(advice: Advice, settings: BillSettings) -> str:
    """Return the largest micro batch and the longest sequence that fit, as text."""
    how = settings.training
    most = "the model's maximum of " if advice.is_bounded else "sequence "
    return (
        f"largest that fits: micro batch {advice.largest_micro_batch:,} at sequence "
        f"{how.sequence:,}; at micro batch {how.micro_batch:,}, {most}{advice.largest_sequence:,}"
    )


def _epoch(found: Compute, settings: BillSettings) -> str:
    text = f"{plural(found.steps_per_epoch, 'step')} of {count(found.step_tokens)} tokens"
    if found.seconds is None:
        return text
    how = settings.training
    epochs = "1 epoch" if how.epochs == 1 else f"{how.epochs:g} epochs"
    return f"{text}; {epochs}: about {seconds(found.seconds)} at {how.mfu:.0%} MFU"
