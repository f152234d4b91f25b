"""Choose documents to be shown: one of each source, then random ones."""

from __future__ import annotations

from pathlib import PurePosixPath
from random import Random
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from tokmill.dataset.origins import OriginFinder
from tokmill.errors import UsageError
from tokmill.page.samples import evenly_spread
from tokmill.page.summary import noticed
from tokmill.words.plural import plural

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import numpy.typing as npt

LEAST, MOST_SOURCES = 4, 8
_MOST_LISTED = 12


class Choice(TypedDict, total=False):
    """Which documents are shown.

    Those of a `split`, and of a `source`: its name, an input file, or a directory of them. `seed`
    draws others.
    """

    split: str
    source: str
    seed: int


def chosen_documents(
    directory: Path,
    manifest: Mapping[str, Any],
    wanted: int | None = None,
    *,
    split: str = "",
    source: str = "",
    seed: int = 0,
) -> list[int]:
    """Return the numbers of documents of a split: one of each source in order, then random ones.

    If all are wanted, in the order of the dataset. `wanted`: how many; None: `LEAST`, or one of
    each source up to `MOST_SOURCES`. For the others see `Choice`.

    Raises:
        UsageError: there is no such split or source, or no origins to find a source by.
        VerifyError: a file of origins is damaged.
    """
    shards, rows = manifest["shards"], manifest["sources"]
    splits = dict.fromkeys(entry["split"] for entry in shards)
    if split and split not in splits:
        raise UsageError(f"split: expected {' or '.join(splits)}; found {split!r}")
    counts = np.array([one["documents"] for one in shards], np.int64)
    firsts = np.cumsum(counts) - counts
    places = [i for i, one in enumerate(shards) if split in ("", one["split"])]
    finder, random = OriginFinder(directory, manifest), Random(seed)  # noqa: S311  no secret

    def of_sources(members: npt.NDArray[np.bool_], n: int) -> list[int]:
        """Return `n` documents of some sources, or all, from as few shards as have enough."""
        found: list[int] = []
        held = finder.may_hold(members)
        for i in random.sample(places, len(places)):
            if held[i] and len(found) < n:
                of_shard = np.flatnonzero(members[finder.sources(shards[i])])
                most = range(min(len(of_shard), n - len(found)))
                found += (firsts[i] + random.sample(of_shard.tolist(), len(most))).tolist()
        return found

    names = np.array([row.get("name", row["path"]) for row in rows])
    has_origins = all("first_slice" in entry for entry in shards)
    groups = list(dict.fromkeys(names.tolist())) if has_origins else []
    n = max(LEAST, min(len(groups), MOST_SOURCES)) if wanted is None else wanted
    if source:
        found = of_sources(_members(rows, source), n)
        if not found and n:
            raise UsageError(f"source: {source} has no documents {split}".rstrip())
        return found
    total = int(counts[places].sum())
    if n >= total:
        return [int(firsts[i]) + k for i in places for k in range(shards[i]["documents"])]
    found = []
    for i in evenly_spread(len(groups), n):
        found += of_sources(names == groups[i], 1)
    stops = np.cumsum(counts[places])
    drawn = np.array(random.sample(range(total), min(total, n + len(found))), np.int64)
    at = np.searchsorted(stops, drawn, "right")
    others = drawn - stops[at] + (firsts + counts)[places][at]
    return [*found, *(one for one in others.tolist() if one not in found)][:n]


def noticed_documents(
    directory: Path, manifest: Mapping[str, Any], name: str, wanted: int | None = None
) -> list[int]:
    """Return documents of the first records behind the counters whose name contains `name`.

    Raises:
        UsageError: there is no such counter, or no origins to find records by.
        VerifyError: a file of origins is damaged.
    """
    kept = manifest.get("noticed", {})
    chosen = [one for one in kept if name in f"{one} {noticed(2, one)}"]
    if not chosen:
        expected = f"expected one of {', '.join(kept)}" if kept else "the run noticed nothing"
        raise UsageError(f"noticed: {expected}; found {name!r}")
    records = [(piece, number) for one in chosen for piece, number in kept[one]]
    shards, finder, found, first = manifest["shards"], OriginFinder(directory, manifest), [], 0
    firsts = np.unique([entry.get("first_slice", 0) for entry in shards])
    at = np.searchsorted(firsts, [piece for piece, _ in records], "right") - 1
    for entry in shards:
        if entry.get("first_slice", 0) in firsts[at]:
            found += (first + finder.made_of(entry, records)).tolist()
        first += entry["documents"]
    return found[: LEAST if wanted is None else wanted]


def _members(rows: Sequence[Mapping[str, Any]], source: str) -> npt.NDArray[np.bool_]:
    """Return which rows of sources a name, a file or a directory stands for."""
    found = [
        source == row.get("name") or PurePosixPath(row["path"]).is_relative_to(source)
        for row in rows
    ]
    if not any(found):
        names = list(dict.fromkeys(row.get("name", row["path"]) for row in rows))
        n_more = len(names) - _MOST_LISTED
        more = f" and {plural(n_more, 'other')}" if n_more > 0 else ""
        listed = ", ".join(names[:_MOST_LISTED])
        raise UsageError(f"source: expected one of {listed}{more}; found {source!r}")
    return np.array(found)
