"""Export a dataset: its files in another trainer's layout, in a directory that appears whole.

Files are hard links, reflinks or copies of the dataset's, or written anew. The record of an export
says what it is, and has the checksums of its files.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import warnings
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tokmill.dataset.checksum import FileEntry, digest_of
from tokmill.dataset.contents import parse_export_record
from tokmill.dataset.identity import identity_of
from tokmill.dataset.layout import EXPORT_RECORD
from tokmill.dataset.typed_json import to_json
from tokmill.errors import TokmillError, UsageError, VerifyError
from tokmill.extensions import find, one_line
from tokmill.opening import open_regular, read_named
from tokmill.settings.schema import BLAKE3
from tokmill.storage import (
    link,
    make_directory,
    share_blocks,
    storage_errors,
    write_file,
)
from tokmill.tables import TRAINERS
from tokmill.trainers.private_directory import (
    check_outside_datasets,
    check_replaceable,
    check_room,
    private_directory,
)
from tokmill.trainers.trainer import ExportSource, Linked, Written
from tokmill.urls import store_url
from tokmill.version import __version__
from tokmill.words import plural

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from tokmill.trainers.options import ExportOptions
    from tokmill.trainers.trainer import Checked, Layout, Trainer


@dataclass(frozen=True, slots=True)
class Placed(FileEntry):
    """A file of an export. `how`: `link`, `reflink`, `copy` or `written`."""

    how: str

    def as_json(self) -> dict[str, Any]:
        """Return the file as plain values: name, bytes, checksum, how."""
        return {**FileEntry.as_json(self), "how": self.how}


@dataclass(frozen=True, slots=True)
class Export:
    """An export that was written.

    Attributes:
        trainer: the name that was asked for.
        title: the trainer's name as its users write it.
        output: the directory.
        files: every file: its name, bytes, and whether it is a link, a copy or written.
        usage: what to write into the trainer's settings.
        notes: what the user must know, one line each.
        mask_alignment: `target`: the mask of a token stands at its own place; `predictor`: at the
            place before it; '' without masks.
        checked: what the trainer's own reader read, if it was asked to.
    """

    trainer: str
    title: str
    output: Path
    files: tuple[Placed, ...]
    usage: str
    notes: tuple[str, ...]
    mask_alignment: str
    checked: Checked | None = None

    @property
    def n_bytes(self) -> int:
        """Return the bytes of all files."""
        return sum(file.n_bytes for file in self.files)

    @property
    def new_bytes(self) -> int:
        """Return the bytes of the files that take disk space of their own."""
        return sum(file.n_bytes for file in self.files if file.how not in ("link", "reflink"))


def export(
    directory: Path,
    trainer: str,
    output: Path,
    options: ExportOptions,
    *,
    check: bool = False,
    overwrite: bool = False,
) -> Export:
    """Export a dataset to `output`, which appears with all its files or not at all.

    `check`: also read the result with the trainer's own reader. `overwrite`: replace a dataset or
    an export that stands at `output`.

    Raises:
        UsageError: the trainer is unknown, cannot read such a dataset, or its reader is missing.
        StateError: `output` holds files of others, or anything and `overwrite` is not set.
        StorageError: no space, no permission.
        VerifyError: the dataset is damaged, or the reader returned something else.
    """
    if not isinstance(trainer, str) or not trainer:
        raise UsageError(f"trainer: expected one of {', '.join(TRAINERS.rows)}; found {trainer!r}")
    trainer = TRAINERS.name_of(trainer)
    row = find(TRAINERS, trainer)
    found: Trainer = row.value
    source = ExportSource(directory)
    if source.kind not in found.kinds:
        raise UsageError(f"{source.where}: {_other_kind(found, source.kind)}")
    options.check_used(found.options, trainer)
    if check:
        _check_reader(found)
    check_outside_datasets(output)
    check_replaceable(output, [directory], overwrite=overwrite)
    source.check_files()
    layout = found.layout(source, options, output)
    notes = [*layout.notes, *_weights_note(source, layout, found.title, options)]
    identity = {} if row.extension is None else {"extension": row.extension.as_json()}
    about = {"trainer": trainer, **identity, "options": asdict(options)}
    for other, _ in layout.shards:
        if other is not source:
            check_replaceable(output, [other.directory], overwrite=overwrite)
            other.check_files()
    files = _write(layout, source, about, output, options.copy, check=check, overwrite=overwrite)
    checked = _checked(found, source, options, output) if check else None
    return Export(
        trainer, found.title, output, files, layout.usage, tuple(notes), layout.mask_alignment,
        checked,
    )  # fmt: skip


def _other_kind(trainer: Trainer, kind: str) -> str:
    if kind == "sft":
        return (
            f"{trainer.title} reads no loss mask, so it would train every token of these chats: "
            "choose a trainer with masks, see tokmill export --help"
        )
    return f"{trainer.title} is for chats with loss masks, and this dataset is for pretraining"


def _weights_note(
    source: ExportSource, layout: Layout, title: str, options: ExportOptions
) -> list[str]:
    """Return a note if weights are left out; raise `UsageError` if nobody asked for that."""
    if layout.has_weights or not source.has_weights:
        return []
    if options.drop_weights:
        return ["weights other than 0 and 1 are left out: every trained token counts as 1"]
    raise UsageError(
        f"{source.where}: tokens have weights in the loss other than 0 and 1, and the files of "
        f"{title} have no place for them: --to datasets keeps them in a column, --drop-weights "
        "leaves them out"
    )


def _check_reader(trainer: Trainer) -> None:
    missing = [package for package in trainer.reader if not _is_installed(package)]
    if missing:
        raise UsageError(
            f"--check: the reader of {trainer.title} is not installed: "
            f"pip install {' '.join(missing)}"
        )


def _checked(
    trainer: Trainer, source: ExportSource, options: ExportOptions, output: Path
) -> Checked:
    """Return what the trainer's own reader read; it may raise anything."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of packages that readers can do without
            return trainer.check(source, options, output)
    except TokmillError:
        raise
    except ImportError as error:
        raise UsageError(
            f"--check: the reader of {trainer.title} cannot be imported: {one_line(error)}; "
            f"{output} is written"
        ) from error
    except Exception as error:
        raise VerifyError(
            f"--check: the reader of {trainer.title} cannot read {output}: {one_line(error)}"
        ) from error


