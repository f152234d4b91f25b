"""The datasets of a mix: opened, compared, and numbered as one, in chunks that fit into memory.

Slices, sources (rows of the manifest) and documents of all inputs are numbered in one go: those of
the first input, then those of the second. Documents of val come before all documents of train.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.dataset.layout import DATASET_FILE, SPLITS
from tokmill.dataset.reader import intact_manifest_in, read_intact_manifest
from tokmill.dataset.rules import differing_rule, rules_in
from tokmill.dataset.sidecars import open_index
from tokmill.dataset.typed_json import to_json
from tokmill.errors import TokmillError, UsageError, VerifyError
from tokmill.place import open_place
from tokmill.tokenizer.kept import kept_tokenizer
from tokmill.tokenizer.tokenizer import tokenizer_differences
from tokmill.urls import store_url
from tokmill.words import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy.typing as npt

    from tokmill.dataset.manifest import InputFile, Manifest, ShardRow, SourceEntry
    from tokmill.mixing.settings import MixSettings, Request
    from tokmill.settings.schema import OutputSettings

CHUNK_TOKENS = 16 << 20
"""Tokens of a chunk, which a worker holds in memory two or three times."""

MOST_CHUNKS = 4096
"""About the most chunks: a shuffle reads each range of places from each of them.

So memory is flat up to 2^36 tokens, and then a part of 4,096 of them."""

ORDER_OF_SPLITS = ("val", "train")
"""The splits in the order of numbering: of equal documents, that of validation comes first."""


@dataclass(frozen=True, slots=True)
class Input:
    """A dataset that is mixed, and the numbers of its first slice, source and part among all."""

    directory: Path
    manifest: Manifest
    first_slice: int
    first_row: int
    first_part: int

    @property
    def place(self) -> str:
        """Return its directory, or the URL of a store."""
        return store_url(self.directory) or str(self.directory)

    @property
    def keep(self) -> tuple[str, ...]:
        """Return the metadata columns."""
        return self.manifest.keep

    def entries(self, split: str) -> list[ShardRow]:
        """Return the rows of the shards of a split, in the order of the dataset."""
        return self.manifest.of_split(split)

    def n_documents(self, split: str) -> int:
        """Return the documents of a split."""
        return sum(entry.documents for entry in self.entries(split))

    def n_tokens(self, split: str) -> int:
        """Return the tokens of a split."""
        return sum(entry.tokens for entry in self.entries(split))

    @property
    def output(self) -> OutputSettings:
        """Return the settings by which it was written."""
        return self.manifest.config.output

    @property
    def val_fractions(self) -> Sequence[float]:
        """Return the fractions of all runs behind it that divided documents into splits."""
        own = self.manifest.mix.val_fractions if self.manifest.mix else ()
        return own or [self.output.val_fraction]

    @property
    def n_parts(self) -> int:
        """Return the number above that of every part that has a file."""
        names = (DATASET_FILE.fullmatch(file.name) for file in self.manifest.files)
        parts = (
            match and (match["shard"] or match["record"] or match["rejects"]) for match in names
        )
        return 1 + max((int(part) for part in parts if part), default=-1)

    @property
    def n_slices(self) -> int:
        """Return the slices of all sources."""
        return self.manifest.n_slices


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive documents of a shard.

    Attributes:
        input: number of the dataset.
        split: `train` or `val`.
        entry: row of the shard in its manifest.
        start: first document in the shard; `stop` is the one after the last.
        in_input: documents of the split of the input before the first.
        first: number of the first document among those of all inputs.
        before: documents of the same part before the shard, for datasets without origins.
    """

    input: int
    split: str
    entry: ShardRow
    start: int
    stop: int
    in_input: int
    first: int
    before: int

    def __len__(self) -> int:
        """Return the number of documents."""
        return self.stop - self.start

    @property
    def numbers(self) -> slice:
        """Return its documents among those of all inputs."""
        return slice(self.first, self.first + len(self))


