"""Packs: the index of the packed rows of a split, and rows as shards.

| file                     | holds                                                      |
|--------------------------|------------------------------------------------------------|
| `packs-SPLIT-rows.bin`   | (n_rows + 1,) i64: row r is samples[rows[r]:rows[r + 1]]    |
| `packs-SPLIT-samples.bin`| (n_samples,) i64: numbers in the split, dataset order, from 0 |
| `packs-SPLIT-pieces.bin` | (n_samples, 2) i32: first token, tokens; of documents alone |

Little-endian, no header. No file is of use without the others. Of documents, the names also say how
they were cut: a new index is written beside the old one, and the manifest says which counts. A
shard of packed rows has the samples of each row end to end, and padding up to the length of rows.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.dataset.checked import CheckedFiles
from tokmill.dataset.checksum import json_chunks, manifest_sha256
from tokmill.dataset.documents import Documents, ShardFiles, Spans, close_files
from tokmill.dataset.file_array import MappedFile
from tokmill.dataset.layout import (
    CUT_INDEX,
    FRAGMENT,
    LAST_PIECES,
    MANIFEST,
    PRIVATE_FILE,
    SHARD_BYTES,
    SIDECARS,
    SPLITS,
    pack_names,
    packed_stem,
)
from tokmill.dataset.manifest import Manifest, PackEntry
from tokmill.dataset.packing import (
    MEMORY_BYTES_PER_SAMPLE,
    MOST_LENGTH,
    Packs,
    pack,
    pack_documents,
)
from tokmill.dataset.reader import read_intact_manifest
from tokmill.dataset.sidecars import open_index
from tokmill.dataset.typed_json import to_json
from tokmill.errors import UsageError, VerifyError
from tokmill.settings.declare import parse_quantity
from tokmill.storage import read_errors, write_chunks
from tokmill.urls import shown_place
from tokmill.words import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from tokmill.dataset.checksum import FileEntry
    from tokmill.dataset.manifest import ShardRow
    from tokmill.dataset.place import Place

    Shards = Sequence[ShardRow]

BLOCK_TOKENS = 1 << 20
"""Tokens of the rows that are read at a time, about."""

_CHUNK_BYTES = 8 << 20
_BLOCK_DOCUMENTS = 1 << 18


@dataclass(slots=True)
class PackTotals:
    """Rows and samples, or pieces, of the packs so far; `n_tokens`: of pieces alone."""

    n_rows: int = 0
    n_samples: int = 0
    n_tokens: int = 0

    def counted(self, groups: Iterable[Packs]) -> Iterator[Packs]:
        """Yield groups of packs, and count each."""
        for packs in groups:
            self.n_rows += packs.n_rows
            self.n_samples += len(packs.samples)
            if packs.pieces is not None:
                self.n_tokens += int(packs.pieces[:, 1].sum(dtype=np.int64))
            yield packs

    def entry(self, shards: Shards, capacity: int, last: str, max_samples: int = 0) -> PackEntry:
        """Return the entry for the packs of the shards of a split; see `PackEntry`."""
        total, room = sum(shard.tokens for shard in shards), self.n_rows * capacity
        n_tokens = self.n_tokens if last else total
        n_documents = sum(shard.documents for shard in shards)
        fill = round(n_tokens / room, 6)
        entry = PackEntry(
            capacity, self.n_rows, n_documents, n_tokens, fill, max_samples_per_row=max_samples
        )
        if not last:
            return entry._replace(bytes_per_sample=MEMORY_BYTES_PER_SAMPLE)
        return entry._replace(
            last=last,
            pieces=self.n_samples,
            padding=room - n_tokens,
            left_out=total - n_tokens,
        )


def write_pack_index(
    directory: Path, names: Sequence[str], groups: Iterable[Packs], algorithm: str
) -> list[FileEntry]:
    """Write the index of a split group by group, and return the entries of its files.

    `names`: see `layout.pack_names`. Nothing is left if `groups` raises an error, or the disk is
    full (`StorageError`).
    """
    from tokmill.dataset.writer import HashedFile

    n_samples = 0
    with ExitStack() as stack:
        files = [stack.enter_context(HashedFile(directory, name, algorithm)) for name in names]
        files[0].add(bytes(8))  # row 0 begins with sample 0
        for packs in groups:
            rows, *others = packs.columns()
            for file, values in zip(files, (rows[1:] + n_samples, *others), strict=True):
                little = values.astype(values.dtype.newbyteorder("<"), order="C", copy=False)
                data = little.view(np.uint8).data
                for start in range(0, len(data), _CHUNK_BYTES):
                    file.add(data[start : start + _CHUNK_BYTES])
            n_samples += len(packs.samples)
        return [file.commit_entry() for file in files]


def open_packs(directory: Path, split: str, entry: PackEntry) -> Packs:
    """Map the pack index of a split; `entry`: of its packs in the manifest.

    Its numbers are checked where they are read, or all at once by `check_packs`.

    Raises:
        VerifyError: a file is missing, or its size is no multiple of 8 bytes.
        StorageError: the user may not read a file.
    """
    files: list[MappedFile] = []
    mapped: list[npt.NDArray[Any]] = []
    for name, dtype in zip(entry.index_names(split), ("<i8", "<i8", "<i4, <i4"), strict=False):
        with read_errors(directory / name):
            files.append(MappedFile(directory / name))
            mapped.append(files[-1].array(dtype))
    rows, samples, *pieces = mapped
    if pieces and len(pieces[0]) != len(samples):
        raise VerifyError(
            f"{directory / name}: {plural(len(pieces[0]), 'piece')}, expected {len(samples)}"
        )
    spans = pieces[0].view("<i4").reshape(-1, 2) if pieces else None
    return Packs(rows, samples, spans, tuple(files))


def check_packs(packs: Packs, n_documents: int, where: str) -> None:
    """Check every number of a pack index: 5 ns for each, of a file in the page cache.

    `n_documents`: of the split. `where`: begins the message.

    Raises:
        VerifyError: rows do not divide the samples, or a sample or piece cannot be one.
    """
    packs.check()
    rows, n_samples = packs.row_offsets, len(packs.samples)
    is_sound = rows[0] == 0 and rows[-1] == n_samples
    for start in range(0, len(rows) - 1, _BLOCK_DOCUMENTS):
        is_sound = is_sound and bool(
            np.all(np.diff(rows[start : start + _BLOCK_DOCUMENTS + 1]) > 0)
        )
    for start in range(0, n_samples, _BLOCK_DOCUMENTS):
        some = packs.samples[start : start + _BLOCK_DOCUMENTS]
        is_sound = is_sound and bool(some.min() >= 0) and bool(some.max() < n_documents)
        if packs.pieces is not None:
            firsts, lengths = packs.pieces[start : start + _BLOCK_DOCUMENTS].T
            is_sound = is_sound and bool(firsts.min() >= 0) and bool(lengths.min() > 0)
    if not is_sound:
        raise VerifyError(f"{where}: rows and samples that cannot be; see tokmill verify")


def lengths_of(directory: Path, of_split: Shards) -> Iterator[npt.NDArray[np.int32]]:
    """Yield the tokens of the documents of shards in order, some at a time.

    Raises:
        VerifyError: an index is missing, broken, or has other documents or tokens than its entry
            says.
        StorageError: the user may not read an index.
    """
    for entry in of_split:
        path = directory / f"{entry.name}.idx"
        lengths, _ = open_index(path, entry.documents)
        n_left = entry.tokens
        for start in range(0, len(lengths), _BLOCK_DOCUMENTS):
            some = lengths[start : start + _BLOCK_DOCUMENTS]
            n_left -= int(some.sum(dtype=np.int64))
            if some.min() < 1 or n_left < 0:
                raise VerifyError(f"{path}: lengths that cannot be; see tokmill verify")
            yield some


def sample_lengths(directory: Path, shards: Shards, split: str) -> npt.NDArray[np.int32]:
    """Return the tokens of every sample of a split, in the order of the dataset: (n,) int32.

    Raises:
        TokmillError: see `lengths_of`.
    """
    of_split = [entry for entry in shards if entry.split == split]
    for entry in of_split:  # before there is room for as many numbers as the manifest says
        open_index(directory / f"{entry.name}.idx", entry.documents)
    lengths = np.empty(sum(entry.documents for entry in of_split), np.int32)
    stop = 0
    for some in lengths_of(directory, of_split):
        start, stop = stop, stop + len(some)
        lengths[start:stop] = some
    return lengths


def packed_groups(
    directory: Path, of_split: Shards, capacity: int, last: str, max_samples: int = 0
) -> Iterator[Packs]:
    """Yield the packs of the shards of a split: documents in groups, samples of SFT all at once.

    `last`, `max_samples`: see `PackEntry`. Memory: for samples, `MEMORY_BYTES_PER_SAMPLE`; else
    that of `pack_documents`.

    Raises:
        UsageError: a sample is longer than a row.
        TokmillError: see `lengths_of`.
    """
    if last:
        yield from pack_documents(lengths_of(directory, of_split), capacity, last, max_samples)
    else:
        lengths = sample_lengths(directory, of_split, of_split[0].split)
        yield pack(lengths, capacity, max_samples)


def write_packs(
    directory: Path,
    shards: Shards,
    capacity: int,
    algorithm: str,
    last: str = "",
    max_samples: int = 0,
) -> tuple[list[FileEntry], dict[str, PackEntry]]:
    """Pack every split of a dataset with the listed shards, and write its pack index.

    `last`: cut documents, for pretraining, and do this with the last pieces; '': samples of SFT.
    `max_samples`: in a row; 0: any number.
    Memory: see `packed_groups`.

    Returns:
        The files written, and the manifest's entry for every split with samples.

    Raises:
        UsageError: a sample is longer than a row.
        VerifyError: a shard's index is missing or broken.
        StorageError: the files cannot be written.
    """
    files: list[FileEntry] = []
    packs: dict[str, PackEntry] = {}
    for split in SPLITS:
        of_split = [entry for entry in shards if entry.split == split]
        if not of_split:
            continue
        totals = PackTotals()
        groups = packed_groups(directory, of_split, capacity, last, max_samples)
        names = pack_names(split, capacity, last, max_samples)
        files += write_pack_index(directory, names, totals.counted(groups), algorithm)
        packs[split] = totals.entry(of_split, capacity, last, max_samples)
    return files, packs


def write_dataset_packs(
    place: Place, manifest: Manifest, check: Callable[[], None]
) -> tuple[list[FileEntry], dict[str, PackEntry]]:
    """Write the packs that the settings of a manifest ask for; return their files and entries.

    `manifest`: of a dataset that is about to be finished. `check`: see `Place.keep`.

    Raises:
        UsageError: a sample is longer than a row.
        VerifyError: a file that is read is missing or damaged.
        StorageError: the files cannot be read or written.
    """
    output, sft = manifest.config.output, manifest.config.sft
    length, last, most = output.packing, FRAGMENT, output.max_samples_per_row
    if sft is not None:
        length, last, most = sft.packing, "", sft.max_samples_per_row
    has_rows = sft is not None and sft.packed_rows
    endings = ("idx", *(("bin", *SIDECARS) if has_rows else ()))
    read = [entry.name for entry in manifest.files if entry.name.endswith(endings)]
    place.fetch(read)
    # There is no finished dataset yet that `tokmill verify` could look at.
    checked = CheckedFiles(None, CheckedFiles.of(place.local, manifest.files).entries)
    checked.check(place.local / name for name in read)
    files, packs = write_packs(place.local, manifest.shards, length, output.checksum, last, most)
    if has_rows:
        rows, listed = write_packed_rows(place.local, replace(manifest, packs=packs))
        files += rows
        packs = {split: pack._replace(shards=listed[split]) for split, pack in packs.items()}
    checked.finish()
    for entry in files:
        place.keep(entry, check)
    return files, packs


def pack_dataset(
    place: Place,
    length: int | str,
    last: str = FRAGMENT,
    split: str = "",
    max_samples_per_row: int | str = 0,
) -> Manifest:
    """Pack the documents of a finished dataset for pretraining; return its new manifest.

    Only an index is written. The new manifest then replaces the old one, so a process that is
    killed leaves the old dataset or the new one; files of no use are removed by the next call.
    Arguments are those of `tokmill.pack`; `place` is a directory.

    Raises:
        UsageError: an argument is wrong, or the dataset is one of chats.
        StateError: a run, or another process that packs, is writing in the directory.
        TokmillError: the dataset is damaged, or the index cannot be written.
    """
    directory, capacity = place.local, parse_quantity(str(length), "context", "length")
    if not 2 <= capacity <= MOST_LENGTH:
        raise UsageError(f"expected rows of 2 to {MOST_LENGTH:,} tokens, found {length}", "length")
    most = parse_quantity(str(max_samples_per_row), "count", "max_samples_per_row")
    if last not in LAST_PIECES:
        raise UsageError(f"expected one of {', '.join(LAST_PIECES)}; found {last!r}", "last")
    splits = read_intact_manifest(directory).splits  # before the lock, which makes a directory
    if split and split not in splits:
        raise UsageError(f"expected {' or '.join(splits)}, found {split!r}", "split")
    with place.held():
        manifest = read_intact_manifest(directory)
        if manifest.is_sft:
            raise UsageError(
                f"{directory}: a dataset of chats, which are packed whole when it is made: run "
                "tokmill sft with --packing=4096 for it"
            )
        _remove_useless(place, manifest)
        algorithm = manifest.files[0].algorithm
        shards = manifest.of_split(split)
        checked = CheckedFiles.of(directory, manifest.files)
        checked.check(directory / f"{entry.name}.idx" for entry in shards)
        files, packs = write_packs(directory, shards, capacity, algorithm, last, most)
        try:
            checked.finish()
        except VerifyError:
            _remove_useless(place, manifest)
            raise
        entries = {**manifest.packs, **packs}
        kept = [file for file in manifest.files if not CUT_INDEX.fullmatch(file.name)]
        listed = {file.name: file for file in (*manifest.files, *files)}
        names = [name for one in sorted(entries) for name in entries[one].index_names(one)]
        all_files = [*kept, *(listed[name] for name in names)]
        data = {**manifest.plain, "packs": to_json(entries), "files": to_json(all_files)}
        data["sha256"] = manifest_sha256(data)
        write_chunks(directory, MANIFEST, json_chunks(data), replace=True)
        packed = Manifest.of(data, directory)
        _remove_useless(place, packed)
    return packed


def _remove_useless(place: Place, manifest: Manifest) -> None:
    """Remove indexes that the manifest does not list, and what a killed process was writing."""
    listed = {file.name for file in manifest.files}
    for name in place.entries():
        private = PRIVATE_FILE.fullmatch(name)
        final = private["name"] if private else name
        is_index = CUT_INDEX.fullmatch(final) is not None and name not in listed
        if is_index or (private and final == MANIFEST):
            place.remove(name)
    place.sync()


@dataclass(frozen=True, slots=True)
class RowTokens:
    """Rows, end to end.

    `bodies`: `bin` and sidecars, (n_tokens,) each. `starts`: (n_samples,) where samples, or pieces,
    begin in them. `lengths`: (n_rows,) tokens of rows without padding. `samples`: (n_samples,)
    the numbers of their documents in the split. `sample_lengths`: (n_samples,) in tokens.
    """

    bodies: dict[str, npt.NDArray[Any]]
    starts: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]
    samples: npt.NDArray[np.int64]
    sample_lengths: npt.NDArray[np.int64]


class PackReader:
    """Reads rows from the shards of a split in `directory`.

    `capacity`: tokens of a row. `pad_id`: the id of padding, with mask and weight 0.
    """

    def __init__(self, documents: Documents, packs: Packs, capacity: int, pad_id: int) -> None:
        self._files = ShardFiles(documents)
        self.directory = documents.directory
        self._name = (
            f"{shown_place(self.directory)}: the pack index of {documents.entries[0].split}"
        )
        self.packs = packs
        self.capacity = capacity
        self.pad_id = pad_id

    @property
    def block_rows(self) -> int:
        """Return the number of rows to read at a time."""
        return max(1, BLOCK_TOKENS // self.capacity)

    def rows(self, start: int, stop: int) -> dict[str, npt.NDArray[Any]]:
        """Return the tokens of rows start:stop, padded; see `read`."""
        return self.read(np.arange(start, stop)).bodies

    def read(self, numbers: npt.NDArray[np.int64], *, is_padded: bool = True) -> RowTokens:
        """Return rows by their numbers.

        Raises:
            VerifyError: a row is longer than the capacity, names no sample, or a shard is cut.
        """
        row_of_sample, places, samples = self._samples_of(numbers)
        lengths = np.bincount(row_of_sample, samples.lengths, len(numbers)).astype(np.int64)
        if len(lengths) and lengths.max() > self.capacity:
            raise VerifyError(
                f"{self._name} has a row of {plural(lengths.max(), 'token')}, more than "
                f"{self.capacity:,}; see tokmill verify"
            )
        padding = (self.capacity - lengths) * is_padded
        targets = samples.targets + (np.cumsum(padding) - padding)[row_of_sample]
        by_shard = np.argsort(samples.shards, kind="stable")  # few files are opened
        columns = (samples.shards, samples.starts, samples.lengths, targets)
        spans = Spans(*(column[by_shard] for column in columns))
        bodies: dict[str, npt.NDArray[Any]] = {}
        for ending, dtype in self._files.dtypes.items():
            pad = self.pad_id if ending == "bin" else 0
            bodies[ending] = np.full(int((lengths + padding).sum()), pad, dtype)
            self._files.read(spans, ending, bodies[ending])
        documents = np.asarray(self.packs.samples[places], np.int64)
        return RowTokens(bodies, targets, lengths, documents, samples.lengths)

    def segment_sums(
        self, numbers: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the tokens of rows, and the sums of the squared lengths of their samples: (n,).

        No token is read.

        Raises:
            VerifyError: a row names no sample, or the index of a shard is damaged.
        """
        row_of_sample, _, samples = self._samples_of(numbers)
        tokens, squares = np.zeros((2, len(numbers)), np.int64)
        np.add.at(tokens, row_of_sample, samples.lengths)
        np.add.at(squares, row_of_sample, samples.lengths**2)
        return tokens, squares

    def _samples_of(
        self, numbers: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], Spans]:
        """Return the samples of rows, end to end: row, place in the index, and span of each.

        Raises:
            VerifyError: a row names no sample.
        """
        self.packs.check()
        firsts = np.asarray(self.packs.row_offsets[numbers])
        stops = np.asarray(self.packs.row_offsets[numbers + 1])
        counts = stops - firsts
        try:
            is_inside = (firsts >= 0) & (firsts <= stops) & (stops <= len(self.packs.samples))
            if not np.all(is_inside & (counts <= self.capacity)):  # a sample has a token at least
                raise IndexError("a row is outside of the index")
            row_of_sample = np.repeat(np.arange(len(numbers)), counts)
            before = np.cumsum(counts) - counts
            places = np.arange(len(row_of_sample)) + np.repeat(firsts - before, counts)
            return row_of_sample, places, self._spans(places)
        except (IndexError, ValueError):
            raise VerifyError(
                f"{self._name} names samples that are not there; see tokmill verify"
            ) from None

    def _spans(self, places: npt.NDArray[np.int64]) -> Spans:
        """Return the spans at some places of the index, end to end; raises `IndexError`."""
        spans, pieces = self._files.document_spans(self.packs.samples[places]), self.packs.pieces
        if pieces is None:
            return spans
        starts, lengths = np.asarray(pieces[places]).T.astype(np.int64)
        if ((starts < 0) | (lengths < 1) | (starts + lengths > spans.lengths)).any():
            raise IndexError("a piece is outside of its document")
        return Spans(spans.shards, spans.starts + starts, lengths, np.cumsum(lengths) - lengths)


