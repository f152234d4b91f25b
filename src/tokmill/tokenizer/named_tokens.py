"""The tokens that have a name (eos, bos) and the chat template, from settings and other files."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tokmill.errors import TokenizerError
from tokmill.tokenizer.files import read_file

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_NAMED = (
    "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Token:
    """A token by id, with its string as the vocabulary writes it."""

    id: int
    content: str


@dataclass(frozen=True, slots=True)
class Companions:
    """What the files beside a tokenizer say: eos, who says it, and every chat template by name.

    `named`: the strings of tokens by what they are called there, such as `bos_token`.
    """

    eos: str | None
    eos_source: str
    chat_templates: Mapping[str, str]
    named: Mapping[str, str] = field(default_factory=dict)

    @property
    def chat_template(self) -> str | None:
        """Give the template that applies when none is asked for by name."""
        templates = self.chat_templates
        return templates.get("default") or next(iter(templates.values()), None)


def read_companions(folder: Path) -> Companions:
    """Read tokenizer_config.json, special_tokens_map.json and chat_template.jinja, where they are.

    Raises:
        TokenizerError: one of them is not what its name says.
        StorageError: one of them cannot be read.
    """
    config = _read_object(folder / "tokenizer_config.json")
    eos, source = None, ""
    named: dict[str, str] = {}
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        said = _read_object(folder / name)
        eos = eos or _content(said.get("eos_token"))
        source = source or (name if eos else "")
        found = {key: _content(said.get(key)) for key in _NAMED}
        named = {key: content for key, content in found.items() if content} | named
    return Companions(eos, source, _chat_templates(config.get("chat_template"), folder), named)


def _chat_templates(value: Any, folder: Path) -> dict[str, str]:
    """Give templates by name; a file of its own wins over the one in tokenizer_config.json."""
    templates: dict[str, str] = {}
    if isinstance(value, str):
        templates["default"] = value
    elif value is not None:
        try:
            templates = {str(entry["name"]): str(entry["template"]) for entry in value}
        except (TypeError, KeyError):
            raise TokenizerError(
                f"{folder / 'tokenizer_config.json'}: chat_template: expected a string or a list "
                f"of name and template, found {type(value).__name__}"
            ) from None
    file = folder / "chat_template.jinja"
    if file.exists():
        templates["default"] = read_file(file).decode("utf-8", errors="replace")
    return templates


def _content(value: Any) -> str | None:
    """Give the string of a token written as a string or as an object."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) and value else None


def _read_object(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        value = json.loads(read_file(path))
    except (ValueError, RecursionError) as error:
        raise TokenizerError(f"{path}: not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise TokenizerError(f"{path}: expected an object, found {type(value).__name__}")
    return value
