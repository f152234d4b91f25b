"""Settings of training from an axolotl YAML.

Keys and meanings are those of axolotl's schemas (src/axolotl/utils/schemas at 067b021): `bf16` also
loads the weights in it, `load_in_4bit` quantizes to NF4 with double quantization.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokmill.bill.settings_files import common
from tokmill.bill.settings_files.common import fsdp_settings
from tokmill.bill.settings_files.section import Findings, ReadSettings, Section, read_section

if TYPE_CHECKING:
    from pathlib import Path

_NAMED = {
    "sequence_len": ("sequence", Section.whole),
    "micro_batch_size": ("micro_batch", Section.whole),
    "gradient_accumulation_steps": ("accumulation", Section.whole),
    "lora_r": ("adapter_rank", Section.count),
    "dataloader_num_workers": ("loader_workers", Section.whole),
    "dataloader_prefetch_factor": ("prefetch", Section.whole),
    "dataloader_pin_memory": ("pin_memory", Section.flag),
    "tensor_parallel_size": ("tensor_parallel", Section.count),
    "context_parallel_size": ("context_parallel", Section.count),
    "sequence_parallel_degree": ("context_parallel", Section.count),
}
_NEEDED = {
    "micro_batch": "micro_batch_size", "sequence": "sequence_len", "optimizer": "optimizer",
    "precision": "bf16",
}  # fmt: skip
_NEEDED_ADAPTED = {"adapter_rank": "lora_r", "adapter_targets": "lora_target_modules"}
_HALVES = {"bf16": "bf16", "bfloat16": "bf16", "fp16": "fp16", "float16": "fp16"}
_WEIGHTS = {"load_in_4bit": "nf4-double", "load_in_8bit": "int8", "gptq": "int4"}
_FLASH = (
    "flash_attention", "sdp_attention", "xformers_attention", "flex_attention", "sage_attention",
)  # fmt: skip
_ACTIVATION_KERNELS = (
    "liger_rms_norm", "liger_rms_norm_gated", "liger_layer_norm", "liger_glu_activation",
    "liger_swiglu", "liger_rope", "lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel",
    "lora_embedding_kernel", "flash_attn_fuse_mlp", "flash_attn_rms_norm",
)  # fmt: skip
_FUSED_LOSSES = (
    "liger_fused_linear_cross_entropy", "cut_cross_entropy", "chunked_cross_entropy",
)  # fmt: skip
_PLUGINS = ("liger", "cut_cross_entropy", "lm_eval", "swanlab", "grokfast", "kernels")
"""Parts of the names of plugins whose own keys say what they do to memory."""


def read_axolotl(path: Path | str) -> ReadSettings:
    """Read an axolotl YAML, and the DeepSpeed file that it names.

    Raises:
        UsageError: a file is missing or no object, or a value has another type or range.
    """
    section, found = read_section(path), Findings()
    common.named_settings(section, found, _NAMED)
    name = section.word("base_model_config") or section.word("base_model")
    if name:
        found.model["name"] = name
    common.optimizer_settings(section, "optimizer", found)
    half = _read_half(section, found)
    _read_adapter(section, found)
    _read_attention(section, found)
    _read_checkpointing(section, found)
    _read_loss(section, found)
    common.length_settings(section, "num_epochs", found)
    _read_parallelism(section, found)
    fsdp_settings(section, found, config_is_enough=True)
    _read_precision(section, found, half)
    common.follow_deepspeed(section, found, half)
    found.not_read += section.left()
    adapted = found.training.get("adapter", "none") != "none"
    common.note_what_is_missing(section, found, _NEEDED | (_NEEDED_ADAPTED if adapted else {}))
    return found.settled()


def _read_half(section: Section, found: Findings) -> str:
    """Return the 16-bit type of the training, or "" for fp32 or where nothing is said."""
    on = [key for key in _HALVES if section.choice(key) not in (None, "no", "false")]
    if section.is_auto("bf16"):
        found.notes.append(f"{section.said('bf16')}, taken as bf16")
        return "bf16"
    return _HALVES[on[0]] if on else ""


def _read_precision(section: Section, found: Findings, half: str) -> None:
    """Return which types the trained weights have; DeepSpeed's own tables come after."""
    if not half:
        if any(section.has(key) for key in ("bf16", "fp16", "float32")):
            found.set("precision", "fp32", section.where("bf16"))
        return
    adapted = found.training.get("adapter", "none") != "none"
    sharded = "sharding" in found.training
    found.set("precision", "amp" if adapted or sharded else "pure-16", section.where(half))
    if adapted and "weights" not in found.training:
        found.set("weights", half, section.where(half))
    if section.get("deepspeed") is not None:
        return
    if adapted:
        found.notes.append(f"adapter: weights in {half} below, adapters in fp32")
    elif sharded:
        found.notes.append(f"{half}: FSDP keeps the sharded weights and their states in fp32")
    else:
        found.notes.append(f"{half}: weights, gradients and states are all in {half}")


