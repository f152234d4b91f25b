"""Weights as stored in a model's files, by `quantization_config` of its config.json.

Methods: AWQ, GPTQ, AutoRound, bitsandbytes, mxfp4, fp8, compressed-tensors and NVIDIA's ModelOpt
(NVFP4, fp8), with their scales and zeros. Other tensors (embedding, head, routers, modules excluded
by name) stay in 16 bit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tokmill.bill.models.model import Model, Stored, Tensor
from tokmill.bill.models.weight_types import MATRIX_BYTES, is_matrix
from tokmill.errors import UsageError

KEPT_BYTES = 2.0
BITS = (2, 3, 4, 8)
_LIST_KEYS = ("modules_to_not_convert", "llm_int8_skip_modules", "ignore", "exclude_modules")
_BOUNDARY = r"(?:(?<=\.)|(?=\.|$))"


@dataclass(frozen=True, slots=True)
class Method:
    """How a method stores a matrix."""

    stored: Stored
    element: Callable[[Tensor], float]  # bytes per element
    named: tuple[tuple[re.Pattern[str], Callable[[Tensor], float]], ...] = ()
    """Modules whose matrices have bytes of their own; all others then stay in 16 bit."""


def as_stored(model: Model, config: Mapping[str, Any], where: str) -> Model:
    """Return the model with the weights of its quantization_config.

    An unknown method leaves the model unchanged and adds a warning.

    Raises:
        UsageError: a value of the configuration is wrong.
    """
    configs = (each for each in (config, config.get("text_config")) if isinstance(each, dict))
    known = (each.get("quantization_config") for each in configs)
    own = next((each for each in known if isinstance(each, dict)), None)
    if not own:
        return model
    if isinstance(own.get("quantization"), dict):  # of hf_quant_config.json
        own = {**own, **own["quantization"]}
    name = str(own.get("quant_method") or (own.get("producer") or {}).get("name"))
    try:
        method = METHODS[name](own) if name in METHODS else None
        pattern = _of_modelopt if name == "modelopt" else _pattern
        skipped = _any_of(map(pattern, _not_converted(own)))
    except (TypeError, ValueError, KeyError, AttributeError, re.error) as error:
        raise UsageError(
            f"{where}: quantization_config of {name}: cannot be read ({error!r})"
        ) from error
    if method is None:
        warning = (
            f"{where}: quantization_config of {name} is not read: weights are billed in 16 bit; "
            "give --weight-type (and --weights for the base of an adapter)"
        )
        return replace(model, warnings=(*model.warnings, warning))
    tensors = tuple(_stored(tensor, method, skipped) for tensor in model.tensors)
    note = f"{method.stored.note} (quantization_config)"
    return replace(model, tensors=tensors, stored=replace(method.stored, note=note))


def _not_converted(config: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of modules that stay in 16 bit; GPTQ marks them in `dynamic` with -:."""
    for key in _LIST_KEYS:
        yield from config.get(key) or ()
    for name in config.get("dynamic") or ():
        if name.startswith("-:"):
            yield f"re:{name[2:]}"


def _any_of(patterns: Iterable[str]) -> re.Pattern[str] | None:
    """Return one pattern of several; None without any."""
    joined = "|".join(f"(?:{each})" for each in patterns)
    return re.compile(joined) if joined else None


def _stored(tensor: Tensor, method: Method, skipped: re.Pattern[str] | None) -> Tensor:
    """Return a tensor with the bytes of its method, less what stays in 16 bit."""
    if not is_matrix(tensor):
        return tensor
    module = tensor.name.removesuffix(".weight")
    layers = tensor.layers or (0,)
    sizes = [_bytes_of(tensor, module.format(layer), method, skipped) for layer in layers]
    if all(each == KEPT_BYTES for each in sizes):
        return tensor
    return replace(tensor, stored_bytes=sum(sizes) / len(sizes))


def _bytes_of(
    tensor: Tensor, module: str, method: Method, skipped: re.Pattern[str] | None
) -> float:
    """Return the bytes of an element of a module's matrix."""
    if skipped and skipped.search(module):
        return KEPT_BYTES
    for pattern, element in method.named:
        if pattern.search(module):
            return element(tensor)
    return KEPT_BYTES if method.named else method.element(tensor)


def _pattern(name: str) -> str:
    """Return the pattern of names that stay in 16 bit, as in transformers' should_convert_module.

    A name matches the start or the end of a module's name. After `re:` (compressed-tensors) comes a
    regular expression.
    """
    if name.startswith("re:"):
        return f"^(?:{name[3:]})"
    return rf"^(?:{name}){_BOUNDARY}|(?:^|\.){re.escape(name)}$"


def _of_modelopt(name: str) -> str:
    """Return the pattern of a name of ModelOpt, in which `*` stands for any characters.

    The names of a text model are here those that it has alone, in transformers 5.
    """
    if name.startswith("backbone."):
        name = name.replace("backbone.", "model.", 1)
    alone = re.escape(name.replace("language_model.", "", 1))
    return f"^{alone.replace(re.escape('*'), '.*')}{_BOUNDARY}"


def _grouped(method: str, kind: str, bits: int, size: int, *, zeros: bool = True) -> Method:
    """Return the layout of groups of `size` with a 16-bit scale; size -1: one group per row."""
    if bits not in BITS or not (size == -1 or _is_count(size)):
        raise ValueError(f"bits {bits}, group_size {size}")
    per_group = 2 + (bits / 8 if zeros else 0)
    groups = "one group per row or matrix" if size == -1 else f"groups of {size}"
    return Method(
        Stored(kind, f"{method}, {bits} bit, {groups}"),
        lambda tensor: bits / 8 + per_group / (tensor.n_in if size == -1 else size),
    )


