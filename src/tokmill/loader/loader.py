"""Batches of one rank in a seeded order, with a state that resumes anywhere."""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tokmill.errors import StateError, UsageError
from tokmill.loader.ahead import fetched_ahead
from tokmill.loader.batch_memory import BatchMemory
from tokmill.loader.kept_fields import COLUMN_IDS, as_objects, end_to_end
from tokmill.loader.order import MOST
from tokmill.loader.plan import plan_of
from tokmill.loader.sequence import SampleSequence
from tokmill.loader.source import checked_count, end_repeated
from tokmill.words import plural

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import numpy.typing as npt

    from tokmill.loader.balance import AttentionCost, Balance
    from tokmill.loader.phases import Phase
    from tokmill.loader.plan import PhasesPlan
    from tokmill.loader.sequence import Step
    from tokmill.loader.source import Arrays, RowSource


AHEAD = 2
"""Batches that each worker reads ahead."""

_ARRAYS = 4
"""Large arrays of a batch, about; three batches are in use besides those that are read ahead."""


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
        fingerprint: what decides the sequence, except the seed: the algorithm of the sums of the
            files, `:`, and a sha256. Datasets with equal files have one, wherever they were made.

    Args:
        sources: windows or packs; or a blend: a list of (source, weight). Weights are shares of
            samples; rows of a blend have one length, so they are shares of tokens too. Each source
            has its own epochs, each in another order. An epoch of a blend is as many samples as all
            sources have together; it may read a source more or less than once. A batch may cross
            from one epoch of a blend into the next: only where an iteration ends is there a tail.
        batch: samples in a batch of this rank; not with phases.
        phases: a list of `Phase`, or a TOML file of them: shares, row length and batch change
            during the training. Sources are then windows by name, such as `{"web": windows(…)}`,
            or one source alone. Lengths of rows divide those of the windows, whose rows are in one
            order for all phases: nothing is read twice before a source is read to its end. A
            batch never crosses from one phase into the next. A state goes on with phases that have
            begun as they were; later ones may be changed and added.
        rank: of this process, from 0.
        world: the number of ranks.
        seed: 0 to 2^64 - 1; decides the order.
        epochs: where the sequence ends; without it, never. Not with phases, which are one epoch.
        tail: what becomes of the last samples of an epoch, too few for a global batch. `drop`
            leaves them out. `pad` fills a last batch with rows whose labels are -100; all batches
            then have `is_padding`: (batch,) bool. A rank may get only padding.
        shuffle: `False` reads each source from its first sample to its last. `"blocks"` takes
            shards in a seeded order, and mixes the rows of `blocks` of them at a time: reading a
            store or a network disk stays among these.
        blocks: shards whose rows are mixed, with `shuffle="blocks"`.
        workers: threads that read batches ahead; with 0, a batch is read when it is asked for.
        allocate: makes the arrays, such as `tokmill.loader.pinned_empty`.
        micro_batches: batches of a rank that make a step of the optimizer (gradient accumulation).
            A global batch is then that of a step, as many times larger; epochs have whole steps,
            and a state is that after the last whole one.
        balance: deals the rows of each global batch to ranks and micro batches so that these cost
            the same by this estimate. A step has the same rows as without.

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
        batch: int | None = None,
        *,
        phases: Sequence[Phase] | str | os.PathLike[str] | None = None,
        rank: int = 0,
        world: int = 1,
        seed: int = 0,
        epochs: int | None = None,
        tail: Literal["drop", "pad"] = "drop",
        shuffle: bool | Literal["blocks"] = True,
        blocks: int = 16,
        workers: int = 0,
        allocate: Callable[..., Any] | None = None,
        micro_batches: int = 1,
        balance: AttentionCost | None = None,
    ) -> None:
        self.workers = checked_count("workers", workers, least=0)
        self._sequence = SampleSequence(
            sources, seed, shuffle, batch, rank, world, tail, micro_batches, balance, phases, blocks
        )
        self.rank, self.world = self._sequence.rank, self._sequence.world
        self.epochs = None if epochs is None else checked_count("epochs", epochs)
        if phases is not None and self.epochs is not None:
            raise UsageError("epochs: phases end with the last one: leave it out")
        self.seed, self.tail = self._sequence.seed, tail
        self._allocate = allocate or BatchMemory(_ARRAYS * (self.workers * AHEAD + 3))
        self.n_samples = self._sequence.n_samples
        self.fingerprint = self._sequence.fingerprint
        self._end = self._sequence.end
        if self.epochs is not None:
            self._end = self.epochs * self.n_samples
        self._key = 0  # of the next sample: epoch x n_samples + samples seen
        self._iteration: object | None = None
        self._ended = False

    @property
    def epoch(self) -> int:
        """The epoch of the next sample, from 0; phases are one epoch."""
        return self._sequence.epoch_of(self._key)[0]

    @property
    def samples_seen(self) -> int:
        """Samples of the epoch that the training loops of all ranks received; no padding."""
        return self._sequence.epoch_of(self._key)[1]

    @property
    def phase(self) -> int:
        """The place of the next sample's phase in `phases`; 0 without phases."""
        return self._sequence.segment(self._key).number

    @property
    def batch(self) -> int:
        """Samples in the next batch of this rank."""
        return self._sequence.batch(self._sequence.segment(self._key))

    @property
    def shares(self) -> tuple[int, ...]:
        """Samples of each source in a period of the blend; of the next sample's phase."""
        return self._sequence.segment(self._key).blend.counts

    @property
    def source_names(self) -> tuple[str, ...]:
        """The names that `source_ids` number: those of all sources, in their order."""
        return self._sequence.source_names

    @property
    def batches_per_epoch(self) -> int:
        """Batches of a whole epoch, with its tail."""
        return self._sequence.n_batches()

    def __iter__(self) -> Iterator[Arrays]:
        """Yield the batches from here on, to the end of the last epoch.

        Raises:
            StateError: the loader was at its end already, or another iteration began.
        """
        return self._start(self._end)

    def __len__(self) -> int:
        """Return the batches of all epochs or phases; raises `TypeError` if they never end."""
        if self.epochs is None and self._sequence.schedule is None:
            raise TypeError("a Loader without epochs never ends, so it has no len: give epochs=1")
        return self._sequence.n_batches(self.epochs or 1)

    def __repr__(self) -> str:
        if self._sequence.schedule is not None:
            return f"<Loader: {plural(len(self._sequence.schedule.records), 'phase')}>"
        epochs = "without end" if self.epochs is None else plural(self.epochs, "epoch")
        return (
            f"<Loader: {plural(self.n_samples, 'sample')} an epoch, batch {self.batch}, {epochs}>"
        )

    def one_epoch(self) -> Iterator[Arrays]:
        """Yield the rest of the epoch in which the loader stands; then it stands in the next.

        Raises:
            StateError: the loader was at its end already, or another iteration began.
        """
        stop = self._sequence.end_of_epoch(self._key)
        if stop is not None and self._end is not None:
            stop = min(stop, self._end)
        return self._start(stop)

    def balance(self, cost: AttentionCost | None = None, n_batches: int = 100) -> Balance:
        """Return how even the ranks' batches are, by the cost of attention, before and after.

        The next global batches of this order are looked at, by the index of documents alone. A step
        takes as long as the dearest rank in each micro batch; 1.0 is a step of equal batches.

        Args:
            cost: of rows; None: that of the loader, or else `AttentionCost()`.
            n_batches: global batches that are looked at, at most those of an epoch or a phase.

        Raises:
            UsageError: a source does not know the documents of its rows.

        Example:
            >>> source = tokmill.loader.packs("sft", shift=False)
            >>> loader = tokmill.loader.Loader(source, batch=1, world=2)
            >>> loader.balance().before, loader.balance().after
        """
        n_batches = checked_count("n_batches", n_batches)
        return self._sequence.balance(self._key, cost, n_batches)

    def plan(self) -> PhasesPlan:
        """Return what the phases read by source, what they repeat, and what is never read.

        `print` shows it as tables. Raises `UsageError` without phases.
        """
        if self._sequence.schedule is None:
            raise UsageError("plan: the loader has no phases: give phases=[Phase(…)]")
        return plan_of(self._sequence.schedule)

    def state_dict(self) -> dict[str, Any]:
        """Return where the loader stands; the same on all ranks: save it once.

        Keys are `fingerprint`, `seed`, `epoch` and `samples_seen`: the samples of this epoch that
        all ranks received. What workers have read ahead does not count. With phases: `seed`,
        `phases`, which are what decides those that began, and `samples_seen` of all phases.
        """
        return self._sequence.state(self._key)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where a state was saved, with any batch size, number of ranks and workers.

        Raises:
            StateError: an iteration began; the state is not one; or it is of other sources, other
                weights, another seed or `shuffle`.
        """
        if self._iteration is not None:
            raise StateError("a state is loaded before the first iteration: make a new Loader")
        self._sequence.check()
        self._key = self._sequence.key(state)

    def _start(self, stop: int | None) -> Iterator[Arrays]:
        if self._ended:
            what = "its phases" if self.epochs is None else plural(self.epochs, "epoch")
            more = "phases" if self.epochs is None else "epochs"
            raise StateError(
                f"the loader has come to the end of {what}: make a new one, or give more {more}"
            )
        self._sequence.check()
        self._iteration = token = object()
        return self._batches(token, stop)

    def _batches(self, token: object, stop: int | None) -> Iterator[Arrays]:
        steps = fetched_ahead(self._sequence, self._key, stop)
        for batch, after in self._read(steps):
            self._check(token)
            self._key = after
            yield batch
        self._check(token)
        if stop is not None:
            self._key = max(self._key, stop)  # past a tail that was dropped
            self._ended = self._end is not None and self._key >= self._end

    def _check(self, token: object) -> None:
        if self._iteration is not token:
            raise StateError("another iteration of this loader began: continue that one")

    def _read(self, steps: Iterable[Step]) -> Iterator[tuple[Arrays, int]]:
        read = partial(self._sequence.read, allocate=self._allocate)
        if not self.workers:
            yield from ((read(rows), after) for rows, after in steps)
            return
        pool = ThreadPoolExecutor(self.workers, thread_name_prefix="tokmill-loader")
        waiting: deque[Any] = deque()
        try:
            for rows, after in steps:
                waiting.append((pool.submit(read, rows), after))
                if len(waiting) > self.workers * AHEAD:
                    future, key = waiting.popleft()
                    yield future.result(), key
            while waiting:
                future, key = waiting.popleft()
                yield future.result(), key
        finally:
            pool.shutdown(cancel_futures=True)


class BatchSampler:
    """The numbers of the samples of each batch of a rank, as `batch_sampler` of torch's DataLoader.

    The order and the states are those of a `Loader` with the same arguments, and the tail of each
    epoch is dropped. An iteration is an epoch, the first one from a loaded state on. The next
    iteration is the next epoch if all batches were taken; else the same one again: a look at a
    batch is no progress. `set_epoch` names another one. The dataset of the DataLoader is the
    source; for a blend or phases, `torch.utils.data.ConcatDataset` of the attribute `sources`.
    Phases are one epoch.

    The sampler and its iterations have `state_dict()` and `load_state_dict(state)`, as torchdata's
    `StatefulDataLoader` calls them.

    Args: see `Loader`. `endless`: an iteration goes on with the next epoch, and never ends; for
        trainers that count steps and stop when a DataLoader ends, as torchtitan does.

    Example:
        >>> source = tokmill.loader.windows("out", length=1024, shift=True)  # for your own loop
        >>> sampler = tokmill.loader.BatchSampler(source, batch=16)
        >>> next(iter(sampler))
    """

    def __init__(
        self,
        sources: Any,
        batch: int | None = None,
        *,
        phases: Sequence[Phase] | str | os.PathLike[str] | None = None,
        rank: int = 0,
        world: int = 1,
        seed: int = 0,
        shuffle: bool | Literal["blocks"] = True,
        blocks: int = 16,
        endless: bool = False,
        micro_batches: int = 1,
        balance: AttentionCost | None = None,
    ) -> None:
        self._sequence = SampleSequence(
            sources, seed, shuffle, batch, rank, world, "drop", micro_batches, balance, phases,
            blocks,
        )  # fmt: skip
        lengths = [len(rows) for rows in self._sequence.rows]
        self._offsets = np.cumsum([0, *lengths[:-1]])
        self._endless = bool(endless)
        if self._endless and self._sequence.end is not None:
            raise UsageError("endless: the last phase ends: leave out its until")
        self._start = 0  # sample with which the next iteration begins
        self._newest: BatchNumbers | None = None

    @property
    def epoch(self) -> int:
        """The epoch of the next iteration, from 0."""
        return self._sequence.epoch_of(self._next())[0]

    @property
    def sampler(self) -> BatchSampler:
        """The sampler itself: Lightning and accelerate call `batch_sampler.sampler.set_epoch`."""
        return self

    @property
    def sources(self) -> list[RowSource]:
        """The sources whose rows are numbered, end to end; with phases, once for each length."""
        return list(self._sequence.rows)

    def set_epoch(self, epoch: int) -> None:
        """Begin the next iteration with an epoch, from 0; where a loaded state is in it, there.

        Frameworks call it before each epoch.

        Raises:
            UsageError: `epoch` is no whole number from 0; with phases, not 0.
        """
        first = checked_count("epoch", epoch, least=0) * self._sequence.n_samples
        if first and self._sequence.schedule is not None:
            raise UsageError(f"epoch: phases are one epoch, 0; found {epoch}: train for one epoch")
        is_begun = self._newest is not None or self.epoch != epoch
        self._newest = None
        if is_begun:
            self._start = first

    def __len__(self) -> int:
        """Return the batches of a whole epoch."""
        return self._sequence.n_batches()

    def __iter__(self) -> BatchNumbers:
        """Return the numbers of each batch of the rest of the epoch: `batch` of them."""
        self._sequence.check()
        self._start = self._next()
        stop = None if self._endless else self._sequence.end_of_epoch(self._start)
        self._newest = BatchNumbers(self._sequence, self._offsets, self._start, stop)
        return self._newest

    def state_dict(self, n_batches: int | None = None) -> dict[str, Any]:
        """Return the state after some batches of the newest iteration; see `Loader.state_dict`.

        Args:
            n_batches: that the training loop of each rank received in this iteration, from 1. The
                sampler cannot know it: workers ask for more batches ahead. None: those that were
                asked for; `StatefulDataLoader` notes this with each batch.

        Raises:
            UsageError: the iteration has fewer batches, or there was none.
        """
        if n_batches is None:
            return self._sequence.state(self._newest.key if self._newest else self._start)
        n_batches = checked_count("n_batches", n_batches, least=0)
        most, stop = 0, None
        if self._newest is not None:
            stop = self._newest.stop
            most = MOST
            if stop is not None:
                most = self._sequence.n_batches_between(self._start, stop)
        if not 1 <= n_batches <= most:
            raise UsageError(
                f"n_batches: expected the batches of this iteration that were received, 1 to "
                f"{most:,}; found {n_batches:,}: count them from the start of each iteration"
            )
        return self._sequence.state(self._sequence.after(self._start, n_batches, stop))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where a state of a sampler or a Loader was saved; see `Loader.load_state_dict`.

        Raises:
            StateError: the state is of another sequence.
        """
        self._sequence.check()
        self._start, self._newest = self._sequence.key(state), None

    def _next(self) -> int:
        """Return the sample with which the next iteration begins."""
        newest = self._newest
        if newest is not None and newest.is_finished and newest.stop is not None:
            return newest.stop
        return self._start


