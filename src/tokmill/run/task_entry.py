"""The key "task" of `plan.json`: what another process needs, besides files and parts, to work.

The settings, the tokenizer itself and the chat template, so that a thousand tasks neither list the
input nor ask the Hugging Face Hub. How a machine works (workers, threads, executor) is not in it.
"""

from __future__ import annotations

import base64
import json
import sys
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from tokmill.dataset.canonical import canonical_json
from tokmill.errors import StateError, UsageError
from tokmill.recipes.spec import ReadingSettings
from tokmill.settings.load import build_config
from tokmill.settings.plain import plain
from tokmill.settings.schema import Config, RunSettings
from tokmill.tokenizer.tokenizer import Token, Tokenizer

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tokmill.recipes.spec import RunSpec

_MOST_TOKENIZER_BYTES = 1 << 28
"""A tokenizer's text is some MB, thrice; a plan with more was not written by tokmill."""

_WINDOW = 26
_COMPRESSION: dict[int, int] = {
    zstd.CompressionParameter.compression_level: 3,
    zstd.CompressionParameter.window_log: _WINDOW,
    zstd.CompressionParameter.enable_long_distance_matching: 1,
}


class Task(NamedTuple):
    """What the key "task" of a plan holds; see `recipes.spec.RunSpec`."""

    config: Config
    tokenizer: Tokenizer
    template: str
    is_named: bool
    labels: frozenset[str]
    readings: tuple[ReadingSettings, ...]


def task_entry(spec: RunSpec) -> dict[str, Any]:
    """Return the value of the key "task" of the plan of a run."""
    config = spec.config
    config = replace(config, run=RunSettings(), output=replace(config.output, dir=""))
    return {
        "config": plain(config),
        "tokenizer": packed_tokenizer(spec.tokenizer),
        "template": spec.template,
        "is_named": spec.is_named,
        "labels": sorted(spec.labels),
        "readings": [_reading_entry(reading) for reading in spec.readings],
    }


def read_task(plan: Mapping[str, Any], where: str) -> Task:
    """Return what the key "task" of a plan holds; `where` is for messages.

    Raises:
        StateError: it is missing, as in the plan of an import, or damaged.
    """
    try:
        entry = plan["task"]
        return Task(
            build_config(entry["config"], where=where),
            _unpacked(entry["tokenizer"]),
            str(entry["template"]),
            bool(entry["is_named"]),
            frozenset(map(str, entry["labels"])),
            tuple(_reading(reading, where) for reading in entry["readings"]),
        )
    except (
        KeyError, TypeError, ValueError, AttributeError, RecursionError, zstd.ZstdError, UsageError,
    ) as error:  # fmt: skip
        raise StateError(
            f"{where}: has no task that can be read ({error}): plan the run again with this tokmill"
        ) from None


def _reading_entry(reading: ReadingSettings) -> dict[str, Any]:
    config = Config(input=reading.input, render=reading.render, sft=reading.sft)
    sections = {"input", "render" if reading.sft is None else "sft"}
    return {
        "source": reading.source,
        "files": reading.files,
        "settings": {name: values for name, values in plain(config).items() if name in sections},
        "is_named": reading.is_named,
        "labels": sorted(reading.labels),
    }


def _reading(entry: Mapping[str, Any], where: str) -> ReadingSettings:
    config = build_config(entry["settings"], where=where)
    settings = (config.input, config.render, config.sft)
    labels = frozenset(map(str, entry["labels"]))
    return ReadingSettings(entry["source"], entry["files"], *settings, entry["is_named"], labels)


def packed_tokenizer(tokenizer: Tokenizer) -> str:
    """Return a tokenizer as text: its plain values in JSON, compressed, in base64.

    The file and its equivalents repeat each other over many MB, so the window is as long: of
    qwen2.5, 27 MB become 4 in 0.2 s.
    """
    names = [part.name for part in fields(tokenizer) if part.compare]
    values = {name: getattr(tokenizer, name) for name in names}
    try:
        values["data"] = tokenizer.data.decode()
    except UnicodeDecodeError:  # a SentencePiece model
        values["data"] = [base64.b64encode(tokenizer.data).decode()]
    for name in ("eos", "bos"):
        token = values[name]
        values[name] = None if token is None else [token.id, token.content]
    content = zstd.compress(canonical_json(values), options=_COMPRESSION)
    return base64.b64encode(content).decode()


def _unpacked(text: str) -> Tokenizer:
    inflate = zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: _WINDOW})
    values = json.loads(inflate.decompress(base64.b64decode(text), _MOST_TOKENIZER_BYTES))
    for name in ("eos", "bos"):
        values[name] = None if values[name] is None else Token(*values[name])
    for name in ("special_ids", "rewrites"):
        values[name] = tuple(values[name])
    values["named"] = tuple((key, content) for key, content in values["named"])
    data = values["data"]
    values["data"] = data.encode() if isinstance(data, str) else base64.b64decode(data[0])
    return Tokenizer(**values)
