"""Which commit of a dataset of the Hugging Face Hub is read."""

from __future__ import annotations

import re
from pathlib import Path

from tokmill.errors import StorageError, UsageError

HUB_PREFIX = "hf:"
_COMMIT = re.compile("[0-9a-f]{40}")


def commit_of(path: str, revision: str) -> str:
    """Return the commit that a branch or tag of a Hub dataset, '' for its main one, is at now.

    A commit stands for itself, and the Hub is not asked.

    Raises:
        UsageError: the `huggingface_hub` package is missing, or the name is a local path.
        StorageError: the Hub cannot be reached, or does not know the dataset or the revision.
    """
    if _COMMIT.fullmatch(revision):
        return revision
    name = path.removeprefix(HUB_PREFIX)
    if Path(name).exists():
        raise UsageError(
            f"{path}: expected a dataset of the Hub, found a local path, which has no commit: "
            f"name it without {HUB_PREFIX}, or another working directory"
        )
    try:
        from huggingface_hub import HfApi
    except ImportError:
        raise missing(path, "huggingface_hub") from None
    try:
        commit = HfApi().dataset_info(name, revision=revision or None).sha
    except Exception as error:  # whatever the network raises
        raise unreachable(path, error) from error
    if not commit:
        raise StorageError(f"{path}: cannot be read from the Hub: it names no commit")
    return str(commit)


def missing(path: str, package: str) -> UsageError:
    """Return the error of a package that reading the Hub needs."""
    return UsageError(f"{path}: reading the Hub needs the {package} package; install tokmill[hub]")


def unreachable(path: str, error: Exception) -> StorageError:
    """Return the error of a dataset that cannot be read, in one line."""
    lines = str(error).splitlines() or [type(error).__name__]
    return StorageError(f"{path}: cannot be read from the Hub: {lines[0].rstrip('.')}")