def _read_adapter(section: Section, found: Findings) -> None:
    adapter = section.choice("adapter")
    dora = section.flag("peft_use_dora")
    if adapter in ("lora", "qlora"):
        found.set("adapter", "dora" if dora else "lora", section.where("adapter"))
    elif adapter not in (None, "no", "none"):
        found.not_read.append(section.said("adapter"))
    targets = section.words("lora_target_modules")
    if section.flag("lora_target_linear") or targets == ("all-linear",):
        found.set("adapter_targets", "all-linear", section.where("lora_target_linear"))
    elif targets and any(set(target) & set("\\^$*()[|") for target in targets):
        found.not_read.append(f"{section.place('lora_target_modules')}: a pattern")
    elif targets:
        found.set("adapter_targets", ",".join(targets), section.where("lora_target_modules"))
    _read_quantization(section, found)


def _read_quantization(section: Section, found: Findings) -> None:
    for key in [key for key in _WEIGHTS if section.flag(key)][:1]:
        found.set("weights", _WEIGHTS[key], section.where(key))
    options = section.section("bnb_config_kwargs")
    if options is None:
        return
    if found.training.get("weights") == "nf4-double":
        if options.flag("bnb_4bit_use_double_quant") is False:
            found.set("weights", "nf4", options.where("bnb_4bit_use_double_quant"))
        if options.word("bnb_4bit_quant_type") == "fp4":
            found.set("weights", "int4", options.where("bnb_4bit_quant_type"))
    found.not_read += options.left()


def _read_attention(section: Section, found: Findings) -> None:
    common.attention_settings(section, "attn_implementation", found)
    for key in _FLASH:
        if section.flag(key):
            found.set("attention", "flash", section.where(key))
    if section.flag("eager_attention"):
        found.set("attention", "eager", section.where("eager_attention"))


def _read_checkpointing(section: Section, found: Findings) -> None:
    choice = section.choice("gradient_checkpointing")
    if choice is not None:
        on = choice not in ("no", "false")
        found.set("checkpointing", "full" if on else "none", section.where(
            "gradient_checkpointing"))  # fmt: skip
        if on and choice not in ("yes", "true"):
            found.notes.append(
                f"{section.said('gradient_checkpointing')}: counted as full checkpointing; "
                "the inputs of layers that it moves to the host still count on the GPU"
            )


def _read_loss(section: Section, found: Findings) -> None:
    for key in _FUSED_LOSSES:
        flag = section.flag(key)
        if flag is not None and found.training.get("loss") != "fused":
            found.set("loss", "fused" if flag else "full", section.where(key))
    for plugin in section.words("plugins"):
        if "cut_cross_entropy" in plugin and not section.has("cut_cross_entropy"):
            found.set("loss", "fused", section.where("plugins"))  # The plugin's own default.
        if not any(part in plugin for part in _PLUGINS):
            found.not_read.append(f"{section.place('plugins')}: {plugin}")
    kernels = [key for key in _ACTIVATION_KERNELS if section.flag(key)]
    if kernels:
        found.notes.append(f"{', '.join(kernels)}: activations are fewer than is counted")


def _read_parallelism(section: Section, found: Findings) -> None:
    """Return the number of GPUs where the file says it, by its total or by its factors."""
    gpus = 1
    for key in ("dp_shard_size", "dp_replicate_size", "tensor_parallel_size",
                "context_parallel_size"):  # fmt: skip
        gpus *= section.count(key) or 1
    world = section.count("world_size")
    if world or gpus > 1:
        found.set("gpus", world or gpus, section.where("world_size"))
    evaluated = section.count("eval_batch_size")
    if evaluated and evaluated > found.training.get("micro_batch", 1):
        found.not_read.append(section.said("eval_batch_size"))
