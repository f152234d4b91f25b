"""The bill as tables: GPU memory, host RAM, disk, time, inference; and the states alone."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from tokmill.bill.compute import Compute
from tokmill.bill.formula import Bill, Line
from tokmill.bill.full_bill import FullBill, ModelBill
from tokmill.bill.gpus import AT_LEAST, BARELY, FITS
from tokmill.bill.host_ram.host import HostBill
from tokmill.bill.models.model import Model
from tokmill.bill.models.weight_types import weight_bytes
from tokmill.bill.on_disk import DatasetDisk
from tokmill.bill.remedies.search import Offer
from tokmill.bill.states.optimizers import MAIN_GRADIENT, MASTER
from tokmill.bill.states.precision import precision_of
from tokmill.bill.states.states import RULE_OF_THUMB, States, rank_states
from tokmill.bill.text.tables import amounts_table, bill_view, explanation, moment, moments_table
from tokmill.errors import UsageError
from tokmill.machine.process_tree import Measured
from tokmill.settings.training import TrainingSettings
from tokmill.terminal_tables import indented, one_line, rows_table  # fmt: skip
from tokmill.words import amount, memory, plural, scale, seconds, size

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
        f"{amount(compute.chinchilla_tokens, 'token')})",
    )
    yield (
        "steps per epoch",
        f"{compute.steps_per_epoch:,} of {plural(compute.step_sequences, 'sequence')}, "
        f"{amount(compute.step_tokens, 'token')}",
    )
    passes = "epoch" if epochs == 1 else "epochs"
    yield ("FLOP", f"{compute.operations_with_recompute:.3g} in {epochs:g} {passes}")


AXES = {
    "sharding": ("ddp", "zero-1", "zero-2", "zero-3"),
    "optimizer": ("sgd", "momentum", "adamw", "adamw-8bit"),
}
"""Values of settings whose states are shown beside each other."""
TYPES = {"fp32": 4.0, "bf16": 2.0, "int8": 1.0, "int4": 0.5}
"""Bytes of a weight, without scales."""

Amounts = dict[str, int]
"""Bytes, or numbers of elements, by name."""


def states_json(model: Model, training: TrainingSettings) -> dict[str, Any]:
    """Return the states as plain values; `training` must be completed.

    Raises:
        UsageError: settings contradict each other or the model.
    """
    states = rank_states(model, training)
    return {
        "schema": 1,
        "model": model.name,
        "parameters": model.parameters,
        "precision": precision_of(training),
        "training": asdict(training),
        "notes": list(model.warnings),
        "states": _states_bill(states).as_json(),
        "besides": [line.as_json() for line in _besides(states, training)],
        "offloaded": Bill("offloaded to the host RAM of a node", states.host).as_json(),
        **{f"by_{setting}": _alternatives(model, training, setting) for setting in AXES},
        "by_type": _by_type(model),
        "layer": _layer(model),
    }


def states_tables(
    model: Model, training: TrainingSettings, *, explain: bool
) -> Iterator[RenderableType]:
    """Yield the states as tables; `explain`: also the parts of a layer, and formulas.

    Raises:
        UsageError: settings contradict each other or the model.
    """
    states = rank_states(model, training)
    scheme = f"{precision_of(training)}, {training.optimizer}"
    yield one_line(f"{model.name}, {plural(model.parameters, 'parameter')}: {scheme}", "bold")
    yield from (one_line(f"note: {warning}", "yellow") for warning in model.warnings)
    yield _states_table(states, training)
    if states.host:
        n_bytes = sum(line.n_bytes for line in states.host)
        yield indented(f"offloaded to the host RAM of a node: {size(n_bytes)}")
    if explain and model.has_shape:
        yield from (Text(""), _layer_table(_layer(model), model.hidden))
    for setting in AXES if training.gpus > 1 else ("optimizer",):
        by_value = _alternatives(model, training, setting)
        yield from (Text(""), _amounts_table(f"by {setting}", by_value))
    yield from (Text(""), _amounts_table("weights by type", _by_type(model)))
    if explain:
        yield Text("")
        lines = (*_states_bill(states).lines, *_besides(states, training), *states.host)
        yield from explanation(line for line in lines if line.n_bytes)


def _states_bill(states: States) -> Bill:
    """Return the states in the order of 2 + 4 + 2 + 4 + 4 bytes of a parameter."""
    copies = [line for line in states.optimizer if line.name == MASTER]
    others = [line for line in states.optimizer if line.name != MASTER]
    return Bill("states of a GPU", (states.weights, *copies, states.gradients, *others))


def _besides(states: States, training: TrainingSettings) -> list[Line]:
    """Return the flattened buffer if it is set, and a rule of thumb for activations."""
    rule = [RULE_OF_THUMB.line({"P": states.parameters})] if training.adapter == "none" else []
    return [*([states.flat_buffer] if states.flat_buffer else []), *rule]


def _alternatives(model: Model, training: TrainingSettings, setting: str) -> dict[str, Amounts]:
    """Return the states by value of a setting and precision, if no setting contradicts it.

    `copies` are those in fp32 of weights and gradients.
    """
    by_value = {}
    for value in AXES[setting]:
        change: dict[str, Any] = {setting: value}
        changed = replace(training, **change)
        with suppress(UsageError):
            states = rank_states(model, changed)
            kept = {line.name: line.n_bytes for line in states.optimizer}
            by_value[f"{value}, {precision_of(changed)}"] = {
                "weights": states.weights.n_bytes,
                "gradients": states.gradients.n_bytes,
                "copies": kept.pop(MASTER, 0) + kept.pop(MAIN_GRADIENT, 0),
                "moments": sum(kept.values()),
                "total": states.n_bytes,
            }
    return by_value


def _by_type(model: Model) -> dict[str, Amounts]:
    """Return the bytes of all weights by type: alone, and with scales as files have them."""
    stored = {
        kind: sum(weight_bytes(kind, tensor, model) * tensor.count for tensor in model.tensors)
        for kind in TYPES
    }
    return {
        "alone": {kind: round(each * model.parameters) for kind, each in TYPES.items()},
        "with scales; head, embedding 16 bit": {kind: round(n) for kind, n in stored.items()},
    }


def _layer(model: Model) -> dict[str, Amounts]:
    """Return the elements of matrices and of vectors in each module of the last layer."""
    modules: dict[str, Amounts] = {}
    for tensor in model.tensors:
        if tensor.layers and model.layers - 1 in tensor.layers:
            name = tensor.name.partition("{}.")[2].removesuffix(".weight").removesuffix(".bias")
            module = modules.setdefault(name, {"matrices": 0, "vectors": 0})
            module["vectors" if tensor.kind == "vector" else "matrices"] += tensor.size
    return modules


def _states_table(states: States, training: TrainingSettings) -> Table:
    """Return the states in bytes of a parameter, GB and GiB, and what comes on top."""
    bill, besides = _states_bill(states), _besides(states, training)
    amounts = {line.name: line.n_bytes for line in bill.lines if line.n_bytes}
    amounts |= {"total": bill.n_bytes} | {line.name: line.n_bytes for line in besides}
    if besides:
        amounts["total with these"] = bill.n_bytes + sum(line.n_bytes for line in besides)
    most = max(amounts.values())
    (gb, unit, digits), (gib, binary, _) = (scale(most, binary=b) for b in (False, True))
    rows = (
        (name, f"{n / states.parameters:.4g}", f"{n / gb:,.{digits}f}", f"{n / gib:,.{digits}f}")
        for name, n in amounts.items()
    )
    return rows_table(bill.title, ("B/parameter", unit, binary), rows)


def _amounts_table(title: str, rows: Mapping[str, Amounts]) -> Table:
    """Return amounts in one unit; all rows have the same columns."""
    most = max(max(amounts.values()) for amounts in rows.values())
    divisor, unit, digits = scale(most, binary=False)
    columns = tuple(next(iter(rows.values())))
    texts = (
        (name, *(f"{amounts[column] / divisor:,.{digits}f}" for column in columns))
        for name, amounts in rows.items()
    )
    return rows_table(f"{title}, {unit}", columns, texts)


def _layer_table(layer: Mapping[str, Amounts], d: int) -> Table:
    """Return the parts of a layer and their sum, as polynomials of the hidden size."""
    sums = {kind: sum(part[kind] for part in layer.values()) for kind in ("matrices", "vectors")}
    rows = []
    for name, part in (*layer.items(), ("sum", sums)):
        terms = ((part["matrices"] / d**2, "d^2"), (part["vectors"] / d, "d"))
        shown = (f"{factor:.6g} {power}".removeprefix("1 ") for factor, power in terms if factor)
        rows.append((name, " + ".join(shown), f"{sum(part.values()):,}"))
    return rows_table(f"parameters of a layer, d = {d:,}", ("in d", "elements"), rows)
