"""Verify a dataset: its files against the manifest, then index, ids, ends, masks, packs, counts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.dataset.checksum import digest_of_chunks, json_chunks
from tokmill.dataset.documents import close_files
from tokmill.dataset.file_array import FileArray, open_file
from tokmill.dataset.layout import (
    CUT_INDEX,
    LOCK_NAME,
    MANIFEST,
    ORIGIN,
    SPLITS,
    contaminated_name,
    duplicates_name,
)
from tokmill.dataset.manifest import Manifest, is_intact
from tokmill.dataset.origins import origins_problem
from tokmill.dataset.packs import PackTotals, open_rows, packed_groups
from tokmill.dataset.reader import open_shard
from tokmill.dataset.sample_checks import samples_in
from tokmill.dataset.sidecars import METADATA, check_metadata, open_document_indices
from tokmill.errors import TokmillError, UsageError, VerifyError
from tokmill.urls import shown_place
from tokmill.words import plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from tokmill.dataset.checksum import FileEntry
    from tokmill.dataset.manifest import MaskEntry, PackEntry, ShardRow
    from tokmill.dataset.packs import PackReader
    from tokmill.dataset.place import Place
    from tokmill.dataset.reader import Shard

_CHUNK_TOKENS = 4 << 20


@dataclass(frozen=True, slots=True)
class Verification:
    """What a verification of a dataset looked at.

    `notes`: names in the directory that are not of the dataset, and were not checked.
    `n_decoded`: samples whose trained text was decoded and encoded again. `not_decoded`: why none
    were, of a dataset with masks; '' otherwise.
    """

    n_files: int
    n_bytes: int
    n_shards: int
    n_documents: int
    n_tokens: int
    n_decoded: int = 0
    not_decoded: str = ""
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = field(default=(), repr=False)

    def check(self, directory: Path) -> None:
        """Raise `VerifyError` with the problems, if there are any."""
        if self.problems:
            n = plural(len(self.problems), "problem")
            raise VerifyError(f"{shown_place(directory)}: verification failed, {n}", self.problems)


def verify(place: Place, data: dict[str, Any]) -> Verification:
    """Check a dataset against its manifest; a forger who recomputes all checksums is not found.

    `data`: the plain values of the manifest.

    Opens only regular files of the place, and follows no link in it. In an object store, sizes and
    checksums of all objects are compared: equal ones mean that every byte is the one that was
    written. Indexes, ids and masks are checked where the dataset was copied to a disk.
    """
    close_files()  # a reader of this process may hold files that were replaced since
    checks = _Checks(place, data)
    checks.run()
    counts = (checks.n_files, checks.n_bytes, checks.n_shards, checks.n_documents, checks.n_tokens)
    return Verification(*counts, notes=tuple(checks.notes), problems=tuple(checks.problems))


def _names(files: Iterable[tuple[str, int | None]]) -> set[str]:
    return {name for name, _ in files}


@dataclass(slots=True)
class _Checks:
    """The checks of a dataset: of its files, of each shard, then of all shards together.

    `notes`: names that do not belong to the dataset; they were not opened. `n_trained`,
    `n_other_ends`: trained tokens, and samples with an end that the rule does not name, of the
    shards so far; `first_other_end` describes the first such sample.
    """

    place: Place
    data: dict[str, Any]
    manifest: Manifest = field(init=False, repr=False)
    n_files: int = 0
    n_bytes: int = 0
    n_shards: int = 0
    n_documents: int = 0
    n_tokens: int = 0
    n_trained: int = 0
    n_other_ends: int = 0
    first_other_end: str = ""
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def run(self) -> None:
        """Check everything that can be checked."""
        if not is_intact(self.data):
            self._found(f"{MANIFEST}: its own sha256 does not match: it was changed")
        # Blanks, escapes and repeated keys are in the file alone.
        elif b"".join(self.place.chunks(MANIFEST)) != b"".join(json_chunks(self.data)):
            self._found(f"{MANIFEST}: its bytes are not the ones that were written: it was changed")
        try:
            self.manifest = Manifest.of(self.data, "")
            files, _ = self.manifest.files, self.manifest.sources
        except VerifyError as error:
            problem = str(error).removeprefix(f"/{MANIFEST}: damaged manifest: ")
            self._found(f"{MANIFEST}: cannot be checked further: {problem}")
            return
        present = self._check_files(files)
        if self.place.mapped is not None:
            self._check_shards(self.place.mapped, present)

    def _check_files(self, files: Sequence[FileEntry]) -> set[str]:
        """Check every file against the manifest; return the names of those that are there.

        Names that begin with a dot are noted and not opened, and so are indexes of packs that
        were replaced.
        """
        manifest, entries = self.manifest, self.place.entries()
        listed = Counter(entry.name for entry in manifest.files)
        for name, n_bytes in entries.items():
            is_left = CUT_INDEX.fullmatch(name) is not None and name not in listed
            if is_left or any(part.startswith(".") for part in name.split("/")):
                self.notes += [] if name == LOCK_NAME else [name]
            elif n_bytes is None:
                self._found(f"{name}: a link or a directory, not a file of the dataset")
            elif name not in listed and name != MANIFEST:
                self._found(f"{name}: not listed in the manifest")
        needed = (*manifest.files_of_shards(manifest.shards), *manifest.files_of_packs())
        self.problems += [
            f"{MANIFEST}: does not list {name}" for name, _ in needed if name not in listed
        ]
        self.problems += [f"{MANIFEST}: lists {name} twice" for name, n in listed.items() if n > 1]
        for entry in files:
            if entries.get(entry.name) is not None:
                self._check_file(entry)
            elif entry.name not in entries:
                self._found(f"{entry.name}: missing")
        return {name for name in listed if entries.get(name) is not None}

    def _check_file(self, entry: FileEntry) -> None:
        algorithm = entry.algorithm
        digest = digest_of_chunks(self.place.chunks(entry.name), algorithm)
        self.n_files += 1
        self.n_bytes += digest.n_bytes
        if digest.n_bytes != entry.n_bytes:
            n_bytes = plural(digest.n_bytes, "byte")
            self._found(f"{entry.name}: {n_bytes}, the manifest says {entry.n_bytes:,}")
        elif digest.checksum() != entry.checksum:
            self._found(f"{entry.name}: its bytes have changed ({algorithm})")

    def _check_shards(self, directory: Path, present: set[str]) -> None:
        """Check every shard; the sums and the packs only if every shard could be read."""
        manifest, n_before = self.manifest, len(self.problems)
        n_slices = manifest.n_slices
        for entry in manifest.shards:
            if not present.issuperset(_names(manifest.files_of_shards([entry]))):
                continue  # a problem already
            if entry.first_slice is not None:
                name, n_left = f"{entry.name}.{ORIGIN}", n_slices - entry.first_slice
                if problem := origins_problem(directory / name, entry.documents, n_left):
                    self._found(f"{name}: {problem}")
            try:
                if manifest.keep:
                    name = f"{entry.name}.{METADATA}"
                    check_metadata(directory / name, manifest.keep, entry.documents)
                shard = open_shard(directory, manifest, entry)
            except VerifyError as error:
                self._found(_said_by(error, directory))
                continue
            if self._check_index(shard):
                self._check_tokens(shard)
            self.n_documents += len(shard.lengths)
            self.n_tokens += len(shard.tokens)
            self.n_shards += 1
        if self.n_shards < len(manifest.shards):
            return
        self._check_marks(directory, present)
        is_sound = len(self.problems) == n_before
        self._check_totals()
        has_packs = present.issuperset(_names(manifest.files_of_packs()))
        if manifest.packs and is_sound and has_packs:
            self._check_packs(directory)
        if len(self.problems) == n_before:
            self._check_sizes()

    def _found(self, problem: str) -> None:
        self.problems.append(problem)

    def _check_marks(self, directory: Path, present: set[str]) -> None:
        """Check the marks of a mix: of equal documents, and of those that held-out texts share."""
        for split in SPLITS:
            n = sum(entry.documents for entry in self.manifest.of_split(split))
            for name in (duplicates_name(split), contaminated_name(split)):
                if name not in present:
                    continue
                marks = FileArray(open_file(directory / name), np.uint8)
                if len(marks) != n or any(chunk.max() > 1 for _, chunk in _chunked(marks)):
                    self._found(f"{name}: not a byte, 0 or 1, for each of {plural(n, 'document')}")

    def _check_sizes(self) -> None:
        """Check the sizes of files by counts: readers ignore bytes behind the last number."""
        manifest = self.manifest
        listed = {entry.name: entry.n_bytes for entry in manifest.files}
        for name, n_bytes in (
            *manifest.files_of_shards(manifest.shards),
            *manifest.files_of_packs(),
        ):
            if n_bytes is not None and listed.get(name, n_bytes) != n_bytes:
                found = plural(listed[name], "byte")
                self._found(f"{name}: {found}, by the counts of the manifest {n_bytes:,}")

    def _check_index(self, shard: Shard) -> bool:
        """Check an index against its shard; return whether its lengths sum up to the tokens."""
        name, n_tokens = shard.name, len(shard.tokens)
        starts, ends = _bounds(shard)
        if int(ends[-1]) != n_tokens or int((ends - starts).min()) < 1:
            self._found(f"{name}.idx: its lengths do not add up to the {plural(n_tokens, 'token')}")
            return False
        if not np.array_equal(shard.offsets, starts * shard.tokens.itemsize):
            self._found(f"{name}.idx: its byte offsets are not those of its lengths")
        if problem := _indices_problem(shard):
            self._found(problem)
        return True

    def _check_tokens(self, shard: Shard) -> None:
        """Check the ids of a shard whose index has no problem, and its mask or its ends."""
        vocab_size = self.manifest.tokenizer.vocab_size
        for _, ids in _chunked(shard.tokens):
            if (largest := int(ids.max())) >= vocab_size:
                self._found(f"{shard.name}: id {largest} is outside the vocabulary of {vocab_size}")
                break
        if self.manifest.mask is None:
            self._check_documents(shard)
            return
        if shard.mask is None:
            self._found(f"{shard.name}.mask: missing")
            return
        self._check_values(shard, shard.mask)
        self._check_samples(shard, self.manifest.mask)

    def _check_documents(self, shard: Shard) -> None:
        """Check the first and last ids of documents for pretraining."""
        tokenizer = self.manifest.tokenizer
        unended, unbegun = _FirstOf(), _FirstOf()
        for first, documents in samples_in(shard, _CHUNK_TOKENS):
            unended.add(first, documents.ending_otherwise([tokenizer.eos.id]))
            if tokenizer.bos is not None:
                unbegun.add(first, documents.beginning_otherwise(tokenizer.bos.id))
        if unended.count:
            self._found(
                f"{shard.name}: document {unended.number} does not end in eos {tokenizer.eos.id} "
                f"({unended.count} such)"
            )
        if unbegun.count:
            self._found(f"{shard.name}: document {unbegun.number} does not begin with bos")

    def _check_values(self, shard: Shard, mask: FileArray) -> None:
        """Check that a mask holds 0 and 1, and that weights agree with it."""
        name, n_wrong, first_wrong = f"{shard.name}.mask", 0, -1
        for start, chunk in _chunked(mask):
            self.n_trained += int(np.count_nonzero(chunk))
            wrong = np.flatnonzero(chunk > 1)
            if len(wrong) and not n_wrong:
                first_wrong = start + int(wrong[0])
            n_wrong += len(wrong)
        if n_wrong:
            self._found(
                f"{name}: token {first_wrong} has {mask[first_wrong]}, neither 0 nor 1 "
                f"({n_wrong} such)"
            )
        if shard.weights is not None and (problem := _weight_problem(mask, shard.weights)):
            self._found(f"{shard.name}.weight: {problem}")

    def _check_samples(self, shard: Shard, rule: MaskEntry) -> None:
        """Check what the samples of a shard train, and how they end."""
        trained_first, untrained = _FirstOf(), _FirstOf()
        for first, samples in samples_in(shard, _CHUNK_TOKENS):
            trained_first.add(first, samples.training_first())
            untrained.add(first, samples.training_nothing())
            if not rule.ends.last_ids:
                continue
            other = samples.ending_otherwise(rule.ends.last_ids)
            if len(other) and not self.first_other_end:
                last_id = int(samples.ids[samples.lasts[other[0]]])
                place = f"{shard.name}: sample {first + other[0]}"
                self.first_other_end = f"{place} ends in id {last_id}"
            self.n_other_ends += len(other)
        for found, told in (
            (trained_first, "trains its first token"),
            (untrained, "has no trained token"),
        ):
            if found.count:
                self._found(f"{shard.name}.mask: sample {found.number} {told} ({found.count} such)")

    def _check_totals(self) -> None:
        """Check the sums of the manifest against those of the shards, and against each other."""
        stated, rule = self.manifest.totals, self.manifest.mask
        found = {"documents": self.n_documents, "tokens": self.n_tokens}
        if rule is not None:
            found["trained_tokens"] = self.n_trained
            if rule.alignment != "target":
                self._found(f"{MANIFEST}: mask alignment is {rule.alignment}, not target")
            if self.n_other_ends > rule.cut:
                self._found(
                    f"{self.first_other_end}, which the end rule ({rule.ends.rule}) does not "
                    f"allow ({self.n_other_ends} such, {rule.cut} were cut)"
                )
        for key, n in found.items():
            said = getattr(stated, key)
            if said != n:
                self._found(f"{MANIFEST}: says {said} {key}, the shards hold {n}")
            by_source = sum(getattr(source.counts, key) for source in self.manifest.sources)
            if by_source != n:
                self._found(f"{MANIFEST}: its sources sum to {by_source} {key}, not {n}")
        outcomes = stated.documents + stated.drops.total() + stated.rejects.total()
        if outcomes != stated.records + stated.extra:
            and_extra = f" and {stated.extra} extra" if stated.extra else ""
            self._found(
                f"{MANIFEST}: documents + drops + rejects = {outcomes}, "
                f"but {plural(stated.records, 'record')}{and_extra}"
            )
        if sum(self.manifest.length_histogram) != self.n_documents:
            self._found(f"{MANIFEST}: its length histogram does not count every document")

    def _check_packs(self, directory: Path) -> None:
        """Check the packs of every split, whose shards have no problem: packs it again.

        Of documents, a split may have none. Memory: see `packs.packed_groups`.
        """
        packs, splits = self.manifest.packs, set(self.manifest.splits)
        are_cut = all(pack.last for pack in packs.values())
        if set(packs) != splits and not (are_cut and set(packs) < splits):
            found, expected = (" and ".join(sorted(names)) or "none" for names in (packs, splits))
            self._found(f"{MANIFEST}: packs of {found}, shards of {expected}")
            return
        for split, pack in packs.items():
            try:
                source = open_rows(directory, self.manifest, split)
                problem = _pack_problem(source, split, pack, self.manifest.of_split(split))
                if not problem and pack.shards:
                    problem = _rows_problem(directory, self.manifest, source, split)
            except (UsageError, VerifyError) as error:
                problem = _said_by(error, directory)
            if problem:
                self._found(problem)


def _said_by(error: TokmillError, directory: Path) -> str:
    """Return the problem that an error names, as a verification tells it."""
    return str(error).removeprefix(f"{directory}/").removesuffix("; see tokmill verify")


def _bounds(shard: Shard) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the first token of each document by its length, and the one after its last."""
    ends = np.cumsum(shard.lengths, dtype=np.int64)
    return ends - shard.lengths, ends


