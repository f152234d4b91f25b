"""The FSDP tables of Transformers and axolotl, with or without the prefix fsdp_."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokmill.memory.settings_files.findings import Findings
    from tokmill.memory.settings_files.section import Section

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
