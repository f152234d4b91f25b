"""Sum rows of activations to lines of a bill."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from tokmill.bill.activations.part import Part
from tokmill.bill.formula import Formula, Line


def summed(rows: Sequence[Formula]) -> str:
    """Return the expression of a sum of rows; equal ones are multiplied."""
    counted = Counter(row.expression for row in rows)
    return " + ".join(f"{n} * ({text})" if n > 1 else text for text, n in counted.items())


def rows_line(
    name: str, rows: Sequence[Formula], symbols: Mapping[str, float], *, factor: str = "n"
) -> Line:
    """Return the line of rows, in bytes per token, times `factor`; its note names them."""
    errors = ", ".join(sorted({row.error for row in rows if row.error}))
    sources = ", ".join(sorted({row.source for row in rows if row.source}))
    formula = Formula(name, f"{factor} * ({summed(rows)})", sources, errors)
    counted = Counter(row.name for row in rows)
    note = "; ".join(f"{n} x {text}" if n > 1 else text for text, n in counted.items())
    return formula.line(symbols, note=note)


def kept_lines(
    parts: Sequence[Part], kept: float, symbols: Mapping[str, float], *, first: int = 0
) -> tuple[Line, ...]:
    """Return the activations of `kept` layers, those of all micro batches added, a line per part.

    `first` of these layers are the model's first layer; rows that it lacks have a separate line.
    """
    layers = max(part.n_layers for part in parts)
    lines = []
    for part in parts:
        name, count = f"activations: {part.name}", kept * part.n_layers / layers
        later = part.not_first if first else ()
        for title, rows, n in (
            (name, part.saved[len(later) :], count),
            (f"{name}, all layers but the first", later, count - first),
        ):
            if rows:
                counted = {**symbols, "layers_kept": n}
                lines.append(rows_line(title, rows, counted, factor="n * layers_kept"))
    return tuple(lines)


def work_lines(
    parts: Sequence[Part], index: int, symbols: Mapping[str, float], *, recomputed: bool
) -> tuple[Line, ...]:
    """Return one layer at the largest moment in the backward of part `index`: kept rows, gradients.

    The input of a recomputed layer is not counted: it is a checkpoint. A layer has experts or a
    feed-forward layer, never both.
    """
    either = {"mlp", "experts"}
    before = [part for part in parts[:index] if {part.module, parts[index].module} != either]
    kept = [row for part in before for row in part.saved] + list(parts[index].left)
    if recomputed and parts[0].shared in kept:
        kept.remove(parts[0].shared)
    named = (
        ("activations: layer in backward", kept),
        ("gradients inside the layer", parts[index].gradients),
    )
    return tuple(rows_line(name, rows, symbols) for name, rows in named if rows)
