"""A dataset on disk: its size, its files, and the free space."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from tokmill.bill.dataset_size import DatasetSize, assumed_size, dataset_size
from tokmill.bill.disk_files import DatasetDisk, dataset_disk, predicted_disk
from tokmill.bill.formula import Bill
from tokmill.errors import StorageError, UsageError, VerifyError
from tokmill.settings.training import TrainingSettings


class OpenDataset(Protocol):
    """A dataset that is open, such as `tokmill.Dataset`."""

    directory: Path
    manifest: dict[str, Any]


@dataclass(frozen=True, slots=True)
class OnDisk:
    """A dataset on the disk.

    Attributes:
        directory: its directory; "" if settings describe the dataset.
        size: its tokens and documents.
        bill: bytes by kind of file.
        free_bytes: free space of the file system; None if settings describe the dataset.
        found: splits, sources and files; None if settings describe the dataset.
    """

    directory: str
    size: DatasetSize
    bill: Bill
    free_bytes: int | None
    found: DatasetDisk | None = None

    def as_json(self) -> dict[str, Any]:
        """Return plain values, as under `disk` of `tokmill report --json`."""
        found = None if self.found is None else asdict(self.found)
        if found:
            del found["bill"]
            found["bytes_per_token"] = self.bill.n_bytes / max(1, found["tokens"])
        return {
            "directory": self.directory,
            "free_bytes": self.free_bytes,
            "dataset": self.bill.as_json(),
            "found": found,
        }


def read_dataset(dataset: str | Path | OpenDataset) -> tuple[Path, dict[str, Any]]:
    """Return the directory and the manifest of a finished dataset.

    Raises:
        UsageError: there is no dataset.
        VerifyError: its manifest is damaged.
    """
    if not isinstance(dataset, str | os.PathLike):
        if not hasattr(dataset, "manifest"):
            kind = type(dataset).__name__
            raise UsageError(f"dataset: expected a directory or an open Dataset, found {kind}")
        return dataset.directory, dataset.manifest
    directory = Path(dataset)
    try:
        manifest = json.loads((directory / "manifest.json").read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(f"{directory}: not a tokmill dataset: no manifest.json") from None
    except OSError as error:
        raise StorageError(f"{directory}: {(error.strerror or str(error)).lower()}") from error
    except (ValueError, RecursionError) as error:
        raise VerifyError(f"{directory / 'manifest.json'}: damaged manifest: {error}") from None
    if not isinstance(manifest, dict) or not isinstance(manifest.get("config", {}), dict):
        raise VerifyError(f"{directory / 'manifest.json'}: damaged manifest: expected an object")
    return directory, manifest


def on_disk(directory: Path, manifest: Mapping[str, Any]) -> OnDisk:
    """Return the size of a finished dataset.

    Raises:
        VerifyError: a file is missing, or its size differs from the manifest.
        StorageError: the directory cannot be read.
    """
    try:
        found = dataset_disk(manifest, _file_sizes(directory))
        free = shutil.disk_usage(directory).free
        return OnDisk(str(directory), dataset_size(manifest), found.bill, free, found)
    except OSError as error:
        raise StorageError(f"{directory}: {(error.strerror or str(error)).lower()}") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise VerifyError(f"{directory / 'manifest.json'}: damaged manifest: {error!r}") from None


def assumed_disk(training: TrainingSettings, vocabulary: int) -> OnDisk | None:
    """Return the dataset that settings describe by its size; None if they do not."""
    size = assumed_size(training, vocabulary)
    return None if size is None else OnDisk("", size, predicted_disk(size, slices=0), None)


def _file_sizes(directory: Path) -> dict[str, int]:
    """Return the bytes of every file in a directory and its folders, by relative path."""

    def refuse(error: OSError) -> None:
        raise error

    return {
        path.relative_to(directory).as_posix(): path.lstat().st_size
        for folder, _, names in os.walk(directory, onerror=refuse)
        for path in (Path(folder, name) for name in sorted(names))
    }
