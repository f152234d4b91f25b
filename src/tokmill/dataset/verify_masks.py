"""Verify the masks and weights of an SFT dataset, shard by shard."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.dataset.layout import MANIFEST

if TYPE_CHECKING:
    import numpy.typing as npt

    from tokmill.dataset.reader import Shard

_CHUNK_TOKENS = 4 << 20


@dataclass(slots=True)
class MaskTally:
    """Sums over the shards so far; `first_end` names the first sample with another end."""

    n_trained: int = 0
    n_other_ends: int = 0
    first_end: str = ""


def check_masks(shard: Shard, rule: dict[str, Any], tally: MaskTally, problems: list[str]) -> None:
    """Check the mask, weights and ends of a shard whose index has no problem.

    `rule` is the manifest's `mask`; `tally` gets the sums for `check_mask_totals`.
    """
    starts, ends = _bounds(shard)
    last_ids = rule["ends"]["last_ids"]
    if last_ids:
        other = np.flatnonzero(~np.isin(shard.tokens[ends - 1], last_ids))
        if len(other) and not tally.first_end:
            found = int(shard.tokens[ends[other[0]] - 1])
            tally.first_end = f"{shard.name}: sample {other[0]} ends in id {found}"
        tally.n_other_ends += len(other)
    mask = shard.mask
    if mask is None:
        problems.append(f"{shard.name}.mask: missing")
        return
    tally.n_trained += _check_values(shard.name, mask, problems)
    trained_first = np.flatnonzero(mask[starts])
    if len(trained_first):
        problems.append(
            f"{shard.name}.mask: sample {trained_first[0]} trains its first token "
            f"({len(trained_first)} such)"
        )
    untrained = np.flatnonzero(np.maximum.reduceat(mask, starts) == 0)
    if len(untrained):
        problems.append(
            f"{shard.name}.mask: sample {untrained[0]} has no trained token ({len(untrained)} such)"
        )
    if shard.weights is not None:
        _check_weights(shard.name, mask, shard.weights, problems)


def _bounds(shard: Shard) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    ends = np.cumsum(shard.lengths, dtype=np.int64)
    return ends - shard.lengths, ends


def _check_values(name: str, mask: npt.NDArray[np.uint8], problems: list[str]) -> int:
    """Check that a mask has only 0 and 1; return the number of values other than 0."""
    n_trained, n_other, first = 0, 0, -1
    for start in range(0, len(mask), _CHUNK_TOKENS):
        chunk = mask[start : start + _CHUNK_TOKENS]
        n_trained += int(np.count_nonzero(chunk))
        other = np.flatnonzero(chunk > 1)
        if len(other) and first < 0:
            first = start + int(other[0])
        n_other += len(other)
    if n_other:
        problems.append(
            f"{name}.mask: token {first} has {mask[first]}, neither 0 nor 1 ({n_other} such)"
        )
    return n_trained


def _check_weights(
    name: str,
    mask: npt.NDArray[np.uint8],
    weights: npt.NDArray[np.float32],
    problems: list[str],
) -> None:
    """Check that weights are finite, not negative, and 0 exactly where the mask is."""
    for start in range(0, len(mask), _CHUNK_TOKENS):
        found = weights[start : start + _CHUNK_TOKENS]
        wrong = np.flatnonzero(~(np.isfinite(found) & (found >= 0)))
        if len(wrong):
            at = int(wrong[0])
            problems.append(f"{name}.weight: token {start + at} has weight {found[at]}")
            return
        differs = np.flatnonzero((found > 0) != (mask[start : start + _CHUNK_TOKENS] != 0))
        if len(differs):
            at = int(differs[0])
            problems.append(
                f"{name}.weight: token {start + at} has weight {found[at]} and mask "
                f"{mask[start + at]}"
            )
            return


def check_mask_totals(rule: dict[str, Any], tally: MaskTally, problems: list[str]) -> None:
    """Check the alignment of the masks, and the number of truncated samples."""
    if rule["alignment"] != "target":
        problems.append(f"{MANIFEST}: mask alignment is {rule['alignment']}, not target")
    if tally.n_other_ends > rule["cut"]:
        problems.append(
            f"{tally.first_end}, which the end rule ({rule['ends']['rule']}) does not allow "
            f"({tally.n_other_ends} such, {rule['cut']} were cut)"
        )
