"""What all sources of samples share: a split of a dataset, opened by its manifest; rows of it."""

from __future__ import annotations

import operator
import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tokmill.dataset.documents import Documents, ShardFiles
from tokmill.dataset.identity import identity_of, replaced
from tokmill.dataset.layout import ORIGIN, SPLITS
from tokmill.dataset.manifest import Manifest
from tokmill.dataset.reader import read_manifest
from tokmill.errors import UsageError, VerifyError
from tokmill.loader.document_names import DocumentNames
from tokmill.loader.kept_fields import KeptFields, as_objects
from tokmill.settings.declare import parse_quantity
from tokmill.storage import free_bytes
from tokmill.urls import shown_place, store_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import SupportsIndex, TypeAlias

    import numpy.typing as npt

    from tokmill.dataset.cached_dataset import CachedDataset

    Arrays = dict[str, npt.NDArray[Any]]
    Numbers = Sequence[int] | npt.NDArray[np.int64]
    """Of samples; negative ones count from the end."""

    Rows = slice | npt.NDArray[np.int64]
    """Which rows of arrays are filled."""

    AnyDataset: TypeAlias = "str | os.PathLike[str] | OpenDataset"
    """A directory, or an open dataset."""

IGNORED = -100
"""Label of a token that is no target, as in torch and Hugging Face trainers."""

_CACHE_SHARE = 0.9
"""Of the free space of its disk, the bytes of a cache whose size is not given."""

