"""The Loader: batches of one rank in a seeded order, with a state that resumes anywhere."""

from __future__ import annotations

import operator
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tokmill.errors import StateError, UsageError
from tokmill.loader.order import AT_ONCE, MOST
from tokmill.loader.sequence import PADDING, SampleSequence
from tokmill.loader.source import checked_count
from tokmill.words.plural import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from tokmill.loader.sequence import Located
    from tokmill.loader.source import Arrays

    Step = tuple[Located, int]
    """The rows of a batch of this rank, and the key of the sample after the global batch."""

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
        >>> source = tokmill.loader.windows("out", length=1024, shift=True)
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
        self.batch, self.world = checked_count("batch", batch), checked_count("world", world)
        self.rank = checked_count("rank", rank, least=0)
        self.workers = checked_count("workers", workers, least=0)
        self.seed = checked_count("seed", seed, least=0)
        self.epochs = None if epochs is None else checked_count("epochs", epochs)
        self.tail, self.processes = tail, processes
        if self.rank >= self.world:
            raise UsageError(f"rank {self.rank} of {plural(self.world, 'rank')}: expected less")
        if tail not in ("drop", "pad"):
            raise UsageError(f"tail: expected drop or pad, found {tail!r}")
        if processes and allocate is not None:
            raise UsageError("allocate: arrays of other processes cannot be made here; use threads")
        self._sequence = SampleSequence(sources, self.seed, bool(shuffle))
        if tail == "pad" and not all(getattr(s, "padded", True) for s in self._sequence.sources):
            raise UsageError('tail="pad": rows have different lengths; use tail="drop"')
        self._allocate = allocate
        self.n_samples, self.shares = self._sequence.n_samples, self._sequence.shares
        self.fingerprint = self._sequence.fingerprint
        if tail == "drop" and self.n_samples < self._global:
            raise UsageError(
                f"{plural(self.n_samples, 'sample')}, fewer than a global batch of "
                f"{self._global:,}: every epoch would be dropped; use a smaller batch, or "
                'tail="pad"'
            )
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
        return (self.n_samples + (self._global - 1) * (self.tail == "pad")) // self._global

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
        return {
            "fingerprint": self.fingerprint, "seed": self.seed,
            "epoch": self.epoch, "samples_seen": self.samples_seen,
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where a state was saved, with any batch size, number of ranks and workers.

        Raises:
            StateError: an iteration began; the state is not one; or it is of other sources, other
                weights, another seed or `shuffle`.
        """
        if self._iteration is not None:
            raise StateError("a state is loaded before the first iteration: make a new Loader")
        self._sequence.check()
        try:
            epoch, seen = (operator.index(state[name]) for name in ("epoch", "samples_seen"))
            found = {name: state[name] for name in ("fingerprint", "seed")}
        except (KeyError, TypeError, ValueError) as error:
            raise StateError(
                f"no state of a Loader: {error}; expected fingerprint, seed, epoch, samples_seen"
            ) from None
        for name, expected in (("fingerprint", self.fingerprint), ("seed", self.seed)):
            if found[name] != expected:
                why = "sources, weights or shuffle changed" if name == "fingerprint" else "changed"
                raise StateError(
                    f"state of another sequence: {name} {found[name]} in the state, {expected} "
                    f"here ({why}); go on with what it was saved with, or without the state"
                )
        key = epoch * self.n_samples + seen
        if not (0 <= seen < self.n_samples and 0 <= key <= MOST):
            raise StateError(
                f"state: epoch {epoch}, samples_seen {seen}; expected samples_seen from 0 to "
                f"{self.n_samples - 1}, and at most 2^62 samples in all"
            )
        self._key = key

    @property
    def _global(self) -> int:
        return self.batch * self.world

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
        steps = self._steps(self._key, stop)
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

            return read_in_processes(self._sequence, steps, self.workers, AHEAD, self._pads)
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

    @property
    def _pads(self) -> bool:
        return self.tail == "pad"

    def _one(self, rows: Located) -> Arrays:
        return self._sequence.read(rows, pad=self._pads, allocate=self._allocate)

    def _steps(self, key: int, stop: int | None) -> Iterator[Step]:
        """Yield the rows of each batch; many batches are located together, which is cheaper."""
        together = max(1, AT_ONCE // self.batch)
        while stop is None or key < stop:
            left = self._left(key, stop)
            n_batches = min(together, left // self._global)
            if n_batches:
                keys = self._keys(key, n_batches)
                count = self._global
            elif self._pads:
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
        if len(self.shares) == 1:
            return self.n_samples - key % self.n_samples
        return MOST if stop is None else stop - key

    def _keys(self, key: int, n_batches: int) -> NDArray[np.int64]:
        """Return the samples of this rank in the next global batches: (n_batches, batch)."""
        firsts = key + self.rank * self.batch + np.arange(n_batches) * self._global
        return firsts[:, None] + np.arange(self.batch)

    def _last_keys(self, key: int, left: int) -> NDArray[np.int64]:
        """Return the samples of this rank in a tail, which is dealt out so that all ranks share."""
        offsets = np.arange(self.rank, self._global, self.world)
        return np.where(offsets < left, key + offsets, PADDING)
