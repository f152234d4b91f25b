"""Which shards get how many tokens: `--tokens SOURCE=60B`, for trainers that read weights."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePath
from shlex import quote
from typing import TYPE_CHECKING, Any

from tokmill.dataset.layout import MANIFEST, PARTS, PLAN, part_name
from tokmill.dataset.part_record import PartRecord, parse_record
from tokmill.dataset.plan_file import load_plan
from tokmill.errors import StateError, UsageError, VerifyError
from tokmill.settings.declare import parse_quantity
from tokmill.trainers.source import ExportSource

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Group:
    """Shards of one split that are trained together.

    `folder`: part of the names of their files in an export, '' for the exported dataset. `wanted`:
    tokens that the run is to see of them, all shards together; 0 if nothing was asked for.
    """

    label: str
    folder: str
    source: ExportSource
    split: str
    entries: tuple[Mapping[str, Any], ...]
    wanted: int = 0

    @property
    def n_tokens(self) -> int:
        """Return the tokens of the shards, eos included."""
        return sum(entry["tokens"] for entry in self.entries)


def groups(source: ExportSource, tokens: Sequence[str]) -> list[Group]:
    """Return the shards of a dataset in groups: one for each SOURCE of `--tokens` that has shards.

    Without `tokens` there is one group for each split. The val split is not blended: it is one
    group for each dataset.

    Raises:
        UsageError: a SOURCE has no shards, a shard has documents of several SOURCEs or of none, or
            a dataset has another tokenizer.
    """
    if not tokens:
        return [_whole(source, split, "") for split in source.splits]
    wanted = _parse(tokens)
    others = _datasets(source, [name for name in wanted if (Path(name) / MANIFEST).is_file()])
    globs = [name for name in wanted if name not in others]
    found = [
        _whole(other, "train", folder, name, wanted[name])
        for name, (other, folder) in others.items()
    ]
    own = [name for name, (other, _) in others.items() if other is source]
    if own and globs:
        _check_globs(source, globs)
        raise UsageError(f"--tokens {own[0]}: is the exported dataset, and so is {globs[0]}")
    if not own:
        found = [*_by_glob(source, {name: wanted[name] for name in globs}), *found]
    trained = [one for name, one in others.items() if wanted[name] and one[0] is not source]
    vals = [(source, ""), *trained]
    return [
        *(group for group in found if group.wanted),
        *(_whole(one, "val", folder) for one, folder in vals if "val" in one.splits),
    ]


def _parse(tokens: Sequence[str]) -> dict[str, int]:
    """Return the tokens of each SOURCE."""
    wanted: dict[str, int] = {}
    for text in tokens:
        name, equals, amount = text.rpartition("=")
        if not name or not equals:
            raise UsageError(f"--tokens: expected SOURCE=60B, found {text!r}")
        if name in wanted:
            raise UsageError(f"--tokens {name}: given twice")
        wanted[name] = parse_quantity(amount, "count", f"--tokens {name}")
    if not any(wanted.values()):
        raise UsageError("--tokens: every source has 0 tokens: name some to train on")
    return wanted


def _datasets(source: ExportSource, names: Sequence[str]) -> dict[str, tuple[ExportSource, str]]:
    """Return the datasets that are named by their directory, each with a folder of its own."""
    found: dict[str, tuple[ExportSource, str]] = {}
    seen: dict[Path, str] = {}
    for name in names:
        path = Path(name)
        if (before := seen.setdefault(path.resolve(), name)) != name:
            raise UsageError(f"--tokens {name}: is the dataset {before}: name it once")
        if path.resolve() == source.directory.resolve():
            found[name] = (source, "")
            continue
        other = ExportSource(path)
        for key, mine in (("kind", source.kind), ("tokenizer", _tokenizer(source))):
            theirs = other.kind if key == "kind" else _tokenizer(other)
            if mine != theirs:
                raise UsageError(
                    f"--tokens {name}: has another {key} than {source.directory}: "
                    "one run cannot train on both"
                )
        stem = path.resolve().name
        count = sum(one == stem or one.startswith(f"{stem}-") for _, one in found.values())
        found[name] = (other, f"{stem}-{count + 1}" if count else stem)
    return found


def _tokenizer(source: ExportSource) -> tuple[str, int | None]:
    return source.manifest["tokenizer"]["sha256"], source.eos_id


def _whole(
    source: ExportSource, split: str, folder: str, label: str = "", wanted: int = 0
) -> Group:
    label = label or str(source.directory)
    return Group(label, folder, source, split, tuple(source.entries(split)), wanted)


def _by_glob(source: ExportSource, wanted: Mapping[str, int]) -> list[Group]:
    """Return the train shards of a dataset by the SOURCE that their input files match."""
    by_name: dict[str, list[Mapping[str, Any]]] = {name: [] for name in wanted}
    paths = paths_of_shards(source)
    _check_globs(source, list(wanted))
    for entry in source.entries("train"):
        by_name[_glob_of(entry["name"], paths[entry["name"]], source, wanted)].append(entry)
    for name, entries in by_name.items():
        if not entries:  # all its documents are in val
            raise _no_source(name, source)
    return [
        Group(name, "", source, "train", tuple(entries), wanted[name])
        for name, entries in by_name.items()
    ]


def _check_globs(source: ExportSource, patterns: Sequence[str]) -> None:
    """Check that each pattern matches an input file with documents; raises `UsageError`."""
    known = [row["path"] for row in source.manifest["sources"] if row["documents"]]
    for name in patterns:
        if not any(_matches(path, name) for path in known):
            raise _no_source(name, source)


def _no_source(name: str, source: ExportSource) -> UsageError:
    known = ", ".join(sorted(row["path"] for row in source.manifest["sources"])[:3])
    return UsageError(
        f"--tokens {name}: neither the directory of a dataset nor a pattern of an input file with "
        f"documents; {source.directory} has {known}"
    )


def _glob_of(
    shard: str, paths: Sequence[str], source: ExportSource, wanted: Mapping[str, int]
) -> str:
    """Return the SOURCE of a shard; raises `UsageError` if it has several or none."""
    matches = {path: [name for name in wanted if _matches(path, name)] for path in paths}
    for path, names in matches.items():
        if len(names) > 1:
            raise UsageError(f"--tokens: {path} is of {names[0]} and of {names[1]}: name it once")
        if not names:
            raise UsageError(
                f"--tokens: nothing is said of {path}: add --tokens {quote(path)}=60B, or =0 to "
                f"leave it out (the exported dataset is {source.directory})"
            )
    (first, named), *others = matches.items()
    for path, names in others:
        if names != named:
            raise UsageError(
                f"--tokens: shard {shard} has documents of {first} and of {path}, so these cannot "
                "get tokens of their own: make a dataset of each with tokmill, and name their "
                "directories in --tokens"
            )
    return named[0]


def _matches(path: str, pattern: str) -> bool:
    """Return whether the path of an input matches; a pattern without / matches the file's name."""
    return fnmatchcase(path, pattern) or PurePath(path).match(pattern)


