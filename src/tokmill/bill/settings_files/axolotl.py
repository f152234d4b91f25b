"""Settings of training from an axolotl YAML.

Keys and meanings are those of axolotl's schemas (src/axolotl/utils/schemas at 067b021): `bf16` also
loads the weights in it, `load_in_4bit` quantizes to NF4 with double quantization.
"""

from __future__ import annotations

import math
from pathlib import Path

from tokmill.bill.settings_files import common
from tokmill.bill.settings_files.parse import parse_file
from tokmill.bill.settings_files.settings_file import ReadSettings, Row, SettingsFile, when

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
    Row("rl", SettingsFile.choice, "reference_model", {"dpo": True, "ipo": True}),
    Row("sequence_len", SettingsFile.integer, "sequence"),
    Row("micro_batch_size", SettingsFile.integer, "micro_batch"),
    Row("lora_r", SettingsFile.count, "adapter_rank"),
    Row("tensor_parallel_size", SettingsFile.count, "tensor_parallel"),
    Row("context_parallel_size", SettingsFile.count, "context_parallel"),
    Row("sequence_parallel_degree", SettingsFile.count, "context_parallel"),
    Row("adapter", SettingsFile.choice, "adapter", _ADAPTERS),
    when("gptq", "weights", "int4"),
    when("load_in_8bit", "weights", "int8"),
    when("load_in_4bit", "weights", "nf4-double"),
    *(when(key, "attention", "flash") for key in _FLASH),
    when("eager_attention", "attention", "eager"),
    *(when(key, "loss", "fused") for key in _FUSED_LOSSES),
)
_GPUS = ("dp_shard_size", "dp_replicate_size", "tensor_parallel_size", "context_parallel_size")
_NEEDED = {
    "micro_batch": "micro_batch_size", "sequence": "sequence_len", "optimizer": "optimizer",
    "precision": "bf16",
}  # fmt: skip
_NEEDED_ADAPTED = {"adapter_rank": "lora_r", "adapter_targets": "lora_target_modules"}


def read_axolotl(path: Path | str) -> ReadSettings:
    """Read an axolotl YAML, and the DeepSpeed file that it names.

    Raises:
        UsageError: a file is missing or not an object, or a value has another type or range.
    """
    file = SettingsFile(Path(path), parse_file(Path(path)))
    common.attention_settings(file)
    file.read(_ROWS)
    if name := file.word("base_model_config") or file.word("base_model"):
        file.model["name"] = name
    common.optimizer_settings(file, "optimizer")
    half = _read_half(file)
    adapted = "adapter" in file.training
    _read_adapter(file)
    _read_checkpointing(file)
    _read_plugins(file)
    common.length_settings(file, "num_epochs")
    gpus = file.count("world_size") or math.prod(file.count(key) or 1 for key in _GPUS)
    if gpus > 1:
        file.set("gpus", gpus, "world_size")
    common.fsdp_settings(file, config_is_enough=True)
    _read_precision(file, half, adapted=adapted)
    common.follow_deepspeed(file, half)
    common.note_what_is_missing(file, _NEEDED | (_NEEDED_ADAPTED if adapted else {}))
    return file.result()


def _read_half(file: SettingsFile) -> str:
    """Return the 16-bit type of the training, or "" for fp32 or where nothing is given."""
    on = [key for key in _HALVES if file.choice(key) not in (None, "no", "false")]
    if file.is_auto("bf16"):
        file.notes.append("bf16: auto, taken as bf16")
        return "bf16"
    key = file.one_half(on)
    return _HALVES[key] if key else ""


def _read_precision(file: SettingsFile, half: str, *, adapted: bool) -> None:
    """Set the types of the trained weights; a DeepSpeed table, read later, wins."""
    if not half:
        if any(file.has(key) for key in ("bf16", "fp16", "float32")):
            file.set("precision", "fp32", "bf16")
        return
    sharded = "sharding" in file.training
    file.set("precision", "amp" if adapted or sharded else "pure-16", half)
    if adapted:
        file.training.setdefault("weights", half)
    if file.get("deepspeed") is not None:
        return
    if adapted:
        file.notes.append(f"adapter: weights in {half} below, adapters in fp32")
    elif sharded:
        file.notes.append(f"{half}: FSDP keeps the sharded weights and their states in fp32")
    else:
        file.notes.append(f"{half}: weights, gradients and states are all in {half}")


def _read_adapter(file: SettingsFile) -> None:
    if file.flag("peft_use_dora") and "adapter" in file.training:
        file.training["adapter"] = "dora"
    key = "lora_target_modules"
    targets = file.words(key)
    if file.flag("lora_target_linear") or targets == ("all-linear",):
        file.set("adapter_targets", "all-linear", key)
    elif any(set(target) & set("\\^$*()[|") for target in targets):
        file.not_read.append(f"{key}: a pattern")
    elif targets:
        file.set("adapter_targets", ",".join(targets), key)
    if file.training.get("weights") == "nf4-double":
        if file.flag("bnb_config_kwargs.bnb_4bit_use_double_quant") is False:
            file.training["weights"] = "nf4"
        if file.word("bnb_config_kwargs.bnb_4bit_quant_type") == "fp4":
            file.training["weights"] = "int4"


def _read_checkpointing(file: SettingsFile) -> None:
    key = "gradient_checkpointing"
    choice = file.choice(key)
    if choice is None:
        return
    on = choice not in ("no", "false")
    file.set("checkpointing", "full" if on else "none", key)
    if on and choice not in ("yes", "true"):
        file.set("activation_offload", True, key)  # offload, unsloth


def _read_plugins(file: SettingsFile) -> None:
    for plugin in file.words("plugins"):
        if "cut_cross_entropy" not in plugin:
            file.not_read.append(f"plugins: {plugin}")
        elif not file.has("cut_cross_entropy"):
            file.set("loss", "fused", "plugins")  # The plugin's own default.
