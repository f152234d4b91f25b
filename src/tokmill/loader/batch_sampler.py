"""The order of a Loader for a DataLoader of one's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.errors import StateError, UsageError
from tokmill.loader.sequence import SampleSequence
from tokmill.loader.state import key_of, state_of
from tokmill.loader.steps import Steps

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class BatchSampler:
    """The numbers of the samples of each batch of a rank, as `batch_sampler` of torch's DataLoader.

    The order and the states are those of a `Loader` with the same arguments, and the tail of each
    epoch is dropped. An iteration is an epoch, the first one from a loaded state on; the next
    iteration is the next epoch, even if the last one was broken off. The dataset of the DataLoader
    is the source; for a blend, `torch.utils.data.ConcatDataset` of its sources in their order.

    Args: see `Loader`.

    Example:
        >>> source = tokmill.loader.windows("out", length=1024, shift=True)  # for your own loop
        >>> sampler = tokmill.loader.BatchSampler(source, batch=16)
        >>> next(iter(sampler))
    """

    def __init__(
        self,
        sources: Any,
        batch: int,
        *,
        rank: int = 0,
        world: int = 1,
        seed: int = 0,
        shuffle: bool = True,
    ) -> None:
        self._sequence = SampleSequence(sources, seed, shuffle)
        self._steps = Steps(self._sequence, batch, rank, world, "drop")
        lengths = [len(source) for source in self._sequence.sources]
        self._offsets = np.cumsum([0, *lengths[:-1]])
        self._first: int | None = None  # sample of the newest iteration
        self._next = 0  # sample of the next iteration

    @property
    def epoch(self) -> int:
        """The epoch of the next iteration, from 0."""
        return self._next // self._sequence.n_samples

    def __len__(self) -> int:
        """Return the batches of a whole epoch."""
        return self._steps.n_per_epoch

    def __iter__(self) -> Iterator[list[int]]:
        """Yield the numbers of each batch of the rest of the epoch: `batch` of them."""
        self._sequence.check()
        self._first, self._next = self._next, self._end(self._next)
        for rows, _ in self._steps.between(self._first, self._next):
            yield (self._offsets[rows.sources] + rows.numbers).tolist()

    def state_dict(self, n_batches: int) -> dict[str, Any]:
        """Return the state after some batches of the newest iteration; see `Loader.state_dict`.

        Args:
            n_batches: that the training loop of each rank received in this iteration, from 1. The
                sampler cannot know it: workers ask for more batches ahead.

        Raises:
            UsageError: the iteration has fewer batches, or there was none.
        """
        first = self._next if self._first is None else self._first
        end = self._end(first)
        most = 0 if self._first is None else (end - first) // self._steps.n_global
        if not 1 <= n_batches <= most:
            raise UsageError(
                f"n_batches: expected the batches of this iteration that were received, 1 to "
                f"{most:,}; found {n_batches:,}: count them from the start of each iteration"
            )
        key = first + n_batches * self._steps.n_global
        return state_of(self._sequence, end if n_batches == most else key)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where a state of a sampler or a Loader was saved; see `Loader.load_state_dict`.

        Raises:
            StateError: an iteration began, or the state is of another sequence.
        """
        if self._first is not None:
            raise StateError("a state is loaded before the first iteration: make a new sampler")
        self._sequence.check()
        self._next = key_of(state, self._sequence)

    def _end(self, key: int) -> int:
        """Return the end of the epoch of a sample."""
        return (key // self._sequence.n_samples + 1) * self._sequence.n_samples
