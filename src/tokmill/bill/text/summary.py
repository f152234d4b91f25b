"""The bill in about ten rows of a label and a text, the verdict first."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tokmill.bill.remedies.advice import gpu_verdict, most_served
from tokmill.bill.states.parallel import ranks_per_node
from tokmill.bill.text import PARTS
from tokmill.bill.text.phrases import (
    host_verdict_text,
    inference_text,
    largest_text,
    model_text,
    moment,
    plan_text,
    served_text,
    span,
    stages_text,
    time_text,
    training_text,
)  # fmt: skip
from tokmill.bill.verdict import BARELY, DOES_NOT_FIT, FITS
from tokmill.words.units import count, memory, size

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from tokmill.bill.bill_settings import BillSettings
    from tokmill.bill.formula import Bill
    from tokmill.bill.full_bill import FullBill, ModelBill
    from tokmill.bill.gpus import Gpu
    from tokmill.bill.host_ram.host import HostBill

NO_GPU = "unknown: add --gpu, such as --gpu 4090 or --gpu 24GiB"
NO_MODEL = "add --model (built-in models: tokmill memory --models), and --gpu"
NO_TOKENS = "add --tokens, such as --tokens 1B; for the cost --price-per-hour"

_STYLES = {FITS: "green", DOES_NOT_FIT: "red", "unknown": ""}
"""Colours of verdicts; all others are yellow."""


class Row(NamedTuple):
    """A row of the summary; `style` is the colour of its text."""

    label: str
    text: str
    style: str = ""


def asked_parts(settings: BillSettings) -> tuple[str, ...]:
    """Return the parts that are shown unless others are asked for.

    Inference where one of its settings is given; training unless only those are.
    """
    parts = PARTS[:-1] if settings.trains else ()
    return (*parts, *(PARTS[-1:] if settings.serves else ()))


def summary_rows(found: FullBill, parts: Collection[str]) -> Iterator[Row]:
    """Yield the verdict and the most important amounts of some parts of a bill."""
    of_model, settings = found.of_model, found.settings
    if of_model is not None:
        if "gpu" in parts:
            yield from _training_rows(found, of_model)
        if "inference" in parts:
            yield from _inference_rows(of_model, settings, alone="gpu" not in parts)
    if "host" in parts:
        yield from _host(found.host, settings)
    if "disk" in parts and (of_model or found.disk):
        yield _disk(found)
    if of_model is None:
        yield Row("GPU memory", NO_MODEL)
        return
    if "time" in parts:
        compute = of_model.compute
        yield Row("time", NO_TOKENS if compute is None else time_text(compute, settings))
    yield Row("model", model_text(of_model.model))
    if {"gpu", "host", "time"} & set(parts):
        yield Row("training", training_text(settings, of_model.model))
    if "inference" in parts:
        yield Row(
            "inference" if "gpu" not in parts else "", inference_text(settings, of_model.model)
        )
    for note in settings.notes:
        yield Row("note", note, "yellow")
    if settings.not_read:
        yield Row("not read", f"keys of settings files: {', '.join(settings.not_read)}", "yellow")


def _training_rows(found: FullBill, of_model: ModelBill) -> Iterator[Row]:
    peak, advice = of_model.training.peak, of_model.advice
    yield _verdict(peak, of_model.gpu, "; ".join(_other_problems(found)))
    each = " per GPU" if found.settings.training.gpus > 1 else ""
    yield Row("GPU memory", f"{span(peak)}{each}; peak: {moment(peak)}")
    if not of_model.model.has_shape:
        yield Row("", f"not included: {'; '.join(peak.leaves_out)}", "yellow")
    if len(of_model.training.stages) > 1:
        yield Row("", stages_text(of_model.training))
    if advice is None:
        return
    if advice.verdict == DOES_NOT_FIT:
        if advice.plan:
            yield Row("fits with", plan_text(advice))
        else:
            yield Row("advice", "no option makes it fit")
        return
    yield Row("largest", largest_text(advice, found.settings))
    if advice.plan:
        yield Row("safer with", plan_text(advice))


def _inference_rows(of_model: ModelBill, settings: BillSettings, *, alone: bool) -> Iterator[Row]:
    bill = of_model.inference
    row = _verdict(bill, of_model.gpu)
    yield row if alone else row._replace(label="inference")
    main = (line for line in bill.lines if line.name == "weights" or "KV cache" in line.name)
    amounts = ", ".join(f"{line.name} {memory(line.n_bytes)}" for line in main)
    yield Row("GPU memory" if alone else "", f"{span(bill)}: {amounts}")
    if of_model.gpu is not None and of_model.model.has_shape:
        how, context = settings.inference, settings.training.sequence
        most = most_served(of_model.model, how, of_model.gpu, context)
        yield Row("largest" if alone else "", served_text(most, how, context))
    if of_model.decoding is not None:
        text = f"at most {count(of_model.decoding)} tokens per second, by memory bandwidth"
        yield Row("decoding" if alone else "", text)


def _verdict(bill: Bill, gpu: Gpu | None, problem: str = "") -> Row:
    """Return whether a bill fits on a GPU, and by how much; `problem` is another obstacle."""
    if gpu is None:
        return Row("verdict", NO_GPU + (f"; {problem}" if problem else ""))
    found = gpu_verdict(bill, gpu)
    room = gpu.memory_bytes - bill.n_bytes
    rest = f"{memory(abs(room))} {'left' if room >= 0 else 'missing'}"
    text = f"{found} on {gpu.name} ({memory(gpu.memory_bytes)}): {rest}"
    if found == BARELY:
        by = "by the estimate, not by the upper bound"
        text = f"fits on {gpu.name} ({memory(gpu.memory_bytes)}) {by}"
    if problem:
        return Row("verdict", f"{text}; {problem}", "red")
    return Row("verdict", text, _STYLES.get(found, "yellow"))


def _other_problems(found: FullBill) -> Iterator[str]:
    if found.host.verdict.said == DOES_NOT_FIT:
        yield "host RAM does not fit"
    if missing_disk_bytes(found):
        yield "too little disk space"


def _host(host: HostBill, settings: BillSettings) -> Iterator[Row]:
    """Yield what a node and each of its processes need, and whether the node has it.

    Page cache that matters beside it has a row: it looks like memory in use, and is not needed.
    """
    peak, ranks = host.peak, ranks_per_node(settings.training)
    text = span(peak)
    if settings.training.gpus > 1:
        text += f" per node, {memory(peak.n_bytes / ranks)} for each of {ranks:,} processes"
    fits = host_verdict_text(host.verdict)
    said = host.verdict.said
    style = "" if said == FITS else _STYLES.get(said, "yellow")
    yield Row("host RAM", f"{text}; peak: {moment(peak)}; {fits}", style)
    if host.page_cache.n_bytes > peak.n_bytes:
        cache = memory(host.page_cache.n_bytes)
        yield Row("", f"beside it page cache, up to {cache}, which the system can reclaim")


def _disk(found: FullBill) -> Row:
    disk, parts = found.disk, []
    if disk is not None:
        parts.append(f"dataset {size(disk.bill.n_bytes)}")
    if found.of_model is not None:
        kept = found.settings.training.checkpoints
        most = size(found.of_model.checkpoints.high_bytes)
        parts.append(f"checkpoints up to {most} ({kept:,} kept, 1 being written)")
    text = ", ".join(parts)
    missing = missing_disk_bytes(found)
    if disk is not None and disk.free_bytes is not None:
        text += f"; {size(disk.free_bytes)} free"
    if missing:
        text += f": TOO LITTLE, {size(missing)} missing"
    return Row("disk", text, "red" if missing else "")


def missing_disk_bytes(found: FullBill) -> int:
    """Return by how much the files still to write exceed the free space, 0 if they fit."""
    disk = found.disk
    if disk is None or disk.free_bytes is None:
        return 0
    to_write = 0 if disk.found is not None else disk.bill.high_bytes
    if found.of_model is not None:
        to_write += found.of_model.checkpoints.high_bytes
    return max(0, to_write - disk.free_bytes)
