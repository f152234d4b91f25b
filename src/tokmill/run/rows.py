"""How the rows of an import are read: their files, their columns, and the alignment of labels.

The first rows of some files decide, and all of them must say the same.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tokmill.errors import StorageError, UsageError
from tokmill.opening import read_named
from tokmill.recipes.row_columns import NEXT, OWN, POSITIONS, STARTS, FoundColumns, find_columns
from tokmill.recipes.row_samples import agreement
from tokmill.sources.file_kinds import check_kind
from tokmill.sources.files import SourceFile, discover
from tokmill.sources.first_records import first_block, first_of_file
from tokmill.storage import storage_errors
from tokmill.urls import store_url
from tokmill.words import plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tokmill.recipes.row_columns import GivenColumns, RowRules
    from tokmill.settings.schema import InputSettings
    from tokmill.sources.files import Discovery

ROW_FORMATS = {
    "datasets": frozenset({"arrow", "parquet", "hub"}),
    "parquet": frozenset({"parquet"}),
    "jsonl": frozenset({"jsonl", "array", "object"}),
}
"""What rows can be stored as, by the name in `tokmill import --from`: formats of files."""

_TITLES = {"datasets": "a dataset of Hugging Face", "parquet": "Parquet", "jsonl": "JSON Lines"}

_SPLITS = {"train": "train"} | dict.fromkeys(("val", "validation", "valid", "dev"), "val")
"""Splits of a dataset of several, and those that they become."""

_NOT_TRAIN = re.compile(r"(val|valid|validation|dev|test|eval)([^a-z].*)?", re.IGNORECASE)

_MOST_FILES, _FIRST_ROWS = 16, 32
"""Files whose columns are looked at, and rows of each; labels are compared in a whole block."""


@dataclass(frozen=True, slots=True)
class FoundRows:
    """The files of rows by split, and how they are read; `notes`: lines for the user."""

    files: Sequence[Sequence[SourceFile]]
    warnings: Sequence[str]
    rules: RowRules
    notes: tuple[str, ...]


class _Looked(NamedTuple):
    """A file whose first rows were read."""

    file: SourceFile
    found: FoundColumns


def find_rows(
    sources: Sequence[Path],
    val: Sequence[Path],
    trainer: str,
    given: GivenColumns,
    settings: InputSettings,
    commits: Mapping[str, str] | None = None,
    *,
    finds_alignment: bool = True,
) -> FoundRows:
    """Return the files of an import of rows, and how they are read.

    `commits`: of Hub datasets, by path, from the plan of an earlier attempt. `finds_alignment`:
    compare labels with ids, where the user does not say their alignment; else it is that with which
    most trainers read such columns, whatever the labels are.

    Raises:
        UsageError: a file is of another kind, or its columns or labels cannot be understood.
        StorageError: a file cannot be read.
    """
    if Path("-") in (*sources, *val):
        raise UsageError("-: standard input cannot be imported: write the rows to a file")
    named = [pair for path in sources for pair in _splits(path)]
    named += [(path, "val") for path in val]
    notes: list[str] = []
    warnings: list[str] = []
    files: dict[str, list[SourceFile]] = {"train": [], "val": []}
    for path, split in named:
        found = discover(replace(settings, paths=(store_url(path) or str(path),)), commits)
        files[split] += _of_format(path, found, trainer, notes)
        notes += found.notes
        warnings += found.warnings
    if split_twice := {one.path for one in files["train"]} & {one.path for one in files["val"]}:
        raise UsageError(f"{min(split_twice)}: named twice, for train and for val")
    every = [*files["train"], *files["val"]]
    looked = _look(every, trainer, given, settings)
    if not looked:
        raise UsageError(f"{every[0].path}: has no rows")
    columns = looked[0].found
    alignment, told = _usual_alignment(columns.rules, given)
    if finds_alignment:
        alignment, told = _alignment(looked, given, settings)
    rules = replace(columns.rules, alignment=alignment, val=tuple(one.path for one in files["val"]))
    notes += [_in_words(rules, told), *_unread(columns)]
    return FoundRows(tuple(files.values()), warnings, rules, tuple(notes))


def layout_of(sources: Sequence[Path], settings: InputSettings) -> str:
    """Return what rows are stored as, a key of `ROW_FORMATS`, by the files of the first source.

    Raises:
        UsageError: there is no source, or no file of rows.
        StorageError: it cannot be read.
    """
    if not sources:
        raise UsageError("no source: name a dataset, or files or directories of rows")
    path, _ = _splits(sources[0])[0]
    files = discover(replace(settings, paths=(store_url(path) or str(path),))).files
    for trainer, formats in ROW_FORMATS.items():
        if trainer != "datasets" and any(file.format in formats for file in files):
            return trainer
    if any(file.format in ROW_FORMATS["datasets"] for file in files):
        return "datasets"
    raise UsageError(
        f"{files[0].path}: expected rows of ids (Parquet, JSON Lines, or a dataset of Hugging "
        f"Face), found {files[0].format}; tokmill import reads other trainers' tokens"
    )


def _splits(path: Path) -> list[tuple[Path, str]]:
    """Return the folders of the splits of a path, or the path itself, which is of train.

    Raises:
        UsageError: there are splits whose meaning is not known, or a folder seems to mix them.
    """
    listing = path / "dataset_dict.json"
    if listing.is_file():
        names = _names_of_splits(listing)
    else:
        names = [name for name in ("train", "val") if (path / name).is_dir()]
    if unknown := [name for name in names if name not in _SPLITS]:
        raise UsageError(
            f"{path}: has the splits {', '.join(names)}, and {unknown[0]} may be of train or of "
            f"val: name them one by one, as in {path / names[0]} --val {path / unknown[0]}"
        )
    if names:
        filled = [name for name in names if not _is_empty(path / name)]
        return [(path / name, _SPLITS[name]) for name in filled or names]
    return [(path, "train")]


def _is_empty(folder: Path) -> bool:
    """Return whether `save_to_disk` wrote a split without a row, which has no file."""
    state = folder / "state.json"
    if not state.is_file():
        return False
    with storage_errors(state):
        content = read_named(state)
    try:
        return bool(json.loads(content)["_data_files"] == [])
    except (ValueError, LookupError, TypeError, RecursionError):
        return False  # whoever reads the split says what is wrong


def _names_of_splits(listing: Path) -> list[str]:
    with storage_errors(listing):
        content = read_named(listing)
    try:
        names = json.loads(content)["splits"]
        if not names or not all(isinstance(name, str) and "/" not in name for name in names):
            raise ValueError(f"splits are {names!r}")
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise StorageError(f"{listing}: names no splits ({error})") from None
    return list(names)


def _of_format(path: Path, found: Discovery, trainer: str, notes: list[str]) -> list[SourceFile]:
    """Return the files of a path that hold what the user named; others of a folder are ignored.

    Raises:
        UsageError: there are none, or one may be of another split.
    """
    wanted = ROW_FORMATS[trainer]
    url = store_url(path)
    is_folder = path.is_dir() or (bool(url) and [file.path for file in found.files] != [url])
    files = [file for file in found.files if file.format in wanted]
    others = [file for file in found.files if file.format not in wanted]
    if not files or (others and not is_folder):
        formats = [name for name, kinds in ROW_FORMATS.items() if others[0].format in kinds]
        advice = f": --from {formats[0]} reads it" if formats else ""
        raise UsageError(
            f"{others[0].path}: expected {_TITLES[trainer]}, found {others[0].format}{advice}"
        )
    notes += [f"ignored: {file.path}: {file.format}" for file in others]
    inside = [file.path for file in files if is_folder]
    not_train = [one for one in inside if _may_be_of_another_split(one, path)]
    if not_train and len(not_train) < len(inside):
        raise UsageError(
            f"{not_train[0]}: may be of another split than {path}: name the files of train, and "
            "those of val with --val"
        )
    return files


def _may_be_of_another_split(file: str, folder: Path) -> bool:
    """Return whether the name of a file, or of a folder of it below `folder`, may be of val."""
    below = Path(file).relative_to(folder).parts
    return any(_NOT_TRAIN.fullmatch(name.split(".")[0]) for name in below)


def _look(
    files: Sequence[SourceFile], trainer: str, given: GivenColumns, settings: InputSettings
) -> list[_Looked]:
    """Return files with their columns, which must be the same in all of them."""
    looked: list[_Looked] = []
    for file in _spread(files):
        check_kind(file, settings)
        records = first_of_file(file, settings, _FIRST_ROWS, 0, whole=True)
        if not records:
            continue
        found = find_columns(records, given, trainer, file.path)
        if looked and found.rules != looked[0].found.rules:
            first = looked[0]
            own, others = found.rules.columns, first.found.rules.columns
            raise UsageError(
                f"{file.path}: reads as {', '.join(own)}, and {first.file.path} as "
                f"{', '.join(others)}: import them apart, and join them with tokmill mix"
            )
        looked.append(_Looked(file, found))
    return looked


def _spread(files: Sequence[SourceFile]) -> list[SourceFile]:
    if len(files) <= _MOST_FILES:
        return list(files)
    return [files[i * len(files) // _MOST_FILES] for i in range(_MOST_FILES)]


class _Votes:
    """Counts how the labels of first rows agree with their ids, and keeps a row of each kind.

    `n_read`: rows that can be read. `broken`: place and reason of the first one that cannot.
    """

    def __init__(self) -> None:
        self.n_trained = self.n_read = 0
        self.broken = ""
        self.examples: dict[tuple[bool, bool], str] = {}
        self.counts = dict.fromkeys(
            [(own, nxt) for own in (True, False) for nxt in (True, False)], 0
        )

    def add(self, file: SourceFile, rules: RowRules, settings: InputSettings) -> None:
        """Add the rows of the first block of a file."""
        records = first_block(file, settings, rules.schema())
        if records is None:
            return
        for reject in records.rejects:
            self.broken = self.broken or f"row {reject.place.line:,}: {reject.message}"
        if not records.batch.num_rows:
            return
        found = agreement(records.batch, rules)
        self.n_read += len(found.numbers)
        for row, (_, message) in sorted(found.refused.items()):
            self.broken = self.broken or f"row {int(records.places[row, 0]):,}: {message}"
        for kind in self.counts:
            is_kind = found.is_trained & (found.own == kind[0]) & (found.next == kind[1])
            rows = found.numbers[is_kind]
            self.counts[kind] += len(rows)
            if len(rows):
                line = int(records.places[rows[0], 0])
                self.examples.setdefault(kind, f"{file.path}: row {line:,}")
        self.n_trained += int(np.count_nonzero(found.is_trained))


def _usual_alignment(rules: RowRules, given: GivenColumns) -> tuple[str, str]:
    """Return the alignment with which trainers read such columns, and how it is known, in words."""
    if given.alignment:
        return given.alignment, "as --alignment says"
    if not rules.labels and STARTS in rules.ends and rules.are_chats:
        return NEXT, "as NeMo and Megatron-Bridge read them"
    return OWN, "as most trainers read them"


def _alignment(
    looked: Sequence[_Looked], given: GivenColumns, settings: InputSettings
) -> tuple[str, str]:
    """Return the alignment of labels and masks, and how it is known, in words.

    Raises:
        UsageError: it is not known, or the labels are no ids.
    """
    rules = looked[0].found.rules
    if given.alignment:
        return given.alignment, "as --alignment says"
    if not rules.labels and STARTS in rules.ends and rules.are_chats:
        raise UsageError(
            f"{looked[0].file.path}: rows with {STARTS} may say at each token whether the next one "
            "is trained (NeMo, Megatron-Bridge): name it with --alignment next, or own"
        )
    if not rules.labels:
        return OWN, "--alignment next if they stand at the token before"
    votes = _Votes()
    for one in looked:
        votes.add(one.file, rules, settings)
    own_alone, next_alone = (True, False), (False, True)
    both, neither = (True, True), (False, False)
    agreed = f"as in {{}} of the {plural(votes.n_trained, 'first row')}"
    name_it = "name it with --alignment own (each at its own token) or next"
    if votes.counts[own_alone] and votes.counts[next_alone]:
        raise UsageError(
            f"{votes.examples[own_alone]}: labels stand at their own tokens, but not in "
            f"{votes.examples[next_alone]}, where they are those of the next: import them apart"
        )
    if votes.counts[own_alone] or votes.counts[next_alone]:
        alignment = OWN if votes.counts[own_alone] else NEXT
        n_rows = votes.counts[both] + votes.counts[own_alone] + votes.counts[next_alone]
        return alignment, agreed.format(f"{n_rows:,}")
    if votes.counts[neither] and not votes.counts[both]:
        raise UsageError(
            f"{votes.examples[neither]}: {rules.labels} are neither the ids of their own tokens "
            f"nor those of the next: name the right columns (--ids, --labels), or {name_it}"
        )
    if votes.broken and not votes.n_read:
        raise UsageError(
            f"{looked[0].file.path}: none of the first rows can be read: {votes.broken}"
        )
    why = "fit their own tokens and the next ones alike" if votes.n_trained else "train no token"
    raise UsageError(
        f"{looked[0].file.path}: the alignment of {rules.labels} is not known, as those of the "
        f"first rows {why}: {name_it}"
    )


def _in_words(rules: RowRules, told: str) -> str:
    """Return how rows are read."""
    parts = [f"ids in {' and '.join(rules.ids)}"]
    trained = [f"{rules.labels} are not -100"] if rules.labels else []
    trained += [f"{name} is 1" for name in rules.masks]
    trained += [f"{rules.weights} are over 0"] if rules.weights else []
    trained += [f"{rules.ids[1]} stand"] if len(rules.ids) > 1 else []
    if trained:
        parts.append(f"trained where {' and '.join(trained)}")
    if rules.labels or rules.masks or rules.weights:
        place = "at its own token" if rules.alignment == OWN else "at the token before"
        parts.append(f"each {place} ({told})")
    if rules.attention:
        parts.append(f"padding where {rules.attention} is 0")
    if rules.ends:
        names = [f"{one} restart" if one == POSITIONS else f"{one} say" for one in rules.ends]
        parts.append(f"samples end where {' and '.join(names)}")
    if not rules.are_chats:
        parts.append("documents of pretraining")
    return f"rows: {'; '.join(parts)}"


def _unread(columns: FoundColumns) -> Iterable[str]:
    return [f"not read: {', '.join(columns.unread)}"] if columns.unread else []
