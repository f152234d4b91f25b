"""Models without a shape: a number of parameters, or tensors from the headers of files.

Tensors determine weights, gradients and optimizer states. Activations, logits and KV cache need
layers, widths and heads too.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

from tokmill.bill.models.headers import TOTAL, Entry
from tokmill.bill.models.model import Attention, Kind, Model, Module, Split, Stored, Tensor

_LAYER = re.compile(r"\.(\d+)\.")
_TABLES = ("embed", "wte", "wpe", "word_emb", "tok_emb")
_HEADS = ("lm_head", "output", "embed_out", "score")
_MATRIX_AXES = 2


def counted_model(parameters: int) -> Model:
    """Return a model with a known number of parameters and nothing else."""
    name = "parameters alone"
    return _model(name, name, (Tensor(TOTAL, (parameters,), "other", "linear", "columns"),))


def is_counted(model: Model) -> bool:
    """Return whether only the number of parameters is known."""
    return not model.has_shape and model.tensors[0].name == TOTAL


def stored_model(name: str, family: str, entries: Iterable[Entry]) -> Model:
    """Return the model of the tensors in files.

    Floating-point tensors count as parameters, even if they are buffers. Others (packed weights,
    positions) are billed as stored, as buffers.
    """
    groups: dict[tuple[str, tuple[int, ...], float], list[int]] = defaultdict(list)
    others: dict[str, int] = defaultdict(int)
    for entry in entries:
        if not entry.dtype.startswith(("F", "BF")):
            others[entry.dtype] += entry.n_bytes
        elif entry.size:
            at = _LAYER.search(entry.name)
            key = entry.name if at is None else _LAYER.sub(".{}.", entry.name, count=1)
            groups[key, entry.shape, entry.n_bytes / entry.size].append(
                -1 if at is None else int(at[1])
            )
    tensors = tuple(
        _tensor(key, shape, element, tuple(sorted(layers)))
        for (key, shape, element), layers in groups.items()
    )
    packed = ", ".join(f"{dtype} {n_bytes:,} B" for dtype, n_bytes in sorted(others.items()))
    warning = (
        f"{name}: integer tensors ({packed}) are billed as stored and not counted as parameters: "
        "they may be packed weights"
    )
    return replace(
        _model(name, family, tensors),
        buffer_bytes=sum(others.values()),
        stored=Stored("bf16", "as stored (files' headers)"),
        warnings=(warning,) if packed else (),
    )


def _tensor(name: str, shape: tuple[int, ...], element: float, layers: tuple[int, ...]) -> Tensor:
    kind, module = _kind(name, shape)
    is_matrix = len(shape) >= _MATRIX_AXES
    split: Split = "vocabulary" if kind == "embedding" else "columns"
    return Tensor(
        name, shape, module, kind, split if is_matrix or name == TOTAL else "none",
        n_in=shape[-1] if is_matrix else 0, n_out=shape[-2] if is_matrix else 0,
        layers=None if -1 in layers else layers, stored_bytes=element,
    )  # fmt: skip


def _kind(name: str, shape: tuple[int, ...]) -> tuple[Kind, Module]:
    """Guess kind and module of a tensor from its name."""
    if len(shape) < _MATRIX_AXES:
        return "vector", "norm" if "norm" in name or "ln_" in name else "other"
    if any(part in name for part in _TABLES) and "{}" not in name:
        return "embedding", "embedding"
    if name.startswith(_HEADS):
        return "linear", "head"
    return ("experts" if "experts" in name and len(shape) > _MATRIX_AXES else "linear"), "other"


def _model(name: str, family: str, tensors: tuple[Tensor, ...]) -> Model:
    layers = 1 + max((layer for each in tensors for layer in each.layers or ()), default=-1)
    return Model(
        name=name, family=family, layers=layers, hidden=0, ffn=0, vocabulary=0, positions=0,
        tied=False, activation="", attention=Attention(0, 0, 0), tensors=tensors,
    )  # fmt: skip
