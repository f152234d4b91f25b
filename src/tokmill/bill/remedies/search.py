"""Savings, settings that may need less memory, and the search for those that make a model fit.

Savings stand in the order in which they are offered. Each is billed, and offered if it needs less
than before. The largest number that fits is searched, too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, groupby, product
from typing import Any, Generic, TypeVar

from tokmill.bill.gpus import FITS, Need, verdict, worst
from tokmill.bill.models.model import Model
from tokmill.bill.models.weight_types import FILES
from tokmill.bill.servers import SERVERS
from tokmill.bill.states.parallel import sharding_of, state_ranks
from tokmill.errors import UsageError
from tokmill.settings.training import InferenceSettings, TrainingSettings

S = TypeVar("S", bound=TrainingSettings | InferenceSettings)
Changes = Mapping[str, Any]
"""Settings by name."""

COSTLY, MORE_GPUS, CHANGES_RESULT = 1, 2, 3
"""Levels of savings: those that need host RAM and several times as long, a program with parallel
layers, or make answers worse; more GPUs; and those with which something else is trained or served
(adapters, shorter texts, fewer users)."""
MOST_PARALLEL = 16
"""GPUs proposed at most for a kind of parallelism: few trainings have more."""
GPUS_OF_A_NODE = 8
SHORTEST_SEQUENCE = 256
"""Shortest sequence proposed, in tokens."""
SMALL_CHUNK = 2048
"""Prompt tokens at once that small servers take."""


@dataclass(frozen=True, slots=True)
class Saving:
    """Changes that may help; those of one name are alternatives, the mildest first.

    A saving of a higher `level` is taken only if those below are not enough.
    """

    name: str
    changes: Changes
    level: int = 0


def options(changes: Changes) -> tuple[str, ...]:
    """Return changes as options of the command line ("--checkpointing full")."""
    texts = []
    for name, value in changes.items():
        option = "--" + name.replace("_", "-")
        if value is False:
            texts.append(option.replace("--", "--no-", 1))
        else:
            texts.append(option if value is True else f"{option} {value}")
    return tuple(texts)


def of_training(how: TrainingSettings) -> Iterator[Saving]:
    """Yield the savings of GPU memory that settings do not have, the least speed first."""
    yield from _same_result(how)
    yield from _costly(how)
    yield from _other_result(how)


def _same_result(how: TrainingSettings) -> Iterator[Saving]:
    """Yield the savings that train the same, at nearly the same speed."""
    if how.metric_batches:
        name = "logits of an evaluation in host RAM"
        yield from _after("eval_accumulation", how.eval_accumulation, name, 1)
        yield Saving(name, {"metric_batches": 0})
    yield from _after("optimizer_step", how.optimizer_step, "fused optimizer step", "fused")
    yield from _after("attention", how.attention, "flash attention", "flash")
    yield from _after("loss", how.loss, "fused loss", "fused")
    yield from _sharding(how, "shared optimizer states", 1, 2)
    name = "activation checkpointing"
    yield from _after("checkpointing", how.checkpointing, name, "selective", "full")
    if how.precision == "fp32":
        yield Saving("mixed precision", {"precision": "amp"})
    for size in _powers_below(how.micro_batch):
        if how.micro_batch % size == 0:
            steps = how.accumulation * how.micro_batch // size
            changes = {"micro_batch": size, "accumulation": steps}
            yield Saving("gradient accumulation instead of batch", changes)
    if how.optimizer in ("adam", "adamw"):
        yield Saving("8-bit optimizer states", {"optimizer": "adamw-8bit"})
    yield from _sharding(how, "shared weights", 3)


def _costly(how: TrainingSettings) -> Iterator[Saving]:
    """Yield kinds of parallelism, whose contradictions the bill refuses, and offload."""
    for kind in ("tensor", "context", "expert", "pipeline"):
        degree = 2 * getattr(how, f"{kind}_parallel")
        while degree <= min(how.gpus, GPUS_OF_A_NODE if kind == "tensor" else MOST_PARALLEL):
            yield Saving(f"{kind} parallelism", {f"{kind}_parallel": degree}, COSTLY)
            degree *= 2
    if not how.activation_offload:
        yield Saving("activations in host RAM", {"activation_offload": True}, COSTLY)
    yield from _offload(how)


def _other_result(how: TrainingSettings) -> Iterator[Saving]:
    """Yield the savings with which something else is trained."""
    for size in _powers_below(how.micro_batch):
        yield Saving("smaller micro batch", {"micro_batch": size}, CHANGES_RESULT)
    if how.precision != "pure-16":
        yield Saving("16-bit weights", {"precision": "pure-16"}, CHANGES_RESULT)
    for length in _powers_below(how.sequence, SHORTEST_SEQUENCE):
        yield Saving("shorter sequences", {"sequence": length}, CHANGES_RESULT)
    if how.adapter == "none":
        yield Saving("LoRA", {"adapter": "lora"}, CHANGES_RESULT)
        yield Saving("QLoRA", {"adapter": "qlora"}, CHANGES_RESULT)
    elif how.adapter != "qlora" and how.weights not in ("nf4", "nf4-double"):
        yield Saving("QLoRA", {"weights": "nf4"}, CHANGES_RESULT)


def of_serving(model: Model, how: InferenceSettings) -> Iterator[Saving]:
    """Yield the savings of GPU memory of inference that settings do not have, the cheapest first.

    `context` and `server` must be set.
    """
    every = how.batch * (how.prompt or how.context)
    if min(how.prefill_chunk or every, every) > SMALL_CHUNK:
        yield Saving("smaller chunks of prompts", {"prefill_chunk": SMALL_CHUNK})
    server = SERVERS[how.server]
    yield from _after("kv_type", how.kv_type, "rounded KV cache", *server.kv_types)
    in_file = how.weight_type in FILES or (how.weight_type == "auto" and model.stored is not None)
    if not in_file:
        yield from _after("weight_type", how.weight_type, "rounded weights", "int8")
    if not in_file:
        yield from _after("weight_type", how.weight_type, "4-bit weights", "int4", level=COSTLY)
    if model.experts and how.server == "llama.cpp":
        layers = len(model.experts.layers)
        for number in (layers // 4, layers // 2, layers):
            if number > how.host_experts:
                yield Saving("experts in host RAM", {"host_experts": number}, COSTLY)
    for gpus in (2, 4, GPUS_OF_A_NODE):
        if gpus > how.serving_gpus:
            yield Saving("more GPUs", {"serving_gpus": gpus}, MORE_GPUS)
    for size in _powers_below(how.batch):
        yield Saving("fewer users", {"batch": size}, CHANGES_RESULT)
    for length in _powers_below(how.context, SHORTEST_SEQUENCE):
        yield Saving("shorter context", {"context": length}, CHANGES_RESULT)


def on_host(how: TrainingSettings) -> Iterator[Saving]:
    """Yield the savings of host RAM that settings do not have, the cheapest first."""
    workers = how.loader_workers
    spawns = workers > 0 and how.start_method == "spawn"
    loading = "lazy" if spawns else "memmap"
    if how.loading not in ("lazy", loading):
        yield Saving("memory-mapped dataset", {"loading": loading})
    if how.metric_batches:
        yield Saving("no logits kept for metrics", {"metric_batches": 0})
    yield from _after("initialization", how.initialization, "weights created once", "meta")
    if spawns:
        yield Saving("forked workers", {"start_method": "fork"})
    if workers > 0 and how.prefetch > 1:
        yield Saving("fewer batches ahead", {"prefetch": 1})
    for fewer in dict.fromkeys(n for n in (workers // 2, 1, 0) if n < workers):
        yield Saving("fewer workers", {"loader_workers": fewer})


def _after(
    setting: str, current: object, name: str, *values: object, level: int = 0
) -> Iterator[Saving]:
    """Yield the values that follow the current one; if it is none of them, all."""
    for value in values[values.index(current) + 1 :] if current in values else values:
        yield Saving(name, {setting: value}, level)


def _powers_below(number: int, least: int = 1) -> list[int]:
    """Return the powers of two below a number, the largest first."""
    powers = [1 << i for i in reversed(range((number - 1).bit_length()))]
    return [power for power in powers if power >= least]


def _sharding(how: TrainingSettings, name: str, *stages: int) -> Iterator[Saving]:
    """Yield ZeRO's stages that share more than now; Megatron-LM has only the first."""
    megatron, shared = how.framework == "megatron", sharding_of(how)
    now = shared.weights + shared.gradients + shared.optimizer
    for stage in stages if state_ranks(how) > 1 else ():
        if now < stage and not (megatron and stage > 1):
            kind = "distributed-optimizer" if megatron else f"zero-{stage}"
            yield Saving(name, {"sharding": kind})