@dataclass(frozen=True)
class Inputs:
    """All datasets of a mix.

    Attributes:
        datasets: the datasets, each once, in the order in which they are first named.
        requests: the sources as they were asked for.
        request_of_row: (n_rows,) int64, the number of the request that has each source; -1: none.
        dtype: of the ids that are written.
    """

    datasets: tuple[Input, ...]
    requests: tuple[Request, ...]
    request_of_row: npt.NDArray[np.int64]
    dtype: np.dtype[np.unsignedinteger]

    @property
    def manifest(self) -> Manifest:
        """Return the manifest of the first dataset; the others agree with it."""
        return self.datasets[0].manifest

    @property
    def kind(self) -> str:
        """Return the kind of all datasets: `pretrain` or `sft`."""
        return self.manifest.kind

    @property
    def rules(self) -> list[dict[str, list[int]]]:
        """Return the rules under which each dataset was made."""
        return [rules_in(dataset.manifest.rules, self.kind) for dataset in self.datasets]

    @property
    def sidecars(self) -> tuple[str, ...]:
        """Return the endings of the files beside the tokens."""
        return self.manifest.sidecars

    @cached_property
    def keep(self) -> tuple[str, ...]:
        """Return the metadata columns of all datasets."""
        columns = (name for dataset in self.datasets for name in dataset.keep)
        return tuple(dict.fromkeys(columns))

    @property
    def packing(self) -> int:
        """Return the tokens of rows that have room for all chats; 0: they are not packed."""
        of_chats = [dataset.manifest.config.sft for dataset in self.datasets]
        packings = [0 if sft is None else sft.packing for sft in of_chats]
        return max(packings) if all(packings) else 0

    @property
    def max_samples_per_row(self) -> int:
        """Return the most samples in a row of any input; 0: any number."""
        of_chats = [dataset.manifest.config.sft for dataset in self.datasets]
        limits = [0 if sft is None else sft.max_samples_per_row for sft in of_chats]
        return max(limits) if self.packing and all(limits) else 0

    @property
    def has_packed_rows(self) -> bool:
        """Return whether packed rows of chats are written."""
        sft = self.manifest.config.sft
        return bool(self.packing) and sft is not None and sft.packed_rows

    @property
    def val_fractions(self) -> list[float]:
        """Return the different fractions of all datasets that divided documents into splits."""
        return sorted({one for dataset in self.datasets for one in dataset.val_fractions})

    @cached_property
    def n_tokens(self) -> int:
        """Return the tokens of all datasets."""
        return sum(dataset.n_tokens(split) for dataset in self.datasets for split in SPLITS)

    @cached_property
    def rows(self) -> list[SourceEntry]:
        """Return the sources of all manifests."""
        return [source for dataset in self.datasets for source in dataset.manifest.sources]

    @cached_property
    def slice_rows(self) -> npt.NDArray[np.int64]:
        """Return the source of every slice: (n_slices,) int64."""
        counts = [source.n_slices for source in self.rows]
        return np.repeat(np.arange(len(counts)), counts)

    @cached_property
    def records_before(self) -> npt.NDArray[np.int64]:
        """Return the records of the same file before every slice: (n_slices,) int64."""
        before: list[int] = []
        for source in self.rows:
            lengths = [piece.records for piece in source.slices] or [0]
            before += [0, *accumulate(lengths[:-1])]
        return np.array(before, np.int64)

    def input_of(self, request: Request) -> int:
        """Return the number of the dataset of a request."""
        directories = [dataset.directory for dataset in self.datasets]
        return directories.index(request.directory)

    @cached_property
    def chunk_tokens(self) -> int:
        """Return the most tokens of a chunk: a document that is longer is one for itself."""
        return max(CHUNK_TOKENS, self.n_tokens // MOST_CHUNKS)

    def chunks(self) -> Iterator[Chunk]:
        """Yield the documents of all inputs in chunks of at most `chunk_tokens`, val first.

        Raises:
            VerifyError: an index is missing or broken.
        """
        first = 0
        for split in ORDER_OF_SPLITS:
            for number, dataset in enumerate(self.datasets):
                in_input = 0
                of_part: dict[str, int] = {}
                for entry in dataset.entries(split):
                    part = entry.name.split("-")[1]
                    before = of_part.get(part, 0)
                    of_part[part] = before + entry.documents
                    path = dataset.directory / f"{entry.name}.idx"
                    of_shard, _ = open_index(path, entry.documents)
                    lengths = of_shard[:]
                    if lengths.min() < 1 or lengths.sum(dtype=np.int64) != entry.tokens:
                        raise VerifyError(
                            f"{path}: its documents do not sum up to the {entry.tokens:,} "
                            "tokens of the manifest; see tokmill verify"
                        )
                    for start, stop in _cut(lengths, self.chunk_tokens):
                        yield Chunk(number, split, entry, start, stop, in_input, first, before)
                        in_input += stop - start
                        first += stop - start


def _cut(lengths: npt.NDArray[np.int32], n_tokens: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of documents with at most `n_tokens`, but at least one document."""
    start, n = 0, len(lengths)
    while start < n:
        ends = np.cumsum(lengths[start : start + n_tokens], dtype=np.int64)
        stop = start + max(1, int(np.searchsorted(ends, n_tokens, "right")))
        yield start, stop
        start = stop


_MOST_NAMED = 20


def _names_of(file: InputFile) -> tuple[str, ...]:
    """Return the names by which a request can mean a source: its own, its path, its file's."""
    own = (file.name,) if file.name else ()
    return (*own, file.path, Path(file.path).name)


def open_inputs(requests: Sequence[Request], settings: MixSettings) -> Inputs:
    """Open the datasets, and check that their documents can stand in one dataset.

    Raises:
        UsageError: they cannot; the message says what differs.
        TokmillError: a dataset is missing, damaged or not finished.
    """
    requests = _unified(requests)
    datasets: list[Input] = []
    first_slice = first_row = first_part = 0
    for directory in dict.fromkeys(request.directory for request in requests):
        url = store_url(directory)
        manifest = intact_manifest_in(open_place(url)) if url else read_intact_manifest(directory)
        datasets.append(Input(directory, manifest, first_slice, first_row, first_part))
        first_slice += datasets[-1].n_slices
        first_row += len(manifest.sources)
        first_part += datasets[-1].n_parts
    widest = max((d.manifest.dtype for d in datasets), key=lambda name: np.dtype(name).itemsize)
    for dataset in datasets[1:]:
        _check_same(datasets[0], dataset, is_widened=bool(settings.dtype))
    if settings.count != "all" and datasets[0].manifest.mask is None:
        raise UsageError("count: trained tokens are those of chats: these datasets have no masks")
    dtype = np.dtype(settings.dtype or widest).newbyteorder("<")
    return Inputs(tuple(datasets), tuple(requests), _request_of_row(datasets, requests), dtype)


def _unified(requests: Sequence[Request]) -> list[Request]:
    """Return the requests with one directory for each dataset, however its path is written."""
    directories: dict[object, Path] = {}
    unified = []
    for request in requests:
        directory = request.directory
        identity: object = directory
        if not store_url(directory) and directory.is_dir():
            status = directory.stat()
            identity = status.st_dev, status.st_ino
        unified.append(replace(request, directory=directories.setdefault(identity, directory)))
    return unified


def _request_of_row(
    datasets: Sequence[Input], requests: Sequence[Request]
) -> npt.NDArray[np.int64]:
    """Return the number of the request that has each source; -1: none.

    Raises:
        UsageError: a request names a source that its dataset does not have, or that another
            request has.
    """
    of_directory = {dataset.directory: dataset for dataset in datasets}
    numbers = np.full(sum(len(dataset.manifest.sources) for dataset in datasets), -1)
    for number, request in enumerate(requests):
        dataset = of_directory[request.directory]
        names = [_names_of(file) for file in dataset.manifest.input_files]
        rows = [i for i, own in enumerate(names) if request.source in ("", *own)]
        if not rows:
            known = ", ".join(dict.fromkeys(own[0] for own in names[:_MOST_NAMED]))
            raise UsageError(f"{request.name}: no such source; there are {known}")
        at = np.array(rows) + dataset.first_row
        if (first := int(numbers[at].max())) >= 0:
            other = requests[first].name
            raise UsageError(
                f"{request.name}: its documents are in {other}, too: {other}=2x writes them two "
                "times"
            )
        numbers[at] = number
    return numbers


_RULES = ("preset", "boundary", "alignment", "trained", "turns", "ends")
"""Keys of `mask` that say what is trained; templates may differ."""


def _check_same(first: Input, other: Input, *, is_widened: bool) -> None:
    """Check that two datasets agree in all that their readers rely on."""
    if told := _other_tokenizer(first, other):
        raise UsageError(
            f"{other.directory}: its tokenizer is not that of {first.directory}: {told}: datasets "
            "of a mix must agree in it"
        )
    wanted, others = _compared(first.manifest), _compared(other.manifest)
    for what, mine in wanted.items():
        theirs = others[what]
        if mine == theirs or (what == "dtype" and is_widened):
            continue
        hint = ": --dtype uint32 widens the ids" if what == "dtype" else ""
        raise UsageError(
            f"{other.directory}: {what} is {_said(theirs)}, that of {first.directory} is "
            f"{_said(mine)}: datasets of a mix must agree in it{hint}"
        )


def _other_tokenizer(first: Input, other: Input) -> str:
    """Return what differs between the tokenizers of two datasets, in one line, or ''."""
    there, here = (dataset.manifest.tokenizer for dataset in (first, other))
    if there.identity == here.identity:
        return ""
    try:
        kept = [kept_tokenizer(open_place(one.place), one.manifest) for one in (first, other)]
    except TokmillError:
        names = [f"{one.name} with {one.vocab_size:,} ids" for one in (there, here)]
        return f"{names[0]} there, {names[1]} here"
    return tokenizer_differences(*kept)


def _compared(manifest: Manifest) -> dict[str, Any]:
    """Return what must be equal, as a message names it."""
    bos, mask = manifest.tokenizer.bos, to_json(manifest.mask) or {}
    return {
        "kind": manifest.kind,
        "eos": manifest.tokenizer.eos.id,
        "bos": None if bos is None else bos.id,
        "dtype": manifest.dtype,
        **{f"the mask's {key}": mask.get(key) for key in _RULES},
        "the place of weights": ".weight files" if "weight" in manifest.sidecars else "",
    }


def _said(value: Any) -> str:
    """Return a value of a manifest as a message has it."""
    if isinstance(value, dict):
        return _said([f"{key} {_said(inner)}" for key, inner in value.items()])
    if isinstance(value, list):
        return ", ".join(map(_said, value)) or "none"
    return "none" if value in (None, "") else str(value)


def overlaps(inputs: Inputs) -> bool:
    """Return whether equal documents can stand in val of one input and in train of another.

    A hash of the text decides, so datasets with one `val_fraction` never disagree.
    """
    has_val = any(dataset.n_documents("val") for dataset in inputs.datasets)
    return len(inputs.val_fractions) > 1 and has_val


def warn_of_rules(inputs: Inputs, warn: Callable[[str], None]) -> None:
    """Warn of datasets whose text was made under other rules than that of the first."""
    first = inputs.datasets[0].place
    for dataset, rules in zip(inputs.datasets[1:], inputs.rules[1:], strict=True):
        if differs := differing_rule(rules, inputs.rules[0]):
            told = differs.replace(", here ", f", that of {first} ")
            warn(f"{dataset.place}: made under other rules: {told}")


def warn_of_copies(inputs: Inputs, settings: MixSettings, warn: Callable[[str], None]) -> None:
    """Warn of datasets that have shards of one before, whose documents stand in the mix twice."""
    if settings.dedup:
        return
    owners: dict[str, Input] = {}
    for dataset in inputs.datasets:
        sums = {
            entry.checksum
            for entry in dataset.manifest.files
            if entry.name.endswith(".bin") and not entry.name.startswith("pack")
        }
        twice = [checksum for checksum in sums if checksum in owners]
        if twice:
            warn(
                f"{dataset.place}: {plural(len(twice), 'shard')} of {len(sums):,} are those of "
                f"{owners[twice[0]].place}: their documents are in the mix twice; --dedup leaves "
                "them out"
            )
        owners |= dict.fromkeys(sums, dataset)


def described(inputs: Inputs) -> str:
    """Return the inputs in a line: their number, documents and tokens."""
    documents = sum(d.n_documents(split) for d in inputs.datasets for split in SPLITS)
    n = plural(len(inputs.datasets), "dataset")
    return f"{n}, {plural(documents, 'document')}, {plural(inputs.n_tokens, 'token')}"
