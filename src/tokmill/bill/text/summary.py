"""The bill in about ten rows of a label and a text, the verdict first."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from tokmill.bill.bill_settings import BillSettings
from tokmill.bill.compute import Compute
from tokmill.bill.formula import Bill
from tokmill.bill.full_bill import FullBill, ModelBill
from tokmill.bill.gpus import Gpu
from tokmill.bill.host_ram.host import HostBill
from tokmill.bill.host_ram.machine import Verdict
from tokmill.bill.models.model import Model
from tokmill.bill.remedies.advice import Advice, gpu_verdict, most_served
from tokmill.bill.serving.inference import prompt_tokens
from tokmill.bill.states.parallel import ranks_per_node
from tokmill.bill.states.precision import precision_of, stored_note
from tokmill.bill.text import PARTS
from tokmill.bill.text.tables import moment
from tokmill.bill.verdict import AT_LEAST, BARELY, DOES_NOT_FIT, FITS
from tokmill.settings.training import TrainingSettings
from tokmill.words.plural import plural
from tokmill.words.units import count, memory, scale, seconds, size

NO_GPU = "unknown: add --gpu, such as --gpu=4090 or --gpu=24GiB"
NO_MODEL = "unknown: add --model (names: tokmill memory --models) and --gpu"
NO_TOKENS = "unknown: add --tokens, such as 1B (for the cost: --price-per-hour)"

MOST_KEYS = 6
"""Of the keys that settings files have and the bill does not use, so many are shown."""

_STYLES = {FITS: "green", DOES_NOT_FIT: "red", "unknown": ""}
"""Colours of verdicts; all others are yellow."""
_PARALLEL = ("tensor", "pipeline", "context", "expert")


class Row(NamedTuple):
    """A row of the summary; `style` is the colour of its text."""

    label: str
    text: str
    style: str = ""


def asked_parts(settings: BillSettings) -> tuple[str, ...]:
    """Return the parts to show if no option names any.

    Inference only if one of its settings is given; training unless only those are given.
    """
    parts = PARTS[:-1] if settings.trains else ()
    return (*parts, *(PARTS[-1:] if settings.serves else ()))


def summary_rows(found: FullBill, parts: Collection[str]) -> Iterator[Row]:
    """Yield the verdict and the most important amounts of the named parts of a bill."""
    of_model, settings = found.of_model, found.settings
    if of_model is not None:
        if "gpu" in parts:
            yield from _training_rows(found, of_model)
        if "inference" in parts:
            yield from _inference_rows(of_model, settings, alone="gpu" not in parts)
    if "host" in parts:
        yield from _host_rows(found.host, settings.training)
    if "disk" in parts and (of_model or found.disk):
        yield _disk_row(found)
    if of_model is None:
        yield Row("GPU memory", NO_MODEL)
        return
    model, compute = of_model.model, of_model.compute
    if "time" in parts:
        yield Row("time", NO_TOKENS if compute is None else _time(compute, settings.training))
    yield Row("model", _model(model))
    if {"gpu", "host", "time"} & set(parts):
        yield Row("training", _training(settings.training, model))
    if "inference" in parts:
        yield Row("inference" if "gpu" not in parts else "", _inference(settings, model))
    for note in settings.notes:
        yield Row("note", note, "yellow")
    if settings.not_read:
        yield Row("not read", _not_read(settings.not_read), "yellow")


def _not_read(keys: Sequence[str]) -> str:
    """Return the first keys of settings files that the bill does not use."""
    shown = ", ".join(keys[:MOST_KEYS])
    more = f" and {len(keys) - MOST_KEYS} more (--json lists all)" if len(keys) > MOST_KEYS else ""
    return f"keys of settings files: {shown}{more}"


def _training_rows(found: FullBill, of_model: ModelBill) -> Iterator[Row]:
    bill, advice, how = of_model.training, of_model.advice, found.settings.training
    yield _verdict(bill.peak, of_model.gpu, "; ".join(other_problems(found)))
    each = " per GPU" if how.gpus > 1 else ""
    yield Row("GPU memory", f"{bounded(bill.peak)}{each}; peak: {moment(bill.peak)}")
    if bill.peak.missing:
        yield Row("", f"not included: {'; '.join(bill.peak.leaves_out)}", "yellow")
    if len(bill.stages) > 1:
        peaks = (f"stage {one.number + 1} {memory(one.peak.n_bytes)}" for one in bill.stages)
        fullest = bill.fullest.number + 1
        yield Row("", f"fullest pipeline stage: {fullest} ({', '.join(peaks)})")
    if advice is None or advice.verdict == AT_LEAST:
        return
    if advice.verdict != DOES_NOT_FIT:
        most = "the model's maximum of" if advice.is_bounded else "sequence"
        yield Row(
            "largest",
            f"micro batch {advice.largest_micro_batch:,} at sequence {how.sequence:,}; "
            f"at micro batch {how.micro_batch:,}, {most} {advice.largest_sequence:,}",
        )
        if advice.plan:
            yield Row("safer with", _plan(advice))
    elif advice.plan:
        yield Row("fits with", _plan(advice))
    else:
        yield Row("advice", "no option makes it fit")


def _inference_rows(of_model: ModelBill, settings: BillSettings, *, alone: bool) -> Iterator[Row]:
    bill, how, gpu = of_model.inference, settings.inference, of_model.gpu
    row = _verdict(bill, gpu)
    yield row if alone else row._replace(label="inference")
    main = (line for line in bill.lines if line.name == "weights" or "KV cache" in line.name)
    amounts = ", ".join(f"{line.name} {memory(line.n_bytes)}" for line in main)
    yield Row("GPU memory" if alone else "", f"{bounded(bill)}: {amounts}")
    if bill.missing:
        yield Row("", f"not included: {bill.missing}", "yellow")
    if gpu is not None and not bill.missing:
        context = how.context or settings.training.sequence
        most = most_served(of_model.model, how, gpu, context)
        longest = "the model's maximum of" if most.is_bounded else "context"
        text = (
            f"batch {most.batch:,} at context {context:,}; "
            f"at batch {how.batch:,}, {longest} {most.context:,}"
        )
        text = text if most.batch else "no batch fits at this context"
        yield Row("largest" if alone else "", text)
    if of_model.decoding is not None:
        speed = count(of_model.decoding)
        text = f"at most {speed} tokens per second, limited by memory bandwidth"
        yield Row("decoding" if alone else "", text)


def _verdict(bill: Bill, gpu: Gpu | None, problem: str = "") -> Row:
    """Return whether a bill fits on a GPU, and by how much; `problem` is another obstacle."""
    other = f"; {problem}" if problem else ""
    if gpu is None:
        return Row("verdict", f"{NO_GPU}{other}")
    style = "red" if problem else _STYLES.get(gpu_verdict(bill, gpu), "yellow")
    return Row("verdict", verdict_text(bill, gpu) + other, style)


def verdict_text(bill: Bill, gpu: Gpu) -> str:
    """Return whether a bill fits on a GPU, and by how much."""
    found = gpu_verdict(bill, gpu)
    name = f"{gpu.name} ({memory(gpu.memory_bytes)})"
    if found == AT_LEAST:
        return f"at least {memory(bill.n_bytes)} on {name}; not included: {bill.missing}"
    if found == BARELY:
        return f"fits on {name} by the estimate, not by the upper bound"
    room = gpu.memory_bytes - bill.n_bytes
    return f"{found} on {name}: {memory(abs(room))} {'left' if room >= 0 else 'missing'}"


def other_problems(found: FullBill) -> Iterator[str]:
    """Yield the obstacles besides GPU memory."""
    if found.host.verdict.said == DOES_NOT_FIT:
        yield "host RAM does not fit"
    if missing_disk_bytes(found):
        yield "too little disk space"


def _plan(advice: Advice) -> str:
    """Return the options that together make it fit, and the peak with them."""
    options = " ".join(option for step in advice.plan for option in step.options)
    return f"{options} ({memory(advice.plan[-1].peak_bytes)})"


def _host_rows(host: HostBill, how: TrainingSettings) -> Iterator[Row]:
    """Yield the need of a node and of each process, and whether the node has it.

    Page cache larger than that has a row: it looks like memory in use, and is not needed.
    """
    peak, ranks, verdict = host.peak, ranks_per_node(how), host.verdict
    text = bounded(peak)
    if how.gpus > 1:
        text += f" per node, {memory(peak.n_bytes / ranks)} for each of {ranks:,} processes"
    style = "" if verdict.said == FITS else _STYLES.get(verdict.said, "yellow")
    yield Row("host RAM", f"{text}; peak: {moment(peak)}; {_host_verdict(verdict)}", style)
    if host.page_cache.n_bytes > peak.n_bytes:
        cache = memory(host.page_cache.n_bytes)
        yield Row("", f"plus up to {cache} of page cache, which the system can reclaim")


def _host_verdict(found: Verdict) -> str:
    room = f"{memory(found.usable_bytes)} of {found.machine}"
    if found.said == "unknown":
        return "set --host-ram to see whether it fits"
    if found.said == DOES_NOT_FIT:
        options = f"; fits with {' '.join(found.together)}" if found.together else ""
        return f"{found.said} in {room}{options}"
    return found.said.replace("fits", f"fits in {room}", 1)


def _disk_row(found: FullBill) -> Row:
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


def _time(found: Compute, how: TrainingSettings) -> str:
    """Return time, GPU hours and cost, or why they are not known."""
    tokens = f"{count(found.trained_tokens)} tokens"
    steps = f"{plural(found.steps, 'step')} of {count(found.step_tokens)} tokens"
    if found.seconds is None or found.gpu_hours is None:
        return "; ".join((f"{tokens}: {steps}", *found.notes))
    text = f"{seconds(found.seconds)} for {tokens} at {how.mfu:.0%} MFU"
    if how.gpus > 1:
        text += f", {found.gpu_hours:,.0f} GPU hours"
    if found.cost is not None:
        text += f", cost {found.cost:,.2f}" if found.cost < 1000 else f", cost {found.cost:,.0f}"
    return "; ".join((text, steps, *found.notes))


def _model(model: Model) -> str:
    family = f" ({model.family})" if model.name != model.family else ""
    active = model.active_parameters
    text = f"{model.name}{family}, {model.parameters:,} parameters"
    return text + (f", {active:,} active per token" if active != model.parameters else "")


def _training(how: TrainingSettings, model: Model) -> str:
    """Return the settings that matter most; the others only if they are not the default."""
    attention, stored = model.style.attention(how.attention), stored_note(model, how)
    optional = {
        f"accumulation {how.accumulation:,}": how.accumulation > 1,
        f"checkpointing {how.checkpointing}": how.checkpointing != "none",
        f"attention {attention}": attention != "flash",
        f"{how.adapter} of rank {how.adapter_rank}": how.adapter != "none",
        f"base {stored}": stored,
        f"{how.gpus:,} GPUs, {how.sharding}": how.gpus > 1,
    }
    for kind in _PARALLEL:
        n: int = getattr(how, f"{kind}_parallel")
        optional[f"{kind} parallel {n:,}"] = n > 1
    optional[f"offload {how.offload}"] = how.offload != "none"
    texts = (text for text, is_shown in optional.items() if is_shown)
    batch = f"micro batch {how.micro_batch:,}, sequence {how.sequence:,}"
    return ", ".join((precision_of(how), how.optimizer, batch, *texts))


def _inference(settings: BillSettings, model: Model) -> str:
    how = settings.inference
    stored = model.stored.note if model.stored else "bf16"
    weights = stored if how.weight_type == "auto" else how.weight_type
    text = f"weights {weights}, KV cache {how.kv_type}, batch {how.batch:,}"
    context = how.context or settings.training.sequence
    text += f", context {context:,}"
    if (chunk := prompt_tokens(how, context)) < how.batch * context:
        text += f", prompts in chunks of {chunk:,} tokens (--prefill-chunk)"
    return text + (f", {how.serving_gpus:,} GPUs" if how.serving_gpus > 1 else "")


def bounded(bill: Bill) -> str:
    """Return the expected total with its bounds: `9.55 GiB (9.01 to 10.56)`."""
    divisor, unit, digits = scale(bill.high_bytes, binary=True)
    low, expected, high = (
        f"{n / divisor:,.{digits}f}" for n in (bill.low_bytes, bill.n_bytes, bill.high_bytes)
    )
    return f"{expected} {unit}" if low == high else f"{expected} {unit} ({low} to {high})"
