"""The cases of each preset: a template, a tokenizer, and the framework's side of them."""

from __future__ import annotations

import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from bench.sft_values import Case
from bench.values import NotMeasured
from tokmill.settings.sft import SftSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.sft_values import Reference

PRESETS = ("trl", "minimind", "nanochat", "torchtune", "llamafactory", "baby-llama2")

_TAG = re.compile(r"\{%-?\s*generation\s*-?%\}")

Found = tuple[Case, "Reference"]


def cases(
    preset: str, tokenizer: Path, eos: str, source: Path | None, templates: str, work: Path
) -> Iterator[Found]:
    """Return the cases of a preset with a tokenizer; `work` is a directory for files.

    Raises:
        NotMeasured: the framework, or something it needs, is not here.
    """
    if preset == "trl":
        yield from _transformers(tokenizer, eos, templates)
        return
    if preset not in PRESETS:
        raise NotMeasured(f"no such preset; known are {', '.join(PRESETS)}")
    if source is None:
        raise NotMeasured(f"no source: name it with --{preset}")
    if not source.is_dir():
        raise NotMeasured(f"{source}: no such folder")
    module = import_module(f"bench.sft_references.{preset.replace('-', '_')}")
    yield from module.cases(tokenizer, eos, source, work)


def _transformers(tokenizer: Path, eos: str, templates: str) -> Iterator[Found]:
    for package in ("transformers", "trl"):
        if find_spec(package) is None:
            raise NotMeasured(f"{package} is not installed")
    from bench.sft_references.transformers_chat import TransformersChat

    folder = Path(templates).parent
    if folder == Path():
        found = find_spec("trl")
        assert found is not None
        assert found.origin is not None
        folder = Path(found.origin).parent / "chat_templates"
    for path in sorted(folder.glob(Path(templates).name)):
        source = path.read_text(encoding="utf-8")
        if not _TAG.search(source):
            continue
        settings = SftSettings(preset="trl", template=str(path))
        reference = TransformersChat(tokenizer, eos, source)
        yield Case(tokenizer, settings, path.name, reference.eos), reference
