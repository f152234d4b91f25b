"""Paths in a TOML file are relative to its folder, so it means the same wherever it is read."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from tokmill.errors import UsageError

_NO_PATH = re.compile(r"-|hf:.*|[A-Za-z][A-Za-z0-9+.-]*://.*", re.DOTALL)
"""Standard input, a dataset of the Hub, a URL."""


def from_folder(value: Any, file: Path, *, may_be_name: bool = False) -> Any:
    """Return the path, or all paths of a list or table, that a file names, as the command opens it.

    `may_be_name`: what is not there is a name, such as `gpt2` of a tokenizer.

    Raises:
        UsageError: it is not there, but in the current directory.
    """
    if isinstance(value, dict):
        return {from_folder(one, file): amount for one, amount in value.items()}
    if isinstance(value, list):
        return [from_folder(one, file, may_be_name=may_be_name) for one in value]
    if not isinstance(value, str) or not value or _NO_PATH.fullmatch(value) or "\0" in value:
        return value
    folder = file.parent
    if folder == Path() or Path(value).is_absolute():
        return value
    joined = os.path.join(folder, value)  # noqa: PTH118  a slash at the end stays
    if not os.path.lexists(joined) and os.path.lexists(value):
        better = os.path.relpath(value, folder)
        raise UsageError(
            f"{file}: {value}: no such path in {folder}, and paths in a file are relative to its "
            f"folder: write {better}"
        )
    if may_be_name and not os.path.lexists(joined):
        return value
    short = os.path.normpath(joined)
    # "configs/../data" is "data", unless configs is a link to elsewhere.
    is_same = Path(short).parent.resolve() == Path(joined).parent.resolve()
    return short if is_same else joined