EVERY_ROW: slice = slice(None)


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
        identity: of the files that are read, by their sums in the manifest: those of the tokens,
            and what else the source reads. Two datasets with equal files have one identity.
        stored: of a dataset in a store, its files in the cache; else None.
        fingerprint: the identity, and the arguments that decide the samples. Two sources with
            equal fingerprints have the same samples in the same order.
    """

    stored: CachedDataset | None = None

    def __init__(
        self,
        dataset: AnyDataset,
        split: str,
        options: Mapping[str, Any],
        decisive: Sequence[str] = (),
    ) -> None:
        self.directory, manifest = _opened(dataset, split, options.get("cache"))
        self._manifest = manifest
        self.split, self._options = split, dict(options)
        self.kind = manifest.kind
        self.pad_id = manifest.tokenizer.eos.id
        self.probe_ids = manifest.tokenizer.probe_ids
        self._documents = Documents(self.directory, manifest, split)
        self._files = ShardFiles(self._documents)
        if not len(self._documents):
            held = " and ".join(manifest.splits)
            raise UsageError(
                f"{shown_place(self.directory)}: no documents in {split}; it has {held}"
            )
        self.identity = identity_of(manifest, self.directory, self._beside(manifest))
        if cache := options.get("cache"):
            self.stored = self._through_cache(cache, options["cache_bytes"])
        shown = [f"{name}={options[name]}" for name in decisive]
        self.fingerprint = " ".join([self.identity, type(self).__name__, split, *shown])

    def _beside(self, manifest: Manifest) -> Sequence[str]:
        """Return the names of the files that are read beside those of tokens, masks and weights."""
        return ()

    def _through_cache(self, cache: str, n_bytes: int | None) -> CachedDataset:
        """Read the files of a dataset in a store through a cache from now on."""
        from tokmill.dataset.cached_dataset import cached_dataset  # few datasets are in a store

        entries = self._documents.entries
        names = [*self._names_of(range(len(entries))), *self._beside(self._manifest)]
        directory = Path(cache).absolute()
        most = n_bytes or int(free_bytes(directory) * _CACHE_SHARE)
        return cached_dataset(self.directory, self._manifest, names, directory, most)

    def _names_of(self, shards: Iterable[int]) -> Iterator[str]:
        """Yield the names of the files of shards that are read."""
        endings = ("idx", *self._files.dtypes) if self._reads_index else tuple(self._files.dtypes)
        for shard in shards:
            name = self._documents.entries[shard].name
            yield from (f"{name}.{ending}" for ending in endings)

    @property
    def _reads_index(self) -> bool:
        """Return whether reading a sample looks into the index of its shard."""
        return True

    @property
    def n_stored_bytes(self) -> int:
        """Return the bytes of all files of the split that are read; of a dataset in a store."""
        if self.stored is None:
            return 0
        names = self._names_of(range(len(self._documents.entries)))
        return sum(self.stored.entries[name].n_bytes for name in names)

    def names_read(self, numbers: npt.NDArray[np.int64]) -> list[str]:
        """Return the names of the files of which samples are read, in the order of first use.

        Args:
            numbers: of the samples, from 0.
        """
        shards = self._shards_of(numbers)
        return list(self._names_of(dict.fromkeys(shards.tolist())))

    def _shards_of(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the shards of which samples are read, in the order of use, maybe repeated."""
        return np.empty(0, np.int64)

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of samples."""

    @abstractmethod
    def __getitems__(self, numbers: Numbers) -> list[Arrays]:
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
        return (
            f"<{type(self).__name__} {shown_place(self.directory)!r}, split={self.split!r}{given}>"
        )

    def __reduce__(self) -> tuple[Callable[..., Source], tuple[Any, ...]]:
        """Pickle as the path of the directory; it is opened again when unpickled."""
        return _reopened, (
            type(self), shown_place(self.directory), self.split, self._options, self.identity,
        )  # fmt: skip

    def numbers(self, given: Numbers) -> npt.NDArray[np.int64]:
        """Return numbers of samples from 0 as an array: (n,) int64; negative ones count back.

        Raises:
            IndexError: there is no such sample.
            TypeError: they are not integers. A mask or fractions would read other samples.
        """
        found = np.asarray(given) if len(given) else np.empty(0, np.int64)
        if found.dtype.kind not in "iuO":  # O: Python's integers of more than 64 bits
            raise TypeError(f"numbers of samples are integers, found {found.dtype}")
        n, least = len(self), int(found.min()) if len(found) else 0
        if len(found) and not -n <= least <= int(found.max()) < n:
            wrong = next(one for one in found.tolist() if not -n <= one < n)
            raise IndexError(
                f"{shown_place(self.directory)}: no sample {wrong}; {self.split} has {n:,}"
            )
        numbers = found.astype(np.int64, copy=False)
        return numbers if least >= 0 else np.where(numbers < 0, numbers + n, numbers)


class RowSource(Source):
    """Rows of the same length, by number.

    Attributes:
        length: tokens of a row.
        shift: whether labels are the next tokens.
        padded: whether all rows have `length` tokens.
        dtypes: dtypes of the arrays of a row, by name, without `cu_seqlens` and kept fields.
        has_cu_seqlens: whether rows and batches have `cu_seqlens`.
        max_segments: segments of a row, to whose number `cu_seqlens` are padded; 0: they are not.
        source_names: of the sources that `source_ids` number; () without `sources=True`.
        columns: names of the kept fields that rows have.
    """

    length: int
    shift: bool
    padded = True
    dtypes: dict[str, type[np.generic]]
    has_cu_seqlens: bool
    max_segments = 0
    source_names: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    _fields: KeptFields | None = None
    _names: DocumentNames | None = None
    _wanted: int | None = None
    _chosen: npt.NDArray[np.int64] | None = None
    """Numbers of the rows that hold a target of the wanted source; None for all rows."""

    def __init__(
        self,
        dataset: AnyDataset,
        split: str,
        options: Mapping[str, Any],
        decisive: Sequence[str] = (),
    ) -> None:
        name = options["source"]
        super().__init__(dataset, split, options, (*decisive, *(["source"] if name else [])))
        if name or options["sources"]:
            self._names = DocumentNames(self.directory, self._manifest, self._documents)
        if self._names is not None and options["sources"]:
            self.source_names = self._names.names
        if self._names is not None and name:
            self._wanted = self._names.number(name)
        self.columns = options["columns"]
        if self.columns:
            self._fields = KeptFields(self.directory, self._manifest, self._documents, self.columns)

    def _beside(self, manifest: Manifest) -> Sequence[str]:
        """Return the names of the files that decide which rows are those of a source."""
        if not self._options["source"]:
            return ()
        entries = [one for one in self._documents.entries if one.first_slice is not None]
        return [f"{entry.name}.{ORIGIN}" for entry in entries]

    def cut(self, length: int) -> RowSource:
        """Return the same rows, cut into rows of `length` tokens: as many of each, in order.

        Raises:
            UsageError: rows cannot be cut, or `length` does not divide theirs.
        """
        if length == self.length:
            return self
        raise UsageError(
            f"packs are not cut: expected their length, {self.length:,}; found {length:,}"
        )

    def _row_numbers(self, given: Numbers) -> npt.NDArray[np.int64]:
        """Return the numbers of rows among all rows of the split; raises as `numbers`."""
        numbers = self.numbers(given)
        return numbers if self._chosen is None else self._chosen[numbers]

    def _choose(self, holds_target: npt.NDArray[np.bool_]) -> None:
        """Keep the rows that hold a target of the wanted source: (n_rows,)."""
        self._chosen = np.flatnonzero(holds_target)
        if not len(self._chosen):
            raise UsageError(
                f"{shown_place(self.directory)}: source {self._options['source']!r}: no row of "
                f"{self.split} has a token of it"
            )

    def segment_sums(self, numbers: Numbers) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the tokens of rows, and the sums of the squared lengths of their segments: (n,).

        Segments are those of `cu_seqlens`, padding included. No token is read.

        Raises:
            UsageError: rows have no segments: all their tokens attend to each other.
        """
        raise UsageError(f"{self!r}: its rows have no documents to balance batches by")

    def __getitems__(self, numbers: Numbers) -> list[Arrays]:
        """Return several rows, read together: (length,) each; see `batch`."""
        rows = self.empty(len(numbers))
        self.fill(numbers, rows)
        found = [{name: values[i] for name, values in rows.items()} for i in range(len(numbers))]
        return self.measured(found)

    def measured(self, rows: list[Arrays]) -> list[Arrays]:
        """Return rows with their `cu_seqlens`, if the source has them, and fields as arrays."""
        for row in rows:
            for name in self.columns:
                row[name] = as_objects(row[name])  # of lists, Grain would stack the first values
        if self.has_cu_seqlens:
            for row in rows:
                row["cu_seqlens"] = self.cu_seqlens(row["position_ids"], 1)
        return rows

    def cu_seqlens(self, position_ids: npt.NDArray[np.int64], n: int) -> npt.NDArray[np.int32]:
        """Return the `cu_seqlens` of n rows, end to end; with `max_segments`, of a fixed length.

        Raises:
            VerifyError: a row has more segments than the manifest says.
        """
        found = cu_seqlens(position_ids)
        if not self.max_segments:
            return found
        size = n * self.max_segments + 1
        if len(found) > size:
            raise VerifyError(
                f"{self.directory}: rows of {self.split} have more samples than the manifest says; "
                "see tokmill verify"
            )
        return end_repeated(found, size)

    def batch(self, numbers: Numbers, allocate: Callable[..., Any] | None = None) -> Arrays:
        """Return several rows as one batch: (n, length) each.

        `cu_seqlens` are those of all rows, end to end.

        Args:
            numbers: of the rows.
            allocate: called with shape and dtype to make the arrays, as `numpy.empty` is;
                `tokmill.loader.pinned_empty` makes them in pinned memory.

        Raises:
            IndexError: there is no such row.
            VerifyError: a file of the dataset is missing or damaged.
            StorageError: a file cannot be read, or too many files are open.
        """
        rows = self.empty(len(numbers), allocate)
        self.fill(numbers, rows)
        if self.has_cu_seqlens:
            rows["cu_seqlens"] = self.cu_seqlens(rows["position_ids"], len(numbers))
        return rows

    def empty(self, n_rows: int, allocate: Callable[..., Any] | None = None) -> Arrays:
        """Return arrays for rows, by name: (n_rows, length) each; see `fill`.

        Args:
            n_rows: the number of rows.
            allocate: see `batch`.
        """
        shape, make = (n_rows, self.length), allocate or np.empty
        arrays = {name: make(shape, dtype) for name, dtype in self.dtypes.items()}
        fields = {name: np.empty(n_rows, object) for name in self.columns}  # a list for each row
        return {**arrays, **fields}

    def block_starts(self) -> npt.NDArray[np.int64]:
        """Return the first row of each block, for `shuffle="blocks"`: (m,), increasing from 0.

        A block is the rows that begin in one shard.
        """
        starts = self._first_rows()
        if self._chosen is not None:
            starts = np.searchsorted(self._chosen, starts)
        return np.unique(starts[starts < len(self)])

    def _first_rows(self) -> npt.NDArray[np.int64]:
        """Return the first row of all rows of the split that begins in or after each shard."""
        return np.zeros(1, np.int64)

    @abstractmethod
    def fill(self, numbers: Numbers, into: Arrays, rows: Rows = EVERY_ROW) -> None:
        """Read rows into arrays that exist already, such as those of `empty`; see `batch`.

        `cu_seqlens` are not among them: the function `cu_seqlens` computes them from position ids.

        Args:
            numbers: of the rows to read: n.
            into: arrays by name, with the rows to fill.
            rows: which rows of the arrays to fill: n.
        """