def _indices_problem(shard: Shard) -> str:
    """Return a line on document indices, which only Megatron reads, that do not count up; or ''."""
    n = len(shard.lengths)
    for start, found in _chunked(open_document_indices(shard.path, n)):
        if np.any(found != np.arange(start, start + len(found))):
            return f"{shard.name}.idx: its document indices are not 0 to {n:,}"
    return ""


def _chunked(values: FileArray) -> Iterator[tuple[int, npt.NDArray[Any]]]:
    for start in range(0, len(values), _CHUNK_TOKENS):
        yield start, values[start : start + _CHUNK_TOKENS]


@dataclass(slots=True)
class _FirstOf:
    """Counts samples of a kind in a shard, and keeps the number of the first one."""

    number: int = -1
    count: int = 0

    def add(self, first: int, numbers: npt.NDArray[np.int64]) -> None:
        """Add samples by their numbers behind sample `first` of the shard."""
        if len(numbers) and not self.count:
            self.number = first + int(numbers[0])
        self.count += len(numbers)


def _weight_problem(mask: FileArray, weights: FileArray) -> str:
    """Return a weight that is negative, not finite, or not 0 exactly where the mask is; or ''."""
    for start, chunk in _chunked(weights):
        wrong = np.flatnonzero(~(np.isfinite(chunk) & (chunk >= 0)))
        if len(wrong):
            return f"token {start + wrong[0]} has weight {chunk[wrong[0]]}"
        wrong = np.flatnonzero((chunk > 0) != (mask[start : start + _CHUNK_TOKENS] != 0))
        if len(wrong):
            token = start + int(wrong[0])
            return f"token {token} has weight {weights[token]} and mask {mask[token]}"
    return ""


