"""Groups of the lines of a bill: the colours of a stacked bar."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tokmill.bill.formula import Line
from tokmill.bill.overhead import CUDA_CONTEXT, FRAGMENTATION, WORKSPACES
from tokmill.bill.states.optimizers import STATES

TRAINING_GROUPS = (
    "weights",
    "gradients",
    "optimizer states",
    "activations",
    "logits and loss",
    "temporary and buffers",
    "CUDA and its libraries",
    "fragmentation",
)
SERVING_GROUPS = (
    "weights",
    "KV cache",
    "activations of the prompt",
    "logits",
    "CUDA and its libraries",
    "fragmentation",
)
LOADING_GROUPS = ("processes", "dataset", "copies in workers", "batches")

_OUTSIDE = {
    FRAGMENTATION.name: "fragmentation",
    CUDA_CONTEXT.name: "CUDA and its libraries",
    WORKSPACES.name: "CUDA and its libraries",
}
_GRADIENTS_OF_WEIGHTS = (
    "gradients",
    "gradient of a weight, just made",
    "gradient of the tied head, kept until the embedding's",
    "gradients of the tied embedding: two, and their sum",
)
_LOGITS = ("loss", "logits", "fused loss", "tanh of the capped logits", "reference model:")
_TRAINING = {
    **_OUTSIDE,
    **dict.fromkeys(STATES, "optimizer states"),
    **dict.fromkeys(_GRADIENTS_OF_WEIGHTS, "gradients"),
    "gradients of the logits": "logits and loss",
    "weights": "weights",
    "weights of the reference model": "weights",
}
_ACTIVATIONS = ("activations", "gradients inside", "gradient of the embedding's output")
_COPIES = ("copies of", "the pickled", "freed copies", "Python integers copied")


def training_group(name: str) -> str:
    """Return the group of a line of GPU memory of training."""
    if name in _TRAINING:
        return _TRAINING[name]
    if name.startswith(_LOGITS):
        return "logits and loss"
    return "activations" if name.startswith(_ACTIVATIONS) else "temporary and buffers"


def serving_group(name: str) -> str:
    """Return the group of a line of GPU memory of inference."""
    if name in _OUTSIDE:
        return _OUTSIDE[name]
    if name.startswith("KV cache"):
        return "KV cache"
    return name if name in SERVING_GROUPS else "activations of the prompt"


def loading_group(name: str) -> str:
    """Return the group of a line of host RAM of loading a dataset."""
    if name.startswith(_COPIES):
        return "copies in workers"
    if name.startswith(("processes", "forked", "spawned")):
        return "processes"
    if "batch" in name:
        return "batches"
    return "dataset"


def grouped(
    lines: Iterable[Line], groups: tuple[str, ...], group: Callable[[str], str]
) -> tuple[int, ...]:
    """Return the expected bytes of each group; `group` returns that of a line by its name."""
    found = dict.fromkeys(groups, 0)
    for line in lines:
        found[group(line.name)] += line.n_bytes
    return tuple(found.values())
