"""Where a tokenizer's file lies: a path, a directory, or a name on the Hugging Face Hub."""

from __future__ import annotations

import re
from pathlib import Path

from tokmill.errors import StorageError, TokenizerError, UsageError

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_FILE_SUFFIXES = (".json", ".model", ".tiktoken")
_WANTED = ("tokenizer.json", "tokenizer.model", "*.model", "*.tiktoken")
"""In the order in which a directory is searched."""

_COMPANIONS = ("tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja")


def find_tokenizer_file(path: str) -> Path:
    """Find the file that a tokenizer setting names; from the Hub's cache or the Hub if need be.

    Raises:
        UsageError: there is no such path, and it does not look like a Hub name.
        TokenizerError: a directory without one tokenizer, or a Hub name that gives none.
        StorageError: the path cannot be looked at.
    """
    if not path:
        raise UsageError("no tokenizer is named; set --tokenizer to a file, a directory or a name")
    local = Path(path)
    try:
        if local.is_dir():
            return _find_in_directory(local, where=path)
        if local.exists():
            return local
    except OSError as error:
        raise StorageError(f"{path}: cannot be read: {error.strerror}") from None
    if _HUB_NAME.fullmatch(path) is None or path.endswith(_FILE_SUFFIXES):
        raise UsageError(
            f"{path}: no such tokenizer file or directory, and not a Hub name like org/name"
        )
    return _find_in_directory(_fetch(path), where=path)


def read_file(path: Path) -> bytes:
    """Read a whole file.

    Raises:
        StorageError: it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise StorageError(f"{path}: cannot be read: {error.strerror}") from None


def _find_in_directory(directory: Path, *, where: str) -> Path:
    for pattern in _WANTED:
        found = sorted(directory.glob(pattern))
        if len(found) > 1:
            names = ", ".join(file.name for file in found)
            raise TokenizerError(f"{where}: several tokenizers lie here ({names}); name one")
        if found:
            return found[0]
    raise TokenizerError(f"{where}: no tokenizer here; looked for {', '.join(_WANTED)}")


def _fetch(name: str) -> Path:
    """Give the local snapshot of a Hub repository's tokenizer files, all of one commit.

    Raises:
        TokenizerError: the Hub cannot be reached and its cache lacks a file, or it refuses.
    """
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=[*_WANTED, *_COMPANIONS]))
    except Exception as error:  # the Hub client raises its own, its HTTP library's and OSError
        reason = next(iter(str(error).splitlines()), "") or type(error).__name__
        raise TokenizerError(
            f"{name}: no such file or directory, and the Hugging Face Hub gave none: {reason}"
        ) from None