def _pack_problem(
    source: PackReader, split: str, pack: PackEntry, shards: Sequence[ShardRow]
) -> str:
    """Return a difference of a pack index from packing again, or from the manifest, or ''.

    `shards`: of the split.
    """
    kept = source.packs.columns()
    totals, difference = PackTotals(), ""
    names, stops = pack.index_names(split), [1, 0, 0]  # row 0 begins with sample 0
    groups = packed_groups(
        source.directory, shards, pack.capacity, pack.last, pack.max_samples_per_row
    )
    for packs in totals.counted(groups):
        rows, *others = packs.columns()
        expected = (rows[1:] + stops[1], *others)
        for i, (name, values) in enumerate(zip(names, expected, strict=True)):
            start, stops[i] = stops[i], stops[i] + len(values)
            part = kept[i][start : stops[i]]
            differs = np.flatnonzero(part != values[: len(part)])
            if len(differs) and not difference:
                first = int(differs[0])
                difference = (
                    f"{name}: entry {start + first} is {part[first]}, packing the samples gives "
                    f"{values[first]}"
                )
    for name, values, n in zip(names, kept, stops, strict=False):
        if len(values) != n:
            return f"{name}: {plural(len(values), 'number')}, packing the samples gives {n}"
    if difference or kept[0][0] != 0:
        return difference or f"{names[0]}: entry 0 is {kept[0][0]}, packing the samples gives 0"
    found = totals.entry(shards, pack.capacity, pack.last, pack.max_samples_per_row)
    for key in ("rows", "samples", "tokens", "fill", "pieces", "padding", "left_out"):
        said, value = getattr(pack, key), getattr(found, key)
        if said != value:
            return f"{MANIFEST}: says {said} {key} of packs of {split}, found {value}"
    return ""


