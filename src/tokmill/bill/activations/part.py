"""A part of a layer: the tensors that autograd keeps for its backward, in bytes per token.

A row is a formula of one tensor, as Hugging Face's modules (transformers 5.23) create it and
torch's autograd keeps it. Each module of this package declares the rows of its subject beside the
code that chooses them; here are those of every part (inputs of matrices, dropout, norms), and the
lines of a bill that sum rows.

Bytes per element: x between layers (the residual), q in matrix products. With autocast on fp32
weights x is 4 and q is 2, and every linear layer keeps its own 16-bit copy of a fp32 input.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from tokmill.bill.activations.situation import Situation
from tokmill.bill.formula import Formula, Line
from tokmill.bill.models.model import Module
from tokmill.bill.states.optimizers import FP32_BYTES

Rows = tuple[Formula, ...]

HOOKS = "hooks on saved tensors, transformers 5.23, torch 2.13"
STEPS = "the order of autograd's steps, seen on fake tensors"
EXACT = "equal to what autograd saves, per token and layer"


def kept(name: str, expression: str) -> Formula:
    """Return a row that was equal to the saved tensors."""
    return Formula(name, expression, HOOKS, EXACT)


def in_passing(name: str, expression: str) -> Formula:
    """Return a row of tensors that exist for a moment, most of them in backward."""
    return Formula(name, expression, STEPS, EXACT)


IDS = kept("token ids and labels", "16")
INPUT = kept("linear layer: its input of width d", "q * d")
DROPOUT = Formula(
    "dropout: its mask", "d", "torch's native_dropout on CUDA: a byte each",
    "formula; a CPU keeps masks of the input's type",
)  # fmt: skip
GRADIENT_RESIDUAL = in_passing("gradient of the residual", "x * d")


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a layer: rows that it keeps, and those at the greatest moment of its backward.

    Then `left` are the kept ones that are still there, and `gradients` stand beside them.
    `layers` have the part. `shared` is the row that is the layer's input itself, not a copy.
    `not_first`, which `saved` begins with, are rows that the model's first layer lacks: its input
    needs no gradient. `made`: the part's matrices whose gradients are made at that moment. `later`
    is the part at later moments of its backward, one of which may be greater.
    """

    name: str
    module: Module
    saved: Rows
    left: Rows
    gradients: Rows
    layers: tuple[int, ...]
    shared: Formula | None = None
    not_first: Rows = ()
    made: Literal["none", "last", "all"] = "last"
    later: tuple[Part, ...] = ()

    def renamed(self, names: Mapping[str, str]) -> Part:
        """Return the part with other symbols in its formulas."""
        if not names:
            return self
        return replace(
            self,
            saved=_renamed(self.saved, names),
            left=_renamed(self.left, names),
            gradients=_renamed(self.gradients, names),
            later=tuple(part.renamed(names) for part in self.later),
        )


def _renamed(rows: Rows, names: Mapping[str, str]) -> Rows:
    """Return rows whose expressions have other symbols."""
    pattern = re.compile(rf"\b({'|'.join(map(re.escape, names))})\b")
    return tuple(
        replace(row, expression=pattern.sub(lambda found: names[found[0]], row.expression))
        for row in rows
    )


def inputs(facts: Situation, linears: int) -> Rows:
    """Return the input of so many linear layers: one tensor, or a 16-bit copy for each."""
    if not facts.trained:
        return ()
    return (INPUT,) * (linears if facts.own_copies else 1)


def dropout(facts: Situation) -> Rows:
    """Return the mask of a dropout of width d, if the family has one."""
    return (DROPOUT,) if facts.model.dropout and facts.style.dropouts else ()


