"""What `manifest.json` says, as typed values; docs/format.md explains its keys.

A manifest that somebody else wrote gives a message, no traceback: each value is checked when the
manifest is read, and who needs more calls `check_complete`: that the files of each shard are
listed, for example.

Most values are named tuples: to make the class of one takes 0.1 ms, that of a dataclass 0.3, and
every command reads a manifest. For the same reason their types are written out, and no strings.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Self, TypeVar

import numpy as np

from tokmill.dataset.checksum import FileEntry, json_chunks, manifest_sha256
from tokmill.dataset.counts import Counts, SliceLength
from tokmill.dataset.layout import (
    DATASET_FILE,
    LAST_PIECES,
    MANIFEST,
    ORIGIN,
    PLAN,
    SIDECARS,
    SPLITS,
    Split,
    pack_names,
)
from tokmill.dataset.packing import MOST_LENGTH
from tokmill.dataset.sidecars import METADATA, index_bytes
from tokmill.dataset.typed_json import (
    Count,
    Id,
    Number,
    ObjectReader,
    Positive,
    Text,
    WrongValue,
    field_kinds,
    from_json,
    shown,
    to_json,
)
from tokmill.errors import VerifyError
from tokmill.settings.names import schema, section_types
from tokmill.settings.schema import CHECKSUMS, Config

_T = TypeVar("_T")

_MOST_BINS = 64
_SHARD = re.compile("(?:train|val)-[0-9]{7,}-[0-9]{4,}")
_PACKED_SHARD = re.compile("packed-(?:train|val)-[0-9]{4,}")
_NOT_BLANK = re.compile(r"(?s:.*\S.*)")

SliceNumber = Annotated[int, range(1 << 27)]
RecordNumber = Annotated[int, range(1 << 36)]
"""Numbers of slices, and of records in a slice, as an `.origin` can hold them."""

_Character = Annotated[int, range(1 << 21)]
Rules = Mapping[str, tuple[Annotated[int, range(1, 1 << 31)], ...]]
"""By name, the numbers under which documents were made; see `dataset.rules`."""


class TokenEntry(NamedTuple):
    """A token of the tokenizer: its id and its text."""

    id: Id
    token: Text


class Probe(NamedTuple):
    """A text, and its ids by the reference: they show another tokenizer of the same name."""

    text: Text
    ids: tuple[Id, ...]


class TokenizerEntry(NamedTuple):
    """The tokenizer of the ids; `vocab_size`: the largest id and 1."""

    name: Text
    identity: Text
    vocab_size: Id
    eos: TokenEntry
    bos: TokenEntry | None
    probe: Probe | None = None

    @property
    def probe_ids(self) -> tuple[int, ...]:
        """Return the ids of the probe; () where the manifest has none."""
        return () if self.probe is None else self.probe.ids


class ScanEntry(NamedTuple):
    """The characters that were compared with the reference, by their first and last in ranges."""

    differs: tuple[tuple[_Character, _Character], ...]
    n_characters: Count
    uncompared: tuple[tuple[_Character, _Character], ...] = ()


class EngineEntry(NamedTuple):
    """What encoded the text, and how it was chosen; see `engines.choice.EngineChoice`."""

    name: Text
    version: Annotated[str, _NOT_BLANK]
    reason: Text
    mb_per_s: Mapping[str, Number]
    n_checked: Count
    refused: Mapping[str, Text]
    scan: ScanEntry | None = None
    scan_kept: bool = False


class ReadingEntry(NamedTuple):
    """How a group of files was read; `files`: in words, `fields_read`: paths of used fields."""

    source: Text
    files: Text
    settings: Mapping[str, Any]
    fields_read: tuple[Text, ...] = ()


class Usage(NamedTuple):
    """Time and memory of the last attempt; seconds of stages are those of all threads."""

    wall_s: Number
    text_bytes_per_s: Number
    peak_memory_bytes: Count
    resumed_parts: Count
    start_s: Number | None = None
    cpu_s: Number | None = None
    workers: Count | None = None
    threads: Count | None = None
    stage_s: Mapping[str, Number] = {}
    stage_cpu_s: Mapping[str, Number] = {}


class MaskEnds(NamedTuple):
    """The rule of the ends of samples, and the ids that they may end with (none: any)."""

    rule: Text
    last_ids: tuple[Id, ...]


class MaskEntry(NamedTuple):
    """Which tokens of chats are trained, and by which template."""

    preset: Text
    boundary: Text
    alignment: Text
    template: Text
    template_sha256: Text
    trained: tuple[Text, ...]
    ends: MaskEnds
    cut: Count
    turns: Text | None = None


class ShardRow(NamedTuple):
    """A shard of the dataset, by its name without an ending.

    `first_slice`: the number in the dataset of the first slice of its part; None without origins.
    """

    name: Text
    split: Split
    documents: Positive
    tokens: Positive
    first_slice: SliceNumber | None = None


class PackEntry(NamedTuple):
    """The packed rows of a split, of `capacity` tokens each; `fill`: their share without padding.

    Of documents for pretraining, which are cut, `last` is what became of their last pieces, and
    `pieces`, `padding` and `left_out` count; of chats `last` is '', and there may be `shards` of
    packed rows. `max_samples_per_row`: samples, or pieces, in a row, at most; 0: any number.
    """

    capacity: Annotated[int, range(1, MOST_LENGTH + 1)]
    rows: Positive
    samples: Positive
    tokens: Positive
    fill: Number
    bytes_per_sample: Number = 0
    last: Annotated[str, frozenset(("", *LAST_PIECES))] = ""
    pieces: Count = 0
    padding: Count = 0
    left_out: Count = 0
    shards: tuple[ShardRow, ...] = ()
    max_samples_per_row: Count = 0

    def index_names(self, split: str) -> tuple[str, ...]:
        """Return the names of the files of its index; see `layout.pack_names`."""
        return pack_names(split, self.capacity, self.last, self.max_samples_per_row)

    def as_json(self) -> dict[str, Any]:
        """Return the entry as plain values."""
        own = ("last", "pieces", "padding", "left_out") if self.last else ("bytes_per_sample",)
        if self.max_samples_per_row:
            own = (*own, "max_samples_per_row")
        names = ("capacity", "rows", "samples", "tokens", "fill", *own)
        rows = {"shards": to_json(self.shards)} if self.shards else {}
        return {**{name: getattr(self, name) for name in names}, **rows}


class MixSource(NamedTuple):
    """What a source gave to train of a mix; `available`, `wanted` and `tokens`: tokens."""

    name: Text
    available: Count
    wanted: Count
    tokens: Count
    documents: Count
    epochs: Number


class MixInput(NamedTuple):
    """A dataset that was mixed; `first_part`, `first_slice`: what its first ones are here."""

    directory: Text
    first_part: Count
    first_slice: SliceNumber
    identity: Text = ""
    mix: "Mix | None" = None


class HeldOutFile(NamedTuple):
    """Held-out texts: a file, with the sha256 of its records, or a dataset with its identity."""

    path: Text
    identity: Text


class Mix(NamedTuple):
    """What a mix was asked for, and what it got; see docs/format.md."""

    fingerprint: Text
    settings: Mapping[str, Any]
    sources: tuple[MixSource, ...]
    inputs: tuple[MixInput, ...]
    val_fractions: tuple[Number, ...] = ()
    duplicates: Count | None = None
    overlap: Count | None = None
    against: tuple[HeldOutFile, ...] = ()
    contaminated: Count | None = None


def slice_of_part(mix: Mix | None, part: int) -> int:
    """Return the slice of a part of imported tokens, whose number is that of its file.

    `mix`: of the manifest, if the part was linked from one of its inputs.
    """
    for source in reversed(mix.inputs if mix else ()):
        if source.first_part <= part:
            first: int = source.first_slice
            return first + slice_of_part(source.mix, part - source.first_part)
    return part


class UnreadTotals(NamedTuple):
    """How many input files break off, and how many bytes behind the breaks were not read."""

    files: Count
    text_bytes: Count
    stored_bytes: Count


@dataclass(frozen=True, slots=True)
class SourceEntry:
    """An input file and what became of its records; in JSON its counts stand beside its path.

    `name`: of its source, '' without one. `reading`: how it was read, an index in the readings of
    the manifest; None if all files were read in one way. `slices`: of a file that was cut.
    """

    path: str
    counts: Counts
    name: str = ""
    reading: int | None = None
    slices: tuple[SliceLength, ...] = ()

    @property
    def n_slices(self) -> int:
        """Return the number of its slices: one that was not cut has one."""
        return len(self.slices) or 1

    def as_json(self) -> dict[str, Any]:
        """Return the row of the manifest."""
        own = {
            **({"name": self.name} if self.name else {}),
            **({} if self.reading is None else {"reading": self.reading}),
            **({"slices": to_json(self.slices)} if self.slices else {}),
        }
        return {"path": self.path, **self.counts.as_json(), **own}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Return the file of a row of the manifest; raises `WrongValue`."""
        return cls(counts=from_json(Counts, data), **_read_source(data))


