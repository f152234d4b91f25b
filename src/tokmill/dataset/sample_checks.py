"""Questions about samples that stand end to end in flat arrays: `verify` and the audit ask them.

Each answer is numbers of samples, increasing, and costs a few passes over the arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.offsets import offsets_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    import numpy.typing as npt

    from tokmill.dataset.reader import Shard

    Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Samples:
    """Some samples or documents, end to end, none of them empty.

    Attributes:
        ids: (n_tokens,) integers.
        lengths: (n,) tokens of each.
        mask: (n_tokens,) not 0 where a token is a target; None if all are.
    """

    ids: npt.NDArray[Any]
    lengths: Numbers
    mask: npt.NDArray[Any] | None

    @cached_property
    def offsets(self) -> Numbers:
        """Return where samples begin, and the end: (n + 1,)."""
        return offsets_of(self.lengths)

    @property
    def starts(self) -> Numbers:
        """Return the first token of each sample: (n,)."""
        return self.offsets[:-1]

    @property
    def lasts(self) -> Numbers:
        """Return the last token of each sample: (n,)."""
        return self.offsets[1:] - 1

    def of(self, tokens: Numbers) -> Numbers:
        """Return the samples of some tokens, one for each."""
        return np.searchsorted(self.offsets, tokens, "right") - 1

    def outside(self, n_ids: int) -> Numbers:
        """Return the tokens whose id is negative, or not below `n_ids`."""
        ids = self.ids
        if not len(ids) or (int(ids.min()) >= 0 and int(ids.max()) < n_ids):
            return np.zeros(0, np.int64)
        return np.flatnonzero((ids < 0) | (ids >= n_ids))

    def ending_otherwise(self, last_ids: Collection[int]) -> Numbers:
        """Return the samples whose last id is none of these."""
        return np.flatnonzero(~np.isin(self.ids[self.lasts], list(last_ids)))

    def beginning_otherwise(self, first_id: int) -> Numbers:
        """Return the samples whose first id is another one."""
        return np.flatnonzero(self.ids[self.starts] != first_id)

    @cached_property
    def n_trained(self) -> Numbers:
        """Return the targets of each sample: (n,)."""
        if self.mask is None:
            return self.lengths
        if not len(self.lengths):
            return np.zeros(0, np.int64)
        flags = (self.mask != 0).view(np.uint8)
        counts: Numbers = np.add.reduceat(flags, self.starts, dtype=np.int64)
        return counts

    def training_nothing(self) -> Numbers:
        """Return the samples without a target."""
        return np.flatnonzero(self.n_trained == 0)

    def training_first(self) -> Numbers:
        """Return the samples whose first token is a target, though nothing predicts it."""
        if self.mask is None:
            return np.arange(len(self.lengths))
        return np.flatnonzero(self.mask[self.starts])


def samples_in(shard: Shard, most_tokens: int) -> Iterator[tuple[int, Samples]]:
    """Yield samples of a shard, some at a time, with the number of the first in the shard.

    Memory: that of `most_tokens`, or of one sample. Its index was checked.
    """
    start = 0
    for run in shard.runs(most_tokens):
        lengths = shard.lengths[run].astype(np.int64)
        stop = start + int(lengths.sum())
        mask = None if shard.mask is None else shard.mask[start:stop]
        yield run.start, Samples(shard.tokens[start:stop], lengths, mask)
        start = stop
