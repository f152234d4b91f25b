"""Settings that Transformers and axolotl have in common, among them the tables of FSDP."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tokmill.bill.settings_files.deepspeed import deepspeed_settings
from tokmill.bill.settings_files.section import Section, read_section

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tokmill.bill.settings_files.section import Findings, Section


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


def named_settings(
    section: Section,
    found: Findings,
    names: Mapping[str, tuple[str, Callable[[Section, str], object]]],
) -> None:
    """Read what has one setting here and the same meaning: key -> setting and kind of value."""
    for key, (name, value) in names.items():
        found.set(name, value(section, key), section.where(key))


def optimizer_settings(section: Section, key: str, found: Findings) -> None:
    """Read the name of an optimizer; one with other states than tokmill's is not understood."""
    name = section.word(key)
    if name is None:
        return
    if name not in _STEPS:
        found.not_read.append(section.said(key))
        return
    optimizer, step = _STEPS[name]
    if name == "sgd" and "momentum" in str(section.get("optim_args") or ""):
        optimizer = "momentum"
    found.set("optimizer", optimizer, section.where(key))
    found.set("optimizer_step", step, section.where(key))
    if name.startswith("paged_"):
        found.notes.append(f"{section.said(key)}: its states count as GPU memory, all of them")


def attention_settings(section: Section, key: str, found: Findings) -> None:
    """Read the name of an attention implementation."""
    name = section.word(key)
    if name == "eager":
        found.set("attention", "eager", section.where(key))
    elif name is not None:
        found.set("attention", "flash", section.where(key))
        if name != "sdpa" and not name.startswith(("flash_attention", "kernels-")):
            found.notes.append(f"{section.said(key)}: counted as flash attention")


def length_settings(section: Section, epochs_key: str, found: Findings) -> None:
    """Read how long training goes on, and how many checkpoints are kept."""
    epochs = section.number(epochs_key)
    if section.count("max_steps"):
        found.notes.append(f"{section.said('max_steps')}: ends training, whatever the epochs")
    else:
        found.set("epochs", epochs, section.where(epochs_key))
    kept = section.count("save_total_limit")
    if section.flag("load_best_model_at_end") and kept == 1:
        kept = 2  # The best one and the last.
    if section.choice("save_strategy") == "no":
        kept = 0
    found.set("checkpoints", kept, section.where("save_total_limit"))


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


_SHARDING = {
    "full_shard": "fsdp", "true": "fsdp", "1": "fsdp",
    "shard_grad_op": "zero-2", "false": "zero-2", "2": "zero-2",
    "no_shard": "ddp", "3": "ddp",
}  # fmt: skip


def fsdp_settings(section: Section, found: Findings, *, config_is_enough: bool) -> None:
    """Read `fsdp` (a flag, words or a list of words) and the table `fsdp_config`.

    axolotl turns FSDP on where the table stands alone; Transformers keeps one beside an `fsdp`
    that is off (`config_is_enough`).
    """
    words = _words(section)
    config = section.section("fsdp_config", prefix="fsdp_")
    if not words and (config is None or not config_is_enough):
        return
    found.set("sharding", "fsdp", section.where("fsdp"))
    for word in words:
        if word in _SHARDING:
            found.set("sharding", _SHARDING[word], section.where("fsdp"))
        elif word == "offload":
            found.set("offload", "all", section.where("fsdp"))
        elif word != "auto_wrap":
            found.not_read.append(f"{section.place('fsdp')}: {word}")
    if config is not None:
        _read_config(config, found)
    if found.training["sharding"] == "zero-2":
        found.notes.append(
            f"{section.place('fsdp')}: weights that stay gathered after forward count as in ZeRO-2"
        )


def _words(section: Section) -> tuple[str, ...]:
    """Return what `fsdp` asks for; nothing where it is off."""
    value = section.get("fsdp")
    words = (str(value),) if isinstance(value, bool) else section.words("fsdp")
    return tuple(word.lower() for word in words if word.lower() != "false")


def _read_config(config: Section, found: Findings) -> None:
    for key in ("sharding_strategy", "reshard_after_forward"):
        name = str(config.get(key)).lower()
        if name in _SHARDING:
            found.set("sharding", _SHARDING[name], config.where(key))
        elif config.get(key) is not None:
            found.not_read.append(config.said(key))
    if config.flag("offload_params") or config.flag("cpu_offload"):
        found.set("offload", "all", config.where("offload_params"))
    if config.flag("activation_checkpointing"):
        found.set("checkpointing", "full", config.where("activation_checkpointing"))
    if config.flag("cpu_ram_efficient_loading"):
        found.set("initialization", "rank0", config.where("cpu_ram_efficient_loading"))
    found.not_read += config.left()