def _is_installed(package: str) -> bool:
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _write(
    layout: Layout,
    source: ExportSource,
    about: Mapping[str, Any],
    output: Path,
    copy: bool,
    *,
    check: bool,
    overwrite: bool,
) -> tuple[Placed, ...]:
    """Place all files, check what they were made of, and write the record of the export last."""
    sources = [source, *(other for other, _ in layout.shards if other is not source)]
    owners = {path: one for one in sources for path in one.checked.entries}
    n_bytes = sum(
        file.n_bytes if isinstance(file, Written) else _linked_bytes(file.source, owners, copy)
        for file in layout.files
    )
    check_room(output, n_bytes, "the export")
    with private_directory(output, replace=overwrite) as folder:
        files = tuple(_place(file, folder, owners, copy=copy) for file in layout.files)
        linked = {
            file.source
            for file, placed in zip(layout.files, files, strict=True)
            if isinstance(file, Linked) and placed.how != "copy"
        }
        read: Sequence[tuple[ExportSource, Collection[str] | None]] = layout.shards
        for one, shards in read or [(source, None)]:
            checked = one.checked
            checked.check(p for p in one.read_paths(shards) if check or p not in linked)
            checked.check_newer(p for p in linked if p in checked.entries)
            checked.finish()
        record = _record(layout, source, about, files)
        write_file(folder, EXPORT_RECORD, json.dumps(record, indent=1).encode() + b"\n")
    return files


def _linked_bytes(path: Path, owners: Mapping[Path, ExportSource], copy: bool) -> int:
    """Return the disk space of a file that is linked: 0, but of a copy, as of an object."""
    return owners[path].checked.entries[path].n_bytes if copy or store_url(path) else 0


