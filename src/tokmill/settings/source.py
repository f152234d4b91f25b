"""A source: a named set of inputs with its own settings of reading."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tokmill.errors import UsageError

if TYPE_CHECKING:
    from typing import Unpack

    from tokmill.settings.arguments import SourceArguments


class Source:
    """A named set of inputs with settings of reading of its own; others are those of the run.

    `paths`: files, globs, directories or `hf:NAME`: one, or a sequence. The keyword arguments are
    the settings of the same names, and `tokmill.settings.arguments.SourceArguments` lists them.

        >>> web = tokmill.Source("web", "corpus/*.jsonl", renderer="article")
        >>> tokmill.pretrain(web, tokenizer="gpt2/", output="web")
    """

    def __init__(
        self,
        name: str,
        paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        **settings: Unpack[SourceArguments],
    ) -> None:
        self.name, self.paths, self.settings = name, paths, dict(settings)

    def __repr__(self) -> str:
        arguments = "".join(f", {name}={value!r}" for name, value in self.settings.items())
        return f"Source({self.name!r}, {self.paths!r}{arguments})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Source) and self.values() == other.values()

    def __hash__(self) -> int:
        return hash((self.name, self.path_list))

    @property
    def path_list(self) -> tuple[str, ...]:
        """Return the paths, in their order."""
        if isinstance(self.paths, str | os.PathLike):
            return (os.fspath(self.paths),)
        return tuple(os.fspath(path) for path in self.paths)

    def values(self) -> dict[str, Any]:
        """Return name, paths and the settings that are given, as a `[[source]]` table has them."""
        chosen = {name: value for name, value in self.settings.items() if value is not None}
        return {"name": self.name, "paths": self.paths, **chosen}


class UnclearNamesError(UsageError):
    """Records whose keys or roles must be named; `table`: the settings to give, as TOML.

    `about`: the message up to the settings, `options`: the same settings as options.
    """

    def __init__(self, about: str, options: str, table: str) -> None:
        super().__init__(f"{about}{options}")
        self.about, self.table = about, table
