"""Datasets of the Hugging Face Hub: the commit to read, and its rows as a stream."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl

import pyarrow as pa

from tokmill.errors import StorageError, UsageError
from tokmill.own_process import expect_foreign_code
from tokmill.sources.formats import Format
from tokmill.sources.row_reader import RowReader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokmill.sources.blocks import Reading
    from tokmill.sources.slices import Slice, SourceFile

HUB_PREFIX = "hf:"
_NAME = re.compile(r"hf:([^@?]+)(?:@([^?]+))?(?:\?(.*))?")
_COMMIT = re.compile("[0-9a-f]{40}")
_ROWS = 256  # rows asked for at a time; blocks are made from them by size in bytes


def is_hub(path: str) -> bool:
    """Return whether an input is a dataset of the Hub, `hf:NAME`; `hf://` is a store of files."""
    return path.startswith(HUB_PREFIX) and not path.startswith(f"{HUB_PREFIX}//")


class HubName(NamedTuple):
    """A dataset of the Hub, `hf:NAME[@REVISION][?config=C&split=S]`; '' is the Hub's own choice."""

    name: str
    revision: str
    config: str
    split: str


def hub_name(path: str) -> HubName:
    """Return the parts of an input that is a dataset of the Hub.

    Raises:
        UsageError: it is written in another way.
    """
    parts = _NAME.fullmatch(path)
    pairs = parse_qsl(parts[3] or "", keep_blank_values=True) if parts else [("", "")]
    query = dict(pairs)
    if parts is None or not query.keys() <= {"config", "split"} or len(query) < len(pairs):
        raise UsageError(f"{path}: expected hf:NAME[@REVISION][?config=C&split=S]")
    return HubName(parts[1], parts[2] or "", query.get("config", ""), query.get("split") or "train")


def open_hub(slice_: Slice, reading: Reading) -> RowReader:
    """Open a split of a Hub dataset as a stream.

    Raises:
        UsageError: the `datasets` package is missing.
        StorageError: the dataset cannot be reached or read.
    """
    where = slice_.file.path
    dataset = _load(slice_.file)

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            for table in dataset.with_format("arrow").iter(batch_size=_ROWS):
                yield from pa.table(table).combine_chunks().to_batches()
        except Exception as error:  # whatever the network and the dataset's readers raise
            raise _unreachable(where, error) from error

    names = list(dataset.column_names or reading.schema.names)
    return RowReader(reading, where, names, batches)  # of all columns


HUB = Format(open_hub, holds="rows", is_utf8=False)


def _load(file: SourceFile) -> Any:
    """Open a dataset at the commit in the plan."""
    expect_foreign_code()
    named = hub_name(file.path)
    try:
        import datasets
    except ImportError:
        raise _missing(file.path, "datasets") from None
    # datasets 3 would ask, or obey the environment; later versions have no such code.
    datasets.config.HF_DATASETS_TRUST_REMOTE_CODE = False
    try:
        return datasets.load_dataset(
            named.name,
            named.config or None,
            split=named.split,
            revision=file.stamp or None,
            streaming=True,
        )
    except Exception as error:
        raise _unreachable(file.path, error) from error


def commit_of(path: str) -> str:
    """Return the current commit of the branch or tag that a Hub dataset names, or its default.

    A commit is returned as it is, without asking the Hub.

    Raises:
        UsageError: the `huggingface_hub` package is missing, or the name is a local path.
        StorageError: the Hub cannot be reached, or does not know the dataset or the revision.
    """
    name, revision, _, _ = hub_name(path)
    if _COMMIT.fullmatch(revision):
        return revision
    if Path(name).exists():
        raise UsageError(
            f"{path}: expected a dataset of the Hub, found a local path, which has no commit: "
            f"name it without {HUB_PREFIX}, or another working directory"
        )
    try:
        from huggingface_hub import HfApi
    except ImportError:
        raise _missing(path, "huggingface_hub") from None
    try:
        commit = HfApi().dataset_info(name, revision=revision or None).sha
    except Exception as error:  # whatever the network raises
        raise _unreachable(path, error) from error
    if not commit:
        raise StorageError(f"{path}: cannot be read from the Hub: it names no commit")
    return str(commit)


def _missing(path: str, package: str) -> UsageError:
    """Return the error for a missing package."""
    return UsageError(f"{path}: reading the Hub needs the {package} package; install tokmill[hub]")


def _unreachable(path: str, error: Exception) -> StorageError:
    """Return the error for a dataset that cannot be read, in one line."""
    lines = str(error).splitlines() or [type(error).__name__]
    return StorageError(f"{path}: cannot be read from the Hub: {lines[0].rstrip('.')}")