def _place(
    file: Linked | Written, folder: Path, owners: Mapping[Path, ExportSource], *, copy: bool
) -> Placed:
    """Place one file below `folder`, read-only and durable.

    `owners`: the dataset of each file that can be linked; a copy is summed up.

    Raises:
        VerifyError: a file of the dataset is shorter than its manifest says.
        StorageError: there is no space, or the file cannot be written.
    """
    path = folder / file.name
    make_directory(path.parent)
    with storage_errors(path):
        if isinstance(file, Linked):
            owner = owners[file.source]
            known = owner.checked.entries[file.source]
            how = _duplicate(file.source, path, owner, copy=copy)
            return Placed(file.name, path.stat().st_size, known.algorithm, known.checksum, how)
        with path.open("x+b", buffering=1 << 20) as raw:
            file.write(raw)
            raw.flush()
            os.fchmod(raw.fileno(), 0o444)
            os.fsync(raw.fileno())
            raw.seek(0)
            found = digest_of(raw, BLAKE3).entry(file.name)
            return Placed(file.name, found.n_bytes, found.algorithm, found.checksum, "written")


def _duplicate(source: Path, path: Path, owner: ExportSource, *, copy: bool) -> str:
    """Link a file, or share its blocks, or copy it; return which. Raises `OSError`."""
    if store_url(source):
        with path.open("xb") as new:
            owner.checked.copy(source, 0, owner.checked.entries[source].n_bytes, new)
            new.flush()
            os.fchmod(new.fileno(), 0o644 if copy else 0o444)
            os.fsync(new.fileno())
        return "copy"
    if not copy and link(source, path.parent, path.name):
        return "link"
    with open_regular(source, follow_links=True) as old, path.open("xb") as new:
        how = "copy" if copy or not share_blocks(old, new) else "reflink"
        if how == "copy":
            owner.checked.copy(source, 0, os.fstat(old.fileno()).st_size, new)
        new.flush()
        os.fchmod(new.fileno(), 0o644 if copy else 0o444)  # a copy is the user's own
        os.fsync(new.fileno())
    return how


def _record(
    layout: Layout, source: ExportSource, about: Mapping[str, Any], files: tuple[Placed, ...]
) -> dict[str, Any]:
    tokenizer = source.manifest.tokenizer
    return {
        "format": "tokmill export",
        "tokmill_version": __version__,
        **about,
        "dataset": {
            "directory": source.where,
            "identity": identity_of(source.manifest, source.directory),
        },
        "dtype": source.manifest.dtype,
        "tokenizer": {
            "name": tokenizer.name,
            "identity": tokenizer.identity,
            "vocab_size": tokenizer.vocab_size,
            "eos": to_json(tokenizer.eos),
        },
        "mask_alignment": layout.mask_alignment,
        "files": [file.as_json() for file in files],
    }


def read_record(output: Path) -> dict[str, Any]:
    """Read the record of an export.

    Raises:
        StateError: it is none.
        StorageError: it cannot be read.
    """
    path = output / EXPORT_RECORD
    with storage_errors(path):
        content = read_named(path)
    return parse_export_record(content, str(path))


def file_problems(output: Path, record: dict[str, Any]) -> Iterator[str]:
    """Yield a line for each file of an export that is missing, changed, or not in its record."""
    entries = [FileEntry.from_json(file) for file in record["files"]]
    for entry in entries:
        if problem := _problem(output / entry.name, entry):
            yield f"{entry.name}: {problem}"
    known = {EXPORT_RECORD, *(entry.name for entry in entries)}
    for folder, _, names in os.walk(output):
        for name in sorted(names):
            path = os.path.relpath(os.path.join(folder, name), output)  # noqa: PTH118
            if path not in known:
                yield f"{path} is not in the record of the export"


def _problem(path: Path, entry: FileEntry) -> str:
    try:
        with open_regular(path, follow_links=True) as file:
            found = digest_of(file, entry.algorithm)
    except OSError as error:
        return (error.strerror or str(error)).lower()
    if found.n_bytes != entry.n_bytes:
        return f"{plural(found.n_bytes, 'byte')}, the record says {entry.n_bytes:,}"
    if found.checksum() != entry.checksum:
        return f"its {entry.algorithm} does not match the record"
    return ""