def _rows_problem(directory: Path, manifest: Manifest, source: PackReader, split: str) -> str:
    """Return the first difference between packed rows and the index, or ''."""
    first_row, capacity = 0, source.capacity
    shards = manifest.packs[split].shards
    n_rows = sum(entry.documents for entry in shards)
    if n_rows != source.packs.n_rows:
        rows = plural(n_rows, "packed row")
        return f"{MANIFEST}: {rows} of {split}, the index has {source.packs.n_rows}"
    for entry in shards:
        shard = open_shard(directory, manifest, entry)
        n = len(shard.lengths)
        if np.any(shard.lengths[:] != capacity) or len(shard.tokens) != n * capacity:
            return f"{shard.name}.idx: not every row has {plural(capacity, 'token')}"
        if not np.array_equal(shard.offsets, np.arange(n) * capacity * shard.tokens.itemsize):
            return f"{shard.name}.idx: its byte offsets are not those of its lengths"
        if problem := _indices_problem(shard):
            return problem
        for start in range(0, n, source.block_rows):
            stop = min(start + source.block_rows, n)
            expected = source.rows(first_row + start, first_row + stop)
            for ending, body in {"bin": shard.tokens, **shard.sidecars}.items():
                differs = body[start * capacity : stop * capacity] != expected[ending]
                if differs.any():
                    row = start + int(differs.argmax()) // capacity
                    return f"{shard.name}.{ending}: row {row} is not what the pack index says"
        first_row += n
    return ""
