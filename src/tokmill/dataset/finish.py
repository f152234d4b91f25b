"""Finish a dataset: write its packs, then its manifest, the last of all files.

Runs, imports and mixes finish in this one way; they differ in what they state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from tokmill.dataset.checksum import digest_of_chunks, json_chunks, manifest_sha256
from tokmill.dataset.layout import FORMAT_VERSION, MANIFEST, PLAN
from tokmill.dataset.manifest import Manifest, Usage
from tokmill.dataset.typed_json import to_json
from tokmill.errors import StateError
from tokmill.version import __version__

if TYPE_CHECKING:
    from tokmill.dataset.checksum import FileEntry
    from tokmill.dataset.counts import Counts
    from tokmill.dataset.manifest import (
        MaskEntry,
        ReadingEntry,
        ShardRow,
        SourceEntry,
        TokenizerEntry,
        UnreadTotals,
    )
    from tokmill.dataset.place import Place

Values = Mapping[str, Any]
"""Plain values, for JSON."""


@dataclass(frozen=True)
class Statement:
    """What the manifest of a dataset states but packs and sums; docs/format.md explains its keys.

    Attributes:
        kind: `pretrain` or `sft`.
        rules: the numbers of the rules of its text; empty if no text was read.
        config: every setting, resolved; its `output` says how all files are written.
        tokenizer: that of the ids.
        engine: what encoded the text.
        totals: the counts of all sources; their breaks are in `unread`.
        length_histogram: documents by length, see `counts.documents_by_length`.
        sources: the input files.
        shards: those of a split in order.
        files: all that are written so far.
        run: time and memory that it took.
        unread: what was not read; None if all was.
        mask: of chats.
        fields_read, readings, keep, extensions, noticed, mix: as in `Manifest`.
    """

    kind: str
    rules: Mapping[str, Sequence[int]]
    config: Values
    tokenizer: TokenizerEntry
    engine: Values
    totals: Counts
    length_histogram: Sequence[int]
    sources: Sequence[SourceEntry]
    shards: Sequence[ShardRow]
    files: Sequence[FileEntry]
    run: Usage
    unread: UnreadTotals | None = None
    mask: MaskEntry | None = None
    fields_read: Sequence[str] = ()
    readings: Sequence[ReadingEntry] = ()
    keep: Sequence[str] = ()
    extensions: Sequence[Values] = ()
    noticed: Mapping[str, Sequence[Sequence[int]]] = field(default_factory=dict)
    mix: Values | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the manifest without packs and its own sum."""
        lists = ("fields_read", "readings", "keep", "extensions")
        stated = {one.name: to_json(getattr(self, one.name)) for one in fields(self)}
        breaks = stated.pop("unread")
        stated["totals"].pop("unread", None)
        if breaks is not None:
            stated["totals"]["unread"] = breaks
        for name in (*lists, "mask", "noticed", "mix"):
            if not stated[name]:
                del stated[name]
        return {
            **stated,
            "format_version": FORMAT_VERSION,
            "tokmill_version": __version__,
            "dtype": self.config["output"]["dtype"],
        }

    @property
    def is_packed(self) -> bool:
        """Return whether documents or samples are packed into rows."""
        sft = self.config.get("sft")
        return bool(sft["packing"] if sft else self.config["output"]["packing"])


def write_manifest(
    place: Place, statement: Statement, check: Callable[[], None] = lambda: None
) -> Manifest:
    """Write the packs that the settings ask for, then the manifest, and return it.

    `check` is called before a file appears in the place, and may raise.

    Raises:
        StateError: another process has written a manifest.
        TokmillError: see `packs.write_dataset_packs`.
    """
    data = statement.as_json()
    if statement.is_packed:
        from tokmill.dataset.packs import write_dataset_packs  # few datasets are packed

        files, packs = write_dataset_packs(place, Manifest.of(data, place.where), check)
        data |= {"packs": to_json(packs), "files": [*data["files"], *to_json(files)]}
    data["sha256"] = manifest_sha256(data)
    check()  # packing may have taken long
    place.sync()
    if not place.create(MANIFEST, json_chunks(data)):
        raise StateError(
            f"{place.where}/{MANIFEST}: another process has just written it: run the same command "
            "again"
        )
    return Manifest.of(data, place.where)


def plan_entry(place: Place, algorithm: str) -> FileEntry:
    """Return the entry of the plan that stands in a place."""
    return digest_of_chunks(place.chunks(PLAN), algorithm).entry(PLAN)


def usage(wall_s: float, peak_memory_bytes: int, n_resumed: int) -> Usage:
    """Return the usage of a dataset for which no text was read."""
    return Usage(round(wall_s, 3), 0, peak_memory_bytes, n_resumed)
