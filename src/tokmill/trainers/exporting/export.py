"""Export a dataset: its files in another trainer's layout, in a directory that appears whole."""

from __future__ import annotations

import importlib.metadata
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tokmill.errors import StateError, TokmillError, UsageError, VerifyError
from tokmill.extensions import find, one_line
from tokmill.storage import write_file
from tokmill.tables import TRAINERS
from tokmill.trainers.exporting.placing import Placed, check_names, place
from tokmill.trainers.exporting.record import RECORD, read_record
from tokmill.trainers.private_directory import check_replaceable, check_room, private_directory
from tokmill.trainers.source import ExportSource
from tokmill.trainers.trainer import Linked, Written
from tokmill.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Set
    from pathlib import Path

    from tokmill.trainers.options import ExportOptions
    from tokmill.trainers.trainer import Checked, Layout, Trainer


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

    `check`: also read the result with the trainer's own reader. `overwrite`: replace an export
    that stands at `output`.

    Raises:
        UsageError: the trainer is unknown, cannot read such a dataset, or its reader is missing.
        StateError: `output` holds something else, or an export and `overwrite` is not set.
        StorageError: no space, no permission.
        VerifyError: the dataset is damaged, or the reader returned something else.
    """
    if not isinstance(trainer, str) or not trainer:
        raise UsageError(f"trainer: expected one of {', '.join(TRAINERS.rows)}; found {trainer!r}")
    row = find(TRAINERS, trainer)
    found: Trainer = row.value
    source = ExportSource(directory)
    if source.kind not in found.kinds:
        raise UsageError(f"{directory}: {_other_kind(found, source.kind)}")
    options.check_used(found.options, trainer)
    if check:
        _check_reader(found)
    _check_outside(source.directory, output)
    check_replaceable(output, "an export", _exported_files, overwrite=overwrite)
    source.check_files()
    layout = found.layout(source, options, output)
    notes = [*layout.notes, *_weights_note(source, layout, found.title, options)]
    identity = {} if row.extension is None else {"extension": row.extension.as_json()}
    about = {"trainer": trainer, **identity, "options": asdict(options)}
    copy = options.copy
    for other, _ in layout.shards:
        if other is not source:
            other.check_files()
    files = _write(layout, source, about, output, copy=copy, check=check, overwrite=overwrite)
    checked = _checked(found, source, options, output) if check else None
    return Export(
        trainer,
        found.title,
        output,
        files,
        layout.usage,
        tuple(notes),
        layout.mask_alignment,
        checked,
    )


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
        f"{source.directory}: tokens have weights in the loss other than 0 and 1, and the files of "
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


def _check_outside(directory: Path, output: Path) -> None:
    """Check that the files of the export would not stand among those of the dataset."""
    if directory.resolve() in output.absolute().resolve().parents:
        raise StateError(
            f"{output}: is inside the dataset, whose files are checked: name a directory beside it"
        )


def _exported_files(output: Path) -> Set[str] | None:
    """Return the files of an export; None if `output` is none."""
    if not (output / RECORD).is_file():
        return None
    return {RECORD, *(file["name"] for file in read_record(output)["files"])}


def _write(
    layout: Layout,
    source: ExportSource,
    about: Mapping[str, Any],
    output: Path,
    *,
    copy: bool,
    check: bool,
    overwrite: bool,
) -> tuple[Placed, ...]:
    """Place all files, check what they were made of, and write the record of the export last."""
    check_names(layout.files)
    _check_space(layout, output, copy=copy)
    with private_directory(output, replace=overwrite) as folder:
        sources = [source, *(other for other, _ in layout.shards if other is not source)]
        owners = {path: one.sums for one in sources for path in one.sums.paths()}
        files = tuple(place(file, folder, owners, copy=copy) for file in layout.files)
        links = {file.name for file in files if file.how in ("link", "reflink")}
        linked = {
            one.source for one in layout.files if isinstance(one, Linked) and one.name in links
        }
        for path in _read_paths(layout, source):
            if check or path not in linked:
                owners[path].check(path)
        record = _record(layout, source, about, files)
        write_file(folder / RECORD, json.dumps(record, indent=1).encode() + b"\n")
    return files


def _read_paths(layout: Layout, source: ExportSource) -> Iterator[Path]:
    """Yield the files of the datasets that the export was made of."""
    if not layout.shards:
        yield from source.read_paths()
    for one, names in layout.shards:
        yield from one.read_paths(names)


def _check_space(layout: Layout, output: Path, *, copy: bool) -> None:
    written = sum(file.n_bytes for file in layout.files if isinstance(file, Written))
    copied = 0
    if copy:
        copied = sum(
            file.source.stat().st_size for file in layout.files if not isinstance(file, Written)
        )
    check_room(output, written + copied, "the export")


def _record(
    layout: Layout, source: ExportSource, about: Mapping[str, Any], files: tuple[Placed, ...]
) -> dict[str, Any]:
    tokenizer = source.manifest["tokenizer"]
    return {
        "format": "tokmill export",
        "tokmill_version": __version__,
        **about,
        "dataset": {"directory": str(source.directory), "sha256": source.manifest["sha256"]},
        "dtype": source.manifest["dtype"],
        "tokenizer": {key: tokenizer[key] for key in ("name", "sha256", "vocab_size", "eos")},
        "mask_alignment": layout.mask_alignment,
        "files": [file.as_json() for file in files],
    }
