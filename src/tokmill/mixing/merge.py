"""Merge datasets as they are: shards are linked, with numbers of parts behind those before."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tokmill.dataset.checksum import FileEntry
from tokmill.dataset.layout import REJECTS, SPLITS, rejects_name, shard_stem
from tokmill.place import open_place

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tokmill.dataset.place import Place
    from tokmill.mixing.inputs import Input, Inputs


def link_shards(inputs: Inputs, place: Place) -> tuple[list[FileEntry], list[dict[str, Any]]]:
    """Link the shards of all inputs; return their files, and their rows of the manifest.

    Raises:
        VerifyError: a file of an input is missing, or has another size than its manifest says.
        StorageError: a file can be neither linked nor copied.
    """
    files: list[FileEntry] = []
    rows: list[dict[str, Any]] = []
    for split in SPLITS:
        for dataset in inputs.datasets:
            listed: dict[str, list[Mapping[str, Any]]] = {}
            for file in dataset.manifest["files"]:
                listed.setdefault(file["name"].partition(".")[0], []).append(file)
            for entry in dataset.entries(split):
                _, part, number = entry["name"].split("-")
                stem = shard_stem(split, dataset.first_part + int(part), int(number))
                for file in listed[entry["name"]]:
                    name = stem + file["name"].removeprefix(entry["name"])
                    files.append(_taken(place, dataset, file, name))
                row = {**entry, "name": stem}
                if "first_slice" in entry:
                    row["first_slice"] = entry["first_slice"] + dataset.first_slice
                rows.append(row)
    return files, rows


def link_rejects(inputs: Inputs, place: Place) -> list[FileEntry]:
    """Link the files of rejects of all inputs, and return them; raises as `link_shards`."""
    files = []
    for dataset in inputs.datasets:
        for file in dataset.manifest["files"]:
            folder, _, name = file["name"].partition("/")
            if folder == REJECTS:
                part = dataset.first_part + int(name.removesuffix(".jsonl"))
                files.append(_taken(place, dataset, file, f"{REJECTS}/{rejects_name(part)}"))
    return files


def _taken(place: Place, dataset: Input, file: Mapping[str, Any], name: str) -> FileEntry:
    """Make a file of an input stand in the output, too; return its entry there."""
    entry = FileEntry.from_json(file)
    place.take(open_place(dataset.place), entry, name)
    return replace(entry, name=name)
