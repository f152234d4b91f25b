"""The Loader: batches of one rank in a seeded order, with a state that resumes anywhere."""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Literal

from tokmill.errors import StateError, UsageError
from tokmill.loader.sequence import SampleSequence
from tokmill.loader.source import checked_count
from tokmill.loader.state import key_of, state_of
from tokmill.loader.steps import Steps
from tokmill.words.plural import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from tokmill.loader.sequence import Located
    from tokmill.loader.source import Arrays
    from tokmill.loader.steps import Step

AHEAD = 2
"""Batches that each worker reads ahead."""


class Loader:
    """Batches of one rank, as dictionaries of NumPy arrays.

    The samples of all ranks are one sequence, decided by the sources, their weights, `shuffle` and
    `seed`. A global batch is the next `batch` x `world` samples of it: rank r gets those from
    `batch` x r on. So a saved state goes on with any batch size, number of ranks and workers.

    An iteration goes on where the loader stands, and a new iteration ends an older one, which
    raises `StateError` if it is continued.

    Attributes:
        n_samples: samples of an epoch: those of all sources together.
        shares: in a blend, samples of each source in a period of `sum(shares)` samples. After any
            number of samples, each source has had its share, rounded up or down.
        fingerprint: sha256 of everything that decides the sequence, except the seed.

    Args:
        sources: windows or packs; or a blend: a list of (source, weight). Weights are shares of
            samples; rows of a blend have one length, so they are shares of tokens too. Each source
            has its own epochs, each in another order. An epoch of a blend is as many samples as all
            sources have together; it may read a source more or less than once. A batch may cross
            from one epoch of a blend into the next: only where an iteration ends is there a tail.
        batch: samples in a batch of this rank.
        rank: of this process, from 0.
        world: the number of ranks.
        seed: 0 to 2^64 - 1; decides the order.
        epochs: where the sequence ends; without it, never.
        tail: what becomes of the last samples of an epoch, too few for a global batch. `drop`
            leaves them out. `pad` fills a last batch with rows whose labels are -100; all batches
            then have `is_padding`: (batch,) bool. A rank may get only padding.
        shuffle: `False` reads each source from its first sample to its last.
        workers: threads that read batches ahead; with 0, a batch is read when it is asked for.
        processes: whether workers are processes of torch's DataLoader instead of threads.
        allocate: makes the arrays, such as `tokmill.loader.pinned_empty`; not with processes.

    Raises:
        UsageError: an argument is wrong, rows of a blend differ, or an epoch has no whole batch.

    Example:
        >>> source = tokmill.loader.windows("out", length=1024, shift=True)  # for your own loop
        >>> loader = tokmill.loader.Loader(source, batch=16, epochs=1)
        >>> for batch in loader:
        ...     print(batch["input_ids"].shape, loader.state_dict())
    """

    def __init__(
        self,
        sources: Any,
        batch: int,
        *,
        rank: int = 0,
        world: int = 1,
        seed: int = 0,
        epochs: int | None = None,
        tail: Literal["drop", "pad"] = "drop",
        shuffle: bool = True,
        workers: int = 0,
        processes: bool = False,
        allocate: Callable[..., Any] | None = None,
    ) -> None:
        self.workers = checked_count("workers", workers, least=0)
        self._sequence = SampleSequence(sources, seed, shuffle)
        self._steps = Steps(self._sequence, batch, rank, world, tail)
        self.batch, self.rank, self.world = self._steps.batch, self._steps.rank, self._steps.world
        self.epochs = None if epochs is None else checked_count("epochs", epochs)
        self.seed, self.tail, self.processes = self._sequence.seed, tail, processes
        if processes and allocate is not None:
            raise UsageError("allocate: arrays of other processes cannot be made here; use threads")
        self._allocate = allocate
        self.n_samples, self.shares = self._sequence.n_samples, self._sequence.shares
        self.fingerprint = self._sequence.fingerprint
        self._key = 0  # of the next sample: epoch x n_samples + samples seen
        self._iteration: object | None = None
        self._ended = False

    @property
    def epoch(self) -> int:
        """The epoch of the next sample, from 0."""
        return self._key // self.n_samples

    @property
    def samples_seen(self) -> int:
        """Samples of the epoch that the training loops of all ranks received; no padding."""
        return self._key % self.n_samples

    @property
    def batches_per_epoch(self) -> int:
        """Batches of a whole epoch, with its tail."""
        return self._steps.n_per_epoch

    def __iter__(self) -> Iterator[Arrays]:
        """Yield the batches from here on, to the end of the last epoch.

        Raises:
            StateError: the loader was at its end already, or another iteration began.
        """
        return self._start(None if self.epochs is None else self.epochs * self.n_samples)

    def one_epoch(self) -> Iterator[Arrays]:
        """Yield the rest of the epoch in which the loader stands; then it stands in the next.

        Raises:
            StateError: the loader was at its end already, or another iteration began.
        """
        stop = self.epoch + 1
        return self._start(min(stop, self.epochs or stop) * self.n_samples)

    def state_dict(self) -> dict[str, Any]:
        """Return where the loader stands; the same on all ranks: save it once.

        Keys are `fingerprint`, `seed`, `epoch` and `samples_seen`: the samples of this epoch that
        all ranks received. What workers have read ahead does not count.
        """
        return state_of(self._sequence, self._key)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where a state was saved, with any batch size, number of ranks and workers.

        Raises:
            StateError: an iteration began; the state is not one; or it is of other sources, other
                weights, another seed or `shuffle`.
        """
        if self._iteration is not None:
            raise StateError("a state is loaded before the first iteration: make a new Loader")
        self._sequence.check()
        self._key = key_of(state, self._sequence)

    def _start(self, stop: int | None) -> Iterator[Arrays]:
        if self._ended:
            raise StateError(
                f"the loader has come to the end of {plural(self.epochs or 0, 'epoch')}: make a "
                "new one, or give more epochs"
            )
        self._sequence.check()
        self._iteration = token = object()
        return self._batches(token, stop)

    def _batches(self, token: object, stop: int | None) -> Iterator[Arrays]:
        steps = self._steps.between(self._key, stop)
        for batch, after in self._read(steps):
            self._check(token)
            self._key = after
            yield batch
        self._check(token)
        if stop is not None:
            self._key = max(self._key, stop)  # past a tail that was dropped
            self._ended = self.epochs is not None and self._key >= self.epochs * self.n_samples

    def _check(self, token: object) -> None:
        if self._iteration is not token:
            raise StateError("another iteration of this loader began: continue that one")

    def _read(self, steps: Iterable[Step]) -> Iterator[tuple[Arrays, int]]:
        if self.workers and self.processes:
            from tokmill.loader.torch_workers import read_in_processes

            return read_in_processes(self._sequence, steps, self.workers, AHEAD, self._steps.pads)
        if self.workers:
            return self._read_in_threads(steps)
        return ((self._one(rows), after) for rows, after in steps)

    def _read_in_threads(self, steps: Iterable[Step]) -> Iterator[tuple[Arrays, int]]:
        pool = ThreadPoolExecutor(self.workers, thread_name_prefix="tokmill-loader")
        waiting: deque[Any] = deque()
        try:
            for rows, after in steps:
                waiting.append((pool.submit(self._one, rows), after))
                if len(waiting) > self.workers * AHEAD:
                    future, key = waiting.popleft()
                    yield future.result(), key
            while waiting:
                future, key = waiting.popleft()
                yield future.result(), key
        finally:
            pool.shutdown(cancel_futures=True)

    def _one(self, rows: Located) -> Arrays:
        return self._sequence.read(rows, pad=self._steps.pads, allocate=self._allocate)
