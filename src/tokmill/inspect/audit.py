"""Audit samples: what a trainer would train of them, by the kinds of `audit_kinds.KINDS`.

Samples come in blocks, as flat arrays, from a dataset or from rows; each check is a few passes over
a block. Memory: that of a block, and of the hashes of `document_hashes`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tokmill.inspect.audit_kinds import (
    BOS,
    BOTH,
    BYTES,
    CHATS,
    DOCUMENTS,
    KINDS,
    LIMIT,
    MASK,
    ROWS,
    THINKING,
    TOKENIZER,
)
from tokmill.inspect.audit_result import Audit, Example, Finding
from tokmill.inspect.document_hashes import hashes_of
from tokmill.inspect.samples import Sample
from tokmill.tokenizer.decode import TokenRun

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    import numpy.typing as npt

    from tokmill.dataset.sample_checks import Samples
    from tokmill.inspect.document_hashes import DocumentHashes
    from tokmill.inspect.token_facts import TokenFacts

    Flags = npt.NDArray[np.bool_]
    Numbers = npt.NDArray[np.int64]

_SHOWN_TOKENS = 120
"""Tokens of an example on each side of the one that is to blame."""

_RAW_BYTES = 200
"""Of a row that cannot be read as samples, to be shown."""

_MOST_SEEN = 1 << 16
"""Hashes among which the first duplicate is looked for, to show it."""

_FEWEST_REPLIES = 4
"""With fewer, nothing is said of how they begin."""

_MOST_BEGINNINGS = 64
"""Ids before replies of which an example is kept."""

_LONGEST_THINKING = 4
"""Tokens between two tags of reasoning that may all be blank."""


class Block(NamedTuple):
    """Some samples, and whence they come.

    `where`: names one by its number in the block. `began_trained`: (n,) whether the first token was
    a target. `are_packed`: rows may hold several samples, or pieces of documents. `run_on`: (n,)
    whether position_ids were given and count through the whole sample.
    """

    samples: Samples
    where: Callable[[int], str]
    split: str
    began_trained: Flags
    are_packed: bool = False
    run_on: Flags | None = None


class Auditor:
    """Takes blocks of samples, and counts those of each kind.

    `facts`: None without a tokenizer. `max_tokens`: 0 for no limit. `is_chat`: whether samples are
    of chats; None: what they train says so. `are_rows`: of another trainer, not of a dataset.
    `meant`: kinds that are no fault.
    """

    def __init__(
        self,
        hashes: DocumentHashes,
        facts: TokenFacts | None,
        *,
        max_tokens: int = 0,
        is_chat: bool | None = None,
        are_rows: bool = False,
        meant: Collection[str] = (),
    ) -> None:
        self._hashes, self._facts = hashes, facts
        self._max_tokens, self._is_chat = max_tokens, is_chat
        self._are_rows, self._meant = are_rows, frozenset(meant)
        self.n_samples = self.n_tokens = self.n_trained = 0
        self._counts: Counter[str] = Counter()
        self._examples: dict[str, Example] = {}
        self._splits: set[str] = set()
        self._seen: set[bytes] = set()
        self._has_masks = self._is_partly_trained = self._marks_turns = False
        self._before, self._second, self._late = Counter[int](), Counter[int](), Counter[int]()
        self._headers: dict[int, Counter[int]] = {}
        self._late_examples: dict[int, Example] = {}
        self._piece_tokens = self._n_pieces = 0
        self._piece: Example | None = None

    # What is found

    def add_row(self, kind: str, where: str, message: str, raw: Callable[[], bytes]) -> None:
        """Count a row that gives no samples; `raw` returns its first bytes, which may be slow."""
        self.n_samples += 1
        self._counts[kind] += 1
        if kind not in self._examples:
            text = raw()[:_RAW_BYTES].decode("utf-8", "replace")
            self._examples[kind] = Example(where, message, raw=text)

    def found(self, kind: str, block: Block, numbers: Numbers, tokens: Numbers) -> None:
        """Count samples by their numbers in a block; `tokens`: of each, one that is to blame.

        A number may stand several times; the first token counts then.
        """
        if not len(numbers):
            return
        self._counts[kind] += len(np.unique(numbers))
        if kind not in self._examples:
            self._examples[kind] = self._example(block, int(numbers[0]), int(tokens[0]))

    def _of_tokens(self, kind: str, block: Block, tokens: Numbers) -> None:
        """Count the samples of some tokens of a block, increasing."""
        self.found(kind, block, block.samples.of(tokens), tokens)

    def found_samples(self, kind: str, block: Block, numbers: Numbers) -> None:
        """Count samples as a whole, by their numbers."""
        self.found(kind, block, numbers, np.full(len(numbers), -1))

    def _example(self, block: Block, number: int, token: int) -> Example:
        samples = block.samples
        start, stop = (int(one) for one in samples.offsets[number : number + 2])
        first, last = start, min(stop, start + 2 * _SHOWN_TOKENS)
        if token >= 0:
            first, last = max(start, token - _SHOWN_TOKENS), min(stop, token + _SHOWN_TOKENS)
        ids = tuple(samples.ids[first:last].tolist())
        mask = None
        if samples.mask is not None:
            flags = (samples.mask[first:last] != 0).astype(np.uint8)
            if first == start and len(flags):
                flags[0] |= block.began_trained[number]
            mask = tuple(flags.tolist())
        where = block.where(number)
        sample = Sample(number, where, ids, mask, None, self._runs(ids, mask))
        at = token - start if token >= 0 else None
        return Example(where, "", at, stop - start, first - start, ids, mask, sample=sample)

    def _runs(self, ids: Sequence[int], mask: Sequence[int] | None) -> tuple[TokenRun, ...]:
        """Return ids as texts; as numbers without a tokenizer, or where it lacks one of them."""
        weights = mask or (0,) * len(ids)
        if self._facts is not None and all(0 <= id_ < self._facts.n_ids for id_ in ids):
            return tuple(self._facts.decoder.runs(ids, weights))
        return tuple(
            TokenRun((id_,), False, weight, (f"{id_} ",))
            for id_, weight in zip(ids, weights, strict=True)
        )

    # What is looked for

    def add(self, block: Block) -> None:
        """Audit some samples."""
        samples = block.samples
        if not len(samples.lengths):
            return
        self.n_samples += len(samples.lengths)
        self.n_tokens += len(samples.ids)
        self.n_trained += int(samples.n_trained.sum())
        self._splits.add(block.split)
        present = self._check_ids(block)
        self._check_begin(block)
        self._check_padding(block)
        if self._max_tokens:
            self.found_samples(
                "over-limit", block, np.flatnonzero(samples.lengths > self._max_tokens)
            )
        if samples.mask is None:
            self._check_documents(block, np.ones(len(samples.lengths), bool))
        else:
            self._check_masks(block, samples.mask, present)
        self._add_hashes(block)

    def _check_ids(self, block: Block) -> Flags | None:
        """Check that ids are of tokens; return which ids there are: (n_ids,), None if unknown."""
        samples, facts = block.samples, self._facts
        n_ids = np.iinfo(np.int64).max if facts is None else facts.n_ids
        outside = samples.outside(n_ids)
        is_negative = samples.ids[outside] < 0
        self._of_tokens("negative-id", block, outside[is_negative])
        self._of_tokens("id-above-vocabulary", block, outside[~is_negative])
        if facts is None:
            return None
        inside = np.delete(samples.ids, outside) if len(outside) else samples.ids
        present = np.zeros(n_ids, bool)
        present[inside] = True
        of_no_use = present & (~facts.is_token | facts.is_spare)
        if of_no_use.any():
            is_unused = np.isin(samples.ids, np.flatnonzero(of_no_use))
            self._of_tokens("unused-id", block, np.flatnonzero(is_unused))
        self._marks_turns |= bool((present & facts.marks_turn).any())
        return present

    def _check_begin(self, block: Block) -> None:
        """Look for two bos."""
        facts, samples = self._facts, block.samples
        if facts is None or facts.bos is None:
            return
        firsts = samples.starts[samples.lengths > 1]
        is_twice = (samples.ids[firsts] == facts.bos) & (samples.ids[firsts + 1] == facts.bos)
        self._of_tokens("two-bos", block, firsts[is_twice] + 1)

    def _check_padding(self, block: Block) -> None:
        """Look for padding at the ends of samples, which counts."""
        facts, samples = self._facts, block.samples
        if facts is None:
            return
        pad = facts.eos if facts.pad is None else facts.pad
        before = _padding_before(samples, pad, 2 if pad == facts.bos else int(facts.is_end[pad]))
        behind = _padding_behind(samples, pad, int(facts.is_end[pad]))
        numbers, firsts, stops = (np.concatenate(pair) for pair in zip(before, behind, strict=True))
        if samples.mask is None:
            is_trained = np.arange(len(numbers)) >= len(before.numbers)
        else:
            trained = np.flatnonzero(samples.mask)
            is_trained = np.searchsorted(trained, firsts) < np.searchsorted(trained, stops)
        self.found("padding-trained", block, numbers[is_trained], firsts[is_trained])
        if not block.are_packed:
            is_rest = ~np.isin(numbers, numbers[is_trained])
            self.found("padding-attended", block, numbers[is_rest], firsts[is_rest])

    def _check_documents(self, block: Block, are_documents: Flags) -> None:
        """Check where documents end; `are_documents`: (n,) the samples that may be some."""
        facts, samples = self._facts, block.samples
        if facts is None:
            return
        unended = samples.ending_otherwise([facts.eos])
        unended = unended[are_documents[unended]]
        unended = self._without_pieces(block, unended)
        self.found("no-eos", block, unended, samples.lasts[unended])
        eos = np.flatnonzero(samples.ids == facts.eos)
        of_eos = samples.of(eos)
        goes_on = samples.ids[np.minimum(eos + 1, len(samples.ids) - 1)] != facts.eos
        is_inside = goes_on & (eos < samples.lasts[of_eos]) & (eos > samples.starts[of_eos])
        is_inside &= are_documents[of_eos]
        runs_on = np.zeros(len(eos), bool) if block.run_on is None else block.run_on[of_eos]
        self._of_tokens("positions-run-on", block, eos[is_inside & runs_on])
        self._of_tokens("eos-inside", block, eos[is_inside & ~runs_on])

    def _without_pieces(self, block: Block, unended: Numbers) -> Numbers:
        """Return the samples without eos that are no pieces of a document that was cut.

        Where documents are cut into rows, all pieces but the last have the length of a row, and the
        first token of a piece is not trained. The length is that of the longest sample so far; what
        was taken for pieces of a row that was shorter is counted then.
        """
        lengths = block.samples.lengths
        longest = int(lengths.max())
        if longest > self._piece_tokens:
            self._counts["no-eos"] += self._n_pieces
            if self._piece is not None:
                self._examples.setdefault("no-eos", self._piece)
            self._piece_tokens, self._n_pieces, self._piece = longest, 0, None
        may_be_cut = np.full(len(unended), block.are_packed)
        if block.samples.mask is not None:
            may_be_cut |= ~block.began_trained[unended]
        is_piece = may_be_cut & (lengths[unended] == self._piece_tokens)
        pieces = unended[is_piece]
        self._n_pieces += len(pieces)
        if len(pieces) and self._piece is None:
            first = int(pieces[0])
            self._piece = self._example(block, first, int(block.samples.lasts[first]))
        ordinary: Numbers = unended[~is_piece]
        return ordinary

    def _check_masks(self, block: Block, mask: npt.NDArray[Any], present: Flags | None) -> None:
        """Check what samples train."""
        samples = block.samples
        self._has_masks = True
        n_trained = samples.n_trained
        has_first = mask[samples.starts] != 0
        is_whole = (n_trained - has_first == samples.lengths - 1) & (samples.lengths > 1)
        self._is_partly_trained |= bool((~is_whole & (samples.lengths > 1)).any())
        self.found_samples("nothing-trained", block, samples.training_nothing())
        is_all = is_whole & block.began_trained
        if self._facts is not None:  # elsewhere the first token may be all of a prompt
            first_ids = samples.ids[samples.starts]
            is_all |= is_whole & self._facts.are(self._facts.is_special, first_ids)
        self.found_samples("all-trained", block, np.flatnonzero(is_all))
        first = np.flatnonzero(block.began_trained & ~is_whole)
        self._of_tokens("first-trained", block, samples.starts[first])
        if is_whole.any() and not self._is_chat:
            self._check_documents(block, is_whole)
        replies = _Replies.of(samples, mask != 0)
        self._count_beginnings(block, replies)
        if self._facts is not None and present is not None:
            self._check_ends(block, self._facts, replies, is_whole, present)
            self._check_edges(block, self._facts, replies)
            self._check_thinking(block, self._facts, replies, present)
            self._check_joined(block, self._facts)

    def _count_beginnings(self, block: Block, replies: _Replies) -> None:
        """Count what stands before trained replies; `_late_beginnings` compares them."""
        samples = block.samples
        firsts = replies.firsts[replies.firsts > samples.starts[replies.of_firsts] + 1]
        before, second = samples.ids[firsts - 1], samples.ids[firsts - 2]
        for counter, ids in ((self._before, before), (self._second, second)):
            values, counts = np.unique(ids, return_counts=True)
            counter.update(dict(zip(values.tolist(), counts.tolist(), strict=True)))
        if len(firsts):
            usual = self._before.most_common(1)[0][0]
            behind = self._headers.setdefault(usual, Counter())
            values, counts = np.unique(second[before == usual], return_counts=True)
            behind.update(dict(zip(values.tolist(), counts.tolist(), strict=True)))
        late = firsts[before != second]
        if self._facts is not None and self._facts.decoder.has_bytes:
            late = late[~self._facts.begin_inside(samples.ids[late])]  # of another kind
        pairs = np.unique(np.stack((samples.ids[late - 2], samples.of(late))), axis=1)
        ids, starts, counts = np.unique(pairs[0], return_index=True, return_counts=True)
        self._late.update(dict(zip(ids.tolist(), counts.tolist(), strict=True)))
        for id_, number in zip(ids.tolist(), pairs[1][starts].tolist(), strict=True):
            if id_ not in self._late_examples and len(self._late_examples) < _MOST_BEGINNINGS:
                token = int(late[(samples.ids[late - 2] == id_) & (samples.of(late) == number)][0])
                self._late_examples[id_] = self._example(block, number, token - 1)

    def _count_late_beginnings(self) -> None:
        """Count samples with a reply whose first token is left out.

        Most replies stand behind the same two tokens, which end a header, or behind a control
        token. Where the last of them is the second one before a reply, the reply's first token is
        not trained. Or all replies are so.
        """
        n_replies = self._before.total()
        if n_replies < _FEWEST_REPLIES:
            return
        (last, n_last), (second, n_second) = (
            counter.most_common(1)[0] for counter in (self._before, self._second)
        )
        if 2 * n_last > n_replies:
            ids = self._headers.get(last, Counter())
            is_special = self._facts is not None and bool(
                self._facts.are(self._facts.is_special, np.array([last]))[0]
            )
            is_header = is_special or 10 * max(ids.values(), default=0) >= 9 * ids.total()
        else:  # no token is that before most replies: all may begin too late
            last, is_header = second, 5 * n_second >= 4 * n_replies
        if not is_header:  # but what many prompts end with
            return
        self._counts["begin-untrained"] = self._late[last]
        if last in self._late_examples:
            self._examples["begin-untrained"] = self._late_examples[last]

    def _check_ends(
        self, block: Block, facts: TokenFacts, replies: _Replies, is_whole: Flags, present: Flags
    ) -> None:
        """Check how trained replies end; `is_whole`: (n,) samples that are trained throughout."""
        samples, lasts, of_lasts = block.samples, replies.lasts, replies.of_lasts
        at_end = lasts == samples.lasts[of_lasts]
        inside = lasts[~at_end]
        is_stopped = facts.are(facts.is_end, samples.ids[inside + 1])
        is_stopped &= ~facts.are(facts.is_special, samples.ids[inside])
        self._of_tokens("end-untrained", block, inside[is_stopped] + 1)
        at_end &= ~is_whole[of_lasts]
        last, first = lasts[at_end], replies.firsts[at_end]
        has_end = np.zeros(len(last), bool)
        for back in range(3):  # white space of the template may follow the end
            has_end |= facts.are(facts.is_special, samples.ids[np.maximum(last - back, first)])
        self._of_tokens("cut-off", block, last[~has_end])
        behind = replies.behind(np.flatnonzero(present & facts.is_end))
        is_header = facts.are(facts.is_special, samples.ids[behind])
        is_header |= facts.are(facts.is_special, samples.ids[behind + 1])
        behind = behind[~is_header]
        self._of_tokens("trained-past-end", block, behind[~is_whole[samples.of(behind)]])

    def _check_joined(self, block: Block, facts: TokenFacts) -> None:
        """Look for bos inside of chats whose positions run on: several samples in one row.

        Some templates write bos before each turn; a row of a known export is not looked at.
        """
        if block.run_on is None or facts.bos in (None, facts.eos) or self._is_chat:
            return
        samples = block.samples
        bos = np.flatnonzero(samples.ids == facts.bos)
        of_bos = samples.of(bos)
        is_inside = (bos > samples.starts[of_bos] + 1) & block.run_on[of_bos]
        self._of_tokens("positions-run-on", block, bos[is_inside])

    def _check_edges(self, block: Block, facts: TokenFacts, replies: _Replies) -> None:
        """Look for characters of which a part is trained."""
        if not facts.decoder.has_bytes:
            return
        samples = block.samples
        before = replies.firsts[replies.firsts > samples.starts[replies.of_firsts]]
        behind = replies.lasts[replies.lasts < samples.lasts[replies.of_lasts]] + 1
        edges = np.union1d(before, behind)
        self._of_tokens("split-character", block, edges[facts.begin_inside(samples.ids[edges])])

    def _check_thinking(
        self, block: Block, facts: TokenFacts, replies: _Replies, present: Flags
    ) -> None:
        """Look for empty blocks of reasoning of which something is trained."""
        samples = block.samples
        found = [np.zeros(0, np.int64)]
        for opens, closes in facts.thinking:
            if not (present[opens] and present[closes]):
                continue
            left = np.flatnonzero(samples.ids == closes)
            starts = samples.starts[samples.of(left)]
            for distance in range(1, _LONGEST_THINKING + 2):
                is_inside = left - distance >= starts
                left, starts = left[is_inside], starts[is_inside]
                before = samples.ids[left - distance]
                closing = left[before == opens]
                found.append(closing[replies.train_some(closing - distance, closing)])
                is_blank = facts.are_blank(before)
                left, starts = left[is_blank], starts[is_blank]
        self._of_tokens("empty-thinking", block, np.sort(np.concatenate(found)))

    def _add_hashes(self, block: Block) -> None:
        """Hash samples; show the first that equals one of the first ones."""
        samples = block.samples
        ids = samples.ids.astype(np.uint32)
        if samples.mask is not None:  # in one array: to hash two takes half as long again
            ids = 2 * ids + (samples.mask != 0)
        hashes = hashes_of(ids.astype(np.uint32, copy=False), None, samples.lengths)
        self._hashes.add(hashes, samples.lengths, block.split)
        if "duplicate" in self._examples or len(self._seen) > _MOST_SEEN:
            return
        for number, one in enumerate(hashes):
            if one in self._seen:
                self._examples["duplicate"] = self._example(block, number, -1)
                break
            self._seen.add(one)

    # What is told

    def result(self, source: str, notes: Sequence[str], *, has_masks: bool) -> Audit:
        """Return what was found; `has_masks`: whether something says what is trained."""
        duplicates = self._hashes.duplicates()
        self._counts["duplicate"] += duplicates.documents
        self._counts["val-in-train"] += duplicates.in_both_splits
        self._count_late_beginnings()
        are_chats = self._are_chats()
        if has_masks and not are_chats and self._is_chat is None:
            notes = [*notes, "every token is trained: read as documents for pretraining"]
        looked_for = self._looked_for(are_chats=are_chats)
        counts = {name: self._counts[name] for name in looked_for if self._counts[name]}
        lacked = self._lacked(has_masks=has_masks)
        return Audit(
            source,
            self.n_samples,
            self.n_tokens,
            self.n_trained,
            tuple(self._finding(name) for name in counts if name not in self._meant),
            {name: KINDS[name].needs for name in looked_for if KINDS[name].needs in lacked},
            {name: n for name, n in counts.items() if name in self._meant},
            tuple(notes),
        )

    def _looked_for(self, *, are_chats: bool) -> list[str]:
        """Return the kinds that samples of this sort can have."""
        left_out = {DOCUMENTS if are_chats else CHATS}
        left_out |= set() if self._are_rows else {ROWS}
        return [name for name, kind in KINDS.items() if kind.of not in left_out]

    def _finding(self, name: str) -> Finding:
        """Return what was counted of a kind."""
        kind, count = KINDS[name], self._counts[name]
        share = count / max(1, self.n_samples)
        texts = (kind.means, kind.hurts, kind.remedy)
        return Finding(name, count, share, *texts, self._examples.get(name))

    def _lacked(self, *, has_masks: bool) -> set[str]:
        """Return what kinds need and what is not there."""
        facts, lacked = self._facts, set()
        if facts is None:
            lacked |= {TOKENIZER, BOS, BYTES, THINKING}
        else:
            lacked |= {BOS} if facts.bos is None else set()
            lacked |= set() if facts.decoder.has_bytes else {BYTES}
            lacked |= set() if facts.thinking else {THINKING}
        lacked |= set() if self._max_tokens else {LIMIT}
        lacked |= set() if has_masks else {MASK}
        return lacked if len(self._splits) > 1 else lacked | {BOTH}

    def _are_chats(self) -> bool:
        """Return whether the samples are of chats: some of their tokens are not trained."""
        if self._is_chat is not None:
            return self._is_chat
        return self._has_masks and (self._is_partly_trained or self._marks_turns)


@dataclass(frozen=True, slots=True)
class _Replies:
    """Runs of trained tokens of samples.

    `firsts`, `lasts`: (m,) the first and the last token of each. `of_firsts`, `of_lasts`: (m,) the
    samples of these.
    """

    samples: Samples
    is_trained: Flags
    firsts: Numbers
    lasts: Numbers
    of_firsts: Numbers
    of_lasts: Numbers

    @classmethod
    def of(cls, samples: Samples, is_trained: Flags) -> _Replies:
        """Return the runs; a sample ends them."""
        goes_on = np.zeros(len(is_trained) + 1, bool)
        goes_on[1:-1] = is_trained[:-1] & is_trained[1:]
        goes_on[samples.starts] = False
        firsts = np.flatnonzero(is_trained & ~goes_on[:-1])
        lasts = np.flatnonzero(is_trained & ~goes_on[1:])
        return cls(samples, is_trained, firsts, lasts, samples.of(firsts), samples.of(lasts))

    def train_some(self, firsts: Numbers, lasts: Numbers) -> Flags:
        """Return whether a token of each of n ranges is trained, its last one included: (n,)."""
        ended_before = np.searchsorted(self.lasts, firsts)
        begun: Flags = np.searchsorted(self.firsts, lasts, "right") > ended_before
        return begun

    def behind(self, ids: Numbers) -> Numbers:
        """Return the tokens behind some ids, where a run goes on before and two tokens behind."""
        found = [np.zeros(0, np.int64)]
        for id_ in ids.tolist():
            tokens = np.flatnonzero((self.samples.ids == id_) & self.is_trained)
            of_runs = np.searchsorted(self.lasts, tokens)
            is_inside = (self.firsts[of_runs] < tokens) & (self.lasts[of_runs] >= tokens + 2)
            found.append(tokens[is_inside] + 1)
        return np.sort(np.concatenate(found))


class _Padding(NamedTuple):
    """Padding of n samples: their numbers, its first token in each, and the one behind it."""

    numbers: Numbers
    firsts: Numbers
    stops: Numbers


def _padding_before(samples: Samples, pad: int, n_own: int) -> _Padding:
    """Return the padding before samples; up to `n_own` of its tokens would be of the text."""
    numbers = np.flatnonzero(samples.lengths > n_own)
    for place in range(n_own + 1):
        numbers = numbers[samples.ids[samples.starts[numbers] + place] == pad]
    starts, ends = samples.starts[numbers], samples.offsets[numbers + 1]
    stops = ends
    if len(numbers):
        others = np.append(np.flatnonzero(samples.ids != pad), len(samples.ids))
        stops = np.minimum(others[np.searchsorted(others, starts)], ends)
    return _Padding(numbers, starts, stops - n_own)


def _padding_behind(samples: Samples, pad: int, n_own: int) -> _Padding:
    """Return the padding behind samples; see `_padding_before`."""
    numbers = np.flatnonzero(samples.lengths > n_own)
    for place in range(n_own + 1):
        numbers = numbers[samples.ids[samples.lasts[numbers] - place] == pad]
    starts, ends = samples.starts[numbers], samples.offsets[numbers + 1]
    firsts = starts
    if len(numbers):
        others = np.append(-1, np.flatnonzero(samples.ids != pad))
        last = others[np.searchsorted(others, ends) - 1]
        firsts = np.maximum(last + 1, starts)
    return _Padding(numbers, firsts + n_own, ends)
