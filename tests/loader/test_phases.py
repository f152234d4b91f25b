"""Phases read each source along one line: nothing twice in a pass, in any rows, on any ranks.

The model is a list of all tokens of each source, pass after pass, from which rows are taken.
"""

from __future__ import annotations

import json
import pickle
import time
from collections import Counter
from dataclasses import replace
from functools import partial
from itertools import islice, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.loader.numbered import in_step, ranks
from tests.loader.spans import Spans, rows_of
from tokmill.api.dataset import Dataset
from tokmill.errors import StateError, UsageError
from tokmill.loader import (
    AttentionCost,
    BatchSampler,
    Loader,
    Phase,
    collate,
    packs,
    shuffled,
    windows,
)
from tokmill.loader.block_order import BlockOrder
from tokmill.loader.document_names import DocumentNames

Row = tuple[int, tuple[int, ...]]


class Line:
    """All tokens of a source in the order of its passes: (pass, token), and how many are used."""

    def __init__(self, source: Spans, stream: int, seed: int, shuffle: Any) -> None:
        self.tokens: list[tuple[int, int]] = []
        self.place = self.left_out = 0
        self._source, self._make = source, (stream, seed, shuffle)

    def _add_pass(self) -> None:
        stream, seed, shuffle = self._make
        n, length = self._source.n, self._source.length
        number = len(self.tokens) // (n * length)
        order = list(range(n))
        if shuffle is True:
            order = shuffled(order, n, seed=seed, epoch=number, stream=stream).tolist()
        if shuffle == "blocks":
            blocks = BlockOrder(self._source.block_starts(), n, 2)
            order = blocks.rows(np.arange(n), np.full(n, number), seed, stream).tolist()
        for span in order:
            self.tokens += [(number, span * length + i) for i in range(length)]

    def take(self, n_rows: int, length: int) -> list[Counter[tuple[int, ...]]]:
        """Return the next rows of each pass from which there are any."""
        while self.place % length:
            self.place, self.left_out = self.place + 1, self.left_out + 1
        passes: dict[int, Counter[tuple[int, ...]]] = {}
        for _ in range(n_rows):
            while len(self.tokens) < self.place + length:
                self._add_pass()
            row = self.tokens[self.place : self.place + length]
            self.place += length
            passes.setdefault(row[0][0], Counter())[tuple(token for _, token in row)] += 1
        return list(passes.values())


class World(NamedTuple):
    """Sources by name, phases, and the samples of each phase."""

    sources: dict[str, Spans]
    phases: list[Phase]
    seed: int = 0
    shuffle: Any = True

    def loader(self, phases: list[Phase] | None = None, **options: Any) -> Loader:
        made: Any = {"seed": self.seed, "shuffle": self.shuffle, "blocks": 2, **options}
        return Loader(self.sources, phases=phases or self.phases, **made)

    def rows(self, phases: list[Phase] | None = None) -> list[Row]:
        return [row for batch in self.loader(phases) for row in rows_of(batch)]


def check(world: World) -> None:
    """Check the rows of all phases against the model."""
    loader = world.loader()
    plan = loader.plan()
    batches = [rows_of(batch) for batch in loader]
    lines: dict[str, Line] = {}
    for phase, planned in zip(world.phases, plan.phases, strict=True):
        assert planned.steps is not None
        assert phase.shares is not None
        rows = [row for batch in batches[: planned.steps] for row in batch]
        assert {len(batch) for batch in batches[: planned.steps]} == {planned.batch}
        del batches[: planned.steps]
        assert {len(tokens) for _, tokens in rows} == {planned.length}
        total = sum(phase.shares.values())
        for name, share in phase.shares.items():
            source = world.sources[name]
            own = [tokens for number, tokens in rows if number == source.name]
            n = 0
            for k, row in enumerate(rows, start=1):  # shares are exact at each prefix
                n += row[0] == source.name
                assert k * share // total <= n <= -(-k * share // total)
            if name not in lines:
                lines[name] = Line(source, len(lines), world.seed, world.shuffle)
            for wanted in lines[name].take(len(own), planned.length):
                assert Counter(own[: wanted.total()]) == wanted
                del own[: wanted.total()]
            assert planned.tokens_of[name] == n * planned.length
    assert batches == []
    for one in plan.sources:
        line = lines.get(one.name)
        size = world.sources[one.name].n * world.sources[one.name].length
        if line is None:
            assert (one.read, one.epochs, one.repeated, one.never_read) == (0, 0, 0, size)
            continue
        assert (one.read, one.left_out) == (line.place - line.left_out, line.left_out)
        assert one.epochs == line.place / size
        assert one.never_read == max(0, size - line.place)