_read_source = ObjectReader(
    {"path": Text, "name": Text, "reading": Count, "slices": tuple[SliceLength, ...]},
    frozenset({"name", "reading", "slices"}),
)


class InputFile(NamedTuple):
    """An input file, the name of its source or '', and the lengths of its slices.

    A file that was not cut has one slice, which is not listed.
    """

    path: str
    name: str
    slices: tuple[SliceLength, ...]

    @property
    def n_slices(self) -> int:
        """Return the number of its slices."""
        return len(self.slices) or 1


@dataclass(frozen=True, eq=False, repr=False)
class Manifest:
    """What `manifest.json` says of a finished dataset.

    Its two longest lists, `files` and `sources`, may have a million entries: they are checked and
    made when they are first looked at, which raises `VerifyError` if one of them is wrong.

    `plain`: all of it as plain values, what a newer version has added too; not to be changed.
    `where`: its directory or URL, for messages. `rules`: None where they are the first ones.
    `totals`: the counts of all input files; `unread`: what was not read of them, None if nothing.
    `config`: settings that are missing have their defaults.
    """

    plain: dict[str, Any]
    where: str
    format_version: Count
    tokenizer: TokenizerEntry
    engine: EngineEntry
    dtype: Annotated[str, frozenset({"uint16", "uint32"})]
    config: Config
    totals: Counts
    unread: UnreadTotals | None
    length_histogram: tuple[Count, ...]
    shards: tuple[ShardRow, ...]
    run: Usage
    tokmill_version: Text = ""
    kind: Annotated[str, frozenset({"pretrain", "sft"})] = "pretrain"
    rules: Rules | None = None
    fields_read: tuple[Text, ...] = ()
    keep: tuple[Text, ...] = ()
    readings: tuple[ReadingEntry, ...] = ()
    noticed: Mapping[str, tuple[tuple[SliceNumber, RecordNumber], ...]] = field(
        default_factory=dict
    )
    mix: Mix | None = None
    mask: MaskEntry | None = None
    packs: Mapping[str, PackEntry] = field(default_factory=dict)
    sha256: Text = ""

    @classmethod
    def of(cls, data: Mapping[str, Any], where: Path | str) -> Self:
        """Return the manifest of plain values; `where`: its directory or URL.

        Raises:
            VerifyError: names the first value that is wrong, but in `files` and `sources`.
        """
        manifest: Self = _checked(lambda: _from_json(cls, data, str(where)), str(where))
        if problem := _disagreement(manifest):
            raise damaged(where, problem)
        return manifest

    @cached_property
    def files(self) -> tuple[FileEntry, ...]:
        """Return every other file of the dataset."""
        files = self._list("files", FileEntry)
        for i, entry in enumerate(files):
            if entry.name != PLAN and not DATASET_FILE.fullmatch(entry.name):
                name = shown(entry.name)
                raise damaged(
                    self.where, f"files[{i}].name: expected a file of a dataset, found {name}"
                )
        return files

    @cached_property
    def sources(self) -> tuple[SourceEntry, ...]:
        """Return the input files."""
        return self._list("sources", SourceEntry)

    @cached_property
    def input_files(self) -> tuple[InputFile, ...]:
        """Return the input files without their counts, which take a hundred times as long."""
        return tuple(_checked(lambda: list(_input_files(self.plain)), self.where))

    def _list(self, key: str, kind: type[_T]) -> tuple[_T, ...]:
        reader = ObjectReader({key: tuple[kind, ...]}, frozenset())  # type: ignore[valid-type]
        found: tuple[_T, ...] = _checked(lambda: reader(self.plain)[key], self.where)
        return found

    @property
    def is_sft(self) -> bool:
        """Return whether its documents are samples of chats, with masks."""
        return self.kind == "sft"

    @property
    def sidecars(self) -> tuple[str, ...]:
        """Return the endings of the sidecars of every `.bin`."""
        if self.mask is None or self.config.sft is None:
            return ()
        return ("mask", "weight") if self.config.sft.weights == "file" else ("mask",)

    @property
    def splits(self) -> tuple[str, ...]:
        """Return the splits that have documents, train first."""
        held = {shard.split for shard in self.shards}
        return tuple(split for split in SPLITS if split in held)

    @property
    def n_slices(self) -> int:
        """Return the slices of all sources."""
        return sum(file.n_slices for file in self.input_files)

    @property
    def n_bytes(self) -> int:
        """Return the size of all files of the dataset, the manifest included."""
        of_files = sum(entry.n_bytes for entry in self.files)
        return of_files + sum(map(len, json_chunks(self.plain)))

    @property
    def is_intact(self) -> bool:
        """Return whether it has the sha256 that it names."""
        return is_intact(self.plain)

    def of_split(self, split: str) -> list[ShardRow]:
        """Return the shards of a split, in order; '' is all."""
        return [shard for shard in self.shards if split in ("", shard.split)]

    def files_of_shards(self, shards: Iterable[ShardRow]) -> Iterator[tuple[str, int | None]]:
        """Yield the name of every file of shards, also of packed rows, and its bytes, if known.

        They are known by the counts of the shard, but of origins and kept fields.
        """
        item_bytes = np.dtype(self.dtype).itemsize
        for shard in shards:
            yield f"{shard.name}.bin", shard.tokens * item_bytes
            yield f"{shard.name}.idx", index_bytes(shard.documents)
            for ending in self.sidecars:
                yield f"{shard.name}.{ending}", shard.tokens * SIDECARS[ending].itemsize
            if shard.first_slice is not None:
                yield f"{shard.name}.{ORIGIN}", None
            if self.keep and not shard.name.startswith("packed-"):
                yield f"{shard.name}.{METADATA}", None

    def files_of_packs(self) -> Iterator[tuple[str, int | None]]:
        """Yield the same for packs: of the index, and of shards of packed rows."""
        for split, pack in self.packs.items():
            n_samples = pack.pieces if pack.last else pack.samples
            sizes = (8 * (pack.rows + 1), 8 * n_samples, 8 * n_samples)
            yield from zip(pack.index_names(split), sizes, strict=False)
            yield from self.files_of_shards(pack.shards)

    def check_complete(self) -> None:
        """Check that all values are of their kinds, and do not contradict each other.

        `verify` says more of values that do; everybody else refuses the manifest.

        Raises:
            VerifyError: names the first value that is wrong.
        """
        if problem := _wrong_list(self) or _wrong_counts(self) or _wrong_slices(self):
            raise damaged(self.where, problem)