def checked_count(name: str, value: SupportsIndex | None, *, least: int = 1) -> int:
    """Return a whole number of at least `least`; otherwise raise `UsageError`."""
    try:
        found = least - 1 if isinstance(value, bool | None) else operator.index(value)
    except TypeError:
        found = least - 1
    if found < least:
        raise UsageError(f"{name}: expected a whole number from {least}, found {value!r}")
    return found


def _check_cache(directory: Path, cache: str | None) -> None:
    """Check that a dataset in a store, and no other, is read through a cache; before a request."""
    where = shown_place(directory)
    if cache and not store_url(directory):
        raise UsageError(f"{where}: is on a disk, and needs no cache: leave it out")
    if store_url(directory) and not cache:
        raise UsageError(
            f"{where}: a dataset in a store is read through a cache on a local disk: name a "
            "directory for it, such as cache='/local/nvme', or copy the dataset to a disk"
        )


def _opened(dataset: AnyDataset, split: str, cache: str | None) -> tuple[Path, Manifest]:
    if split not in SPLITS:
        raise UsageError(f"split: expected one of {', '.join(SPLITS)}; found {split!r}")
    if isinstance(dataset, str | os.PathLike):
        if not str(dataset) or "\0" in str(dataset):
            raise UsageError(f"dataset: expected a path, found {dataset!r}")
        _check_cache(Path(dataset), cache)
        directory = Path(dataset) if store_url(Path(dataset)) else Path(dataset).absolute()
        return directory, read_manifest(directory)
    if not isinstance(getattr(dataset, "manifest", None), dict):
        raise UsageError(f"dataset: expected a path or an open dataset, found {dataset!r}")
    if split not in dataset.splits:
        held = " and ".join(dataset.splits)
        raise UsageError(f"{dataset!r}: no documents in {split}; it has {held}")
    _check_cache(dataset.directory, cache)
    return dataset.directory, Manifest.of(dataset.manifest, dataset.directory)


