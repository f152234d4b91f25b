"""The plan of a mix, as a value and as `plan.json`: documents of finished datasets as its slices.

A mix looks at its inputs before it knows its parts: filters, duplicates and shares decide which
documents it takes. Then it writes this plan, makes the parts, and finishes, as any run does. What
it has found out stands in the folder `.mix`, so only the call that mixes can make the parts.

A slice is documents `start` to `stop - 1` of a shard, and stands there again for each repeat. In a
shuffle it is places `start` to `stop - 1` in the seeded order of a split. A mix that changes no
shard links those of its inputs, and has no parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from tokmill.dataset.checksum import canonical_json, json_chunks, sha256_hex
from tokmill.dataset.plan_file import PLAN_FORMAT, PlanFile, plan_fingerprint
from tokmill.recipes.spec import Part
from tokmill.sources.slices import Slice, SourceFile

DOCUMENTS, ORDER = "documents", "order"
"""Formats of the files in a plan: the shard of an input, and the seeded order of a split."""

_FILE_VALUES = len(fields(SourceFile))
_ROWS = ("files", "parts", "fingerprint")


@dataclass(frozen=True, slots=True)
class MixPlan:
    """A mix whose parts are known.

    `head`: the values of `plan.json` without the rows of files and parts, and without its sum; its
    key `mix` says what was asked, and of which datasets.
    """

    head: Mapping[str, Any]
    parts: tuple[Part, ...]

    @classmethod
    def of(cls, written: PlanFile) -> MixPlan:
        """Return the plan that `plan_file.parse_plan` has read."""
        files = [SourceFile(*row[:_FILE_VALUES]) for row in written.files]
        parts = []
        for index, rows in enumerate(written.parts):
            slices = (Slice(files[number], *rest) for number, *rest in rows)
            parts.append(Part(index, tuple(slices)))
        head = {key: value for key, value in written.plain.items() if key not in _ROWS}
        return cls(head, tuple(parts))

    def chunks(self) -> Iterator[bytes]:
        """Return the bytes of `plan.json`, about 1 MiB at a time."""
        numbers: dict[SourceFile, int] = {}
        parts = [
            [
                [
                    numbers.setdefault(piece.file, len(numbers)),
                    piece.start,
                    piece.stop,
                    piece.n_bytes,
                ]
                for piece in part.slices
            ]
            for part in self.parts
        ]
        files = [
            [file.path, file.format, file.compression, file.n_bytes, file.mtime_ns, file.stamp]
            for file in numbers
        ]
        plan = {**self.head, "format": PLAN_FORMAT, "files": files, "parts": parts}
        return json_chunks({**plan, "fingerprint": plan_fingerprint(plan)})

    def fingerprint_of(self, part: Part) -> str:
        """Return the sha256 of what was asked, of which tokens, and of a part's slices."""
        slices = [[piece.file.path, piece.start, piece.stop] for piece in part.slices]
        asked: str = self.head["mix"]["fingerprint"]
        return sha256_hex(canonical_json([asked, part.index, slices]))