def is_intact(data: Mapping[str, Any]) -> bool:
    """Return whether the plain values of a manifest have the sha256 that they name."""
    try:
        return bool(data.get("sha256") == manifest_sha256(data))
    except RecursionError:  # nested too deeply to be written as JSON
        return False


def damaged(where: Path | str, problem: str) -> VerifyError:
    """Return the error of a manifest with a wrong value."""
    return VerifyError(f"{where}/{MANIFEST}: damaged manifest: {problem}")


_DERIVED = ("plain", "where", "config", "totals", "unread")


@cache
def _manifest_reader() -> ObjectReader:
    """Return what reads the keys of a manifest; what stands in a key in another form is left."""
    kinds, optional = field_kinds(Manifest)
    kinds = {name: kind for name, kind in kinds.items() if name not in _DERIVED}
    return ObjectReader({**kinds, "config": Mapping[str, Any], "totals": Any}, optional)


def _from_json(cls: type[Manifest], data: Mapping[str, Any], where: str) -> Manifest:
    values = _manifest_reader()(data)
    values["config"] = _config(values["config"])
    try:
        values["totals"], values["unread"] = _totals(values["totals"])
    except WrongValue as error:
        raise error.inside("totals") from None
    return cls(plain=dict(data), where=where, **values)


def _input_files(data: Mapping[str, Any]) -> Iterator[InputFile]:
    """Yield the input files of a manifest; raises `WrongValue`."""
    rows = ObjectReader({"sources": tuple[Any, ...]}, frozenset())(data)["sources"]
    for i, row in enumerate(rows):
        if isinstance(row, dict) and type(row.get("path")) is str and "slices" not in row:
            name = row.get("name", "")
            if type(name) is str:
                yield InputFile(row["path"], name, ())  # most are like this one
                continue
        try:
            values = _read_source(row)
        except WrongValue as error:
            raise error.inside(f"sources[{i}]") from None
        yield InputFile(values["path"], values.get("name", ""), values.get("slices", ()))