def _offload(how: TrainingSettings) -> Iterator[Saving]:
    """Yield offload: alone on one GPU, else with a sharding that can."""
    shared = sharding_of(how)
    alone = state_ranks(how) == 1 and how.sharding == "ddp"
    if how.offload == "none" and shared.program != "fsdp":
        zero_2 = {} if alone or shared.gradients else {"sharding": "zero-2"}
        yield Saving("offload", {**zero_2, "offload": "optimizer"}, COSTLY)
    if how.offload != "all":
        zero_3 = {} if alone or shared.weights else {"sharding": "zero-3"}
        yield Saving("offload", {**zero_3, "offload": "all"}, COSTLY)


MOST_TOGETHER = 3
"""Savings of a plan at most: with more of them, another machine is the better advice."""

_TOO_MUCH = Need(sys.maxsize, sys.maxsize)
"""The need of settings that contradict each other."""


@dataclass(frozen=True, slots=True)
class Limit(Generic[S]):
    """The memory of a place, and what settings need of it.

    `n_bytes` and `shm_bytes` (the part in /dev/shm) are there; 0: not known, taken as enough.
    `least`, if there is one, returns a part of the need that is found sooner.
    """

    need: Callable[[S], Need]
    n_bytes: int
    shm_bytes: int = 0
    least: Callable[[S], int] | None = None

    def surely_exceeded(self, settings: S) -> bool:
        """Return whether a part of the need is too much already."""
        try:
            return self.least is not None and self.least(settings) > self.n_bytes > 0
        except UsageError:
            return True

    def verdict(self, need: Need) -> str:
        """Return whether a need fits in this place."""
        return verdict(need, self.n_bytes or sys.maxsize, self.shm_bytes)


