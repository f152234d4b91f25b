"""A tokenizer that is an object in memory, of `tokenizers` or `transformers`: written as its files.

The files stand in a temporary directory while a call runs. A dataset keeps a copy of its own.
"""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tokmill.storage import storage_errors

if TYPE_CHECKING:
    from collections.abc import Iterator


class HasText(Protocol):
    """A `tokenizers.Tokenizer`."""

    def to_str(self, pretty: bool = False) -> str:
        """Return its tokenizer.json."""


class HasFiles(Protocol):
    """A tokenizer of `transformers`."""

    def save_pretrained(self, save_directory: Any, /) -> Any:
        """Write its files into a directory."""


TokenizerObject = HasText | HasFiles

_names: dict[str, str] = {}
"""What messages and datasets call a tokenizer, by the directory in which it is written."""


def name_of(path: str) -> str:
    """Return the name of the tokenizer that a setting names by its path: of an object, its own."""
    return _names.get(path, path)


@contextmanager
def tokenizer_path(tokenizer: Any) -> Iterator[Any]:
    """Yield the directory in which a tokenizer object is written; anything else as it is."""
    has_files = hasattr(tokenizer, "save_pretrained")
    if isinstance(tokenizer, type) or not (has_files or hasattr(tokenizer, "to_str")):
        yield tokenizer
        return
    with tempfile.TemporaryDirectory(prefix="tokmill-tokenizer-") as directory:
        with storage_errors(directory):
            if has_files:
                tokenizer.save_pretrained(directory)
            else:
                Path(directory, "tokenizer.json").write_text(tokenizer.to_str(), encoding="utf-8")
        kind = type(tokenizer)
        own = getattr(tokenizer, "name_or_path", "")
        _names[directory] = own or f"{kind.__module__.partition('.')[0]}.{kind.__name__}"
        try:
            yield directory
        finally:
            del _names[directory]
