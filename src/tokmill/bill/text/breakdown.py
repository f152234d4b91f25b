"""The bill as tables: GPU memory, host RAM, disk, time, inference; and the states alone."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from tokmill.bill.bill_settings import complete_training
from tokmill.bill.formula import Bill, Line
from tokmill.bill.full_bill import FullBill
from tokmill.bill.host_ram.host import HostBill
from tokmill.bill.models.model import Model
from tokmill.bill.models.weight_types import weight_bytes
from tokmill.bill.states.optimizers import MAIN_GRADIENT, MASTER
from tokmill.bill.states.precision import precision_of
from tokmill.bill.states.states import RULE_OF_THUMB, States, rank_states
from tokmill.bill.text.rows import Amounts, Texts, moment, tables_of
from tokmill.bill.text.tables import amounts_table, explanation
from tokmill.errors import UsageError
from tokmill.machine.process_tree import Measured
from tokmill.settings.training import TrainingSettings
from tokmill.terminal_tables import indented, one_line, rows_table
from tokmill.words import memory, plural, scale, seconds, size


def bill_tables(
    full: FullBill, parts: Collection[str], *, explain: bool = False
) -> Iterator[RenderableType]:
    """Yield the tables of the named parts of a bill, with an empty line before each.

    `explain`: also yield formula, symbols and source of each amount.
    """
    for each in tables_of(full):
        if set(each.parts) & set(parts):
            yield from drawn(each, explain=explain)


def drawn(each: Amounts | Texts, *, explain: bool = False) -> Iterator[RenderableType]:
    """Yield an empty line, a table, costs that it leaves out, and formulas."""
    yield Text("")
    if isinstance(each, Texts):
        yield rows_table(each.title, each.headings, each.rows, words=each.words)
        return
    yield amounts_table(each)
    if each.leaves_out:
        yield indented(f"not included: {'; '.join(each.leaves_out)}", "dim")
    if explain:
        yield from explanation(each.lines)


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


AXES = {
    "sharding": ("ddp", "zero-1", "zero-2", "zero-3"),
    "optimizer": ("sgd", "momentum", "adamw", "adamw-8bit"),
}
"""Values of settings whose states are shown beside each other."""
TYPES = {"fp32": 4.0, "bf16": 2.0, "int8": 1.0, "int4": 0.5}
"""Bytes of a weight, without scales."""

Named = dict[str, int]
"""Bytes, or numbers of elements, by name."""


def states_json(model: Model, training: TrainingSettings) -> dict[str, Any]:
    """Return the states as plain values; `training` must be completed."""
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
    """Yield the states as tables; `explain`: also the parts of a layer, and formulas."""
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


def _alternatives(model: Model, training: TrainingSettings, setting: str) -> dict[str, Named]:
    """Return the states by value of a setting and precision, if no setting contradicts it.

    `copies` are those in fp32 of weights and gradients.
    """
    by_value = {}
    for value in AXES[setting]:
        change: dict[str, Any] = {setting: value}
        changed = replace(training, **change)
        with suppress(UsageError):
            changed = complete_training(changed, model, None)
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


def _by_type(model: Model) -> dict[str, Named]:
    """Return the bytes of all weights by type: alone, and with scales as files have them."""
    stored = {
        kind: sum(weight_bytes(kind, tensor, model) * tensor.count for tensor in model.tensors)
        for kind in TYPES
    }
    return {
        "alone": {kind: round(each * model.parameters) for kind, each in TYPES.items()},
        "with scales; head, embedding 16 bit": {kind: round(n) for kind, n in stored.items()},
    }


def _layer(model: Model) -> dict[str, Named]:
    """Return the elements of matrices and of vectors in each module of the last layer."""
    modules: dict[str, Named] = {}
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


def _amounts_table(title: str, rows: Mapping[str, Named]) -> Table:
    """Return amounts in one unit; all rows have the same columns."""
    most = max(max(amounts.values()) for amounts in rows.values())
    divisor, unit, digits = scale(most, binary=False)
    columns = tuple(next(iter(rows.values())))
    texts = (
        (name, *(f"{amounts[column] / divisor:,.{digits}f}" for column in columns))
        for name, amounts in rows.items()
    )
    return rows_table(f"{title}, {unit}", columns, texts)


def _layer_table(layer: Mapping[str, Named], d: int) -> Table:
    """Return the parts of a layer and their sum, as polynomials of the hidden size."""
    sums = {kind: sum(part[kind] for part in layer.values()) for kind in ("matrices", "vectors")}
    rows = []
    for name, part in (*layer.items(), ("sum", sums)):
        terms = ((part["matrices"] / d**2, "d^2"), (part["vectors"] / d, "d"))
        shown = (f"{factor:.6g} {power}".removeprefix("1 ") for factor, power in terms if factor)
        rows.append((name, " + ".join(shown), f"{sum(part.values()):,}"))
    return rows_table(f"parameters of a layer, d = {d:,}", ("in d", "elements"), rows)