def _checked(read: Any, where: str) -> Any:
    """Return what a function reads; raises `VerifyError` in place of `WrongValue`."""
    try:
        return read()
    except WrongValue as error:
        raise damaged(where, str(error)) from None
    except RecursionError:
        raise damaged(where, "nested too deeply") from None


def _totals(data: Any) -> tuple[Counts, UnreadTotals | None]:
    """Return the counts of a dataset, and what was not read; its breaks stand in the sources."""
    if not isinstance(data, dict) or "unread" not in data:
        return from_json(Counts, data), None
    unread = ObjectReader({"unread": UnreadTotals}, frozenset())(data)["unread"]
    return from_json(Counts, {key: value for key, value in data.items() if key != "unread"}), unread


_NEEDED = {
    "tokenizer": ("path", "pattern", "control_tokens_in_text"),
    "input": ("paths",),
    "output": ("dir", "shard_tokens", "val_fraction", "packing"),
    "sft": ("weights", "too_long", "packing", "packed_rows"),
}
"""Settings without which a manifest is not read, by section; only chats have `sft`."""

_KINDS: dict[Any, Any] = {int: Count, float: Number, str: Text, bool: bool}
_KINDS[tuple[str, ...]] = tuple[Text, ...]


@cache
def _section_readers() -> Mapping[str, ObjectReader]:
    """Return what reads each section of settings that this version knows."""
    readers = {}
    for section, settings in schema().items():
        kinds = {
            name: _KINDS[setting.kind]
            for name, setting in settings.items()
            if setting.kind in _KINDS  # the sources of input have settings of their own
        }
        if section == "output":
            kinds["checksum"] = Annotated[str, frozenset(CHECKSUMS)]
        readers[section] = ObjectReader(kinds, frozenset(kinds) - {*_NEEDED.get(section, ())})
    return readers


