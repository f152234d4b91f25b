"""Low-rank adapters: the copies of inputs that they keep, and their tensors in forward."""

from __future__ import annotations

from tokmill.bill.activations.part import EXACT, INPUT, Rows, kept
from tokmill.bill.activations.situation import Situation
from tokmill.bill.formula import Formula
from tokmill.bill.states.optimizers import FP32_BYTES

SEEN = "fake tensors, peft 0.21"
CLOSE = "within 3% of a layer"

ADAPTER_D = kept("adapter: copy of an input of width d", "y * d")
ADAPTER_AH = kept("adapter: copy of the attention output", "y * a * h")
ADAPTER_F = kept("adapter: copy of an input of width f", "y * f")
ADAPTER_RANK = kept("adapter: its low-rank features", "y * r")

ADAPTER_SUM_F = Formula(
    "adapter in forward: its output of width f, and the same scaled", "2 * y * f", SEEN, CLOSE
)
ADAPTER_CASTS_F = Formula(
    "adapter in forward under autocast: input of width f, and the same in fp32", "(q + 4) * f",
    SEEN, EXACT,
)  # fmt: skip
ADAPTER_SUM_D = Formula(
    "adapter in forward: outputs of base and adapter, the adapter's scaled, their sum", "4 * q * d",
    SEEN, EXACT,
)  # fmt: skip
GRADIENT_ADAPTER = Formula(
    "gradients of the last adapter, before a layer is recomputed", "2 * y * d", SEEN, EXACT
)
NORMED = Formula("output of a norm, not kept", "x * d", SEEN, EXACT)
RESIDUALS = Formula("the layer's input and the residual after attention", "2 * x * d", SEEN, EXACT)


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
