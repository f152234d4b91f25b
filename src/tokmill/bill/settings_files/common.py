"""Keys that Transformers and axolotl have in common, among them the tables of FSDP."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tokmill.bill.settings_files.deepspeed import deepspeed_settings
from tokmill.bill.settings_files.mapping import Row, when
from tokmill.bill.settings_files.section import Section, read_section

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tokmill.bill.settings_files.mapping import Findings

_STEPS = {
    "adamw_torch": ("adamw", "foreach"),
    "adamw_torch_fused": ("adamw", "fused"),
    "adamw_apex_fused": ("adamw", "fused"),
    "adamw_hf": ("adamw", "for-loop"),
    "paged_adamw_32bit": ("adamw", "fused"),
    "adamw_bnb_8bit": ("adamw-8bit", "fused"),
    "adamw_8bit": ("adamw-8bit", "fused"),
    "paged_adamw_8bit": ("adamw-8bit", "fused"),
    "paged_adamw": ("adamw", "fused"),
    "adamw_torch_8bit": ("adamw-8bit", "foreach"),
    "ao_adamw_8bit": ("adamw-8bit", "foreach"),
    "adafactor": ("adafactor", "for-loop"),
    "sgd": ("sgd", "foreach"),
    "lion_32bit": ("lion", "fused"),
    "lion": ("lion", "fused"),
    "lion_pytorch": ("lion", "for-loop"),
    "paged_lion_32bit": ("lion", "fused"),
    "muon": ("muon", "for-loop"),
}
"""Name -> optimizer and how it steps. bitsandbytes steps in place, one kernel a tensor."""

COMMON = (
    Row("gradient_accumulation_steps", Section.whole, "accumulation"),
    Row("dataloader_num_workers", Section.whole, "loader_workers"),
    Row("dataloader_prefetch_factor", Section.whole, "prefetch"),
    Row("dataloader_pin_memory", Section.flag, "pin_memory"),
    when("activation_offloading", "activation_offload", True),
    Row("save_total_limit", Section.count, "checkpoints"),
)
_SHARDING = {
    "full_shard": "fsdp", "true": "fsdp", "yes": "fsdp", "1": "fsdp",
    "shard_grad_op": "fsdp-grad-op", "false": "fsdp-grad-op", "no": "fsdp-grad-op",
    "2": "fsdp-grad-op", "no_shard": "ddp", "3": "ddp",
}  # fmt: skip
_FSDP = (
    Row("sharding_strategy", lambda table, key: _lower(table.get(key)), "sharding", _SHARDING),
    Row("reshard_after_forward", lambda table, key: _lower(table.get(key)), "sharding", _SHARDING),
    when("offload_params", "offload", "all"),
    when("cpu_offload", "offload", "all"),
    when("activation_checkpointing", "checkpointing", "full"),
    when("cpu_ram_efficient_loading", "initialization", "rank0"),
)


def optimizer_settings(section: Section, key: str, found: Findings) -> None:
    """Read the name of an optimizer; one with other states than tokmill's is not understood."""
    found.read(section, [Row(key, Section.word, ("optimizer", "optimizer_step"), _STEPS)])
    name = section.word(key)
    if name == "sgd" and "momentum" in str(section.get("optim_args") or ""):
        found.training["optimizer"] = "momentum"
    if name and name.startswith("paged_"):
        found.notes.append(f"{section.shown(key)}: its states count as GPU memory, all of them")


def attention_settings(section: Section, found: Findings) -> None:
    """Read the name of an attention implementation: all but eager store no scores."""
    key = "attn_implementation"
    name = section.word(key)
    if name is not None:
        found.set("attention", "eager" if name == "eager" else "flash", section.where(key))
        if name not in ("eager", "sdpa") and not name.startswith(("flash_attention", "kernels-")):
            found.notes.append(f"{section.shown(key)}: counted as flash attention")


def length_settings(section: Section, epochs_key: str, found: Findings) -> None:
    """Read how long training goes on, and how many checkpoints are kept."""
    if section.count("max_steps"):
        section.get(epochs_key)
        found.notes.append(f"{section.shown('max_steps')}: ends training, whatever the epochs")
    else:
        found.set("epochs", section.number(epochs_key), section.where(epochs_key))
    if section.flag("load_best_model_at_end") and found.training.get("checkpoints") == 1:
        found.training["checkpoints"] = 2  # The best one and the last.
    if section.choice("save_strategy") == "no":
        found.training["checkpoints"] = 0


def follow_deepspeed(section: Section, found: Findings, half: str) -> None:
    """Read the DeepSpeed table that `deepspeed` holds or names, over what was found.

    A path counts from the working directory, or else from the directory of the file.
    """
    value = section.get("deepspeed")
    if value is None:
        return
    if isinstance(value, str):
        beside = section.file.parent / value
        table = read_section(beside if beside.exists() and not Path(value).exists() else value)
    else:
        table = section.section("deepspeed") or Section(section.file, {})
    deepspeed_settings(table, found, half=half)


def note_what_is_missing(section: Section, found: Findings, names: Mapping[str, str]) -> None:
    """Name the settings (setting -> key) that matter and that the file leaves to its program."""
    missing = [k for name, k in names.items() if name not in found.training and not section.has(k)]
    if missing:
        found.notes.append(
            f"not in the file, so the option or tokmill's default holds: {', '.join(missing)}"
        )


def fsdp_settings(section: Section, found: Findings, *, config_is_enough: bool) -> None:
    """Read `fsdp` (a flag, words or a list of words) and the table `fsdp_config`.

    axolotl turns FSDP on where the table stands alone; Transformers keeps one beside an `fsdp`
    that is off (`config_is_enough`).
    """
    value, where = section.get("fsdp"), section.where("fsdp")
    words = (str(value),) if isinstance(value, bool) else section.words("fsdp")
    words = tuple(word.lower() for word in words if word.lower() != "false")
    config = section.section("fsdp_config", prefix="fsdp_")
    if not words and (config is None or not config_is_enough):
        if config is not None:
            config.ignore()
        return
    found.set("sharding", "fsdp", where)
    for word in words:
        if word in _SHARDING:
            found.set("sharding", _SHARDING[word], where)
        elif word == "offload":
            found.set("offload", "all", where)
        elif word != "auto_wrap":
            found.not_read.append(f"{section.place('fsdp')}: {word}")
    if config is not None:
        found.read(config, _FSDP)


def _lower(value: object) -> str | None:
    return None if value is None else str(value).lower()
