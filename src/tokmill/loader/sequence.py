"""The samples of a loader as one sequence: where each is, the batches of a rank, and a state."""

from __future__ import annotations

import hashlib
import json
import operator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokmill.dataset.identity import algorithm_of
from tokmill.errors import StateError, UsageError
from tokmill.loader.balance import AttentionCost, Balance, deal, least_step_cost, step_cost
from tokmill.loader.order import AT_ONCE, MOST, Blend, shuffled
from tokmill.loader.source import IGNORED, RowSource, checked_count, cu_seqlens
from tokmill.words import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from tokmill.loader.source import Arrays, Rows

    Step = tuple["Located", int]
    """The rows of a batch of this rank, and the key of the sample after the global batch."""

PADDING = -1
"""The key of a row that is no sample."""


class Located(NamedTuple):
    """Rows to read: source, number in the source, and whether the row is padding; (n,) each."""

    sources: NDArray[np.int64]
    numbers: NDArray[np.int64]
    is_padding: NDArray[np.bool_]

    def part(self, own: Rows) -> Located:
        """Return some of the rows."""
        return Located(self.sources[own], self.numbers[own], self.is_padding[own])


class SampleSequence:
    """The samples of one source or of a blend, in their order, without end; and a rank's batches.

    Sample k of the sequence is sample c of source s (see `Blend`). It is in epoch c // n_s of the
    source, at position c % n_s of the order of that epoch. So each source has epochs of its own,
    each in another order. Arguments and `UsageError` are those of `Loader`.

    Attributes:
        n_samples: samples of all sources together: an epoch of the sequence.
        shares: samples of each source in a period of the blend.
        fingerprint: what decides the sequence, except the seed: the algorithm of the sums of the
            files, `:`, and a sha256.
        n_global: samples in a batch of all ranks: those of a step.
        micro_batches: batches of a rank in a step.
        cost: by which the rows of a global batch are dealt; None: they are dealt in order.
        pads: whether a last batch is padded; otherwise the tail of an epoch is left out.
    """

    def __init__(
        self,
        sources: Any,
        seed: int,
        shuffle: bool,
        batch: int,
        rank: int,
        world: int,
        tail: str,
        micro_batches: int = 1,
        balance: AttentionCost | None = None,
    ) -> None:
        self.sources, weights = _with_weights(sources)
        self.seed, self.shuffle = checked_count("seed", seed, least=0), bool(shuffle)
        self._blend = Blend(weights)
        n_names = [len(source.source_names) for source in self.sources]
        self._first_names = np.cumsum([0, *n_names[:-1]])
        self.shares = self._blend.counts
        self._lengths = [len(source) for source in self.sources]
        self.n_samples = sum(self._lengths)
        if not 1 <= min(self._lengths) <= self.n_samples <= MOST:
            raise UsageError(f"sources of {self._lengths} samples: expected 1 to 2^62 together")
        if len(self.sources) > 1:
            _check_alike(self.sources)
        made_of = [one.fingerprint for one in self.sources]
        decisive = [made_of, self._lengths, self.shares, self.shuffle]
        algorithms = sorted({algorithm_of(one.identity) for one in self.sources})
        digest = hashlib.sha256(json.dumps(decisive).encode()).hexdigest()
        self.fingerprint = f"{'+'.join(algorithms)}:{digest}"
        shuffled([0], 1, seed=self.seed)  # refuses a wrong seed here, not with the first batch
        self.batch, self.world = checked_count("batch", batch), checked_count("world", world)
        self.rank = checked_count("rank", rank, least=0)
        if self.rank >= self.world:
            raise UsageError(f"rank {self.rank} of {plural(self.world, 'rank')}: expected less")
        if tail not in ("drop", "pad"):
            raise UsageError(f"tail: expected drop or pad, found {tail!r}")
        self.micro_batches = checked_count("micro_batches", micro_batches)
        self.pads = tail == "pad"
        self.n_global = self.batch * self.world * self.micro_batches
        if self.pads and not all(source.padded for source in self.sources):
            raise UsageError('tail="pad": rows have different lengths; use tail="drop"')
        if not self.pads and self.n_samples < self.n_global:
            raise UsageError(
                f"{plural(self.n_samples, 'sample')}, fewer than a global batch of "
                f"{self.n_global:,}: every epoch would be dropped; use a smaller batch, or "
                'tail="pad"'
            )
        self.cost = _checked_balance(balance)
        for source in self.sources if self.cost is not None else ():
            source.segment_sums([])  # refuses rows whose costs nobody knows

    @property
    def batches_per_epoch(self) -> int:
        """Return the batches of a whole epoch, with its tail."""
        return self.n_batches(1)

    def n_batches(self, epochs: int) -> int:
        """Return the batches of whole epochs; those of a blend have one tail, at their end."""
        if len(self.shares) == 1:
            return epochs * self._steps_in(self.n_samples) * self.micro_batches
        return self._steps_in(epochs * self.n_samples) * self.micro_batches

    def _steps_in(self, n_samples: int) -> int:
        """Return the steps of so many samples; too few for another one are padded or dropped."""
        n_whole, n_left = divmod(n_samples, self.n_global)
        return n_whole + 1 if n_left and self.pads else n_whole

    def end_of_epoch(self, key: int) -> int:
        """Return where the epoch of a sample ends; of the next one, if no batch is left in it."""
        end = (key // self.n_samples + 1) * self.n_samples
        is_tail = not self.pads and end - key < self.n_global
        return end + self.n_samples if is_tail else end

    def after(self, key: int, n_batches: int, stop: int | None) -> int:
        """Return the sample after some batches from `key` on; see `steps`."""
        n_steps = n_batches // self.micro_batches
        if len(self.shares) == 1:
            n_left = self._steps_in(self.n_samples - key % self.n_samples)
            if n_steps > n_left:
                n_epochs, n_steps = divmod(n_steps - n_left, self._steps_in(self.n_samples))
                key = (key // self.n_samples + 1 + n_epochs) * self.n_samples
        return self._past_tail(key + n_steps * self.n_global, stop)

    def _past_tail(self, key: int, stop: int | None) -> int:
        """Return a key; where only a tail follows that is dropped, the end of the tail."""
        end = stop
        if len(self.shares) == 1:
            end = (key // self.n_samples + 1) * self.n_samples
        if self.pads or end is None or end - key >= self.n_global:
            return key
        return end

    def check(self) -> None:
        """Check that the datasets of all sources are those that were opened; see `Source.check`."""
        for source in self.sources:
            source.check()

    def state(self, key: int) -> dict[str, Any]:
        """Return the state before sample `key`: `fingerprint`, `seed`, `epoch`, `samples_seen`."""
        epoch, seen = divmod(key, self.n_samples)
        return {
            "fingerprint": self.fingerprint, "seed": self.seed,
            "epoch": epoch, "samples_seen": seen,
        }  # fmt: skip

    def key(self, state: Mapping[str, Any]) -> int:
        """Return the number of the next sample at a state.

        Raises:
            StateError: it is no state; or it is of other sources, other weights, another seed or
                `shuffle`.
        """
        try:
            epoch, seen = (operator.index(state[name]) for name in ("epoch", "samples_seen"))
            found = {name: state[name] for name in ("fingerprint", "seed")}
        except (KeyError, TypeError, ValueError) as error:
            raise StateError(
                f"no state of a Loader: {error}; expected fingerprint, seed, epoch, samples_seen"
            ) from None
        for name, expected in (("fingerprint", self.fingerprint), ("seed", self.seed)):
            if found[name] != expected:
                why = "changed"
                if name == "fingerprint":
                    why = _why_other(str(found[name]), self.fingerprint)
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
        return self._past_tail(key, None)

    def steps(self, key: int, stop: int | None) -> Iterator[Step]:
        """Yield the rows of each batch, and the key of the next sample after it.

        After a micro batch that is not the last of its step, it is that before the step. Many
        batches are located together, which is cheaper.
        """
        places = self._places()
        together = max(1, AT_ONCE // len(places))
        while stop is None or key < stop:
            # Samples up to the next end whose tail is dropped or padded.
            left = MOST if stop is None else stop - key
            if len(self.shares) == 1:
                left = self.n_samples - key % self.n_samples
            count, n_steps = self.n_global, min(together, left // self.n_global)
            if n_steps:
                firsts = key + np.arange(n_steps) * count
                keys = firsts[:, None] + places
            elif self.pads:
                offsets = self._places(is_tail=True)
                keys = np.where(offsets < left, key + offsets, PADDING)
                count, n_steps = left, 1
            else:
                key += left
                continue
            rows = self._dealt(self.locate(keys.reshape(-1)))
            for number in range(1, n_steps * self.micro_batches + 1):
                own = slice((number - 1) * self.batch, number * self.batch)
                if number % self.micro_batches == 0:
                    key = self._past_tail(key + count, stop)
                yield rows.part(own), key

    def _places(self, *, is_tail: bool = False) -> NDArray[np.int64]:
        """Return the places in a global batch of the rows of this rank, micro batch by micro batch.

        Where rows are dealt by their cost, they are all places: every rank looks at all rows.
        """
        places = np.arange(self.n_global)
        if self.cost is not None:
            return places
        if is_tail:  # a tail is dealt out so that all ranks share it
            in_turn = places.reshape(self.batch, self.micro_batches, self.world)
            return in_turn[:, :, self.rank].T.reshape(-1)
        in_order = places.reshape(self.micro_batches, self.world, self.batch)
        return in_order[:, self.rank].reshape(-1)

    def _dealt(self, rows: Located) -> Located:
        """Return the rows of this rank, of those at `_places` of some global batches."""
        if self.cost is None:
            return rows
        own = []
        for start in range(0, len(rows.numbers), self.n_global):
            costs = self.costs(rows.part(slice(start, start + self.n_global)), self.cost)
            of_rank = deal(costs, self.world, self.micro_batches)[:, self.rank]
            own.append(start + of_rank.reshape(-1))
        return rows.part(np.concatenate(own))

    def balance(self, key: int, cost: AttentionCost | None, n_batches: int) -> Balance:
        """Return how even the next global batches are, at most those of an epoch; see `Loader`."""
        cost = _checked_balance(cost) or self.cost or AttentionCost()
        n_steps = min(n_batches, max(1, self.n_samples // self.n_global))
        shares = np.zeros(3)  # before, after and bound, of a step of equal batches
        for number in range(n_steps):
            keys = key + number * self.n_global + np.arange(self.n_global)
            costs = self.costs(self.locate(keys), cost)
            in_order = np.arange(self.n_global).reshape(self.micro_batches, self.world, -1)
            dealt = deal(costs, self.world, self.micro_batches)
            before, after = step_cost(costs, in_order), step_cost(costs, dealt)
            bound = least_step_cost(costs, self.world, self.micro_batches)
            shares += np.array([before, after, bound]) * self.world / costs.sum()
        before, after, bound = (shares / n_steps).tolist()
        return Balance(before, after, bound, n_steps)

    def costs(self, rows: Located, cost: AttentionCost) -> NDArray[np.int64]:
        """Return the costs of the rows of a global batch: (n,); a row of padding is one document.

        Raises:
            UsageError: a source does not know the documents of its rows.
        """
        length = self.sources[0].length
        tokens, squares = np.full((2, len(rows.numbers)), length, np.int64)
        squares *= length
        for number in np.unique(rows.sources).tolist():
            own = np.flatnonzero((rows.sources == number) & ~rows.is_padding)
            tokens[own], squares[own] = self.sources[number].segment_sums(rows.numbers[own])
        return cost.of_rows(tokens, squares)

    def locate(self, keys: NDArray[np.int64]) -> Located:
        """Return where samples are.

        Args:
            keys: numbers of samples in the sequence, or `PADDING`: (n,) int64.
        """
        is_padding = keys == PADDING
        sources, numbers = self._blend.place(np.where(is_padding, 0, keys))
        for stream, n in enumerate(self._lengths):
            own = np.flatnonzero(sources == stream)
            if not len(own):
                continue
            epochs, positions = np.divmod(numbers[own], n)
            if self.shuffle:
                epoch = epochs[0] if (epochs == epochs[0]).all() else epochs
                positions = shuffled(positions, n, seed=self.seed, epoch=epoch, stream=stream)
            numbers[own] = positions
        return Located(sources, numbers, is_padding)

    def read(self, rows: Located, allocate: Callable[..., Any] | None = None) -> Arrays:
        """Return rows as a batch; if batches are padded, also `is_padding`.

        A row that is padding reads a sample, for the shape of its arrays, and is overwritten.
        """
        batch = self._rows(rows, allocate)
        if self.pads:
            _hide(batch, rows.is_padding, self.sources[0].pad_id)
            if "cu_seqlens" in batch:
                batch["cu_seqlens"] = cu_seqlens(batch["position_ids"])
            batch["is_padding"] = rows.is_padding
        return batch

    @property
    def source_names(self) -> tuple[str, ...]:
        """Return the names that `source_ids` of batches number: those of all sources, in order."""
        return tuple(name for source in self.sources for name in source.source_names)

    def _rows(self, rows: Located, allocate: Callable[..., Any] | None) -> Arrays:
        first = int(rows.sources[0])
        if (rows.sources == first).all():
            batch = self.sources[first].batch(rows.numbers, allocate)
            self._number_sources(batch, first, slice(None))
            return batch
        into = self.sources[first].empty(len(rows.numbers), allocate)
        for number in np.unique(rows.sources).tolist():
            own = np.flatnonzero(rows.sources == number)
            self.sources[number].fill(rows.numbers[own], into, own)
            self._number_sources(into, number, own)
        if self.sources[first].has_cu_seqlens:
            into["cu_seqlens"] = cu_seqlens(into["position_ids"])
        return into

    def _number_sources(self, batch: Arrays, number: int, rows: Rows) -> None:
        """Change the source ids of rows of a source into places in `source_names`."""
        if self._first_names[number]:
            ids = batch["source_ids"][rows]
            batch["source_ids"][rows] = np.where(ids < 0, ids, ids + self._first_names[number])


def _checked_balance(balance: AttentionCost | None) -> AttentionCost | None:
    if balance is None or isinstance(balance, AttentionCost):
        return balance
    raise UsageError(
        f"balance: expected tokmill.loader.AttentionCost(), or None for rows in order; found "
        f"{balance!r}"
    )


def _why_other(found: str, expected: str) -> str:
    """Return why a state may be of another sequence, by its fingerprint and the one here."""
    saved, here = algorithm_of(found), algorithm_of(expected)
    if saved != here:
        return f"files have sums of {saved} there, of {here} here: they cannot be compared"
    return "sources, weights or shuffle changed"


def _with_weights(sources: Any) -> tuple[list[RowSource], list[Any]]:
    pairs = sources if isinstance(sources, list | tuple) else [(sources, 1)]
    if not pairs or any(not isinstance(one, list | tuple) or len(one) != 2 for one in pairs):
        raise UsageError("sources: expected one source, or a list of (source, weight)")
    found, weights = [one for one, _ in pairs], [weight for _, weight in pairs]
    for one in found:
        if not isinstance(one, RowSource):
            raise UsageError(
                f"{one!r}: its samples have no common length to make batches of; "
                "expected windows or packs"
            )
    return found, weights


def _check_alike(sources: Sequence[RowSource]) -> None:
    """Check that rows of all sources can stand in one batch."""

    def looks(source: RowSource) -> dict[str, Any]:
        if not source.padded:
            raise UsageError(f"{source!r}: rows of different lengths cannot be blended")
        return {
            "length": source.length, "shift": source.shift, "cu_seqlens": source.has_cu_seqlens,
            "keys": " ".join(source.dtypes),
        }  # fmt: skip

    expected = looks(sources[0])
    for source in sources[1:]:
        found = looks(source)
        for name, value in expected.items():
            if found[name] != value:
                raise UsageError(
                    f"{source!r}: {name} is {found[name]}, but {value} in {sources[0]!r}; "
                    "rows of a blend are alike"
                )
        probes = source.probe_ids, sources[0].probe_ids
        if all(probes) and probes[0] != probes[1]:
            raise UsageError(
                f"{source!r}: made with another tokenizer than {sources[0]!r}: the same ids would "
                "mean other text"
            )


def _hide(batch: Arrays, rows: NDArray[np.bool_], pad_id: int) -> None:
    """Overwrite padded rows: no target, one segment."""
    hidden = {
        "input_ids": pad_id, "labels": IGNORED, "weights": 0, "mask": 0, "document_ids": -1,
        "source_ids": -1,
    }  # fmt: skip
    for name, value in hidden.items():
        if name in batch:
            batch[name][rows] = value
    if "position_ids" in batch:
        batch["position_ids"][rows] = np.arange(batch["position_ids"].shape[1])
