"""The samples of a loader as one sequence: where each is, the batches of a rank, and a state."""

from __future__ import annotations

import hashlib
import json
import operator
from bisect import bisect_right
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokmill.dataset.identity import algorithm_of
from tokmill.errors import StateError, UsageError
from tokmill.loader.balance import AttentionCost, Balance, deal, least_step_cost, step_cost
from tokmill.loader.block_order import BlockOrder
from tokmill.loader.kept_fields import as_objects
from tokmill.loader.order import AT_ONCE, MOST, Blend, shuffled
from tokmill.loader.phases import schedule
from tokmill.loader.segments import Member, Segment
from tokmill.loader.source import IGNORED, RowSource, checked_count
from tokmill.words import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from tokmill.loader.phases import Schedule
    from tokmill.loader.source import Arrays, Rows

    Step = tuple["Located", int]
    """The rows of a batch of this rank, and the key of the sample after the global batch."""

BLOCKS = "blocks"
"""The value of `shuffle` that mixes rows of some shards at a time."""

PADDING = -1
"""The key of a row that is no sample."""


class Located(NamedTuple):
    """Rows to read: (n,) each.

    `sources`: place of their source, in the length of the segment, among the rows of the sequence.
    `numbers`: in it. `is_padding`: whether the row is padding.
    """

    sources: NDArray[np.int64]
    numbers: NDArray[np.int64]
    is_padding: NDArray[np.bool_]

    def part(self, own: Rows) -> Located:
        """Return some of the rows."""
        return Located(self.sources[own], self.numbers[own], self.is_padding[own])