def _config(data: Mapping[str, Any]) -> Config:
    """Return the settings of a manifest; those that this version does not know are left out."""
    sections = {}
    for section, read in _section_readers().items():
        try:
            if section in data:
                sections[section] = section_types()[section](**read(data[section]))
            elif section in _NEEDED and section != "sft":
                raise WrongValue("missing", section)
        except WrongValue as error:
            raise error.inside("config" if section not in data else f"config.{section}") from None
    return Config(**sections)


def _disagreement(manifest: Manifest) -> str:
    """Return a line on two values that decide how others are read and do not agree, or ''."""
    is_masked, has_settings = manifest.mask is not None, manifest.config.sft is not None
    if manifest.is_sft != is_masked or manifest.is_sft != has_settings:
        return "its kind, its mask and config.sft do not agree"
    if len(manifest.length_histogram) > _MOST_BINS:
        return f"length_histogram: more than {_MOST_BINS} entries"
    if len(set(manifest.keep)) < len(manifest.keep):
        return "keep: a name stands there twice"
    if not manifest.packs.keys() <= set(SPLITS):
        return f"packs: expected {' or '.join(SPLITS)}, found {shown(next(iter(manifest.packs)))}"
    for split, pack in manifest.packs.items():
        keys = manifest.plain["packs"][split].keys()
        if pack.last and not keys >= {"pieces", "padding", "left_out"}:
            return f"packs.{split}: of documents, expected pieces, padding and left_out"
        if problem := _wrong_name(pack.shards, _PACKED_SHARD):
            return f"packs.{split}.{problem}"
    return _wrong_name(manifest.shards, _SHARD)


