"""A source: a named set of inputs with its own settings of reading."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from tokmill.errors import UsageError

READING: Mapping[str, tuple[str, ...]] = {
    "input": (
        "format", "text_separator", "csv_delimiter", "hub_config", "hub_split", "hub_revision",
    ),
    "render": (
        "renderer", "text_field", "template", "title_field", "summary_field", "sections_field",
        "section_title_field", "section_content_field", "separator", "terminator",
    ),
    "sft": ("schema", "fields", "role_names", "ignore_keys", "rendered_text"),
}  # fmt: skip
"""The settings of reading, by section: a source may have its own value of each."""


@dataclass(frozen=True, slots=True)
class Source:
    """A named set of inputs; None leaves a setting of reading as the run has it.

    `paths`: files, globs, directories or `hf:NAME`: one, or a sequence. The other fields are the
    settings of the same names.

        >>> web = tokmill.Source("web", "corpus/*.jsonl", renderer="article")
        >>> tokmill.pretrain(web, tokenizer="gpt2/", output="web")
    """

    name: str
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
    format: str | None = None
    text_separator: str | None = None
    csv_delimiter: str | None = None
    hub_config: str | None = None
    hub_split: str | None = None
    hub_revision: str | None = None
    renderer: str | None = None
    text_field: str | None = None
    template: str | None = None
    title_field: str | None = None
    summary_field: str | None = None
    sections_field: str | None = None
    section_title_field: str | None = None
    section_content_field: str | None = None
    separator: str | None = None
    terminator: str | None = None
    schema: str | None = None
    fields: Mapping[str, str] | Sequence[str] | None = None
    role_names: Mapping[str, str] | Sequence[str] | None = None
    ignore_keys: Sequence[str] | None = None
    rendered_text: str | None = None

    @property
    def path_list(self) -> tuple[str, ...]:
        """Return the paths, in their order."""
        if isinstance(self.paths, str | os.PathLike):
            return (os.fspath(self.paths),)
        return tuple(os.fspath(path) for path in self.paths)

    def values(self) -> dict[str, Any]:
        """Return the fields that are set, as a `[[source]]` table has them."""
        return {f.name: v for f in fields(self) if (v := getattr(self, f.name)) is not None}


class UnclearNamesError(UsageError):
    """Records whose keys or roles must be named; `table`: the settings to give, as TOML.

    `about`: the message up to the settings, `options`: the same settings as options.
    """

    def __init__(self, about: str, options: str, table: str) -> None:
        super().__init__(f"{about}{options}")
        self.about, self.table = about, table