def open_rows(directory: Path, manifest: Manifest, split: str) -> PackReader:
    """Return the reader of a split's rows; raises like `open_packs`, and when read `PackReader`."""
    return PackReader(
        Documents(directory, manifest, split),
        open_packs(directory, split, manifest.packs[split]),
        manifest.packs[split].capacity,
        manifest.tokenizer.eos.id,
    )


def write_packed_rows(
    directory: Path, manifest: Manifest, *, shard_bytes: int = SHARD_BYTES
) -> tuple[list[FileEntry], dict[str, tuple[ShardRow, ...]]]:
    """Write every packed row of a dataset, padded with eos; each is one document of its `.idx`.

    Memory: some blocks of `BLOCK_TOKENS`. A `.bin` has at most `shard_bytes`, but at least one row.

    Returns:
        The files written, and the shards of every split, in order.

    Raises:
        VerifyError: a shard or the pack index is broken.
        StorageError: the rows cannot be written.
    """
    # To verify and to read, nothing is written.
    from tokmill.dataset.part_writer import EncodedDocuments, SplitWriter

    files: list[FileEntry] = []
    rows: dict[str, tuple[ShardRow, ...]] = {}
    dtype = np.dtype(manifest.dtype).newbyteorder("<")
    for split in manifest.packs:
        source = open_rows(directory, manifest, split)
        writer = SplitWriter(
            directory,
            split,
            partial(packed_stem, split),
            dtype,
            shard_bytes // dtype.itemsize,
            manifest.config.output.checksum,
        )
        n_rows = source.packs.n_rows
        try:
            for first in range(0, n_rows, source.block_rows):
                last = min(first + source.block_rows, n_rows)
                bodies = source.rows(first, last)
                tokens = bodies.pop("bin")
                offsets = np.arange(0, len(tokens) + 1, source.capacity)
                writer.append(EncodedDocuments(tokens, offsets, bodies))
            writer.end()
        except BaseException:
            writer.discard()
            close_files()
            raise
        files += (file for entry in writer.entries for file in entry.files)
        rows[split] = tuple(entry.as_row() for entry in writer.entries)
    close_files()
    return files, rows