def _reopened(
    kind: Callable[..., Source], directory: str, split: str, options: dict[str, Any], identity: str
) -> Source:
    source = kind(directory, split, options)
    if source.identity != identity:
        raise replaced(source.directory)
    return source


def cache_options(
    cache: str | os.PathLike[str] | None, cache_bytes: int | str | None
) -> dict[str, Any]:
    """Return the options of a source for a cache; none without one.

    Raises:
        UsageError: `cache_bytes` is no size, or there is no cache.
    """
    n_bytes = None
    if isinstance(cache_bytes, str):
        n_bytes = parse_quantity(cache_bytes, "bytes", "cache_bytes")
    elif cache_bytes is not None:
        n_bytes = checked_count("cache_bytes", cache_bytes)
    if cache is None:
        if n_bytes is not None:
            raise UsageError("cache_bytes: without cache there is none: name its directory")
        return {}
    if not os.fspath(cache) or store_url(Path(cache)):
        raise UsageError(f"cache: expected a directory of this machine, found {os.fspath(cache)!r}")
    return {"cache": os.fspath(Path(cache).absolute()), "cache_bytes": n_bytes}


def checked_shift(shift: bool) -> bool:
    """Return whether labels are the next tokens; raise `UsageError` for what is no bool."""
    if not isinstance(shift, bool):
        raise UsageError(
            "shift: expected True, if your loop compares logits with labels as they are, or False, "
            f"if the model shifts labels itself, as those of transformers do; found {shift!r}"
        )
    return shift


def labels_of(
    ids: npt.NDArray[np.unsignedinteger], mask: npt.NDArray[np.uint8] | None
) -> npt.NDArray[Any]:
    """Return ids as labels: -100 where the mask is 0; without a mask, the ids."""
    return ids if mask is None else np.where(mask != 0, ids, np.int64(IGNORED))


def position_ids(starts: npt.NDArray[np.int64], n_tokens: int) -> npt.NDArray[np.int64]:
    """Return the place of each token in its segment: (n_tokens,) int64.

    Args:
        starts: (m,) int64, where segments start; the first is 0, and they increase.
        n_tokens: tokens of all segments.
    """
    lengths = np.diff(starts, append=n_tokens)
    return np.arange(n_tokens) - np.repeat(starts, lengths)


def cu_seqlens(position_ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    """Return the cumulative lengths of the segments of all rows, end to end: (m + 1,) int32.

    A segment starts where the position is 0. This is the form that FlashAttention takes for a batch
    of one row; rows of a batch count as one row.

    Args:
        position_ids: of any shape, such as (rows, length).
    """
    flat = position_ids.reshape(-1)
    return np.append(np.flatnonzero(flat == 0), len(flat)).astype(np.int32)


def end_repeated(values: npt.NDArray[np.int32], size: int) -> npt.NDArray[np.int32]:
    """Return `cu_seqlens` with `size` numbers: further segments are empty, and stand at the end."""
    return np.append(values, np.full(size - len(values), values[-1]))