class SampleSequence:
    """The samples of sources in their order, and a rank's batches of them.

    Sample k of a blend is sample c of source s (see `Blend`). It is in epoch c // n_s of the
    source, at position c % n_s of the order of that epoch. So each source has epochs of its own,
    each in another order. Phases are several blends, one after the other (see `segments`).
    Arguments and `UsageError` are those of `Loader`.

    Attributes:
        sources: all of them.
        rows: the sources in each row length in which they are read; without phases, the sources.
        n_samples: samples of all sources together: an epoch of the sequence. Phases are one epoch,
            which has as many samples as all of them; 2^62, if the last one has no end.
        end: where the sequence ends by itself: that of the last phase; None without one.
        fingerprint: what decides the sequence, except the seed: the algorithm of the sums of the
            files, `:`, and a sha256.
        micro_batches: batches of a rank in a step, which is a global batch.
        cost: by which the rows of a global batch are dealt; None: they are dealt in order.
        pads: whether a last batch is padded; otherwise the tail of an epoch is left out.
        schedule: of phases; None without.
    """

    def __init__(
        self,
        sources: Any,
        seed: int,
        shuffle: bool | str,
        batch: int | None,
        rank: int,
        world: int,
        tail: str,
        micro_batches: int = 1,
        balance: AttentionCost | None = None,
        phases: Any = None,
        blocks: int = 16,
    ) -> None:
        self.seed = checked_count("seed", seed, least=0)
        self.shuffle, self._blocks = _checked_shuffle(shuffle, blocks), blocks
        shuffled([0], 1, seed=self.seed)  # refuses a wrong seed here, not with the first batch
        self.world, self.rank = checked_count("world", world), checked_count("rank", rank, least=0)
        if self.rank >= self.world:
            raise UsageError(f"rank {self.rank} of {plural(self.world, 'rank')}: expected less")
        if tail not in ("drop", "pad"):
            raise UsageError(f"tail: expected drop or pad, found {tail!r}")
        self.micro_batches = checked_count("micro_batches", micro_batches)
        self.pads = tail == "pad"
        self.schedule: Schedule | None = None
        self.end: int | None = None
        if phases is None:
            self._blend_sources(sources, batch)
        else:
            self._take_phases(sources, phases, batch)
        n_names = [len(source.source_names) for source in self.sources]
        first_names = [0, *np.cumsum(n_names).tolist()]
        self._first_names = [first_names[source] for source in self._source_of_rows]
        self._firsts = [segment.first for segment in self._segments]
        if len(self.sources) > 1:
            _check_alike(self.sources, with_length=phases is None)
        self.cost = _checked_balance(balance)
        for source in self.sources if self.cost is not None else ():
            source.segment_sums([])  # refuses rows whose costs nobody knows

    def _blend_sources(self, sources: Any, batch: int | None) -> None:
        """Take sources with one blend, which is one segment without end."""
        self.sources, weights = _with_weights(sources)
        self.rows, self._source_of_rows = self.sources, list(range(len(self.sources)))
        blend = Blend(weights)
        lengths = [len(source) for source in self.sources]
        self.n_samples = sum(lengths)
        if not 1 <= min(lengths) <= self.n_samples <= MOST:
            raise UsageError(f"sources of {lengths} samples: expected 1 to 2^62 together")
        made_of = [one.fingerprint for one in self.sources]
        decisive = [made_of, lengths, blend.counts, self.shuffle]
        algorithms = sorted({algorithm_of(one.identity) for one in self.sources})
        digest = hashlib.sha256(json.dumps(decisive).encode()).hexdigest()
        self.fingerprint = f"{'+'.join(algorithms)}:{digest}"
        n_global = checked_count("batch", batch) * self.world * self.micro_batches
        if self.pads and not all(source.padded for source in self.sources):
            raise UsageError('tail="pad": rows have different lengths; use tail="drop"')
        if not self.pads and self.n_samples < n_global:
            raise UsageError(
                f"{plural(self.n_samples, 'sample')}, fewer than a global batch of "
                f"{n_global:,}: every epoch would be dropped; use a smaller batch, or "
                'tail="pad"'
            )
        members = tuple(
            Member(place, place, len(source), blocks=self._block_order(source))
            for place, source in enumerate(self.sources)
        )
        self._segments = [Segment(0, 0, None, n_global, blend, members)]

    def _block_order(self, source: RowSource) -> BlockOrder | None:
        """Return the order of a source's rows in blocks; None if it is another one."""
        if isinstance(self.shuffle, bool):
            return None
        return BlockOrder(source.block_starts(), len(source), self._blocks)

    def _take_phases(self, sources: Any, phases: Any, batch: int | None) -> None:
        """Take phases, each of which is a segment."""
        if batch is not None:
            raise UsageError("batch: phases have their own, of all ranks together: leave it out")
        if self.pads:
            raise UsageError('tail="pad": phases have whole batches, and no tail: leave it out')
        found = self.schedule = schedule(
            sources, phases, shuffle=self.shuffle, order_of=self._block_order
        )
        self.sources, self.rows = found.sources, found.rows
        self._source_of_rows, self._segments = found.source_of_rows, found.segments
        self.end = self._segments[-1].stop
        self.n_samples = MOST if self.end is None else self.end
        digest = hashlib.sha256(json.dumps(found.records).encode()).hexdigest()
        algorithms = sorted({algorithm_of(record.sources) for record in found.records})
        self.fingerprint = f"{'+'.join(algorithms)}:{digest}"

    def segment(self, key: int) -> Segment:
        """Return the segment of a sample; after the last sample, the last one."""
        return self._segments[bisect_right(self._firsts, key) - 1]

    def epoch_of(self, key: int) -> tuple[int, int]:
        """Return the epoch of a sample, and the samples of that epoch before it."""
        return (0, key) if self.schedule is not None else divmod(key, self.n_samples)

    def _border(self, key: int) -> int | None:
        """Return where the next batches end at the latest, by the phase or the epoch of a sample.

        Batches of a blend cross from one epoch into the next.
        """
        if self.schedule is not None:
            return self.segment(key).stop
        if len(self.sources) == 1:
            return (key // self.n_samples + 1) * self.n_samples
        return None

    def n_batches(self, epochs: int = 1) -> int:
        """Return the batches of whole epochs; those of a blend have one tail, at their end.

        Raises:
            TypeError: the last phase never ends.
        """
        if self.schedule is not None:
            if self.end is None:
                raise TypeError("the last phase never ends, so there is no len: give it an until")
            return self.n_batches_between(0, self.end)
        if len(self.sources) == 1:
            return epochs * self._steps_in(self.n_samples) * self.micro_batches
        return self._steps_in(epochs * self.n_samples) * self.micro_batches

    def n_batches_between(self, key: int, stop: int) -> int:
        """Return the whole batches from `key` to `stop`, which are in one epoch."""
        n_steps = 0
        while (border := self.segment(key).stop) is not None and border < stop:
            n_steps += (border - key) // self.segment(key).n_global
            key = border
        return (n_steps + (stop - key) // self.segment(key).n_global) * self.micro_batches

    def _steps_in(self, n_samples: int) -> int:
        """Return the steps of so many samples; too few for another one are padded or dropped."""
        n_whole, n_left = divmod(n_samples, self._segments[0].n_global)
        return n_whole + 1 if n_left and self.pads else n_whole

    def end_of_epoch(self, key: int) -> int | None:
        """Return where the epoch of a sample ends; of the next one, if no batch is left in it.

        The end of phases is that of the last one; None: they never end.
        """
        if self.schedule is not None:
            return self.end
        end = (key // self.n_samples + 1) * self.n_samples
        is_tail = not self.pads and end - key < self._segments[0].n_global
        return end + self.n_samples if is_tail else end

    def after(self, key: int, n_batches: int, stop: int | None) -> int:
        """Return the sample after some batches from `key` on; see `steps`."""
        n_steps = n_batches // self.micro_batches
        if self.schedule is None and len(self.sources) == 1:
            n_left = self._steps_in(self.n_samples - key % self.n_samples)
            if n_steps > n_left:
                n_epochs, n_steps = divmod(n_steps - n_left, self._steps_in(self.n_samples))
                key = (key // self.n_samples + 1 + n_epochs) * self.n_samples
        segment = self.segment(key)
        while segment.stop is not None and key + n_steps * segment.n_global > segment.stop:
            n_steps -= (segment.stop - key) // segment.n_global
            key = segment.stop
            segment = self.segment(key)
        return self._past_tail(key + n_steps * segment.n_global, stop)

    def _past_tail(self, key: int, stop: int | None) -> int:
        """Return a key; where only a tail follows that is dropped, the end of the tail."""
        border = self._border(key)
        end = stop if border is None else border
        if self.pads or end is None or end - key >= self.segment(key).n_global:
            return key
        return end

    def check(self) -> None:
        """Check that the datasets of all sources are those that were opened; see `Source.check`."""
        for source in self.sources:
            source.check()

    def state(self, key: int) -> dict[str, Any]:
        """Return the state before sample `key`: `fingerprint`, `seed`, `epoch`, `samples_seen`.

        With phases: `seed`, `phases` and `samples_seen`; `phases` are those that began.
        """
        if self.schedule is not None:
            begun = [record._asdict() for record in self.schedule.begun(key)]
            return {"seed": self.seed, "phases": begun, "samples_seen": key}
        epoch, seen = divmod(key, self.n_samples)
        return {
            "fingerprint": self.fingerprint, "seed": self.seed,
            "epoch": epoch, "samples_seen": seen,
        }  # fmt: skip

    def key(self, state: Mapping[str, Any]) -> int:
        """Return the number of the next sample at a state.

        Raises:
            StateError: it is no state; or it is of other sources, other weights, another seed or
                `shuffle`; or a phase has begun that is another one here.
        """
        if self.schedule is not None:
            return self._key_in_phases(self.schedule, state)
        if "phases" in state:
            raise StateError("state of phases: make the Loader with phases=…")
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

    def _key_in_phases(self, schedule: Schedule, state: Mapping[str, Any]) -> int:
        """Return the number of the next sample at a state of phases; see `key`."""
        try:
            key = operator.index(state["samples_seen"])
            seed, begun = state["seed"], [dict(one) for one in state["phases"]]
        except (KeyError, TypeError, ValueError) as error:
            raise StateError(
                f"no state of a Loader with phases: {error}; expected seed, phases, samples_seen"
            ) from None
        if seed != self.seed:
            raise StateError(
                f"state of another sequence: seed {seed} in the state, {self.seed} here; go on "
                "with what it was saved with, or without the state"
            )
        schedule.check_begun(begun)
        segment = self.segment(max(0, key - 1))  # of the last sample that was received
        stop = key if segment.stop is None else segment.stop
        is_whole = (key - segment.first) % segment.n_global == 0
        if not (
            0 <= key <= min(stop, MOST) and is_whole and len(begun) == len(schedule.begun(key))
        ):
            raise StateError(
                f"state: samples_seen {key}; expected whole batches of the phases that it "
                f"says to have begun, {len(begun)}"
            )
        return key

    def steps(self, key: int, stop: int | None) -> Iterator[Step]:
        """Yield the rows of each batch, and the key of the next sample after it.

        After a micro batch that is not the last of its step, it is that before the step. Many
        batches are located together, which is cheaper.
        """
        self._check_shared(key)
        while stop is None or key < stop:
            segment = self.segment(key)
            places = self._places(segment)
            # Samples up to the next end whose tail is dropped or padded.
            border = self._border(key)
            end = stop if border is None else border
            left = MOST if end is None else end - key
            count = segment.n_global
            n_steps = min(max(1, AT_ONCE // len(places)), left // count)
            if n_steps:
                firsts = key + np.arange(n_steps) * count
                keys = firsts[:, None] + places
            elif self.pads:
                offsets = self._places(segment, is_tail=True)
                keys = np.where(offsets < left, key + offsets, PADDING)
                count, n_steps = left, 1
            else:
                key += left
                continue
            rows = self._dealt(segment, self.locate(segment, keys.reshape(-1)))
            batch = self.batch(segment)
            for number in range(1, n_steps * self.micro_batches + 1):
                own = slice((number - 1) * batch, number * batch)
                if number % self.micro_batches == 0:
                    key = self._past_tail(key + count, stop)
                yield rows.part(own), key

    def _check_shared(self, key: int) -> None:
        """Check that the ranks can share the batches of all phases from `key` on.

        Phases that have ended may have been shared by another number of ranks.
        """
        for segment in self._segments[self.segment(key).number :]:
            if segment.n_global % (self.world * self.micro_batches):
                shared = plural(self.world, "rank")
                if self.micro_batches > 1:
                    shared += f" x {self.micro_batches} micro_batches"
                raise UsageError(
                    f"phase {segment.number + 1}: batch {segment.n_global:,} is no multiple of "
                    f"{shared}, which share it: change their number"
                )

    def batch(self, segment: Segment) -> int:
        """Return the samples in a batch of a rank."""
        return segment.n_global // (self.world * self.micro_batches)

    def _places(self, segment: Segment, *, is_tail: bool = False) -> NDArray[np.int64]:
        """Return the places in a global batch of the rows of this rank, micro batch by micro batch.

        Where rows are dealt by their cost, they are all places: every rank looks at all rows.
        """
        places = np.arange(segment.n_global)
        if self.cost is not None:
            return places
        if is_tail:  # a tail is dealt out so that all ranks share it
            in_turn = places.reshape(-1, self.micro_batches, self.world)
            return in_turn[:, :, self.rank].T.reshape(-1)
        in_order = places.reshape(self.micro_batches, self.world, -1)
        return in_order[:, self.rank].reshape(-1)

    def _dealt(self, segment: Segment, rows: Located) -> Located:
        """Return the rows of this rank, of those at `_places` of some global batches."""
        if self.cost is None:
            return rows
        own = []
        for start in range(0, len(rows.numbers), segment.n_global):
            costs = self.costs(rows.part(slice(start, start + segment.n_global)), self.cost)
            of_rank = deal(costs, self.world, self.micro_batches)[:, self.rank]
            own.append(start + of_rank.reshape(-1))
        return rows.part(np.concatenate(own))

    def balance(self, key: int, cost: AttentionCost | None, n_batches: int) -> Balance:
        """Return how even the next global batches are, at most those of an epoch; see `Loader`.

        With phases, at most those of the phase.
        """
        cost = _checked_balance(cost) or self.cost or AttentionCost()
        self._check_shared(key)
        segment = self.segment(key)
        n_global = segment.n_global
        n_left = max(1, self.n_samples // n_global)
        if segment.stop is not None:
            n_left = (segment.stop - key) // n_global
        if not n_left:
            raise UsageError("balance: the loader is at the end of its phases: make a new one")
        n_steps = min(n_batches, n_left)
        shares = np.zeros(3)  # before, after and bound, of a step of equal batches
        for number in range(n_steps):
            keys = key + number * n_global + np.arange(n_global)
            costs = self.costs(self.locate(segment, keys), cost)
            in_order = np.arange(n_global).reshape(self.micro_batches, self.world, -1)
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
        length = self.rows[int(rows.sources[0])].length
        tokens, squares = np.full((2, len(rows.numbers)), length, np.int64)
        squares *= length
        for number in np.unique(rows.sources).tolist():
            own = np.flatnonzero((rows.sources == number) & ~rows.is_padding)
            tokens[own], squares[own] = self.rows[number].segment_sums(rows.numbers[own])
        return cost.of_rows(tokens, squares)

    def locate(self, segment: Segment, keys: NDArray[np.int64]) -> Located:
        """Return where samples are.

        Args:
            segment: in which they are.
            keys: numbers of samples in the sequence, or `PADDING`: (n,) int64.
        """
        is_padding = keys == PADDING
        real = np.where(is_padding, segment.first, keys)
        return Located(*segment.locate(real, self.seed, self.shuffle), is_padding)

    def read(self, rows: Located, allocate: Callable[..., Any] | None = None) -> Arrays:
        """Return rows as a batch; if batches are padded, also `is_padding`.

        A row that is padding reads a sample, for the shape of its arrays, and is overwritten.
        """
        batch = self._rows(rows, allocate)
        if self.pads:
            _hide(batch, rows.is_padding, self.sources[0])
            if "cu_seqlens" in batch:
                positions = batch["position_ids"]
                batch["cu_seqlens"] = self.sources[0].cu_seqlens(positions, len(positions))
            batch["is_padding"] = rows.is_padding
        return batch

    @property
    def source_names(self) -> tuple[str, ...]:
        """Return the names that `source_ids` of batches number: those of all sources, in order."""
        return tuple(name for source in self.sources for name in source.source_names)

    def _rows(self, rows: Located, allocate: Callable[..., Any] | None) -> Arrays:
        first = int(rows.sources[0])
        if (rows.sources == first).all():
            batch = self.rows[first].batch(rows.numbers, allocate)
            self._number_sources(batch, first, slice(None))
            return batch
        into = self.rows[first].empty(len(rows.numbers), allocate)
        for number in np.unique(rows.sources).tolist():
            own = np.flatnonzero(rows.sources == number)
            self.rows[number].fill(rows.numbers[own], into, own)
            self._number_sources(into, number, own)
        if self.rows[first].has_cu_seqlens:
            positions = into["position_ids"]
            into["cu_seqlens"] = self.rows[first].cu_seqlens(positions, len(positions))
        return into

    def _number_sources(self, batch: Arrays, number: int, rows: Rows) -> None:
        """Change the source ids of rows of a source into places in `source_names`."""
        first = self._first_names[number]
        if first:
            ids = batch["source_ids"][rows]
            batch["source_ids"][rows] = np.where(ids < 0, ids, ids + first)


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


def _checked_shuffle(shuffle: object, blocks: int) -> bool | str:
    """Return how samples are shuffled, as a part of the fingerprint; raises `UsageError`."""
    if isinstance(shuffle, bool):
        return shuffle
    if shuffle != BLOCKS:
        raise UsageError(f"shuffle: expected True, False or {BLOCKS!r}, found {shuffle!r}")
    return f"{BLOCKS} {checked_count('blocks', blocks)}"


def _with_weights(sources: Any) -> tuple[list[RowSource], list[Any]]:
    if isinstance(sources, Mapping):
        raise UsageError(
            "sources by name have phases: give phases=…, or a list of (source, weight)"
        )
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


def _check_alike(sources: Sequence[RowSource], *, with_length: bool) -> None:
    """Check that rows of all sources can stand in one batch.

    `with_length`: also that they are as long; phases cut them to their own length.
    """

    def looks(source: RowSource) -> dict[str, Any]:
        if not source.padded:
            raise UsageError(f"{source!r}: rows of different lengths cannot be blended")
        length = {"length": source.length} if with_length else {}
        return {
            **length, "shift": source.shift, "cu_seqlens": source.has_cu_seqlens,
            "max_segments": source.max_segments,
            "keys": " ".join([*source.dtypes, *source.columns]),
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


def _hide(batch: Arrays, rows: NDArray[np.bool_], source: RowSource) -> None:
    """Overwrite padded rows: no target, one segment, no fields of documents."""
    hidden = {
        "input_ids": source.pad_id, "labels": IGNORED, "weights": 0, "mask": 0, "document_ids": -1,
        "source_ids": -1, "column_ids": -1,
    }  # fmt: skip
    for name, value in hidden.items():
        if name in batch:
            batch[name][rows] = value
    for name in source.columns:
        batch[name][rows] = as_objects([[] for _ in range(int(rows.sum()))])
    if "position_ids" in batch:
        batch["position_ids"][rows] = np.arange(batch["position_ids"].shape[1])
