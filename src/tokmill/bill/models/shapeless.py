"""Models that are known by their tensors alone: a number, headers of files, or the meta device.

Tensors determine weights, gradients and optimizer states. Activations, logits and KV cache need
layers, widths and heads too; a bill says that they are not included.
"""

from __future__ import annotations

import re
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from tokmill.bill.models.family import MOST
from tokmill.bill.models.known import Entry
from tokmill.bill.models.model import (
    OTHER_PARTS,
    Attention,
    Experts,
    Kind,
    Model,
    Module,
    Split,
    Stored,
    Tensor,
)
from tokmill.errors import UsageError

TOTAL = "parameters"
"""Name of the only tensor of a model whose number of parameters alone is known."""
_LAYER = re.compile(r"\.(\d+)\.")
_TABLES = ("embed", "wte", "wpe", "word_emb", "tok_emb")
_HEADS = ("lm_head", "output", "embed_out", "score")
_MATRIX_AXES = 2
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
ACTIVE_EXPERTS = ("num_experts_per_tok", "top_k_experts", "moe_k")
NO_CODE = (
    "quantization_config", "compression_config", "auto_map", "use_pretrained_backbone"
)  # fmt: skip
"""Keys that transformers must not act on: no files are read, no code of others runs."""


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
    parameters: list[Entry] = []
    others: dict[str, int] = defaultdict(int)
    for entry in entries:
        if entry.dtype.startswith(("F", "BF")):
            parameters.append(entry)
        else:
            others[entry.dtype] += entry.n_bytes
    packed = ", ".join(f"{dtype} {n_bytes:,} B" for dtype, n_bytes in sorted(others.items()))
    warning = (
        f"{name}: integer tensors ({packed}) are billed as stored and not counted as parameters: "
        "they may be packed weights"
    )
    return replace(
        _model(name, family, _by_layer(parameters)),
        buffer_bytes=sum(others.values()),
        stored=Stored("bf16", "as stored (files' headers)"),
        warnings=(warning,) if packed else (),
    )


def meta_model(config: Mapping[str, Any], name: str) -> Model:
    """Return the model that transformers makes of a configuration on the meta device.

    Imports torch and transformers, which takes some seconds. Only classes of the library are used.

    Raises:
        UsageError: one of them is not installed, or cannot make this model.
    """
    made = _made(config)
    nested = config.get("text_config") is not None
    tensors = _by_layer(_parameters(made))
    return replace(
        _model(name, str(config["model_type"]), tensors),
        experts=_experts(made.config.get_text_config(), tensors),
        buffer_bytes=sum(each.numel() * each.element_size() for each in made.buffers()),
        leaves_out=(OTHER_PARTS,) if nested and "CausalLM" in type(made).__name__ else (),
    )


def _made(config: Mapping[str, Any]) -> Any:
    """Return the module that transformers makes on the meta device, where it takes no memory."""
    try:
        import torch
        import transformers
    except ImportError as error:
        raise UsageError("transformers is not installed (pip install 'tokmill[models]')") from error
    kind, layers = config.get("model_type"), config.get("num_hidden_layers")
    if kind not in transformers.CONFIG_MAPPING:
        raise UsageError(f"transformers {transformers.__version__} does not know it")
    if isinstance(layers, int) and layers > MOST["num_hidden_layers"]:
        raise UsageError(f"{layers:,} layers are too many to make")
    values = {key: value for key, value in config.items() if key not in NO_CODE}
    logging = transformers.utils.logging
    level = logging.get_verbosity()
    logging.set_verbosity(logging.CRITICAL)  # it warns of kernels that are not installed
    with warnings.catch_warnings(action="ignore"), torch.device("meta"):
        try:
            return _of_class(transformers, transformers.CONFIG_MAPPING[kind].from_dict(values))
        except UsageError:
            raise
        except Exception as error:  # whatever a configuration makes the library raise
            reason = " ".join(str(error).split())[:200]
            raise UsageError(
                f"transformers {transformers.__version__} cannot make it "
                f"({type(error).__name__}: {reason})"
            ) from error
        finally:
            logging.set_verbosity(level)


def _parameters(made: Any) -> Iterator[Entry]:
    """Yield the parameters of a module, with their kind by the class that holds them."""
    from torch.nn import Embedding, Linear
    from transformers.pytorch_utils import Conv1D

    kinds: dict[str, Kind] = {}
    for name, module in made.named_modules():
        if isinstance(module, Linear | Conv1D | Embedding):
            kinds[f"{name}.weight"] = "embedding" if isinstance(module, Embedding) else "linear"
    for name, tensor in made.named_parameters():
        stacked = "experts" in name and tensor.ndim > _MATRIX_AXES
        kind = kinds.get(name, "experts" if stacked else "vector")
        yield Entry(name, "F32", tuple(tensor.shape), 0, kind)


def _experts(settings: Any, tensors: tuple[Tensor, ...]) -> Experts | None:
    """Return the experts of a model that transformers made; None without their numbers."""
    stacked = [tensor for tensor in tensors if tensor.kind == "experts"]
    count, active = (
        next((n for key in keys if type(n := getattr(settings, key, None)) is int), 0)
        for keys in (EXPERTS, ACTIVE_EXPERTS)
    )
    if not (stacked and 0 < active <= count):
        return None
    layers = sorted({layer for tensor in stacked for layer in tensor.layers or ()})
    return Experts(count, active, ffn=0, shared_ffn=0, layers=tuple(layers))


def _of_class(transformers: Any, settings: Any) -> Any:
    """Return the model of the configuration's architecture, or else of the first fitting task."""
    base = transformers.PreTrainedModel
    named = (getattr(transformers, str(each), None) for each in settings.architectures or ())
    classes = [each for each in named if isinstance(each, type) and issubclass(each, base)]
    sequences = ["AutoModelForSeq2SeqLM"] if settings.is_encoder_decoder else []
    tasks = (*sequences, "AutoModelForImageTextToText", "AutoModelForCausalLM", "AutoModel")
    mappings = (getattr(transformers, task)._model_mapping for task in tasks)
    classes += [mapping[type(settings)] for mapping in mappings if type(settings) in mapping]
    if not classes:
        raise UsageError(
            f"transformers {transformers.__version__} makes it only as a part of other models"
        )
    for each in classes[:-1]:
        try:
            return each(settings)
        except ImportError:  # of a library that only images or sounds need: try the text alone
            continue
    return classes[-1](settings)


def _by_layer(entries: Iterable[Entry]) -> tuple[Tensor, ...]:
    """Return the tensors of entries; those of several layers that are alike are one tensor."""
    groups: dict[tuple[str, tuple[int, ...], float, Kind | None], list[int]] = defaultdict(list)
    for entry in entries:
        if entry.size:
            numbered = _LAYER.search(entry.name)
            key = entry.name if numbered is None else _LAYER.sub(".{}.", entry.name, count=1)
            groups[key, entry.shape, entry.n_bytes / entry.size, entry.kind].append(
                -1 if numbered is None else int(numbered[1])
            )
    return tuple(
        _tensor(key, shape, element, kind, tuple(sorted(layers)))
        for (key, shape, element, kind), layers in groups.items()
    )


def _tensor(
    name: str, shape: tuple[int, ...], element: float, kind: Kind | None, layers: tuple[int, ...]
) -> Tensor:
    """Return a tensor in `layers`, -1 for none; its kind is guessed if it is not known."""
    guessed, module = _kind(name, shape)
    kind = kind or guessed
    is_matrix = len(shape) >= _MATRIX_AXES and kind != "vector"
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
