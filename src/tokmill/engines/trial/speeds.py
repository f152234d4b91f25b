"""What each engine is expected to cost on a corpus, without timing it.

Which engine is faster depends on tokenizer, text and processor. An engine that keeps the ids of
words is fast on text whose words repeat; where a script has no spaces, hardly any word repeats. So
a cost is known by tokenizer and by the share of text without spaces. Costs that were measured on
this machine are kept; for another share or tokenizer, typical costs are scaled by them.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from tokmill.engines.engine import engine_version
from tokmill.engines.trial.remembered import cache_path, read_kept, variant_of, write_kept

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tokmill.engines.trial.tasks import Speed
    from tokmill.tokenizer.tokenizer import Tokenizer

_FILE = "speeds.json"
_MOST_ENTRIES = 500
_VERSION = 2
"""Of the method of measuring; what other versions kept is ignored."""

_UNSPACED = re.compile(rb"[^\x00-\x7f]{30,}")
"""Text without spaces: ten Chinese characters or more. Words of other scripts are shorter."""

_NEAR = 0.2
"""Shares that differ by less count as the same kind of text."""

_UNSURE = 1.5
"""An engine can take so many times longer for text than expected, if it was not measured here."""

MEASURED = "expected fastest: measured before on similar text"
SCALED = "expected fastest: measured before on other text or with another tokenizer"
TYPICAL = "expected fastest: typical for this kind of tokenizer and text"


class Cost(NamedTuple):
    """CPU seconds: to load an engine, and per byte of text."""

    load_s: float
    byte_s: float

    @classmethod
    def of(cls, speed: Speed, new_share: float = 1.0) -> Cost:
        """Return the cost of an engine on a corpus of which a share is new text."""
        return cls(speed.load_s, speed.again_s + new_share * (speed.new_s - speed.again_s))

    def seconds(self, n_bytes: int, n_threads: int) -> float:
        """Return the expected seconds for a corpus.

        One thread loads the engine, while another one compares it with the reference.
        """
        return self.load_s / min(2, n_threads) + n_bytes * self.byte_s / n_threads

    def mb_per_s(self, n_threads: int) -> float:
        """Return the expected speed, once loaded."""
        return round(1e-6 * n_threads / max(self.byte_s, 1e-12), 1)


class _Typical(NamedTuple):
    """Typical CPU costs: loading, per 1,000 ids, per byte with spaces and without."""

    load_s: float
    per_1000_ids_s: float
    spaced_ns: float
    unspaced_ns: float

    def cost(self, n_ids: int, unspaced: float) -> Cost:
        byte_ns = self.spaced_ns + unspaced * (self.unspaced_ns - self.spaced_ns)
        return Cost(self.load_s + self.per_1000_ids_s * n_ids / 1000, byte_ns * 1e-9)


# AMD EPYC (Zen 5), 142 MB of English and 98 MB of Chinese documents, gpt2, qwen2.5, llama3,
# minimind and llama2. fastokens without threads of its own, see `engine.thread_variables`.
_TYPICAL = {
    "byte-level BPE": {
        "gigatoken": _Typical(0.1, 0.0025, 8, 55),
        "fastokens": _Typical(0.05, 0.0075, 8.5, 25),
    },
    "other": {
        "gigatoken": _Typical(0.1, 0.0025, 26, 29),
        "fastokens": _Typical(0.05, 0.0035, 22, 15),
    },
}

_UNKNOWN = _Typical(0.1, 0.01, 30, 60)
"""Of an engine that is not in the table: behind the others until it was measured."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """Engines, the one expected to be fastest first.

    `costs`: of each. `basis`: where they are from, `MEASURED`, `SCALED` or `TYPICAL`. `is_sure`:
    false if they could be wrong about which is first.
    """

    names: Sequence[str]
    costs: Mapping[str, Cost]
    basis: str
    is_sure: bool


def unspaced_share(texts: Sequence[str]) -> float:
    """Return the share of the bytes of texts in long runs without ASCII: scripts without spaces."""
    data = "\n".join(texts).encode()
    return sum(map(len, _UNSPACED.findall(data))) / max(1, len(data))


class KeptSpeeds:
    """Costs measured on this machine, of which some are for one tokenizer variant."""

    def __init__(self, tokenizer: Tokenizer, control_in_text: str) -> None:
        self._tokenizer = tokenizer
        self._variant = variant_of(tokenizer, control_in_text)
        self._family = _family(tokenizer)

    def keep(self, unspaced: float, costs: Mapping[str, Cost]) -> None:
        """Write the measured costs of engines for text with a share of unspaced text."""
        entry = {
            "version": _VERSION,
            "tokenizer": self._variant,
            "family": self._family,
            "ids": self._tokenizer.vocab_size,
            "unspaced": round(unspaced, 3),
            "costs": {self._of(name): list(cost) for name, cost in costs.items()},
        }
        others = [one for one in _entries() if not self._replaces(entry, one)]
        write_kept(_path(), json.dumps([*others, entry][-_MOST_ENTRIES:]))

    def rank(self, names: Sequence[str], unspaced: float, n_bytes: int, n_threads: int) -> Ranking:
        """Rank engines for `n_bytes` of text with a share of unspaced text."""
        costs, basis = self._costs(names, unspaced)
        ranked = sorted(names, key=lambda name: costs[name].seconds(n_bytes, n_threads))
        first, *others = (costs[name] for name in ranked)
        unlucky = first._replace(byte_s=_UNSURE * first.byte_s).seconds(n_bytes, n_threads)
        is_sure = all(unlucky < other.seconds(n_bytes, n_threads) for other in others)
        return Ranking(ranked, costs, basis, is_sure or basis == MEASURED)

    def _costs(self, names: Sequence[str], unspaced: float) -> tuple[dict[str, Cost], str]:
        typical = self._typical(names, self._tokenizer.vocab_size, unspaced)
        known = [
            one
            for one in _entries()
            if one["family"] == self._family and all(self._of(n) in one["costs"] for n in names)
        ]
        if not known:
            return typical, TYPICAL
        nearest = min(
            known,
            key=lambda one: (
                abs(one["unspaced"] - unspaced) > _NEAR,
                one["tokenizer"] != self._variant,
                abs(one["unspaced"] - unspaced),
            ),
        )
        then = self._typical(names, nearest["ids"], nearest["unspaced"])
        costs = {}
        for name in names:
            load_s, byte_s = nearest["costs"][self._of(name)]
            now, before = typical[name], then[name]
            costs[name] = Cost(
                load_s * now.load_s / before.load_s, byte_s * now.byte_s / before.byte_s
            )
        is_near = abs(nearest["unspaced"] - unspaced) <= _NEAR
        return costs, MEASURED if is_near and nearest["tokenizer"] == self._variant else SCALED

    def _typical(self, names: Sequence[str], n_ids: int, unspaced: float) -> dict[str, Cost]:
        rows = _TYPICAL[self._family]
        return {name: rows.get(name, _UNKNOWN).cost(n_ids, unspaced) for name in names}

    def _of(self, name: str) -> str:
        return f"{name} {engine_version(name, self._tokenizer)}"

    def _replaces(self, entry: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
        is_near = abs(entry["unspaced"] - other["unspaced"]) <= _NEAR / 2
        return is_near and bool(entry["tokenizer"] == other["tokenizer"])


def _path() -> Path:
    return cache_path().with_name(_FILE)


def _family(tokenizer: Tokenizer) -> str:
    return "byte-level BPE" if '"ByteLevel"' in tokenizer.json else "other"


def _entries() -> list[dict[str, Any]]:
    """Return what is kept and well formed."""
    try:
        kept = json.loads(read_kept(_path()))
        return [
            one
            for one in kept
            if one["version"] == _VERSION
            and float(one["unspaced"]) >= 0
            and int(one["ids"]) > 0
            and isinstance(one["tokenizer"], str)
            and isinstance(one["family"], str)
            and all(len(cost) == 2 and min(cost) > 0 for cost in one["costs"].values())
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return []