RMS_INPUT = kept("RMSNorm: input in fp32", "4 * d")
RMS_INVERSE = kept("RMSNorm: 1/rms in fp32", "4")
RMS_RESIDUAL = kept("RMSNorm: normalized input, for the gradient of its weight", "x * d")
RMS_ORIGINAL = kept("RMSNorm of T5: input in 16 bit beside the fp32 copy", "x * d")
RMS_FP32 = kept(
    "RMSNorm with its weight in fp32 (Gemma, OLMo-2): normalized input in fp32", "4 * d"
)
CENTERED = kept("norm of Cohere: centered input in fp32", "4 * d")
RMS_HEADS = kept(
    "RMSNorm of each query and key: inputs in fp32, and 1/rms", "4 * (a + k) * h + 4 * (a + k)"
)
RMS_QUERY_KEY = kept(
    "RMSNorm of all queries and all keys: inputs in fp32, and 1/rms", "4 * (a + k) * h + 8"
)
NORMED_HEADS = kept("normalized queries and keys", "q * (a + k) * h")
NORMED_HEADS_FP32 = kept("normalized queries and keys in fp32 (Gemma, OLMo-2)", "4 * (a + k) * h")
LAYER_NORM = kept("LayerNorm: its input", "x * d")
LAYER_NORM_STATISTICS = Formula(
    "LayerNorm: mean and 1/deviation", "8", HOOKS, "fp32 on a GPU; of the input's type on a CPU"
)
GRADIENT_NORM = in_passing("gradients inside an RMSNorm, five in fp32", "20 * d")
GRADIENT_LAYER_NORM = in_passing("gradients before and after a LayerNorm", "2 * x * d")


IN_FP32 = ("rms32", "centered")
"""Norms that multiply with their weight in fp32."""


def norm(facts: Situation, *, shared: bool = False) -> Rows:
    """Return the rows of a norm of width d; `shared`: another norm keeps its input already."""
    if facts.style.norm == "layer":
        return LAYER_NORM_STATISTICS, *(() if shared else (LAYER_NORM,))
    result = RMS_FP32 if facts.style.norm in IN_FP32 else RMS_RESIDUAL
    twice = facts.style.norm == "t5" and facts.residual < FP32_BYTES
    return (
        RMS_INPUT,
        RMS_INVERSE,
        *((RMS_ORIGINAL,) if twice else ()),
        *((CENTERED,) if facts.style.norm == "centered" else ()),
        *((result,) if facts.trained else ()),
    )


def head_norms(facts: Situation) -> Rows:
    """Return the rows of norms of queries and keys."""
    inputs = {"": None, "each": RMS_HEADS, "all": RMS_QUERY_KEY}[facts.style.heads]
    result = NORMED_HEADS_FP32 if facts.style.norm in IN_FP32 else NORMED_HEADS
    return (inputs, *((result,) if facts.trained else ())) if inputs else ()


def final_norm(facts: Situation) -> tuple[Rows, Rows]:
    """Return the rows that are kept in the backward of the final norm, and its gradients."""
    if facts.style.norm == "layer":
        return (IDS, *norm(facts)), (GRADIENT_LAYER_NORM,)
    return (IDS, RMS_INPUT, RMS_INVERSE), (GRADIENT_NORM,)


ADAPTER_D = kept("adapter: copy of an input of width d", "y * d")
ADAPTER_AH = kept("adapter: copy of the attention output", "y * a * h")
ADAPTER_F = kept("adapter: copy of an input of width f", "y * f")
ADAPTER_RANK = kept("adapter: its low-rank features", "y * r")

ADAPTER_SUM_F = Formula(
    "adapter in forward: its output of width f, and the same scaled", "2 * y * f", STEPS,
    "within 3% of a layer",
)  # fmt: skip
ADAPTER_CASTS_F = in_passing(
    "adapter in forward under autocast: input of width f, and the same in fp32", "(q + 4) * f"
)
ADAPTER_SUM_D = in_passing(
    "adapter in forward: outputs of base and adapter, the adapter's scaled, their sum", "4 * q * d"
)
GRADIENT_ADAPTER = in_passing(
    "gradients of the last adapter, before a layer is recomputed", "2 * y * d"
)
NORMED = in_passing("output of a norm, not kept", "x * d")
RESIDUALS = in_passing("the layer's input and the residual after attention", "2 * x * d")


