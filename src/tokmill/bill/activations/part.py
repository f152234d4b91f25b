"""A part of a layer: the tensors that autograd keeps for its backward, in bytes per token.

A row is a formula of one tensor, as Hugging Face's modules (transformers 5.23) create it and
torch's autograd keeps it. Each module of this package declares the rows of its subject beside the
code that chooses them.

Bytes per element: x between layers (the residual), q in matrix products. With autocast on fp32
weights x is 4 and q is 2, and every linear layer keeps its own 16-bit copy of a fp32 input.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tokmill.bill.activations.situation import Situation
from tokmill.bill.formula import Formula
from tokmill.bill.models.model import Module

Rows = tuple[Formula, ...]

HOOKS = "hooks on saved tensors, transformers 5.23, torch 2.13"
STEPS = "the order of autograd's steps, seen on fake tensors"
EXACT = "equal to what autograd saves, per token and layer"


def kept(name: str, expression: str) -> Formula:
    """Return a row that was equal to the saved tensors."""
    return Formula(name, expression, HOOKS, EXACT)


IDS = kept("token ids and labels", "16")
INPUT = kept("linear layer: its input of width d", "q * d")
DROPOUT = Formula(
    "dropout: its mask", "d", "torch's native_dropout on CUDA: a byte each",
    "formula; a CPU keeps masks of the input's type",
)  # fmt: skip
GRADIENT_RESIDUAL = Formula("gradient of the residual", "x * d", STEPS, EXACT)


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a layer: rows that it keeps, and those at the greatest moment of its backward.

    Then `left` are the kept ones that are still there, and `gradients` stand beside them.
    `n_layers` have the part. `shared` is the row that is the layer's input itself, not a copy.
    `not_first`, which `saved` begins with, are rows that the model's first layer lacks: its input
    needs no gradient. `made`: the part's matrices whose gradients are made at that moment. `later`
    is the part at later moments of its backward, one of which may be greater.
    """

    name: str
    module: Module
    saved: Rows
    left: Rows
    gradients: Rows
    n_layers: int
    shared: Formula | None = None
    not_first: Rows = ()
    made: Literal["none", "last", "all"] = "last"
    later: tuple[Part, ...] = ()


def inputs(at: Situation, linears: int) -> Rows:
    """Return the input of so many linear layers: one tensor, or a 16-bit copy for each."""
    if not at.trained:
        return ()
    return (INPUT,) * (linears if at.own_copies else 1)


def dropout(at: Situation) -> Rows:
    """Return the mask of a dropout of width d, if the family has one."""
    return (DROPOUT,) if at.dropout and at.style.dropouts else ()