@dataclass(frozen=True, slots=True)
class Offer:
    """A saving that was applied and billed, and that needs less memory.

    `saved_bytes` and `peak_bytes` are expected amounts, the second one with the saving;
    `high_bytes` is its upper bound. `verdict`: whether it then fits, in every limited place.
    `host_bytes` and `host_high_bytes` are those of the second place, the host RAM; 0 without one.
    """

    name: str
    options: tuple[str, ...]
    saved_bytes: int
    peak_bytes: int
    high_bytes: int
    verdict: str
    host_bytes: int = 0
    host_high_bytes: int = 0


class Search(Generic[S]):
    """Computes the needs of settings, each once, and compares them with limits.

    Savings are sought for the first limit; what they lead to must also meet the others, of which
    the first is that of the host RAM.
    """

    def __init__(self, *limits: Limit[S]) -> None:
        self._limits = limits
        self._known: list[dict[S, Need]] = [{} for _ in limits]
        self._surely_exceeds: dict[S, bool] = {}

    def fits(self, settings: S, *, surely: bool = False) -> bool:
        """Return whether the expected needs of settings fit, or `surely` their upper bounds.

        Settings that contradict each other do not fit.
        """
        if settings not in self._surely_exceeds:
            exceeds = any(limit.surely_exceeded(settings) for limit in self._limits)
            self._surely_exceeds[settings] = exceeds
        if self._surely_exceeds[settings]:
            return False
        # The last limits, of the host and the disk, are found sooner than that of the GPU.
        places = reversed(range(len(self._limits)))
        return all(self._fits(settings, place, surely=surely) for place in places)

    def fits_first(self, settings: S) -> bool:
        """Return whether the upper bound surely meets the first limit, whatever the others are."""
        return self._fits(settings, 0, surely=True)

    def _fits(self, settings: S, place: int, *, surely: bool) -> bool:
        limit = self._limits[place]
        need = self._need_of(settings, place)
        n_bytes = need.high_bytes if surely else need.n_bytes
        known = replace(need, n_bytes=n_bytes, high_bytes=n_bytes, missing="")
        return limit.verdict(known) == FITS

    def offers(self, settings: S, savings: Iterable[Saving]) -> tuple[Offer, ...]:
        """Return the savings that need less memory, each applied alone.

        Of those of one name, the first that fits is taken, else the one that needs least.
        """
        offers = []
        for alike in _by_name(savings):
            fitting = (each for each in alike if self.fits(_with(settings, [each])))
            least = min(alike, key=lambda each: self._size(_with(settings, [each])))
            saving = next(fitting, least)
            if self._size(_with(settings, [saving])) < self._size(settings):
                offers.append(self._offer(saving, settings))
        return tuple(offers)

    def plan(self, settings: S, savings: Iterable[Saving]) -> tuple[Offer, ...]:
        """Return the fewest savings that make settings fit, () if they fit or none are enough.

        With them, settings meet all limits: `surely` by the upper bounds of all needs, else by the
        expected ones. The order: savings of a low level before those of a higher one; upper bounds
        that fit before expected needs that do; few options before many; a cheap saving before a
        costly one.
        """
        if self.fits_first(settings):
            return ()
        # One that needs as much alone may help beside others: another moment is then the peak.
        most = self._size(settings)
        helpful = [each for each in savings if self._size(_with(settings, [each])) <= most]
        goals = (True,) if self.fits(settings) else (True, False)
        for level, surely in product(sorted({each.level for each in helpful}), goals):
            for group in _groups(_by_name(each for each in helpful if each.level <= level)):
                if all(each.level < level for alike in group for each in alike):
                    continue  # tried before, on a lower level
                chosen = self._mildest(settings, group, surely=surely)
                if chosen:
                    before = [_with(settings, chosen[:n]) for n in range(len(chosen))]
                    return tuple(map(self._offer, chosen, before))
        return ()

    def _mildest(self, settings: S, group: Sequence[list[Saving]], *, surely: bool) -> list[Saving]:
        """Return a saving of each list with which settings fit; [] if there are none.

        The lists stand in the order of their costs: of the last the mildest is taken.
        """
        if not self.fits(_with(settings, [alike[-1] for alike in group]), surely=surely):
            return []
        choices = (list(reversed(each)) for each in product(*reversed(group)))
        return next(each for each in choices if self.fits(_with(settings, each), surely=surely))

    def _need_of(self, settings: S, place: int = 0) -> Need:
        known = self._known[place]
        if settings not in known:
            try:
                known[settings] = self._limits[place].need(settings)
            except UsageError:
                known[settings] = _TOO_MUCH
        return known[settings]

    def _size(self, settings: S) -> tuple[int, int]:
        need = self._need_of(settings)
        return need.n_bytes, need.shm_bytes

    def _offer(self, saving: Saving, before: S) -> Offer:
        """Return a saving with its needs, and what it saves of the need before."""
        changed = _with(before, [saving])
        needs = [self._need_of(changed, place) for place in range(len(self._limits))]
        host = needs[1] if len(needs) > 1 else Need(0, 0)
        verdicts = (limit.verdict(need) for limit, need in zip(self._limits, needs, strict=True))
        return Offer(
            name=saving.name,
            options=options(saving.changes),
            saved_bytes=self._size(before)[0] - needs[0].n_bytes,
            peak_bytes=needs[0].n_bytes,
            high_bytes=needs[0].high_bytes,
            verdict=worst(verdicts),
            host_bytes=host.n_bytes,
            host_high_bytes=host.high_bytes,
        )