def adapter_rows(facts: Situation, module: str, last: Formula) -> Rows:
    """Return the rows of a module's adapters: low-rank features, and inputs or copies of them.

    `last` is the row of its last matrix's input.
    """
    here = [tensor for tensor in facts.targets if tensor.module == module and tensor.layers]
    features = [ADAPTER_RANK] * len(here)
    first = [tensor for tensor in here if tensor.split != "rows"]
    ends = [tensor for tensor in here if tensor.split == "rows"]
    if facts.adapter:
        copy = ADAPTER_AH if module == "attention" else ADAPTER_F
        return (*features, *[ADAPTER_D] * len(first), *[copy] * len(ends))
    own = ends and (module != "attention" or facts.style.copied or facts.eager)
    return (*features, *[INPUT] * bool(first), *([last] if own else []))


def forward_rows(facts: Situation, layer: Rows) -> Rows:
    """Return a layer at the largest moment of forward with adapters; () if backward needs more.

    `layer` are the rows that it keeps. With autocast the moment is in the last matrix's adapter;
    else, with adapters in fp32, in that of the up matrix.
    """
    if not facts.adapter or facts.model.experts or not facts.style.gated or ADAPTER_F not in layer:
        return ()
    if facts.autocast:
        # Norms keep a fp32 residual itself.
        residuals = () if facts.residual == FP32_BYTES else (RESIDUALS,)
        return (*layer, ADAPTER_CASTS_F, ADAPTER_SUM_D, NORMED, *residuals)
    rest = list(layer)
    rest.remove(ADAPTER_F)
    return (*rest, ADAPTER_SUM_F, NORMED, NORMED)


def summed(rows: Sequence[Formula]) -> str:
    """Return the expression of a sum of rows; equal ones are multiplied."""
    counted = Counter(row.expression for row in rows)
    return " + ".join(f"{n} * ({text})" if n > 1 else text for text, n in counted.items())


def rows_line(
    name: str, rows: Sequence[Formula], symbols: Mapping[str, float], *, factor: str = "n"
) -> Line:
    """Return the line of rows, in bytes per token, times `factor`; its note names them."""
    formula, note = _formula_of(name, tuple(rows), factor)
    return formula.line(symbols, note=note)


@lru_cache(maxsize=4096)
def _formula_of(name: str, rows: Rows, factor: str) -> tuple[Formula, str]:
    """Return the formula of a sum of rows, and a note: a plan asks for the same ones often."""
    errors = ", ".join(sorted({row.error for row in rows if row.error}))
    sources = ", ".join(sorted({row.source for row in rows if row.source}))
    formula = Formula(name, f"{factor} * ({summed(rows)})", sources, errors)
    counted = Counter(row.name for row in rows)
    note = "; ".join(f"{n} x {text}" if n > 1 else text for text, n in counted.items())
    return formula, note


def kept_lines(
    parts: Sequence[Part],
    of_part: Callable[[Part], float],
    symbols: Mapping[str, float],
    *,
    first: int = 0,
) -> tuple[Line, ...]:
    """Return the activations of layers, those of all micro batches added, a line per part.

    `of_part` returns the layers with a part whose activations are kept. `first` of these layers are
    the model's first layer; rows that it lacks have a separate line.
    """
    lines = []
    for part in parts:
        name, count = f"activations: {part.name}", of_part(part)
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

    The input of a recomputed layer is not counted: it is a checkpoint.
    """
    kept = [row for part in parts[:index] for row in part.saved] + list(parts[index].left)
    if recomputed and parts[0].shared in kept:
        kept.remove(parts[0].shared)
    named = (
        ("activations: layer in backward", kept),
        ("gradients inside the layer", parts[index].gradients),
    )
    return tuple(rows_line(name, rows, symbols) for name, rows in named if rows)
