"""The batches of one rank as rows of a sequence, with the tail of each epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tokmill.errors import UsageError
from tokmill.loader.order import AT_ONCE, MOST
from tokmill.loader.sequence import PADDING
from tokmill.loader.source import checked_count
from tokmill.words.plural import plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tokmill.loader.sequence import Located, SampleSequence

    Step = tuple[Located, int]
    """The rows of a batch of this rank, and the key of the sample after the global batch."""


class Steps:
    """The batches of a rank; the arguments and `UsageError` are those of `Loader`.

    Attributes:
        batch: samples in a batch of this rank.
        rank: of this process.
        world: the number of ranks.
        pads: whether a last batch is padded; otherwise the tail of an epoch is left out.
        n_global: samples in a batch of all ranks.
    """

    def __init__(
        self, sequence: SampleSequence, batch: int, rank: int, world: int, tail: str
    ) -> None:
        self.batch, self.world = checked_count("batch", batch), checked_count("world", world)
        self.rank = checked_count("rank", rank, least=0)
        if self.rank >= self.world:
            raise UsageError(f"rank {self.rank} of {plural(self.world, 'rank')}: expected less")
        if tail not in ("drop", "pad"):
            raise UsageError(f"tail: expected drop or pad, found {tail!r}")
        self.pads, self.n_global = tail == "pad", self.batch * self.world
        if self.pads and not all(getattr(one, "padded", True) for one in sequence.sources):
            raise UsageError('tail="pad": rows have different lengths; use tail="drop"')
        if not self.pads and sequence.n_samples < self.n_global:
            raise UsageError(
                f"{plural(sequence.n_samples, 'sample')}, fewer than a global batch of "
                f"{self.n_global:,}: every epoch would be dropped; use a smaller batch, or "
                'tail="pad"'
            )
        self._sequence = sequence

    @property
    def n_per_epoch(self) -> int:
        """Return the batches of a whole epoch, with its tail."""
        return (self._sequence.n_samples + (self.n_global - 1) * self.pads) // self.n_global

    def between(self, key: int, stop: int | None) -> Iterator[Step]:
        """Yield the rows of each batch; many batches are located together, which is cheaper."""
        together = max(1, AT_ONCE // self.batch)
        while stop is None or key < stop:
            left = self._left(key, stop)
            n_batches = min(together, left // self.n_global)
            if n_batches:
                keys = self._keys(key, n_batches)
                count = self.n_global
            elif self.pads:
                keys, n_batches, count = self._last_keys(key, left), 1, left
            else:
                key += left
                continue
            rows = self._sequence.locate(keys.reshape(-1))
            for number in range(n_batches):
                own = slice(number * self.batch, (number + 1) * self.batch)
                key += count
                yield rows.part(own), key

    def _left(self, key: int, stop: int | None) -> int:
        """Return the samples from `key` to the next end whose tail is dropped or padded."""
        if len(self._sequence.shares) == 1:
            return self._sequence.n_samples - key % self._sequence.n_samples
        return MOST if stop is None else stop - key

    def _keys(self, key: int, n_batches: int) -> NDArray[np.int64]:
        """Return the samples of this rank in the next global batches: (n_batches, batch)."""
        firsts = key + self.rank * self.batch + np.arange(n_batches) * self.n_global
        return firsts[:, None] + np.arange(self.batch)

    def _last_keys(self, key: int, left: int) -> NDArray[np.int64]:
        """Return the samples of this rank in a tail, which is dealt out so that all ranks share."""
        offsets = np.arange(self.rank, self.n_global, self.world)
        return np.where(offsets < left, key + offsets, PADDING)