class BatchNumbers:
    """An iteration of a `BatchSampler`: the numbers of the samples of each batch.

    Attributes:
        key: the sample after the batches that were taken.
        stop: the sample before which it ends; None: never.
        is_finished: whether its last batch was taken.
    """

    def __init__(
        self, sequence: SampleSequence, offsets: npt.NDArray[np.int64], key: int, stop: int | None
    ) -> None:
        self._sequence, self._offsets = sequence, offsets
        self.key, self.stop, self.is_finished = key, stop, False
        self._steps = fetched_ahead(sequence, key, stop)

    def __iter__(self) -> BatchNumbers:
        return self

    def __next__(self) -> list[int]:
        """Return the numbers of the next batch."""
        try:
            rows, self.key = next(self._steps)
        except StopIteration:
            self.is_finished = True
            raise
        # Lightning, and loops over range(len(loader)), never ask for one more than there are.
        self.is_finished = self.stop is not None and self.key >= self.stop
        numbers: list[int] = (self._offsets[rows.sources] + rows.numbers).tolist()
        return numbers

    def state_dict(self) -> dict[str, Any]:
        """Return the state after the batches that were taken; see `Loader.state_dict`."""
        return self._sequence.state(self.key)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where a state was saved; raises `StateError` for one of another sequence."""
        self.key = self._sequence.key(state)
        if self.stop is not None:
            self.stop = self._sequence.end_of_epoch(self.key)
        self._steps = fetched_ahead(self._sequence, self.key, self.stop)


def tensors(batch: Mapping[str, npt.NDArray[Any]]) -> dict[str, Any]:
    """Return the arrays of a batch as tensors that share their memory; kept fields as lists."""
    import torch

    found: dict[str, Any] = {}
    for name, values in batch.items():
        found[name] = values.tolist() if values.dtype == object else torch.from_numpy(values)
    return found


def pinned_empty(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return an array in pinned memory, or in ordinary memory where torch finds no GPU.

    To be passed as `allocate`: rows are then read straight into memory from which a GPU copies
    while the program goes on (`tensor.to("cuda", non_blocking=True)`). torch keeps pinned memory
    for the next batch, and hands it out again only when such copies have ended.
    """
    import torch

    if not torch.cuda.is_available():
        return np.empty(shape, dtype)
    kind = torch.from_numpy(np.empty(0, dtype)).dtype
    found: npt.NDArray[Any] = torch.empty(shape, dtype=kind, pin_memory=True).numpy()
    return found