def _by_name(savings: Iterable[Saving]) -> list[list[Saving]]:
    """Return the savings of each name, which stand beside each other."""
    return [list(alike) for _, alike in groupby(savings, lambda saving: saving.name)]


def _groups(usable: list[list[Saving]]) -> list[tuple[list[Saving], ...]]:
    """Return the groups of up to MOST_TOGETHER names, in the order in which they are tried.

    `usable` stands in the order of costs; of two groups, the costliest savings decide.
    """
    sizes = range(1, MOST_TOGETHER + 1)
    groups = (group for n in sizes for group in combinations(range(len(usable)), n))
    names = [{name for each in alike for name in each.changes} for alike in usable]
    n_options = [min(len(each.changes) for each in alike) for alike in usable]
    apart = [
        group for group in groups
        if len(set().union(*(names[i] for i in group))) == sum(len(names[i]) for i in group)
    ]  # fmt: skip
    apart.sort(key=lambda group: (sum(n_options[i] for i in group), len(group), group[::-1]))
    return [tuple(usable[i] for i in group) for group in apart]


def _with(settings: S, savings: Iterable[Saving]) -> S:
    """Return settings with the changes of savings."""
    changes: dict[str, Any] = {}
    for saving in savings:
        changes |= saving.changes
    return replace(settings, **changes) if changes else settings


def largest(fits: Callable[[int], bool], most: int) -> int:
    """Return the largest number up to `most` that fits, 0 if 1 does not.

    All numbers below one that fits are taken to fit too.
    """
    below, above = 0, 1
    while above <= most and fits(above):
        below, above = above, 2 * above
    above = min(above, most + 1)
    while above - below > 1:
        middle = (below + above) // 2
        below, above = (middle, above) if fits(middle) else (below, middle)
    return below
