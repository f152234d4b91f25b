"""Runs of n ids that stand in held-out texts: an index of them, and the search in documents.

A run of n ids holds, at a multiple of `step`, a shorter run of `n - step + 1` ids: of 13, one of 7
at every 7th place. So documents are asked at these places alone, by a hash and a filter of bytes.
The runs around the few places that pass are asked for by another hash, and last by their ids: what
is found is exact, and hashes cost speed alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tokmill.errors import UsageError
from tokmill.words import plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    Ids = npt.NDArray[np.unsignedinteger]
    Ints = npt.NDArray[np.int64]
    Hashes = npt.NDArray[np.uint64]

BLOCK_TOKENS = 1 << 16
"""Ids that are hashed at once: few enough for the cache of a core."""

HASH_BITS = 64
"""Bits of the hash of a run; a test lowers them."""

_SEEDS = 64
_MULTIPLIER = 0x9E3779B97F4A7C15
_LEAST_BITS, _MOST_BITS, _BITS_OF_RUN = 12, 26, 4
"""A filter has 2^4 bytes for each run, but at most 64 MiB."""

_MOST_SHORT = 16
"""Ids of a short run, at most: more let no fewer places pass."""


class Found(NamedTuple):
    """The runs of n ids of some documents that stand in held-out texts, in order.

    `starts`: (m,) int64, where each begins among the ids of all documents. `grams`: (m,) int64, its
    number in the index.
    """

    starts: Ints
    grams: Ints


class Overlap(NamedTuple):
    """What a document and a held-out text share.

    Attributes:
        text: number of the held-out text.
        n_tokens: ids of the document that stand in shared runs of n.
        start: of the longest stretch of such runs, in the document.
        n_run: its ids.
        n_texts: held-out texts that hold the rarest run of n of that stretch.
    """

    text: int
    n_tokens: int
    start: int
    n_run: int
    n_texts: int


@dataclass(frozen=True, slots=True)
class NgramIndex:
    """All runs of n ids of held-out texts; about 30 bytes for each id of these.

    Attributes:
        n: ids of a run.
        seed: of the multipliers of hashes, with which no two runs have one hash.
        ids: (n_ids,) uint32, of all texts, end to end.
        hashes: (m,) uint64, of the distinct runs, sorted.
        starts: (m,) int64, where each run begins in `ids`.
        firsts: (m + 1,) int64, where the texts of each run begin in `texts`.
        texts: (p,) int64, the texts that hold each run, ascending; `firsts` divides them.
        short_filter: (2^bits,) bool, whether a bucket has one of both hashes of a short run.
        filter: (2^bits,) bool, whether a bucket has the hash of a run.
    """

    n: int
    seed: int
    ids: npt.NDArray[np.uint32]
    hashes: Hashes
    starts: Ints
    firsts: Ints
    texts: Ints
    short_filter: npt.NDArray[np.bool_]
    filter: npt.NDArray[np.bool_]

    def find(self, ids: Ids, offsets: Ints) -> Found:
        """Return the runs of documents that stand in held-out texts.

        `ids`: of all documents, end to end. `offsets`: (n_documents + 1,), where each begins.
        """
        starts, hashes = self._candidates(ids)
        if not len(starts):
            return Found(starts, starts)
        grams = np.minimum(np.searchsorted(self.hashes, hashes), len(self.hashes) - 1)
        is_same = self.hashes[grams] == hashes
        starts, grams = starts[is_same], grams[is_same]
        is_same = _equal(ids, starts, self.ids, self.starts[grams], self.n)
        starts, grams = starts[is_same], grams[is_same]
        ends = offsets[np.searchsorted(offsets, starts, "right")]  # of their documents
        is_inside = starts + self.n <= ends
        return Found(starts[is_inside], grams[is_inside])

    def _candidates(self, ids: Ids) -> tuple[Ints, Hashes]:
        """Return where runs begin that the filters let pass, and their hashes."""
        places = self._short_places(ids)
        step = self.n - n_short(self.n) + 1
        starts = (places[:, None] + np.arange(1 - step, 1)).ravel()
        starts = starts[(starts >= 0) & (starts <= len(ids) - self.n)]
        hashes = _hashes_at(ids, starts, self.n, self.seed)
        may_be = self.filter[hashes >> np.uint64(64 - _bits_of(self.filter))]
        return starts[may_be], hashes[may_be]

    def _short_places(self, ids: Ids) -> Ints:
        """Return the multiples of the step at which short runs begin that the filter lets pass."""
        n, bits = n_short(self.n), _bits_of(self.short_filter)
        step = self.n - n + 1
        block = step * max(1, BLOCK_TOKENS // step)
        passed = [np.zeros(0, np.int64)]
        for begin in range(0, len(ids) - n + 1 if len(self.hashes) else 0, block):
            here = ids[begin : begin + block]
            if len(here) % step:  # the last row of the last block
                here = np.append(here, np.zeros(-len(here) % step, here.dtype))
            hashes = _short_hashes(here.reshape(-1, step)[:, :n].T, self.seed)
            buckets = hashes >> np.uint32(32 - bits)
            may_be = self.short_filter.take(buckets.astype(np.intp), mode="clip")  # no check
            passed.append(np.flatnonzero(may_be) * step + begin)
        places = np.concatenate(passed)
        places = places[places <= len(ids) - n]
        again = _hashes_at(ids, places, n, self.seed) >> np.uint64(64 - bits)
        passed_again: Ints = places[self.short_filter[again]]
        return passed_again

    def overlaps(self, found: Found, most: int) -> list[Overlap]:
        """Return what one document shares with held-out texts, those with most ids first.

        `found`: of the document alone. Runs that more than `most` texts hold stand for the first
        ones of these, if no rarer run names a text.
        """
        starts, grams = found
        firsts = self.firsts[grams]
        counts = self.firsts[grams + 1] - firsts
        most_of_run = min(most, int(counts.max()))
        named = [self.texts[firsts[counts > i] + i] for i in range(most_of_run)]
        texts, times = np.unique(np.concatenate(named), return_counts=True)
        chosen = texts[np.lexsort((texts, -times))][:most]
        overlaps = []
        for text in chosen.tolist():
            is_held = self._hold(grams, text)
            overlaps.append(self._overlap(text, starts[is_held], counts[is_held]))
        return sorted(overlaps, key=lambda overlap: (-overlap.n_tokens, overlap.text))

    def _hold(self, grams: Ints, text: int) -> npt.NDArray[np.bool_]:
        """Return which runs a text holds: (m,) bool."""
        distinct, places = np.unique(grams, return_inverse=True)
        holds = np.zeros(len(distinct), bool)
        for i, gram in enumerate(distinct.tolist()):
            of_gram = self.texts[self.firsts[gram] : self.firsts[gram + 1]]
            at = int(np.searchsorted(of_gram, text))
            holds[i] = at < len(of_gram) and of_gram[at] == text
        return holds[places]

    def _overlap(self, text: int, starts: Ints, counts: Ints) -> Overlap:
        """Return what a document shares with a text; `starts`: of the shared runs, in order."""
        gaps = np.diff(starts)
        n_tokens = self.n + int(np.minimum(gaps, self.n).sum())
        begins = np.append(0, np.flatnonzero(gaps > 1) + 1)
        ends = np.append(begins[1:], len(starts)) - 1
        longest = int(np.argmax(starts[ends] - starts[begins]))
        first, last = int(begins[longest]), int(ends[longest])
        n_run = int(starts[last] - starts[first]) + self.n
        return Overlap(
            text, n_tokens, int(starts[first]), n_run, int(counts[first : last + 1].min())
        )


def make_index(
    texts: Sequence[npt.NDArray[np.uint32]], owners: Sequence[int], n: int, n_distinct: int = 0
) -> NgramIndex:
    """Return the index of some texts; `owners`: the number of each, which several may share.

    `n_distinct`: runs with fewer different ids, such as those of spaces, are left out.

    Raises:
        UsageError: no multipliers give different runs different hashes.
    """
    lengths = np.array([len(text) for text in texts], np.int64)
    ids = np.concatenate([np.zeros(0, np.uint32), *texts])
    ends = np.cumsum(lengths)
    starts = _starts(ends - lengths, np.maximum(lengths - n + 1, 0))
    owner = np.repeat(np.array(owners, np.int64), np.maximum(lengths - n + 1, 0))
    if n_distinct > 1:
        is_wanted = _distinct(ids, starts, n) >= n_distinct
        starts, owner = starts[is_wanted], owner[is_wanted]
    for seed in range(_SEEDS):
        hashes = _hashes_at(ids, starts, n, seed)
        order = np.lexsort((owner, hashes))
        ordered = starts[order]
        is_new = np.ones(len(order), bool)
        is_new[1:] = np.diff(hashes[order]) != 0
        repeated = np.flatnonzero(~is_new)
        if _equal(ids, ordered[repeated], ids, ordered[repeated - 1], n).all():
            break
    else:
        raise UsageError(f"against: no hash tells all runs of {plural(n, 'id')} apart")
    owner = owner[order]
    is_new_text = is_new.copy()
    is_new_text[1:] |= np.diff(owner) != 0
    firsts = np.append(np.cumsum(is_new_text)[is_new] - 1, int(is_new_text.sum()))
    distinct, starts = hashes[order][is_new], ordered[is_new]
    short = _short_filter(ids, starts, n, seed)
    whole = _empty_filter(len(distinct))
    whole[distinct >> np.uint64(64 - _bits_of(whole))] = True
    return NgramIndex(n, seed, ids, distinct, starts, firsts, owner[is_new_text], short, whole)


def n_short(n: int) -> int:
    """Return the ids of a short run: no more than the step, so each place has its own."""
    return min((n + 1) // 2, _MOST_SHORT)


def _short_hashes(runs: Ids, seed: int) -> npt.NDArray[np.uint32]:
    """Return hashes of 32 bits of short runs, which are the columns of (n, m): (m,)."""
    multipliers = np.array(
        [_multiplier(seed + j, np.dtype(np.uint32)) for j in range(len(runs))], np.uint32
    )
    products = runs.astype(np.uint32, order="C")
    products *= multipliers[:, None]
    hashes: npt.NDArray[np.uint32] = products.sum(axis=0, dtype=np.uint32)
    return hashes


def _hashes_at(ids: Ids, starts: Ints, n: int, seed: int) -> Hashes:
    """Return the hashes of 64 bits of the runs that begin at some places: (m,)."""
    multiplier = _multiplier(seed, np.dtype(np.uint64))
    hashes = np.zeros(len(starts), np.uint64)
    for j in range(n):
        hashes += ids[starts + j]
        hashes *= multiplier  # after the last, too: the upper bits are looked at
    unused = np.uint64(64 - HASH_BITS)
    return hashes >> unused << unused


def _multiplier(seed: int, dtype: np.dtype[np.unsignedinteger]) -> np.unsignedinteger:
    """Return an odd number without a pattern."""
    number = _MULTIPLIER * (2 * seed + 1) % (1 << 64)
    return dtype.type(number >> (64 - 8 * dtype.itemsize) | 1)


def _short_filter(ids: Ids, starts: Ints, n: int, seed: int) -> npt.NDArray[np.bool_]:
    """Return the filter of the short runs inside runs of n, which begin at `starts`."""
    short = n_short(n)
    is_short = np.zeros(len(ids), np.bool_)
    for j in range(n - short + 1):
        is_short[starts + j] = True
    places = np.flatnonzero(is_short)
    made = _empty_filter(len(places))
    bits = _bits_of(made)
    for begin in range(0, len(places), BLOCK_TOKENS):
        here = places[begin : begin + BLOCK_TOKENS]
        first = _short_hashes(ids[here + np.arange(short)[:, None]], seed)
        made[first >> np.uint32(32 - bits)] = True
        made[_hashes_at(ids, here, short, seed) >> np.uint64(64 - bits)] = True
    return made


def _empty_filter(n_runs: int) -> npt.NDArray[np.bool_]:
    bits = n_runs.bit_length() + _BITS_OF_RUN
    return np.zeros(1 << min(max(bits, _LEAST_BITS), _MOST_BITS), np.bool_)


def _bits_of(made: npt.NDArray[np.bool_]) -> int:
    return len(made).bit_length() - 1


def _starts(begins: Ints, counts: Ints) -> Ints:
    """Return `counts[i]` places from `begins[i]` on, for each i in turn."""
    before = np.cumsum(counts) - counts
    return np.repeat(begins - before, counts) + np.arange(int(counts.sum()))


def _distinct(ids: npt.NDArray[np.uint32], starts: Ints, n: int) -> Ints:
    """Return how many different ids each run of n has: (m,) int64."""
    counts = np.ones(len(starts), np.int64)
    for begin in range(0, len(starts), BLOCK_TOKENS):
        here = slice(begin, begin + BLOCK_TOKENS)
        runs = np.sort(ids[starts[here, None] + np.arange(n)], axis=1)
        counts[here] += np.count_nonzero(runs[:, 1:] != runs[:, :-1], axis=1)
    return counts


def _equal(
    ids: Ids,
    starts: Ints,
    others: Ids,
    other_starts: Ints,
    n: int,
) -> npt.NDArray[np.bool_]:
    """Return which runs of n ids are those at other places: (m,) bool."""
    is_equal = np.ones(len(starts), bool)
    for j in range(n):
        is_equal &= ids[starts + j] == others[other_starts + j]
    return is_equal