def collate(rows: Sequence[Arrays], *, flatten: bool = False) -> dict[str, Any]:
    """Return rows as a batch of tensors, as the `collate_fn` of a DataLoader.

    `torch.utils.data.DataLoader(source, batch_size=8, collate_fn=tokmill.loader.collate)`

    `cu_seqlens` become those of all rows, end to end: (m + 1,) int32.

    Args:
        rows: samples of one source, by name.
        flatten: the rows of the batch stand end to end in one: (1, n_tokens) instead of
            (n, length). Needed for rows of different lengths, and by models that find samples by
            their position ids, as those of Hugging Face do with FlashAttention.

    Raises:
        UsageError: the rows have different lengths, and `flatten` is not set.
    """
    lengths = [len(row["input_ids"]) for row in rows]
    if not flatten and len(set(lengths)) > 1:
        raise UsageError(
            f"rows of {min(lengths):,} to {max(lengths):,} tokens do not stack: "
            "collate them with flatten=True"
        )
    batch: Arrays = {}
    for name in rows[0]:
        values = [row[name] for row in rows]
        if values[0].dtype == object:  # a kept field: a value for each document
            lists = [own.tolist() for own in values]
            batch[name] = as_objects([list(chain.from_iterable(lists))] if flatten else lists)
        elif name == COLUMN_IDS and flatten:
            fields = [one for one in rows[0] if rows[0][one].dtype == object]
            batch[name] = end_to_end(values, [len(row[fields[0]]) for row in rows])[None]
        elif name == "cu_seqlens":
            starts = np.cumsum(lengths) - lengths
            ends = [own[1:] + start for own, start in zip(values, starts, strict=True)]
            joined = np.concatenate([[0], *ends]).astype(np.int32)
            batch[name] = end_repeated(np.unique(joined), len(joined))
        else:
            batch[name] = np.concatenate(values)[None] if flatten else np.stack(values)
    return tensors(batch)
