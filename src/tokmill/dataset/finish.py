"""Finish a dataset: write its packs, then its manifest, the last of all files.

Runs, imports and mixes finish in this one way; they differ in what they state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tokmill.dataset.checksum import digest_of_chunks, json_chunks, manifest_sha256
from tokmill.dataset.layout import FORMAT_VERSION, MANIFEST, PLAN
from tokmill.errors import StateError
from tokmill.version import __version__

if TYPE_CHECKING:
    from tokmill.dataset.checksum import FileEntry
    from tokmill.dataset.place import Place

Values = Mapping[str, Any]
"""Plain values, for JSON."""


@dataclass(frozen=True, slots=True)
class Statement:
    """What the manifest of a dataset states, as plain values; docs/format.md explains its keys.

    Attributes:
        kind: `pretrain` or `sft`.
        rules: the numbers of the rules of its text; empty if no text was read.
        config: every setting, resolved; its `output` says how all files are written.
        tokenizer: that of the ids.
        engine: what encoded the text.
        totals: the counts of the whole dataset.
        length_histogram: documents by length, see `counts.documents_by_length`.
        sources: a row for each source.
        shards: a row for each shard, those of a split in order.
        files: the entry of each file that is written so far.
        run: time and memory that it took.
        own: keys that only some datasets have: `mask`, `keep`, `readings`, `mix`, ….
    """

    kind: str
    rules: Values
    config: Values
    tokenizer: Values
    engine: Values
    totals: Values
    length_histogram: Sequence[int]
    sources: Sequence[Values]
    shards: Sequence[Values]
    files: Sequence[Values]
    run: Values
    own: Values = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return the manifest without packs and its own sum."""
        return {
            "format_version": FORMAT_VERSION,
            "tokmill_version": __version__,
            "kind": self.kind,
            "rules": self.rules,
            "config": self.config,
            "tokenizer": self.tokenizer,
            "engine": self.engine,
            "dtype": self.config["output"]["dtype"],
            "totals": self.totals,
            "length_histogram": list(self.length_histogram),
            "sources": list(self.sources),
            "shards": list(self.shards),
            "files": list(self.files),
            "run": self.run,
            **self.own,
        }

    @property
    def is_packed(self) -> bool:
        """Return whether documents or samples are packed into rows."""
        sft = self.config.get("sft")
        return bool(sft["packing"] if sft else self.config["output"]["packing"])


def write_manifest(
    place: Place, statement: Statement, check: Callable[[], None] = lambda: None
) -> dict[str, Any]:
    """Write the packs that the settings ask for, then the manifest, and return it.

    `check` is called before a file appears in the place, and may raise.

    Raises:
        StateError: another process has written a manifest.
        TokmillError: see `packs.add_packs`.
    """
    manifest = statement.as_json()
    if statement.is_packed:
        from tokmill.dataset.packs import add_packs  # few datasets are packed

        add_packs(place, manifest, statement.config["output"]["checksum"], check)
    manifest["sha256"] = manifest_sha256(manifest)
    check()  # packing may have taken long
    if not place.create(MANIFEST, json_chunks(manifest)):
        raise StateError(
            f"{place.where}/{MANIFEST}: another process has just written it: run the same command "
            "again"
        )
    return manifest


def plan_entry(place: Place, algorithm: str) -> FileEntry:
    """Return the entry of the plan that stands in a place."""
    return digest_of_chunks(place.chunks(PLAN), algorithm).entry(PLAN)


def usage(wall_s: float, peak_memory_bytes: int, n_resumed: int) -> dict[str, Any]:
    """Return the key `run` of a dataset for which no text was read."""
    return {
        "wall_s": round(wall_s, 3),
        "text_bytes_per_s": 0,
        "peak_memory_bytes": peak_memory_bytes,
        "resumed_parts": n_resumed,
    }