def paths_of_shards(source: ExportSource) -> dict[str, list[str]]:
    """Return the input files that each shard can have documents of, by the shard's name.

    Read from the plan and the records of parts, unless the dataset has one input file.

    Raises:
        VerifyError: a record is missing or damaged.
        TokmillError: the plan is missing or damaged.
    """
    names = [entry["name"] for split in source.splits for entry in source.entries(split)]
    with_documents = [row["path"] for row in source.manifest["sources"] if row["documents"]]
    if len(with_documents) == 1:
        return dict.fromkeys(names, with_documents)
    plan = load_plan(source.directory / PLAN)
    found: dict[str, list[str]] = {}
    for part in sorted({int(name.split("-")[1]) for name in names}):
        record = _record(source.directory / PARTS / part_name(part))
        slices = [index for index, counts in record.counts.items() if counts.documents]
        files = dict.fromkeys(plan["parts"][part][index][0] for index in slices)
        paths = [str(plan["files"][file][0]) for file in files]
        for shard in record.shards:
            found[shard.files[0].name.partition(".")[0]] = paths
    if missing := [name for name in names if name not in found]:
        raise VerifyError(f"{source.directory / PARTS}: no record names {missing[0]}")
    return found


def _record(path: Path) -> PartRecord:
    try:
        return parse_record(path.read_bytes(), path)
    except (OSError, StateError) as error:
        raise VerifyError(f"{path}: damaged or missing record: {error}") from None