@st.composite
def worlds(draw: Any) -> World:
    """Return small sources and phases, in rows that divide the spans of all sources."""
    n_sources = draw(st.integers(1, 3))
    lengths = st.sampled_from([12, 24])
    shuffles = st.sampled_from([True, False, "blocks"])
    sources = {f"s{i}": Spans(draw(st.integers(1, 9)), i, draw(lengths)) for i in range(n_sources)}
    phases, samples, tokens = [], 0, 0
    for _ in range(draw(st.integers(1, 4))):
        names = draw(st.permutations(sorted(sources)))[: draw(st.integers(1, n_sources))]
        shares = {name: draw(st.integers(1, 5)) for name in names}
        length = draw(st.sampled_from([1, 2, 3, 4, 6, 12]))
        batch, n = draw(st.sampled_from([2, 4, 6])), draw(st.integers(1, 40))
        until = f"{samples + n} samples"
        if draw(st.booleans()):
            until = f"{tokens + n * length} tokens"
        n_batches = -(-n // batch)
        samples, tokens = samples + n_batches * batch, tokens + n_batches * batch * length
        phases.append(Phase(until, shares, length, batch))
    return World(sources, phases, draw(st.integers(0, 9)), draw(shuffles))


@given(worlds())
@settings(max_examples=40, deadline=None)
def test_each_sample_of_a_source_comes_once_in_a_pass_and_shares_are_exact(world: World) -> None:
    check(world)


@given(worlds(), st.data())
@settings(max_examples=20, deadline=None)
def test_ranks_workers_and_resumes_change_nothing(world: World, data: Any) -> None:
    whole = world.rows()
    state, found = world.loader().state_dict(), []
    while len(found) < len(whole):
        loaders = ranks(
            partial(world.loader, workers=data.draw(st.sampled_from([0, 2]))),
            data.draw(st.sampled_from([1, 2])), json.loads(json.dumps(state)),
        )  # fmt: skip
        for batches in islice(in_step(loaders), data.draw(st.integers(1, 30))):
            found += [row for batch in batches for row in rows_of(batch)]
        states = [loader.state_dict() for loader in loaders]
        assert states == [states[0]] * len(loaders)
        assert states[0]["samples_seen"] == len(found)
        state = states[0]
    assert found == whole


@given(worlds(), worlds(), st.integers(1, 40))
@settings(max_examples=20, deadline=None)
def test_later_phases_may_change_on_resume(world: World, other: World, n_steps: int) -> None:
    loader = world.loader()
    for batch in islice(loader, n_steps):
        assert len(batch)
    state = loader.state_dict()
    begun = world.phases[: len(state["phases"])]
    n_samples = sum(record["samples"] for record in state["phases"])
    n_tokens = sum(record["samples"] * record["length"] for record in state["phases"])
    later = []
    for phase in other.phases:  # of sources that are new, too
        shares = {f"new {name}": share for name, share in (phase.shares or {}).items()}
        before = n_samples if str(phase.until).endswith("samples") else n_tokens
        number, unit = str(phase.until).split()
        shares = {**shares, "s0": 1}
        later.append(Phase(f"{before + int(number)} {unit}", shares, phase.length, phase.batch))
        if before + int(number) <= 0:
            return
    # New sources stand before the old ones: their order says nothing.
    sources = {f"new {name}": Spans(one.n, one.name + 7, one.length)
               for name, one in other.sources.items()} | world.sources  # fmt: skip
    changed = World(sources, begun + later, world.seed, world.shuffle)
    check(changed)
    resumed = changed.loader()
    resumed.load_state_dict(state)
    rest = [row for batch in resumed for row in rows_of(batch)]
    assert world.rows()[: state["samples_seen"]] + rest == changed.rows()


def test_small_worlds_exhaustively() -> None:
    for n, first, second, n_first, n_second in product(
        (1, 2, 3), (1, 2, 4), (1, 2, 4), (1, 3), (1, 6)
    ):
        phases = [
            Phase(f"{n_first} samples", {"a": 1}, first, 1),
            Phase(f"{n_first + n_second} samples", {"a": 2, "b": 1}, second, 1),
        ]
        check(World({"a": Spans(n, 1), "b": Spans(2, 2)}, phases))


def test_the_order_stays() -> None:
    sources = {"a": Spans(5, 1, 4), "b": Spans(3, 2, 8)}
    phases = [Phase("8 samples", {"a": 3, "b": 1}, 2, 4), Phase("13 samples", {"b": 1}, 8, 1)]
    world = World(sources, phases, seed=5)
    assert [(name, tokens[0]) for name, tokens in world.rows()] == [
        (1, 12), (1, 4), (1, 14), (2, 0), (1, 16), (1, 6), (1, 18), (2, 2),
        (2, 16), (2, 8), (2, 16), (2, 0), (2, 8),
    ]  # fmt: skip


def test_one_phase_has_the_order_of_a_loader_without_phases() -> None:
    a, b = Spans(50, 1), Spans(7, 2)
    plain = Loader([(a, 0.7), (b, 0.3)], 6, seed=4)
    phase = Phase(shares={"a": 0.7, "b": 0.3}, batch=6)
    phased = Loader({"b": b, "a": a}, phases=[phase], seed=4)
    for wanted, found in islice(zip(plain, phased, strict=False), 40):
        assert rows_of(found) == rows_of(wanted)
    alone = Loader(a, phases=[Phase("100 samples", batch=10)], seed=4)
    assert [rows_of(one) for one in alone] == [
        rows_of(one) for one in Loader(a, 10, epochs=2, seed=4)
    ]


@pytest.mark.parametrize("batch", [1, 3, 8, 24])
def test_the_order_does_not_depend_on_the_batch(batch: int) -> None:
    sources = {"a": Spans(5, 1, 4), "b": Spans(3, 2, 8)}
    phases = [Phase("24 samples", {"a": 3, "b": 1}, 2), Phase("48 samples", {"b": 1}, 8)]
    rows = [World(sources, [replace(one, batch=n) for one in phases]).rows() for n in (12, batch)]
    assert rows[0] == rows[1]


def test_two_phases_that_are_alike_go_on_where_the_first_ends() -> None:
    """A pass goes on across phases: ten of its rows come first, and then the others."""
    phases = [Phase("10 samples", None, 2, 5), Phase("30 samples")]
    rows = World({"a": Spans(15, 1)}, phases).rows()
    assert sorted(tokens[0] for _, tokens in rows) == list(range(0, 60, 2))


def test_what_is_read_early_is_spread_over_the_source_and_over_the_phase() -> None:
    source = Spans(4096, 1, 16)
    loader = Loader(source, phases=[Phase("4096 samples", None, 2, 64)])
    starts = [[tokens[0] for _, tokens in rows_of(batch)] for batch in loader]
    every = np.concatenate(starts)
    assert len(np.unique(every // 16)) == 4096 // 8  # whole spans: an eighth of the source
    quarters = np.bincount(every // (4096 * 4), minlength=4)
    assert quarters.min() > 0.8 * 4096 / 4
    # Rows of one span stand in different batches: by chance 1 % have a neighbour in theirs.
    together = sum(64 - len({start // 16 for start in batch}) for batch in starts)
    assert together < 0.1 * 4096


def test_in_blocks_a_phase_reads_few_shards_at_a_time() -> None:
    source = Spans(64, 1, 16)  # 32 shards of 2 spans
    phases = [Phase("128 samples", None, 2, 8), Phase("160 samples", length=8)]
    shuffle: Any = {"shuffle": "blocks", "blocks": 4}
    batches = [rows_of(batch) for batch in Loader(source, phases=phases, **shuffle)]
    shards = [{tokens[0] // 32 for _, tokens in batch} for batch in batches]
    for first, stop in ((0, 8), (8, 16), (16, 18), (18, 20)):  # rows of 4 shards each
        assert len(set.union(*shards[first:stop])) == 4
    assert min(map(len, shards[:16])) > 1


def test_until_is_rounded_up_to_a_global_batch_and_counts_from_the_start() -> None:
    source = Spans(1000, 1, 4)
    phases = [
        Phase("10 samples", batch=4),
        Phase("1_000 tokens", length=2),
        Phase("2k tokens", length=4, batch=3),
    ]
    plan = Loader(source, phases=phases).plan()
    assert [one.samples for one in plan.phases] == [12, 476, 252]
    assert [one.tokens for one in plan.phases] == [48, 952, 1008]
    assert [one.steps for one in plan.phases] == [3, 119, 84]


def test_a_state_is_small_and_a_resume_walks_nowhere() -> None:
    rng = np.random.default_rng(0)
    sources = {f"source number {i}": Spans(10**9 + i, i, 8192) for i in range(100)}
    phases = [
        Phase(f"{10 * (i + 1)}T tokens", dict(zip(sources, rng.random(100), strict=True)),
              2 ** (10 + i % 4), 1024)
        for i in range(10)
    ]  # fmt: skip
    loader = Loader(sources, phases=phases)
    samples = loader.plan().phases[0].samples or 0
    start_s = time.process_time()
    resumed = Loader(sources, phases=phases, rank=3, world=8)
    state = loader._sequence.state(samples * 5 // 4 // 1024 * 1024)
    resumed.load_state_dict(json.loads(json.dumps(state)))
    steps = resumed._sequence.steps(resumed._key, None)
    assert len(next(steps)[0].numbers) == 128
    assert time.process_time() - start_s < 1
    assert state["samples_seen"] > 10**9
    last = loader._sequence.state(loader.n_samples)
    assert len(last["phases"]) == 10
    assert len(json.dumps(last)) < 10_000


def numbers_of(batch: dict[str, Any]) -> list[list[int]]:
    found: list[list[int]] = batch["input_ids"].tolist()
    return found


PHASES = [
    Phase("30 samples", {"web": 0.7, "chats": 0.3}, 128, 6),
    Phase("60 samples", {"web": 1}, 64),
    Phase("80 samples", {"web": 1, "chats": 1}, 256, 4),
]


def web_and_chats(pretrained: Dataset, chats: Dataset) -> dict[str, Any]:
    return {
        "web": windows(pretrained, 256, shift=True, sources=True, document_ids=True),
        "chats": windows(chats, 256, shift=True, sources=True, document_ids=True),
    }


def test_rows_of_datasets_are_parts_of_their_windows(pretrained: Dataset, chats: Dataset) -> None:
    sources = web_and_chats(pretrained, chats)
    loader = Loader(sources, phases=PHASES, workers=2)
    every: dict[int, Counter[bytes]] = {}
    for length in (64, 128, 256):
        every[length] = Counter()
        for dataset in (pretrained, chats):
            rows = windows(dataset, length, shift=True)
            every[length].update(row["labels"].tobytes() for row in rows)  # type: ignore[attr-defined]
    names = Counter()
    for batch in loader:
        length = batch["input_ids"].shape[1]
        assert set(batch) == {"input_ids", "labels", "document_ids", "source_ids"}
        for labels, ids in zip(batch["labels"], batch["source_ids"], strict=True):
            assert every[length][labels.tobytes()]
            names[loader.source_names[ids[0]]] += 1
    assert len(names) > 1
    assert names.total() == 80


@pytest.mark.parametrize(("n_workers", "start"), [(0, None), (2, "fork")])
def test_a_sampler_of_phases_reads_the_concatenation_of_its_sources(
    pretrained: Dataset, chats: Dataset, n_workers: int, start: str | None
) -> None:
    torch: Any = pytest.importorskip("torch", reason="needs torch's DataLoader")
    sources = web_and_chats(pretrained, chats)
    whole = [numbers_of(batch) for batch in Loader(sources, phases=PHASES, seed=3)]

    def loader_of(sampler: BatchSampler) -> Any:
        return torch.utils.data.DataLoader(
            torch.utils.data.ConcatDataset(sampler.sources), batch_sampler=sampler,
            collate_fn=collate, num_workers=n_workers, multiprocessing_context=start,
        )  # fmt: skip

    sampler = BatchSampler(sources, phases=PHASES, seed=3)
    assert len(sampler) == len(whole) == 15
    sampler.set_epoch(0)
    found = [batch["input_ids"].tolist() for batch in islice(loader_of(sampler), 7)]
    assert found == whole[:7]
    resumed = BatchSampler(sources, phases=PHASES, seed=3)
    resumed.load_state_dict(sampler.state_dict(7))
    assert [batch["input_ids"].tolist() for batch in loader_of(resumed)] == whole[7:]
    assert resumed.state_dict(8)["samples_seen"] == 80
    assert list(resumed) == []
    with pytest.raises(UsageError, match="phases are one epoch, 0; found 1"):
        sampler.set_epoch(1)
    with pytest.raises(UsageError, match="endless: the last phase ends: leave out its until"):
        BatchSampler(sources, phases=PHASES, endless=True)


def test_micro_batches_and_balance_deal_the_rows_of_a_step(pretrained: Dataset) -> None:
    source = windows(pretrained, 128, shift=True, cu_seqlens=True)
    phases = [Phase("24 samples", length=32, batch=8), Phase("40 samples", length=128)]
    plain = list(Loader(source, phases=phases))
    for balance in (None, AttentionCost(token=8)):
        loaders = ranks(partial(Loader, source, phases=phases, micro_batches=2, balance=balance), 2)
        steps = list(in_step(loaders))
        assert len(loaders[0]) == len(steps) == 2 * len(plain)
        for number, batch in enumerate(plain):
            both = [*steps[2 * number], *steps[2 * number + 1]]
            found = [row for one in both for row in one["input_ids"].tolist()]
            assert sorted(found) == sorted(batch["input_ids"].tolist())
        assert len(loaders[0].state_dict()["phases"]) == 2
    loader = Loader(source, phases=phases, world=2)
    assert loader.balance(AttentionCost(token=8)).n_batches == 3
    assert len(list(loader)) == 5
    with pytest.raises(UsageError, match="balance: the loader is at the end of its phases"):
        loader.balance()


def test_ranks_share_the_batches_of_phases_that_have_not_ended() -> None:
    phases = [Phase("8 samples", batch=8), Phase("20 samples", batch=6)]
    loader = Loader(Spans(9, 1), phases=phases, world=2)
    whole = [rows_of(batch) for batch in Loader(Spans(9, 1), phases=phases)]
    next(iter(loader))
    for make in (Loader, BatchSampler):
        wrong: Any = make(Spans(9, 1), phases=phases, world=3)
        with pytest.raises(UsageError, match="phase 1: batch 8 is no multiple of 3 ranks, which"):
            next(iter(wrong))
    with pytest.raises(UsageError, match="batch 8 is no multiple of 3 ranks"):
        Loader(Spans(9, 1), phases=phases, world=3).balance()
    three = ranks(partial(Loader, Spans(9, 1), phases=phases), 3, loader.state_dict())
    found = [[row for one in step for row in rows_of(one)] for step in in_step(three)]
    assert found == whole[1:]
    wrong = Loader(Spans(9, 1), phases=phases, micro_batches=4)
    wrong.load_state_dict(loader.state_dict())
    with pytest.raises(UsageError, match=r"phase 2: batch 6 .* 1 rank x 4 micro_batches, which"):
        next(iter(wrong))


def test_packs_have_phases_of_their_own_length(chats: Dataset) -> None:
    source = packs(chats, shift=False)
    rows = list(Loader({"chats": source}, phases=[Phase("2 samples", batch=2)]))
    assert rows[0]["input_ids"].shape == (2, source.length)
    with pytest.raises(
        UsageError, match="phase 1: source 'chats': packs are not cut: expected their length"
    ):
        Loader({"chats": source}, phases=[Phase("2 samples", length=16, batch=2)])


def test_the_end_of_phases_is_the_end_and_one_epoch() -> None:
    loader = Loader(Spans(9, 1), phases=[Phase("4 samples", batch=2), Phase("10 samples")])
    assert (len(loader), loader.batches_per_epoch, loader.epoch, loader.phase) == (5, 5, 0, 0)
    assert len(list(loader.one_epoch())) == 5
    assert (loader.epoch, loader.samples_seen, loader.phase) == (0, 10, 1)
    with pytest.raises(StateError, match="end of its phases: make a new one, or give more phases"):
        iter(loader)
    longer = Loader(
        Spans(9, 1), phases=[Phase("4 samples", batch=2), Phase("10 samples"), Phase("12 samples")]
    )
    longer.load_state_dict(loader.state_dict())
    assert len(list(longer)) == 1
    endless = Loader(Spans(9, 1), phases=[Phase(batch=2)])
    assert len(list(islice(endless, 100))) == 100
    with pytest.raises(TypeError, match="the last phase never ends"):
        len(endless)


def test_phases_are_read_from_toml(tmp_path: Path) -> None:
    path = tmp_path / "phases.toml"
    path.write_text(
        """
        [[phase]]
        until = "8 samples"
        shares = { a = 3, b = 1 }
        length = 2
        batch = 4

        [[phase]]
        until = "13 samples"
        shares = { b = 1 }
        length = 8
        batch = 1
        """
    )
    sources = {"a": Spans(5, 1, 4), "b": Spans(3, 2, 8)}
    phases = [Phase("8 samples", {"a": 3, "b": 1}, 2, 4), Phase("13 samples", {"b": 1}, 8, 1)]
    found = [rows_of(batch) for batch in Loader(sources, phases=path)]
    assert found == [rows_of(batch) for batch in Loader(sources, phases=phases)]
    for text, reason in (
        ("", "expected tables \\[\\[phase\\]\\], found none"),
        ("[phase]\nlength = 2", "expected tables"),
        ("phase = [1]", "phase 1: expected a table .*, found 1"),
        ("[[phases]]\nlength = 2", "expected tables .*, found phases"),
        ("[[phase]]\nlenght = 2", "phase 1: expected until, shares, length, batch; found 'lenght'"),
        ("[[phase]]\nbatch = 2.5", "phase 1: batch: expected a whole number from 1, found 2.5"),
    ):
        path.write_text(text)
        with pytest.raises(UsageError, match=reason):
            Loader(Spans(5, 1), phases=path)


def test_a_plan_says_what_is_read_repeated_and_never_read() -> None:
    sources = {"web": Spans(1000, 1, 8), "math": Spans(50, 2, 8), "books": Spans(9, 3)}
    phases = [
        Phase("600 tokens", {"web": 0.9, "math": 0.1}, 2, 10),
        Phase("3k tokens", {"web": 0.5, "math": 0.5}, 4),
        Phase(None, {"math": 1}, 8, 4),
    ]
    assert (
        str(Loader(sources, phases=phases[:2]).plan())
        == """\
phase  steps  batch  length  source  share  tokens
    1     30     10       2  web       0.9     540
                             math      0.1      60
    2     60     10       4  web       0.5   1,200
                             math      0.5   1,200

source  tokens   read  epochs  repeated  left out  never read
web      8,000  1,740    0.22         0         0       6,260
math       400  1,260    3.15       860         0           0
books       36      0    0.00         0         0          36"""
    )
    endless = Loader(sources, phases=phases).plan()
    assert endless.phases[2].tokens is endless.sources[1].epochs is None
    assert endless.sources[1].left_out == 4
    with pytest.raises(UsageError, match="plan: the loader has no phases"):
        Loader(Spans(5), 2).plan()


TWO = {"a": Spans(50, 1, 8), "b": Spans(50, 2, 16)}
GOOD: dict[str, Any] = {"until": "9 samples", "shares": {"a": 1}, "length": 4, "batch": 3}


@pytest.mark.parametrize(
    ("phases", "reason"),
    [
        ([], "phases: expected a list of Phase, or a TOML file; found \\[\\]"),
        ([{"batch": 3}], "phase 1: expected a Phase, found {'batch': 3}"),
        ([Phase(**{**GOOD, "shares": None})], "phase 1: shares: expected a share for each source"),
        ([Phase(**{**GOOD, "shares": {}})], "phase 1: shares: expected a share for each source"),
        ([Phase(**{**GOOD, "shares": {"c": 1}})], "expected names of sources, a, b; found 'c'"),
        (
            [Phase(**{**GOOD, "shares": {"a": 0}})],
            "phase 1: share of 'a': expected a number above 0",
        ),
        ([Phase(**{**GOOD, "batch": None})], "phase 1: batch: expected a whole number from 1"),
        ([Phase(**{**GOOD, "batch": 0})], "phase 1: batch: expected a whole number from 1"),
        ([Phase(**{**GOOD, "length": 0})], "phase 1: length: expected a whole number from 1"),
        ([Phase(**{**GOOD, "until": "9"})], "phase 1: until: expected tokens or samples, such as"),
        ([Phase(**{**GOOD, "until": 9})], "phase 1: until: expected tokens or samples, such as"),
        ([Phase(**{**GOOD, "until": "9 GB tokens"})], "phase 1: until: expected a number such as"),
        (
            [Phase(**{**GOOD, "until": "0 samples"})],
            "until 0 samples: expected more than the phase",
        ),
        (
            [Phase(**GOOD), Phase(until="9 samples")],
            "phase 2: until 9 samples: expected more .*, which ends after 9 samples",
        ),
        ([Phase(**GOOD), Phase(until="36 tokens")], "which ends after 36 tokens"),
        ([Phase(**{**GOOD, "until": None}), Phase()], "phase 1: only the last phase may have no"),
        ([Phase("9000000T samples", {"a": 1}, 4, 3)], "at most 2\\^62 tokens in all"),
        (
            [Phase("9 samples", {"a": 1, "b": 1}, None, 3)],
            "phase 1: length: expected one, as the lengths of its sources are 8 to 16",
        ),
    ],
)
def test_a_phase_that_cannot_be_is_refused(phases: Any, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        Loader(TWO, phases=phases)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"batch": 3}, "batch: phases have their own, of all ranks together: leave it out"),
        ({"epochs": 1}, "epochs: phases end with the last one: leave it out"),
        ({"tail": "pad"}, 'tail="pad": phases have whole batches, and no tail'),
    ],
)
def test_what_phases_have_themselves_is_refused(options: Any, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        Loader(TWO, phases=[Phase(**GOOD)], **options)


@pytest.mark.parametrize("sources", [[(TWO["a"], 1)], [], {}, {"a": 3}, {"a": [1]}, {3: TWO["a"]}])
def test_sources_of_phases_are_named(sources: Any) -> None:
    with pytest.raises(UsageError, match=r"expected windows|expected names"):
        Loader(sources, phases=[Phase(**GOOD)])
    with pytest.raises(UsageError, match="sources by name have phases"):
        Loader(TWO, 3)


def test_rows_that_are_cut_are_pickled_and_cut_again(pretrained: Dataset) -> None:
    source = windows(pretrained, 192, shift=True, position_ids=True)
    rows = source.cut(96).cut(48)
    again = pickle.loads(pickle.dumps(rows))
    assert len(again) == len(rows) == len(source) * 4
    last = len(rows) - 1
    for one in (rows, again):
        whole = source.batch([0, len(source) - 1])
        for name in ("input_ids", "labels"):
            np.testing.assert_array_equal(one.batch([0, last])[name][0], whole[name][0, :48])
            np.testing.assert_array_equal(one.batch([0, last])[name][1], whole[name][1, -48:])
        assert one.batch([1])["position_ids"][0, 0] == 0
    with pytest.raises(UsageError, match="rows of one source"):
        windows(
            pretrained, 192, shift=True, source=DocumentNames(
                pretrained.directory, source._manifest, source._documents
            ).names[0]
        ).cut(48)  # fmt: skip


def test_lengths_that_do_not_divide_name_one_that_does(pretrained: Dataset) -> None:
    source = windows(pretrained, 64, shift=True)
    reason = "length 48 does not divide 64, .* a multiple of both, such as 192"
    with pytest.raises(UsageError, match=reason):
        Loader(source, phases=[Phase("9 samples", length=48, batch=3)])
    assert Loader(
        windows(pretrained, 192, shift=True),
        phases=[Phase("9 samples", length=48, batch=3), Phase("12 samples", length=64)],
    ).plan()


BEGUN = [Phase("9 samples", {"a": 1}, 4, 3), Phase("30 samples", {"a": 1, "b": 1})]


@pytest.mark.parametrize(
    ("phases", "options", "reason"),
    [
        (BEGUN[:1], {}, "2 phases began, 1 here: keep those that began; phases from 3 on may be"),
        (
            [BEGUN[0], Phase("40 samples", {"a": 1, "b": 1})],
            {},
            "phase 2 .* its samples changed: 21",
        ),
        (
            [BEGUN[0], Phase("30 samples", {"b": 1})],
            {},
            "phase 2 .* its shares, sources or their order changed",
        ),
        ([Phase("9 samples", {"a": 1}, 2, 3), BEGUN[1]], {}, "phase 1 .* its length changed: 4 in"),
        ([Phase("9 samples", {"a": 1}, 4, 1), BEGUN[1]], {}, "phase 1 .* its batch changed: 3 in"),
        (
            BEGUN,
            {"shuffle": False},
            "phase 1 has begun, and its shares, sources or their order changed",
        ),
        (BEGUN, {"seed": 1}, "state of another sequence: seed 0 in the state, 1 here"),
    ],
)
def test_a_phase_that_has_begun_may_not_change(phases: Any, options: Any, reason: str) -> None:
    loader = Loader(TWO, phases=BEGUN)
    assert len(list(islice(loader, 4))) == 4
    state = loader.state_dict()
    with pytest.raises(StateError, match=reason):
        Loader(TWO, phases=phases, **options).load_state_dict(state)
    assert len(list(islice(loader, 1))) == 1
    renamed = {"x": TWO["a"], "y": TWO["b"]}  # the names are for people
    phases = [Phase("9 samples", {"x": 1}, 4, 3), Phase("30 samples", {"x": 1, "y": 1})]
    Loader(renamed, phases=phases).load_state_dict(state)


def test_a_phase_that_has_not_begun_may_change_at_its_first_sample() -> None:
    loader = Loader(TWO, phases=BEGUN)
    assert len(list(islice(loader, 3))) == 3
    changed = Loader(TWO, phases=[BEGUN[0], Phase("11 samples", {"b": 1}, 16, 1)])
    changed.load_state_dict(loader.state_dict())
    assert [batch["input_ids"].shape for batch in changed] == [(1, 16), (1, 16)]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"samples_seen": 10}, "samples_seen 10; expected whole batches of the phases"),
        ({"samples_seen": -3}, "samples_seen -3; expected"),
        ({"samples_seen": 9}, "samples_seen 9; expected .* it says to have begun, 2"),
        ({"samples_seen": 33}, "samples_seen 33; expected"),
        ({"samples_seen": 1 << 70}, "expected whole batches"),
        ({"samples_seen": "x"}, "no state of a Loader with phases"),
        ({"phases": 3}, "no state of a Loader with phases"),
        ({"phases": [3]}, "no state of a Loader with phases"),
    ],
)
def test_a_damaged_state_of_phases_is_refused(change: dict[str, Any], reason: str) -> None:
    loader = Loader(TWO, phases=BEGUN)
    assert len(list(islice(loader, 4))) == 4
    with pytest.raises(StateError, match=reason):
        Loader(TWO, phases=BEGUN).load_state_dict(loader.state_dict() | change)
    plain = Loader(TWO["a"], 3)
    with pytest.raises(StateError, match="state of phases: make the Loader with phases"):
        plain.load_state_dict(loader.state_dict())
    with pytest.raises(StateError, match="no state of a Loader with phases: 'phases'"):
        Loader(TWO, phases=BEGUN).load_state_dict(plain.state_dict())
