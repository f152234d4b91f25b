"""The shards of a dataset, and where its documents came from as far as commit records tell."""

from __future__ import annotations

import json
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from tokmill.dataset.commit_record import Commit
from tokmill.dataset.layout import PARTS, PLAN, part_name
from tokmill.dataset.plan_file import load_plan
from tokmill.errors import VerifyError

if TYPE_CHECKING:
    from pathlib import Path

    from tokmill.dataset.counts import Counts


@dataclass(frozen=True, slots=True)
class ShardInfo:
    """A shard as the manifest lists it.

    Attributes:
        name: its files are `NAME.bin`, `NAME.idx` and, where the dataset has them, `NAME.mask` and
            `NAME.weight`.
        split: `train` or `val`.
        documents: number of documents or samples.
        tokens: number of tokens, eos included.
    """

    name: str
    split: str
    documents: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a document stands, and the input that it came from.

    Attributes:
        split: `train` or `val`.
        shard: name of its shard, without an ending.
        place: its number in the shard, from 0.
        path: its input file; "" if it cannot be determined, because a commit has documents of
            several files and of two splits.
        first_record: first record of that file from which the document can come, counted from 1; 0
            without a path.
        last_record: last record from which it can come; equal to `first_record` if nothing was
            dropped or rejected and the dataset has one split.
    """

    split: str
    shard: str
    place: int
    path: str
    first_record: int
    last_record: int


class OriginFinder:
    """Finds the origin of documents from the plan and the records of parts, read when needed."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._known: dict[int, list[Commit]] = {}

    def find(self, shard: str, place: int) -> Origin:
        """Return the origin of document `place` of a shard.

        Raises:
            VerifyError: a record of the dataset is missing or damaged.
            TokmillError: the plan is missing or damaged.
        """
        split, digits, _ = shard.rsplit("-", 2)
        part = int(digits)
        number, commit = self._commit(part, f"{shard}.bin")
        others = sum(one.n_documents for one in commit.shards if one.split != split)
        slices = list(commit.counts.items())
        stops = list(accumulate(counts.documents for _, counts in slices))
        ordinals = (place, place + others)  # the first and the last that it can have in the commit
        first, last = (slices[bisect_right(stops, ordinal)] for ordinal in ordinals)
        file = self._plan[part][first[0]][0]
        if any(self._plan[part][i][0] != file for i in range(first[0], last[0] + 1)):
            return Origin(split, shard, place, "", 0, 0)
        before = dict(zip(commit.counts, [0, *stops], strict=False))
        low, high = ordinals[0] - before[first[0]], ordinals[1] - before[last[0]]
        return Origin(
            split,
            shard,
            place,
            str(self._files[file][0]),
            self._n_before(part, number, first[0]) + 1 + max(0, low - first[1].extra),
            self._n_before(part, number, last[0]) + _most(last[1], high),
        )

    def _n_before(self, part: int, number: int, slice_index: int) -> int:
        """Return the records of a slice's file that stand before it and before a commit."""
        file = self._plan[part][slice_index][0]
        place = (part, number, slice_index)
        n_records = 0
        for earlier in range(part, -1, -1):
            own = {i for i, piece in enumerate(self._plan[earlier]) if piece[0] == file}
            if not own:
                break
            n_records += sum(
                counts.records
                for k, commit in enumerate(self._commits(earlier))
                for i, counts in commit.counts.items()
                if i in own and (earlier, k, i) < place
            )
        return n_records

    def _commit(self, part: int, name: str) -> tuple[int, Commit]:
        """Return the commit of a part that wrote a file, and its number."""
        for number, commit in enumerate(self._commits(part)):
            if any(entry.name == name for shard in commit.shards for entry in shard.files):
                return number, commit
        raise VerifyError(f"{self._directory / PARTS / part_name(part)}: does not name {name}")

    def _commits(self, part: int) -> list[Commit]:
        if part not in self._known:
            path = self._directory / PARTS / part_name(part)
            try:
                data = json.loads(path.read_bytes())
                self._known[part] = [Commit.from_json(commit) for commit in data["steps"]]
            except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
                raise VerifyError(f"{path}: damaged or missing record: {error}") from None
        return self._known[part]

    @cached_property
    def _plan(self) -> list[list[list[int]]]:
        """The slices of each part, as (number of the file, start, stop, bytes)."""
        parts: list[list[list[int]]] = self._loaded["parts"]
        return parts

    @cached_property
    def _files(self) -> list[list[str]]:
        files: list[list[str]] = self._loaded["files"]
        return files

    @cached_property
    def _loaded(self) -> dict[str, Any]:
        return load_plan(self._directory / PLAN)


def _most(counts: Counts, ordinal: int) -> int:
    """Return the last record of a slice, from 1, that its document `ordinal` can come from."""
    n_without = counts.records + counts.extra - counts.documents
    return min(counts.records, ordinal + 1 + n_without)
