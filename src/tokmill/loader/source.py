"""What all sources of samples share: a split of a dataset, opened by its manifest alone."""

from __future__ import annotations

import operator
import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tokmill.dataset.documents import Documents, ShardFiles
from tokmill.dataset.layout import SPLITS
from tokmill.dataset.reader import check_complete, read_manifest
from tokmill.errors import UsageError, VerifyError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import SupportsIndex

    import numpy.typing as npt

    Arrays = dict[str, npt.NDArray[Any]]

IGNORED = -100
"""Label of a token that is no target, as in torch and Hugging Face trainers."""


class OpenDataset(Protocol):
    """An open dataset, such as `tokmill.Dataset`."""

    directory: Path
    manifest: dict[str, Any]

    @property
    def splits(self) -> tuple[str, ...]:
        """Return the splits that hold documents."""


class Source(ABC):
    """Samples of a split by number, for training loops.

    Opening reads only the manifest. A sample may be read from any thread and after a fork. A
    pickled copy opens the directory again, so that no token is pickled.

    Attributes:
        directory: of the dataset.
        split: `train` or `val`.
        kind: of the dataset: `pretrain` or `sft`.
        probe_ids: ids of a probe text, which tell tokenizers apart; () in old datasets.
        pad_id: the id of padding, which is eos.
        fingerprint: the sha256 of the manifest, and the arguments that decide the samples. Two
            sources with equal fingerprints have the same samples in the same order.
    """

    def __init__(
        self,
        dataset: str | os.PathLike[str] | OpenDataset,
        split: str,
        options: Mapping[str, Any],
        decisive: Sequence[str] = (),
    ) -> None:
        self.directory, manifest = _opened(dataset, split)
        self._manifest = manifest
        self.split, self._options = split, dict(options)
        self.kind = str(manifest.get("kind", "pretrain"))
        self.pad_id = int(manifest["tokenizer"]["eos"]["id"])
        self.probe_ids = tuple(manifest["tokenizer"].get("probe", {}).get("ids", ()))
        self._edition = str(manifest["sha256"])
        self._documents = Documents(self.directory, manifest, split)
        self._files = ShardFiles(self._documents)
        if not len(self._documents):
            held = sorted({entry["split"] for entry in manifest["shards"]})
            raise UsageError(
                f"{self.directory}: no documents in {split}; it has {' and '.join(held)}"
            )
        shown = [f"{name}={options[name]}" for name in decisive]
        self.fingerprint = " ".join([self._edition, type(self).__name__, split, *shown])

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of samples."""

    @abstractmethod
    def __getitems__(self, numbers: Sequence[int] | npt.NDArray[np.int64]) -> list[Arrays]:
        """Return several samples, read together."""

    def __getitem__(self, number: SupportsIndex) -> Arrays:
        """Return a sample; a negative number counts from the end.

        Raises:
            IndexError: there is no such sample.
            VerifyError: a file of the dataset is missing or damaged.
            StorageError: a file cannot be read, or too many files are open.
        """
        return self.__getitems__([operator.index(number)])[0]

    def check(self) -> None:
        """Check that the dataset at the path is still the one that was opened.

        Reads look once a second. It costs a look at one file.

        Raises:
            VerifyError: it was replaced or removed.
        """
        self._files.check()

    def __repr__(self) -> str:
        given = "".join(f", {name}={value!r}" for name, value in self._options.items())
        return f"<{type(self).__name__} {str(self.directory)!r}, split={self.split!r}{given}>"

    def __reduce__(self) -> tuple[Callable[..., Source], tuple[Any, ...]]:
        """Pickle as the path of the directory; it is opened again when unpickled."""
        return _reopened, (
            type(self), str(self.directory), self.split, self._options, self._edition,
        )  # fmt: skip

    def numbers(self, given: Sequence[int] | npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return numbers of samples from 0 as an array: (n,) int64; negative ones count back.

        Raises:
            IndexError: there is no such sample.
            TypeError: they are not integers. A mask or fractions would read other samples.
        """
        found = np.asarray(given) if len(given) else np.empty(0, np.int64)
        if found.dtype.kind not in "iuO":  # O: Python's integers of more than 64 bits
            raise TypeError(f"numbers of samples are integers, found {found.dtype}")
        n = len(self)
        if len(found) and not -n <= int(found.min()) <= int(found.max()) < n:
            wrong = next(one for one in found.tolist() if not -n <= one < n)
            raise IndexError(f"{self.directory}: no sample {wrong}; {self.split} has {n:,}")
        numbers = found.astype(np.int64, copy=False)
        return np.where(numbers < 0, numbers + n, numbers)


def checked_count(name: str, value: SupportsIndex, *, least: int = 1) -> int:
    """Return a whole number of at least `least`; otherwise raise `UsageError`."""
    try:
        found = least - 1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        found = least - 1
    if found < least:
        raise UsageError(f"{name}: expected a whole number from {least}, found {value!r}")
    return found


def _opened(
    dataset: str | os.PathLike[str] | OpenDataset, split: str
) -> tuple[Path, dict[str, Any]]:
    if split not in SPLITS:
        raise UsageError(f"split: expected one of {', '.join(SPLITS)}; found {split!r}")
    if isinstance(dataset, str | os.PathLike):
        if not str(dataset) or "\0" in str(dataset):
            raise UsageError(f"dataset: expected a path, found {dataset!r}")
        directory = Path(dataset).absolute()
        manifest = read_manifest(directory)
        # The two longest lists, which no source reads.
        check_complete({**manifest, "files": [], "sources": []}, directory)
        return directory, manifest
    if not isinstance(getattr(dataset, "manifest", None), dict):
        raise UsageError(f"dataset: expected a path or an open dataset, found {dataset!r}")
    if split not in dataset.splits:
        held = " and ".join(dataset.splits)
        raise UsageError(f"{dataset!r}: no documents in {split}; it has {held}")
    return dataset.directory, dataset.manifest


def _reopened(
    kind: Callable[..., Source], directory: str, split: str, options: dict[str, Any], edition: str
) -> Source:
    source = kind(directory, split=split, **options)
    if source._edition != edition:
        raise VerifyError(
            f"{directory}: the dataset was replaced after it was opened: open it again"
        )
    return source