def _wrong_name(shards: Iterable[ShardRow], pattern: re.Pattern[str]) -> str:
    """Return a line on a shard that has no name of a shard of its split, or ''."""
    for i, shard in enumerate(shards):
        if not pattern.fullmatch(shard.name):
            name = shown(shard.name)
            return f"shards[{i}].name: expected a string like {pattern.pattern!r}, found {name}"
        if shard.name.removeprefix("packed-").partition("-")[0] != shard.split:
            return f"shards: {shard.name} has the split {shard.split}"
    return ""


def _wrong_list(manifest: Manifest) -> str:
    """Return a line on a file that is not listed, listed twice, or listed with another size."""
    names = Counter(entry.name for entry in manifest.files)
    twice = next((name for name, n in names.items() if n > 1), "")
    if twice:
        return f"files: {twice} is listed twice"
    sizes = {entry.name: entry.n_bytes for entry in manifest.files}
    for name, n_bytes in (*manifest.files_of_shards(manifest.shards), *manifest.files_of_packs()):
        if name not in sizes:
            return f"files: {name} is not listed"
        if n_bytes is not None and sizes[name] != n_bytes:
            counted = f"expected {n_bytes:,}, by its counts, found {sizes[name]}"
            return f"files: {name}: bytes: {counted}"
    return ""


def _wrong_counts(manifest: Manifest) -> str:
    """Return a line on documents or tokens that are not those of the shards, or ''."""
    totals = manifest.totals
    documents = sum(shard.documents for shard in manifest.shards)
    tokens = sum(shard.tokens for shard in manifest.shards)
    for key, total, stated in (
        ("documents", documents, totals.documents),
        ("tokens", tokens, totals.tokens),
    ):
        if stated != total:
            return f"totals.{key}: expected {total:,}, those of the shards, found {stated}"
    for split, pack in manifest.packs.items():
        if split not in manifest.splits:
            return f"packs.{split}: there is no shard of {split}"
        for shard in pack.shards:
            if shard.tokens != shard.documents * pack.capacity:
                return f"packs.{split}: {shard.name}: tokens are not those of its rows"
    return ""


def _wrong_slices(manifest: Manifest) -> str:
    """Return a line on a number of a slice that the manifest does not have, or ''."""
    n_slices = manifest.n_slices
    firsts = [shard.first_slice for shard in manifest.shards if shard.first_slice is not None]
    if firsts and max(firsts) >= n_slices:
        return f"shards: first_slice: expected less than {n_slices:,}, found {max(firsts)}"
    return ""
