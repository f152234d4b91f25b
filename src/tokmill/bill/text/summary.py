"""The bill in about ten rows of a label and a text, the verdict first."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

from tokmill.bill.bill_settings import BillSettings
from tokmill.bill.compute import Compute
from tokmill.bill.formula import Bill
from tokmill.bill.full_bill import FullBill, ModelBill
from tokmill.bill.gpus import AT_LEAST, BARELY, DOES_NOT_FIT, FITS, Gpu, gpu_verdict
from tokmill.bill.host_ram.host import HostBill
from tokmill.bill.host_ram.machine import Verdict
from tokmill.bill.models.model import Model
from tokmill.bill.remedies.advice import Advice
from tokmill.bill.remedies.search import MOST_TOGETHER, options
from tokmill.bill.servers import PADDED, SERVERS, complete_serving
from tokmill.bill.serving import (
    WEIGHTS,
    host_experts_bytes,
    kv_cache_lines,
    prompt_tokens,
    room_tokens,
)
from tokmill.bill.states.parallel import ranks_per_node
from tokmill.bill.states.precision import precision_of, stored_note
from tokmill.bill.text import INFERENCE_PARTS, TRAINING_PARTS
from tokmill.bill.text.rows import VERDICTS, moment
from tokmill.bill.text.tables import bounded, plan_text
from tokmill.bill.trainers import set_by_trainer
from tokmill.bill.training_bill import activation_bytes
from tokmill.settings.training import InferenceSettings, TrainingSettings
from tokmill.words import amount, memory, plural, printable, rows_html, rows_text, seconds, size

NO_GPU = "unknown: add --gpu, such as --gpu=4090 or --gpu=24GiB"
NO_MODEL = "unknown: add --model (names: tokmill memory --models) and --gpu"
NO_TOKENS = "unknown: add --tokens, such as 1B (for the cost: --price-per-hour)"

MOST_KEYS = 6
"""Of the keys that settings files have and the bill does not use, so many are shown."""

_STYLES = {name: said.colour for name, said in VERDICTS.items()} | {"unknown": ""}
"""Colours of verdicts; all others are yellow."""
_DEFAULTS = {
    "amp": "default of most trainers: fp32 weights",
    "mixed-16": "default of ZeRO: 16-bit weights, fp32 copies",
    "mixed-18": "default of Megatron-LM: 16-bit weights, fp32 copies",
}
"""Whose default a precision is, and what it means."""
_ADAPTED = "default of most trainers: fp32 adapters"
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
    parts = TRAINING_PARTS if settings.trains else ()
    return (*parts, *(INFERENCE_PARTS if settings.serves else ()))


def summary_rows(full: FullBill, parts: Collection[str]) -> Iterator[Row]:
    """Yield the verdict and the most important amounts of the named parts of a bill."""
    of_model, settings = full.of_model, full.settings
    if of_model is not None:
        if "gpu" in parts:
            yield from _training_rows(full, of_model)
        if "inference" in parts:
            rows = _inference_rows(of_model, settings, full.host)
            yield from _below(rows) if "gpu" in parts else rows
    if "host" in parts:
        yield from _host_rows(full.host, settings.training)
    if "disk" in parts and (of_model or full.disk):
        yield _disk_row(full)
    if of_model is None:
        yield Row("GPU memory", NO_MODEL)
        return
    model, compute = of_model.model, of_model.compute
    if "time" in parts:
        yield Row("time", NO_TOKENS if compute is None else _time(compute, settings.training))
    yield Row("model", _model(model))
    if {"gpu", "host", "time"} & set(parts):
        yield Row("training", _training(settings.training, model))
        if told := _of_trainer(settings):
            yield Row("", told)
    if "inference" in parts:
        yield Row(
            "inference" if "gpu" not in parts else "", _inference(settings, model, of_model.gpu)
        )
    for note in settings.notes:
        yield Row("note", note, "yellow")
    if settings.not_read:
        n_more = len(settings.not_read) - MOST_KEYS
        shown = ", ".join(settings.not_read[:MOST_KEYS])
        shown += f" and {n_more} more (--json lists all)" if n_more > 0 else ""
        yield Row("not read", f"keys of settings files: {shown}", "yellow")


def _below(rows: Iterator[Row]) -> Iterator[Row]:
    """Yield the rows of inference below those of training, whose labels they have."""
    yield next(rows)._replace(label="inference")
    for row in rows:
        named = row.label and row.label != "GPU memory"
        yield row._replace(label="", text=f"{row.label}: {row.text}" if named else row.text)


def _training_rows(full: FullBill, of_model: ModelBill) -> Iterator[Row]:
    """Yield the verdict on training, its memory, and advice."""
    bill, how = of_model.training, full.settings.training
    peak = bill.peak
    problems = {
        "host RAM does not fit": full.host.verdict.said == DOES_NOT_FIT,
        "too little disk space": missing_disk_bytes(full) > 0,
    }
    yield _verdict(peak, of_model.gpu, [text for text, is_so in problems.items() if is_so])
    each = " per GPU" if how.gpus > 1 else ""
    text = f"{bounded(peak)}{each}; peak: {moment(peak)}"
    if not activation_bytes(peak) and bill.activation_bytes:
        # Else nobody would see them grow with the batch.
        text += f"; activations before it: up to {memory(bill.activation_bytes)}"
    yield Row("GPU memory", text)
    if len(bill.stages) > 1:
        peaks = (f"stage {stage.number + 1} {memory(stage.peak.n_bytes)}" for stage in bill.stages)
        fullest = bill.fullest.number + 1
        yield Row("", f"fullest pipeline stage: {fullest} ({', '.join(peaks)})")
    batch, sequence = f"micro batch {how.micro_batch:,}", f"sequence {how.sequence:,}"
    yield from _advice_rows(of_model.advice, batch, sequence)


def _inference_rows(of_model: ModelBill, settings: BillSettings, host: HostBill) -> Iterator[Row]:
    """Yield the verdict on inference, its memory with the KV cache, and advice."""
    bill, gpu, model = of_model.inference, of_model.gpu, of_model.model
    how = complete_serving(settings.inference, context=settings.training.sequence, gpu=gpu)
    experts, usable = host_experts_bytes(model, how), host.verdict.usable_bytes
    problems = ["host RAM does not fit"] if 0 < usable < experts else []
    yield _verdict(bill, gpu, problems, under=_taken(how) if gpu else "")
    weights = sum(line.n_bytes for line in bill.lines if line.name in (WEIGHTS.name, PADDED.name))
    each = " per GPU" if how.serving_gpus > 1 else ""
    text = f"{bounded(bill)}{each}, of which weights {memory(weights)}"
    yield Row("GPU memory", text)
    cache = sum(line.n_bytes for line in bill.lines if line.name.startswith("KV cache"))
    if cache:
        yield Row("KV cache", _cache(model, how, cache))
    if experts:
        room = "set --host-ram to see whether it fits"
        if usable:
            fits = DOES_NOT_FIT if problems else FITS
            room = f"{fits} in {memory(usable)} of {host.verdict.machine}"
        yield Row("host RAM", f"{memory(experts)} of experts; {room}", "red" if problems else "")
    batch, length = f"users {how.batch:,}", f"context {how.context:,}"
    tokens = room_tokens(bill, gpu) if gpu else 0
    for row in _advice_rows(of_model.inference_advice, batch, length):
        if row.label == "largest" and tokens:
            row = row._replace(text=f"{row.text}; room for {tokens:,} tokens")
        yield row


def _taken(how: InferenceSettings) -> str:
    """Return the server, and its share of a GPU."""
    share = f", which takes {how.gpu_share:.0%} of it" if how.gpu_share < 1 else ""
    return f" under {SERVERS[how.server].name}{share}"


def _cache(model: Model, how: InferenceSettings, cache: int) -> str:
    """Return the cache of a token, and that of all users."""
    token = kv_cache_lines(model, replace(how, batch=1, kv_block=0), 1)
    of_gpu = " and GPU" if how.serving_gpus > 1 else ""
    growing = sum(line.n_bytes for line in token if "tokens" in line.symbols)
    text = f"{growing / 1024:,.1f} KiB per token{of_gpu}"
    windows = [window for window in model.windows if window < how.context]
    text += f" (less beyond windows of {max(windows):,})" if windows else ""
    return f"{text}, {memory(cache)} for {how.batch:,} x {plural(how.context, 'token')}"


def _advice_rows(advice: Advice | None, batch: str, sequence: str) -> Iterator[Row]:
    """Yield the most that fits, or the savings that make it fit.

    `batch` and `sequence` are those of the settings, as text: "micro batch 4", "sequence 2,048".
    """
    if advice is None or advice.verdict == AT_LEAST:
        return
    fits = advice.verdict != DOES_NOT_FIT
    if fits:
        kind = "the model's maximum of" if advice.is_bounded else sequence.rpartition(" ")[0]
        largest = f"{batch.rpartition(' ')[0]} {advice.largest_batch:,}"
        longest = f"at {batch}, {kind} {advice.largest_sequence:,}"
        yield Row("largest", f"{largest} at {sequence}; {longest}")
    if advice.plan:
        label = {FITS: "safer with" if fits else "fits with", BARELY: "may fit"}
        yield Row(label.get(advice.plan[-1].verdict, "advice"), plan_text(advice.plan))
    elif not fits:
        text = f"no option makes it fit, nor do {MOST_TOGETHER} together"
        if advice.with_more_host:
            text += f"; with more host RAM: {plan_text(advice.with_more_host)}"
        yield Row("advice", text)


def _verdict(bill: Bill, gpu: Gpu | None, problems: Sequence[str] = (), *, under: str = "") -> Row:
    """Return whether a bill fits on a GPU, and by how much; `problems` are other obstacles.

    What the bill lacks stands here too. `under` names the server.
    """
    others = [f"not included: {bill.missing}"] if bill.missing else []
    others += problems
    if gpu is None:
        return Row("verdict", "; ".join((NO_GPU, *others)), "yellow" if others else "")
    verdict = gpu_verdict(bill, gpu)
    name = f"{gpu.name} ({memory(gpu.memory_bytes)}){under}"
    room = gpu.memory_bytes - bill.n_bytes - bill.kept_free
    text = f"{verdict} on {name}: {memory(abs(room))} {'left' if room >= 0 else 'missing'}"
    if verdict == AT_LEAST:
        text = f"at least {memory(bill.n_bytes)} on {name}"
    elif verdict == BARELY:
        text = f"fits on {name} by the estimate, not by the upper bound"
    style = "red" if problems else _STYLES.get(verdict, "yellow")
    return Row("verdict", "; ".join((text, *others)), style)


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


def _host_verdict(verdict: Verdict) -> str:
    room = f"{memory(verdict.usable_bytes)} of {verdict.machine}"
    if verdict.said == "unknown":
        return "set --host-ram to see whether it fits"
    if verdict.said == DOES_NOT_FIT:
        advice = f"; fits with {' '.join(verdict.together)}" if verdict.together else ""
        if verdict.shm_bytes:
            room = f"the {memory(verdict.shm_bytes)} of /dev/shm"
        return f"{verdict.said} in {room}{advice}"
    return verdict.said.replace("fits", f"fits in {room}", 1)


def _disk_row(full: FullBill) -> Row:
    """Return the sizes of dataset and checkpoints, and whether there is room."""
    disk, parts = full.disk, []
    if disk is not None:
        parts.append(f"dataset {size(disk.bill.n_bytes)}")
    if full.of_model is not None:
        kept = full.settings.training.checkpoints
        most = size(full.of_model.checkpoints.high_bytes)
        parts.append(f"checkpoints up to {most} ({kept:,} kept, 1 being written)")
    text = ", ".join(parts)
    missing = missing_disk_bytes(full)
    if disk is not None and disk.free_bytes is not None:
        text += f"; {size(disk.free_bytes)} free"
    if missing:
        text += f": TOO LITTLE, {size(missing)} missing"
    return Row("disk", text, "red" if missing else "")


def missing_disk_bytes(full: FullBill) -> int:
    """Return by how much the files still to write exceed the free space, 0 if they fit."""
    disk = full.disk
    if disk is None or disk.free_bytes is None:
        return 0
    to_write = 0 if disk.found is not None else disk.bill.high_bytes
    if full.of_model is not None:
        to_write += full.of_model.checkpoints.high_bytes
    return max(0, to_write - disk.free_bytes)


def _time(compute: Compute, how: TrainingSettings) -> str:
    """Return time, GPU hours and cost, or why they are not known."""
    tokens = f"{amount(compute.trained_tokens, 'token')}"
    steps = f"{plural(compute.steps, 'step')} of {amount(compute.step_tokens, 'token')}"
    if compute.seconds is None:
        return "; ".join((f"{tokens}: {steps}", *compute.notes))
    text = f"{seconds(compute.seconds)} for {tokens} at {how.mfu:.0%} MFU"
    if how.gpus > 1 and compute.gpu_hours is not None:
        text += f", {compute.gpu_hours:,.0f} GPU hours"
    if compute.cost is not None:
        text += f", cost {compute.cost:,.{2 if compute.cost < 1000 else 0}f}"
    return "; ".join((text, steps, *compute.notes))


def _model(model: Model) -> str:
    family = f" ({model.family})" if model.name != model.family else ""
    active = model.active_parameters
    text = f"{model.name}{family}, {plural(model.parameters, 'parameter')}"
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
        f"{plural(how.gpus, 'GPU')}, {how.sharding}": how.gpus > 1,
    }
    for kind in _PARALLEL:
        n: int = getattr(how, f"{kind}_parallel")
        optional[f"{kind} parallel {n:,}"] = n > 1
    optional[f"offload {how.offload}"] = how.offload != "none"
    texts = (text for text, is_shown in optional.items() if is_shown)
    batch = f"micro batch {how.micro_batch:,}, sequence {how.sequence:,}"
    precision = precision_of(how)
    if how.precision == "auto":
        precision += f" ({_ADAPTED if how.adapter != 'none' else _DEFAULTS[precision]})"
    return ", ".join((precision, how.optimizer, batch, *texts))


def _of_trainer(settings: BillSettings) -> str:
    """Return each setting that the trainer has set, or what most trainers set."""
    how = settings.training
    values = options(set_by_trainer(how, settings.given))
    who = "as most trainers set" if how.trainer == "auto" else f"as {how.trainer} sets"
    return f"{who}: {' '.join(values)}" if values else ""


def _inference(settings: BillSettings, model: Model, gpu: Gpu | None) -> str:
    """Return the settings of inference that matter most."""
    asked = settings.inference
    how = complete_serving(asked, context=settings.training.sequence, gpu=gpu)
    stored = model.stored.note if model.stored else "bf16"
    weights = stored if how.weight_type == "auto" else how.weight_type
    server = SERVERS[how.server].name + (" (default)" if asked.server == "auto" else "")
    text = f"{server}, weights {weights}, KV cache {how.kv_type}"
    text += f", {plural(how.batch, 'user')} (--users), context {how.context:,}"
    if (chunk := prompt_tokens(how)) < how.batch * how.prompt:
        text += f", prompts in chunks of {plural(chunk, 'token')} (--prefill-chunk)"
    return text + (f", {plural(how.serving_gpus, 'GPU')}" if how.serving_gpus > 1 else "")


@dataclass(frozen=True, slots=True, repr=False)
class PrintedBill(FullBill):
    """A bill whose text is its summary in about ten rows."""

    @classmethod
    def of(cls, full: FullBill) -> PrintedBill:
        """Return the same bill with a text."""
        return cls(**{field.name: getattr(full, field.name) for field in fields(full)})

    def __str__(self) -> str:
        """Return the rows of `tokmill memory`."""
        return rows_text(self._rows())

    def _repr_html_(self) -> str:
        return rows_html(self._rows())

    def _rows(self) -> list[tuple[str, str]]:
        return [(row.label, row.text) for row in summary_rows(self, asked_parts(self.settings))]

    def __repr__(self) -> str:
        """Return the name of the model: all amounts would be 45,000 characters."""
        model = "no model" if self.of_model is None else self.of_model.model.name
        return f"<FullBill: {printable(model)}; print() shows it>"
