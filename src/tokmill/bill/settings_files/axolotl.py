"""Settings of training from an axolotl YAML.

Keys and meanings are those of axolotl's schemas (src/axolotl/utils/schemas at 067b021): `bf16` also
loads the weights in it, `load_in_4bit` quantizes to NF4 with double quantization.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tokmill.bill.settings_files import common
from tokmill.bill.settings_files.mapping import Findings, ReadSettings, Row, half_of, when
from tokmill.bill.settings_files.section import Section, read_section

if TYPE_CHECKING:
    from pathlib import Path

_HALVES = {"bf16": "bf16", "bfloat16": "bf16", "fp16": "fp16", "float16": "fp16"}
_FLASH = (
    "flash_attention", "sdp_attention", "xformers_attention", "flex_attention", "sage_attention",
)  # fmt: skip
_FUSED_LOSSES = (
    "chunked_cross_entropy", "cut_cross_entropy", "liger_fused_linear_cross_entropy",
)  # fmt: skip
_ADAPTERS = {"lora": "lora", "qlora": "lora", "no": None, "none": None}
_ROWS = (
    *common.COMMON,
    Row("rl", Section.choice, "reference_model", {"dpo": True, "ipo": True}),
    Row("sequence_len", Section.whole, "sequence"),
    Row("micro_batch_size", Section.whole, "micro_batch"),
    Row("lora_r", Section.count, "adapter_rank"),
    Row("tensor_parallel_size", Section.count, "tensor_parallel"),
    Row("context_parallel_size", Section.count, "context_parallel"),
    Row("sequence_parallel_degree", Section.count, "context_parallel"),
    Row("adapter", Section.choice, "adapter", _ADAPTERS),
    when("gptq", "weights", "int4"),
    when("load_in_8bit", "weights", "int8"),
    when("load_in_4bit", "weights", "nf4-double"),
    *(when(key, "attention", "flash") for key in _FLASH),
    when("eager_attention", "attention", "eager"),
    *(when(key, "loss", "fused") for key in _FUSED_LOSSES),
)
_NEEDED = {
    "micro_batch": "micro_batch_size", "sequence": "sequence_len", "optimizer": "optimizer",
    "precision": "bf16",
}  # fmt: skip
_NEEDED_ADAPTED = {"adapter_rank": "lora_r", "adapter_targets": "lora_target_modules"}


def read_axolotl(path: Path | str) -> ReadSettings:
    """Read an axolotl YAML, and the DeepSpeed file that it names.

    Raises:
        UsageError: a file is missing or no object, or a value has another type or range.
    """
    section, found = read_section(path), Findings()
    common.attention_settings(section, found)
    found.read(section, _ROWS)
    name = section.word("base_model_config") or section.word("base_model")
    if name:
        found.model["name"] = name
    common.optimizer_settings(section, "optimizer", found)
    half = _read_half(section, found)
    adapted = "adapter" in found.training
    _read_adapter(section, found)
    _read_checkpointing(section, found)
    _read_plugins(section, found)
    common.length_settings(section, "num_epochs", found)
    _read_gpus(section, found)
    common.fsdp_settings(section, found, config_is_enough=True)
    _read_precision(section, found, half, adapted=adapted)
    common.follow_deepspeed(section, found, half)
    common.note_what_is_missing(section, found, _NEEDED | (_NEEDED_ADAPTED if adapted else {}))
    return found.settled(section)


def _read_half(section: Section, found: Findings) -> str:
    """Return the 16-bit type of the training, or "" for fp32 or where nothing is given."""
    on = [key for key in _HALVES if section.choice(key) not in (None, "no", "false")]
    if section.is_auto("bf16"):
        found.notes.append(f"{section.shown('bf16')}, taken as bf16")
        return "bf16"
    key = half_of(section, on)
    return _HALVES[key] if key else ""


def _read_precision(section: Section, found: Findings, half: str, *, adapted: bool) -> None:
    """Return which types the trained weights have; DeepSpeed's own tables come after."""
    if not half:
        if any(section.has(key) for key in ("bf16", "fp16", "float32")):
            found.set("precision", "fp32", section.where("bf16"))
        return
    sharded = "sharding" in found.training
    found.set("precision", "amp" if adapted or sharded else "pure-16", section.where(half))
    if adapted:
        found.training.setdefault("weights", half)
    if section.get("deepspeed") is not None:
        return
    if adapted:
        found.notes.append(f"adapter: weights in {half} below, adapters in fp32")
    elif sharded:
        found.notes.append(f"{half}: FSDP keeps the sharded weights and their states in fp32")
    else:
        found.notes.append(f"{half}: weights, gradients and states are all in {half}")


def _read_adapter(section: Section, found: Findings) -> None:
    if section.flag("peft_use_dora") and "adapter" in found.training:
        found.training["adapter"] = "dora"
    targets = section.words("lora_target_modules")
    if section.flag("lora_target_linear") or targets == ("all-linear",):
        found.set("adapter_targets", "all-linear", section.where("lora_target_linear"))
    elif targets and any(set(target) & set("\\^$*()[|") for target in targets):
        found.not_read.append(f"{section.place('lora_target_modules')}: a pattern")
    elif targets:
        found.set("adapter_targets", ",".join(targets), section.where("lora_target_modules"))
    quantized = section.section("bnb_config_kwargs")
    if quantized is not None and found.training.get("weights") == "nf4-double":
        if quantized.flag("bnb_4bit_use_double_quant") is False:
            found.training["weights"] = "nf4"
        if quantized.word("bnb_4bit_quant_type") == "fp4":
            found.training["weights"] = "int4"


def _read_checkpointing(section: Section, found: Findings) -> None:
    key = "gradient_checkpointing"
    choice = section.choice(key)
    if choice is None:
        return
    on = choice not in ("no", "false")
    found.set("checkpointing", "full" if on else "none", section.where(key))
    if on and choice not in ("yes", "true"):
        found.set("activation_offload", True, section.where(key))  # offload, unsloth


def _read_plugins(section: Section, found: Findings) -> None:
    for plugin in section.words("plugins"):
        if "cut_cross_entropy" not in plugin:
            found.not_read.append(f"{section.place('plugins')}: {plugin}")
        elif not section.has("cut_cross_entropy"):
            found.set("loss", "fused", section.where("plugins"))  # The plugin's own default.


def _read_gpus(section: Section, found: Findings) -> None:
    """Read the number of GPUs where the file gives it, by its total or by its factors."""
    keys = ("dp_shard_size", "dp_replicate_size", "tensor_parallel_size", "context_parallel_size")
    gpus = section.count("world_size") or math.prod(section.count(key) or 1 for key in keys)
    if gpus > 1:
        found.set("gpus", gpus, section.where("world_size"))
