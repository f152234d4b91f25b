"""The tables of formats, renderers, engines and trainers: each name, and where its object stands.

A row is written as a package writes an entry point, `module:object`. So a new built-in one is one
file and one row here, and one from another package is one file and one entry point of the table's
group. Nothing is imported before a name is used; see `extensions`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, eq=False, slots=True)
class Table:
    """One kind of thing that can be added.

    `group`: of the entry points of other packages. `rows`: where each built-in object stands, by
    name. `takes_paths`: a dotted path `module:object` is a name too. `hidden`: no settings.
    `has_auto`: tokmill can choose. `aliases`: the name of what people call otherwise, in lower case
    with hyphens.
    """

    kind: str
    group: str
    rows: Mapping[str, str]
    takes_paths: bool = False
    hidden: tuple[str, ...] = ()
    has_auto: bool = True
    aliases: Mapping[str, str] = field(default_factory=dict)

    def name_of(self, name: str) -> str:
        """Return the built-in name of what is called `name`; `name` itself if there is none."""
        written = re.sub(r"[\s_]+", "-", name.strip().casefold())
        found = self.aliases.get(written, written)
        return found if found in self.rows else name

    @property
    def choices(self) -> tuple[str, ...]:
        """Return the built-in values of the setting."""
        names = tuple(name for name in self.rows if name not in self.hidden)
        return ("auto", *names) if self.has_auto else names


FORMATS = Table(
    "format",
    "tokmill.formats",
    {
        "jsonl": "tokmill.sources.json_formats:JSONL",
        "array": "tokmill.sources.json_formats:ARRAY",
        "object": "tokmill.sources.json_formats:OBJECT",
        "csv": "tokmill.sources.csv:CSV",
        "tsv": "tokmill.sources.csv:TSV",
        "parquet": "tokmill.sources.parquet:PARQUET",
        "text": "tokmill.sources.text:TEXT",
        "arrow": "tokmill.sources.arrow:ARROW",
        "hub": "tokmill.sources.hub:HUB",
    },
    hidden=("hub",),  # chosen by the prefix hf: of an input
)

RENDERERS = Table(
    "renderer",
    "tokmill.renderers",
    {
        "sections": "tokmill.rendering.by_script:Sections",
        "encyclopedia": "tokmill.rendering.built_in:Encyclopedia",
        "article": "tokmill.rendering.built_in:Article",
        "text": "tokmill.rendering.built_in:text_renderer",
        "template": "tokmill.rendering.built_in:template_renderer",
    },
    takes_paths=True,
)

TEMPLATES = Table("template", "tokmill.templates", {})
"""Jinja sources of other packages; `chat.own_templates` names those of tokmill."""

FAST_ENGINES = {
    "gigatoken": "tokmill.engines.gigatoken:ENGINE",
    "fastokens": "tokmill.engines.fastokens:ENGINE",
}
"""For BPE, in the order in which they are tried when there is too little text to time them."""

ENGINES = Table(
    "engine",
    "tokmill.engines",
    {
        "reference": "tokmill.engines.reference:ENGINE",
        **FAST_ENGINES,
        "nanotoken": "tokmill.engines.nanotoken:ENGINE",
    },
)

TRAINERS = Table(
    "trainer",
    "tokmill.trainers",
    {
        "megatron": "tokmill.trainers.megatron:TRAINER",
        "datatrove": "tokmill.trainers.datatrove:TRAINER",
        "nanotron": "tokmill.trainers.datatrove:NANOTRON",
        "olmo-core": "tokmill.trainers.olmo_core:TRAINER",
        "nanogpt": "tokmill.trainers.nanogpt:NANOGPT",
        "datasets": "tokmill.trainers.hf_datasets:DATASETS",
        "llm.c": "tokmill.trainers.nanogpt:LLM_C",
        "modded-nanogpt": "tokmill.trainers.nanogpt:MODDED_NANOGPT",
        "trl": "tokmill.trainers.hf_datasets:TRL",
        "axolotl": "tokmill.trainers.hf_datasets:AXOLOTL",
        "llamafactory": "tokmill.trainers.llama_factory:TRAINER",
        "litdata": "tokmill.trainers.litdata:LITDATA",
        "litgpt": "tokmill.trainers.litdata:LITGPT",
        "megatron-bridge": "tokmill.trainers.megatron_bridge:TRAINER",
        "nemo": "tokmill.trainers.megatron_bridge:TRAINER",
        "ms-swift": "tokmill.trainers.ms_swift:TRAINER",
        "skyrl": "tokmill.trainers.skyrl:TRAINER",
        "torchtitan": "tokmill.trainers.torchtitan:TRAINER",
        "grain": "tokmill.trainers.torchtitan:TRAINER",
        "unsloth": "tokmill.trainers.hf_datasets:UNSLOTH",
        "automodel": "tokmill.trainers.megatron:AUTOMODEL",
        "maxtext": "tokmill.trainers.maxtext:TRAINER",
    },
    has_auto=False,
    aliases={
        "megatron-lm": "megatron",
        "megatron-core": "megatron",
        "mcore": "megatron",
        "gpt-neox": "megatron",
        "mbridge": "megatron-bridge",
        "nemo-automodel": "automodel",
        "llama-factory": "llamafactory",
        "swift": "ms-swift",
        "megatron-swift": "ms-swift",
        "lit-gpt": "litgpt",
        "lit-data": "litdata",
        "hf": "datasets",
        "huggingface": "datasets",
        "hf-datasets": "datasets",
        "olmo": "olmo-core",
        "nano-gpt": "nanogpt",
        "llmc": "llm.c",
        "llm-c": "llm.c",
        "sfttrainer": "trl",
        "sky-rl": "skyrl",
        "max-text": "maxtext",
    },
)

IMPORTS = (
    "megatron", "datatrove", "nanogpt", "olmo-core", "torchtitan", "llm.c", "litdata", "datasets",
    "parquet", "jsonl",
)  # fmt: skip
"""What `tokmill import` reads: the layouts of `sources/token_layouts.py`, and rows of ids."""

_IMPORTED_AS = {
    "nanotron": "datatrove",
    "modded-nanogpt": "llm.c",
    "litgpt": "litdata",
    "grain": "torchtitan",
    "maxtext": "olmo-core",
    "automodel": "megatron",
    "megatron-bridge": "parquet",
    "nemo": "parquet",
} | dict.fromkeys(
    ("trl", "unsloth", "axolotl", "llamafactory", "ms-swift", "skyrl"), "datasets"
)  # fmt: skip


def import_name(name: str) -> str:
    """Return what `tokmill import` reads the files of a trainer as; `name` itself if nothing."""
    trainer = TRAINERS.name_of(name)
    return _IMPORTED_AS.get(trainer, trainer)