def _is_count(value: object) -> bool:
    return type(value) is int and value > 0


def _packed(method: str, config: Mapping[str, Any]) -> Method:
    """Return the layout of AWQ: a 16-bit scale and a zero per group."""
    bits, size = config.get("bits", 4), config.get("group_size", 128)
    return _grouped(method, "int4" if bits <= 4 else "int8", bits, size)


def _gptq(config: Mapping[str, Any]) -> Method | None:
    """Return AWQ's layout and an int32 per input feature; None if layouts differ."""
    if not all(name.startswith("-:") for name in config.get("dynamic") or ()):
        return None
    groups = _packed("GPTQ", config)
    return Method(groups.stored, lambda tensor: groups.element(tensor) + 4 / tensor.n_out)


def _bitsandbytes(config: Mapping[str, Any]) -> Method:
    """Return the layout of LLM.int8 or of 4 bits."""
    if config.get("load_in_8bit"):
        stored = Stored("int8", "bitsandbytes, 8 bit")
        return Method(stored, lambda tensor: 1 + 4 / tensor.n_in)
    double = bool(config.get("bnb_4bit_use_double_quant"))
    kind = "nf4-double" if double else "nf4"
    note = f"bitsandbytes, {config.get('bnb_4bit_quant_type', 'fp4')}"
    note += ", scales quantized again" if double else ""
    return Method(Stored(kind, note), lambda _: MATRIX_BYTES[kind])


def _mxfp4(_: Mapping[str, Any]) -> Method:
    stored = Stored("mxfp4", "mxfp4", trains=False)
    return Method(stored, lambda _: MATRIX_BYTES["mxfp4"])


def _fp8(config: Mapping[str, Any]) -> Method:
    """Return DeepSeek-V3's layout: an fp32 scale per block, or per matrix."""
    block = config.get("weight_block_size")
    if not block:
        return Method(Stored("fp8", "fp8, one scale per matrix"), lambda _: 1.0)
    high, wide = block
    if not (_is_count(high) and _is_count(wide)):
        raise ValueError(f"weight_block_size {block}")
    note = f"fp8, one scale per {high} x {wide} block"
    return Method(Stored("fp8", note), lambda _: 1 + 4 / (high * wide))


def _compressed(config: Mapping[str, Any]) -> Method | None:
    """Return the layout of compressed-tensors; None if layouts differ."""
    groups = list(config.get("config_groups", {}).values())
    weights = groups[0].get("weights") if len(groups) == 1 else None
    if not weights or groups[0].get("targets") != ["Linear"]:
        return None
    bits, strategy = weights["num_bits"], weights["strategy"]
    sizes = {"group": weights.get("group_size"), "channel": -1, "tensor": -1}
    kind = "fp8" if weights.get("type") == "float" else "int8" if bits == 8 else "int4"
    if bits not in BITS:
        raise ValueError(f"num_bits {bits}")
    if strategy not in sizes:
        return None
    zeros = not weights.get("symmetric", True)
    return _grouped("compressed-tensors", kind, bits, sizes[strategy], zeros=zeros)


MODELOPT_BITS = {"NVFP4": 4, "FP8": 8}
"""Bits by the name of ModelOpt's algorithm."""


def _modelopt(config: Mapping[str, Any]) -> Method | None:
    """Return the layout of NVFP4 or fp8, or of both by name; None if it is another."""
    algorithm = config.get("quant_algo")
    if algorithm in MODELOPT_BITS and not config.get("config_groups"):
        size = config.get("group_size", 16)
        return _modelopt_layout({"num_bits": MODELOPT_BITS[algorithm], "group_size": size})
    groups = list((config.get("config_groups") or {}).values())
    layouts = [_modelopt_layout(each.get("weights") or {}) for each in groups]
    known = [each for each in layouts if each is not None]
    if not known or len(known) < len(layouts):
        return None
    if len(groups) == 1 and groups[0].get("targets", ["Linear"]) == ["Linear"]:
        return known[0]
    named = []
    for group, layout in zip(groups, known, strict=True):
        if pattern := _any_of(map(_of_modelopt, group.get("targets") or ())):
            named.append((pattern, layout.element))
    notes = " and ".join(dict.fromkeys(each.stored.note for each in known))
    stored = replace(known[-1].stored, note=notes, trains=False)
    return Method(stored, known[-1].element, tuple(named))


def _modelopt_layout(weights: Mapping[str, Any]) -> Method | None:
    """Return the layout of a group of matrices: a scale in fp8 for each 16 numbers, or none."""
    bits, size = weights.get("num_bits"), weights.get("group_size")
    if weights.get("type", "float") != "float":
        return None
    if bits == 4 and type(size) is int and size > 0:
        stored = Stored("nvfp4", f"NVFP4, groups of {size}", trains=False)
        return Method(stored, lambda _: 0.5 + 1 / size)
    return Method(Stored("fp8", "fp8, one scale per matrix"), lambda _: 1.0) if bits == 8 else None


METHODS: Mapping[str, Callable[[Mapping[str, Any]], Method | None]] = {
    "awq": partial(_packed, "AWQ"),
    "auto-round": partial(_packed, "AutoRound"),
    "gptq": _gptq,
    "bitsandbytes": _bitsandbytes,
    "mxfp4": _mxfp4,
    "fp8": _fp8,
    "compressed-tensors": _compressed,
    "modelopt": _modelopt,
}
