"""What a format of input is: its suffixes, where its files can be cut, and how a slice is opened.

`tables.FORMATS` names the built-in ones; each is a `Format` in the module that reads it. Nothing
else in tokmill knows a format by name, but for what is special to JSON and plain text.
"""

from __future__ import annotations

from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Literal

from tokmill import tables
from tokmill.errors import UsageError
from tokmill.extensions import find, names_of_packages
from tokmill.sources.blocks import Reading
from tokmill.sources.slices import Slice, SourceFile
from tokmill.sources.streams import frame_starts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import BinaryIO

    import pyarrow as pa

    from tokmill.extensions import TableEntry
    from tokmill.settings.schema import InputSettings
    from tokmill.sources.blocks import BytesBlock, ParsedBlock
    from tokmill.sources.byte_reader import ByteReader
    from tokmill.sources.row_reader import RowBlock, RowReader

    Block = BytesBlock | ParsedBlock | RowBlock
    SliceReader = ByteReader | RowReader


@dataclass(frozen=True, slots=True)
class Format:
    """A format of input files.

    `open` opens a slice. `suffixes`: of file names, in lower case, such as `.jsonl`. `holds`: what
    a block is made of. Formats of `rows` are files of Arrow columns; all others are streams of
    bytes, which may be compressed, and may come from standard input.

    `unit_bytes`: the stored bytes of each unit that a file can be cut at, such as a row group; a
    slice counts in these units. `has_byte_ranges`: a file can be cut at any byte, since records end
    with a newline. A file with neither is one slice.

    `held_bytes`: memory that the largest page of a file takes while it is unpacked, for a format
    whose pages can be larger than a block.

    `is_utf8`: the bytes are text. `magic`: the first bytes of every file; `title`: the format in
    messages about them.
    """

    open: Callable[[Slice, Reading], SliceReader]
    suffixes: tuple[str, ...] = ()
    holds: Literal["json", "csv", "text", "rows"] = "json"
    unit_bytes: Callable[[SourceFile], Sequence[int]] | None = None
    has_byte_ranges: bool = False
    is_utf8: bool = True
    magic: bytes = b""
    title: str = ""
    held_bytes: Callable[[SourceFile], int] | None = None


@cache
def format_named(name: str) -> Format:
    """Return a format by its name.

    Raises:
        UsageError: there is no such format, or its package cannot be loaded.
    """
    return _checked(name, find(tables.FORMATS, name))


def _checked(name: str, entry: TableEntry) -> Format:
    if isinstance(entry.value, Format):
        return entry.value
    label = entry.extension.label if entry.extension else f"format {name}"
    raise UsageError(f"{label}: expected a tokmill Format, found {type(entry.value).__name__}")


@cache
def built_in_suffixes() -> dict[str, str]:
    """Return the names of built-in formats by the suffixes of their files."""
    return {suffix: name for name in tables.FORMATS.rows for suffix in format_named(name).suffixes}


@cache
def outside_suffixes() -> dict[str, str]:
    """Return the names of other packages' formats by suffix; a built-in format keeps its own.

    Raises:
        UsageError: one cannot be loaded, or two have the same suffix.
    """
    names: dict[str, str] = {}
    for name in sorted(names_of_packages(tables.FORMATS)):
        for suffix in _checked(name, find(tables.FORMATS, name)).suffixes:
            if names.setdefault(suffix, name) != name:
                raise UsageError(
                    f"formats {names[suffix]} and {name} both have the suffix {suffix}: take "
                    "--format, or uninstall one"
                )
    return names


@contextmanager
def open_slice(
    slice: Slice,  # noqa: A002  it is the word for it
    settings: InputSettings,
    schema: pa.Schema,
    batch_bytes: int,
    *,
    samples_head: bool = False,
    opened: BinaryIO | None = None,
) -> Iterator[SliceReader]:
    """Open a slice, to be read in blocks, while the context is open. Arguments: see `Reading`.

    Raises:
        UsageError: the settings do not fit the file, or a package is missing.
        StorageError: the file cannot be read.
    """
    reading = Reading(settings, schema, batch_bytes, samples_head, opened)
    row = format_named(slice.file.format)
    if row.holds == "rows" and not (slice.n_bytes or slice.file.is_stream):
        row = format_named("jsonl")  # a file of zero bytes: no lines, no records
    with closing(row.open(slice, reading)) as reader:
        yield reader


def cut(file: SourceFile, part_bytes: int) -> list[Slice]:
    """Cut a file of more than `part_bytes` into slices of about so many stored bytes, if it can be.

    Lines are cut into equal ranges of bytes (a record that crosses an end belongs to the slice
    before it), compressed by zstandard at frames; other formats at their units.

    Raises:
        StorageError: the file cannot be read or is not what its ending says.
    """
    row = format_named(file.format)
    if file.n_bytes > part_bytes and row.has_byte_ranges and not file.compression:
        n_slices = -(-file.n_bytes // part_bytes)
        bounds = [file.n_bytes * i // n_slices for i in range(n_slices + 1)]
        return [Slice(file, start, stop, stop - start) for start, stop in pairwise(bounds)]
    if file.n_bytes > part_bytes and row.has_byte_ranges and file.compression == "zst":
        starts = [*frame_starts(file.path), file.n_bytes]
        groups = _group([stop - start for start, stop in pairwise(starts)], part_bytes)
        if len(groups) > 1:
            ranges = [(starts[first], starts[last]) for first, last in groups]
            return [Slice(file, start, stop, stop - start) for start, stop in ranges]
    elif file.n_bytes > part_bytes and row.unit_bytes is not None:
        sizes = row.unit_bytes(file)
        groups = _group(sizes, part_bytes)
        if len(groups) > 1:  # the bytes of all slices add up to those of the file
            ends = list(accumulate(sizes))
            bounds = [file.n_bytes * ends[last - 1] // max(1, ends[-1]) for _, last in groups]
            bounds[-1] = file.n_bytes
            stored = [stop - start for start, stop in pairwise([0, *bounds])]
            return [Slice(file, *group, n) for group, n in zip(groups, stored, strict=True)]
    return [Slice(file, 0, -1, file.n_bytes)]


def _group(sizes: Sequence[int], part_bytes: int) -> list[tuple[int, int]]:
    """Group neighbours to at most `part_bytes`; a larger unit is a group of its own."""
    groups: list[tuple[int, int]] = []
    first = n_bytes = 0
    for i, size in enumerate(sizes):
        if i > first and n_bytes + size > part_bytes:
            groups.append((first, i))
            first, n_bytes = i, 0
        n_bytes += size
    return [*groups, (first, len(sizes))] if sizes else groups
