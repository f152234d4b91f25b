"""Keys that Transformers and axolotl have in common, among them those of FSDP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tokmill.bill.settings_files.deepspeed import deepspeed_settings
from tokmill.bill.settings_files.parse import parse_file
from tokmill.bill.settings_files.settings_file import Row, SettingsFile, when

_STEPS = {
    "adamw_torch": ("adamw", "foreach"), "adamw_hf": ("adamw", "for-loop"),
    "adamw_torch_fused": ("adamw", "fused"), "adamw_apex_fused": ("adamw", "fused"),
    "paged_adamw_32bit": ("adamw", "fused"), "paged_adamw": ("adamw", "fused"),
    "adamw_torch_8bit": ("adamw-8bit", "foreach"), "ao_adamw_8bit": ("adamw-8bit", "foreach"),
    "adamw_bnb_8bit": ("adamw-8bit", "fused"), "adamw_8bit": ("adamw-8bit", "fused"),
    "paged_adamw_8bit": ("adamw-8bit", "fused"), "adafactor": ("adafactor", "for-loop"),
    "sgd": ("sgd", "foreach"), "muon": ("muon", "for-loop"), "lion": ("lion", "fused"),
    "lion_pytorch": ("lion", "for-loop"), "lion_32bit": ("lion", "fused"),
    "paged_lion_32bit": ("lion", "fused"),
}  # fmt: skip
"""Name -> optimizer and how it steps. bitsandbytes steps in place, one kernel a tensor."""

COMMON = (
    Row("gradient_accumulation_steps", SettingsFile.integer, "accumulation"),
    Row("dataloader_num_workers", SettingsFile.integer, "loader_workers"),
    Row("dataloader_prefetch_factor", SettingsFile.integer, "prefetch"),
    Row("dataloader_pin_memory", SettingsFile.flag, "pin_memory"),
    when("activation_offloading", "activation_offload", True),
    Row("save_total_limit", SettingsFile.count, "checkpoints"),
)
_SHARDING = {
    "full_shard": "fsdp", "true": "fsdp", "yes": "fsdp", "1": "fsdp",
    "shard_grad_op": "fsdp-grad-op", "false": "fsdp-grad-op", "no": "fsdp-grad-op",
    "2": "fsdp-grad-op", "no_shard": "ddp", "3": "ddp",
}  # fmt: skip


def _lower(file: SettingsFile, key: str) -> str | None:
    value = file.get(key)
    return None if value is None else str(value).lower()


_FSDP = tuple(
    replace(row, key=f"fsdp_config.{prefix}{row.key}")
    for prefix in ("", "fsdp_")
    for row in (
        Row("sharding_strategy", _lower, "sharding", _SHARDING),
        Row("reshard_after_forward", _lower, "sharding", _SHARDING),
        when("offload_params", "offload", "all"),
        when("cpu_offload", "offload", "all"),
        when("activation_checkpointing", "checkpointing", "full"),
        when("cpu_ram_efficient_loading", "initialization", "rank0"),
    )
)


def optimizer_settings(file: SettingsFile, key: str) -> None:
    """Read the name of an optimizer; an optimizer with states of other sizes is not read."""
    file.read([Row(key, SettingsFile.word, ("optimizer", "optimizer_step"), _STEPS)])
    name = file.word(key)
    if name == "sgd" and "momentum" in str(file.get("optim_args") or ""):
        file.training["optimizer"] = "momentum"
    if name and name.startswith("paged_"):
        file.notes.append(f"{file.shown(key)}: all its states are counted as GPU memory")


def attention_settings(file: SettingsFile) -> None:
    """Read the name of an attention implementation: only eager stores scores."""
    key = "attn_implementation"
    name = file.word(key)
    if name is not None:
        file.set("attention", "eager" if name == "eager" else "flash", key)
        if name not in ("eager", "sdpa") and not name.startswith(("flash_attention", "kernels-")):
            file.notes.append(f"{file.shown(key)}: counted as flash attention")


def length_settings(file: SettingsFile, epochs_key: str) -> None:
    """Read the number of epochs, and of the checkpoints that are kept."""
    epochs = file.number(epochs_key)
    if file.count("max_steps"):
        file.notes.append(f"{file.shown('max_steps')}: overrides the number of epochs")
    else:
        file.set("epochs", epochs, epochs_key)
    if file.flag("load_best_model_at_end") and file.training.get("checkpoints") == 1:
        file.training["checkpoints"] = 2  # The best one and the last.
    if file.choice("save_strategy") == "no":
        file.training["checkpoints"] = 0


def follow_deepspeed(file: SettingsFile, half: str) -> None:
    """Read the DeepSpeed table that `deepspeed` holds or names; it wins over what `file` has.

    A path is relative to the working directory, or else to the directory of the file.
    """
    key = "deepspeed"
    value = file.get(key)
    if isinstance(value, str):
        beside = file.path.parent / value
        path = beside if beside.exists() and not Path(value).exists() else Path(value)
        inner = replace(file, path=path, values=parse_file(path), asked=set())
        deepspeed_settings(inner, half=half)
    elif (table := file.table(key)) is not None:
        deepspeed_settings(replace(file, values=table, place=f"{key}.", asked=set()), half=half)


def note_what_is_missing(file: SettingsFile, names: Mapping[str, str]) -> None:
    """Note the settings (setting -> key) that matter and that the file leaves to its program."""
    missing = [k for name, k in names.items() if name not in file.training and not file.has(k)]
    if missing:
        file.notes.append(
            f"not in the file, so the option or tokmill's default holds: {', '.join(missing)}"
        )


def fsdp_settings(file: SettingsFile, *, config_is_enough: bool) -> None:
    """Read `fsdp` (a flag, words or a list of words) and the table `fsdp_config`.

    `config_is_enough`: the table alone switches FSDP on, as in axolotl. Transformers writes one
    also where `fsdp` is off.
    """
    value = file.get("fsdp")
    words = (str(value),) if isinstance(value, bool) else file.words("fsdp")
    words = tuple(word.lower() for word in words if word.lower() != "false")
    config = file.table("fsdp_config")
    if not words and (config is None or not config_is_enough):
        return
    file.set("sharding", "fsdp", "fsdp")
    for word in words:
        if word in _SHARDING:
            file.set("sharding", _SHARDING[word], "fsdp")
        elif word == "offload":
            file.set("offload", "all", "fsdp")
        elif word != "auto_wrap":
            file.not_read.append(f"fsdp: {word}")
    file.read(_FSDP)
    version = file.count("fsdp_config.version") or file.count("fsdp_config.fsdp_version")
    if 2 in (version, file.count("fsdp_version")) and file.training["sharding"] == "fsdp":
        file.training["sharding"] = "fsdp2"
