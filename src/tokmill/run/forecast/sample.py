"""What a survey has seen of the input: its documents, and what they say of all of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokmill.sources.blocks import Block

_FEWEST_TWINS = 3
"""Fewer documents met twice say nothing of how many there are."""


@dataclass(slots=True)
class InputSample:
    """A sample of the input, rendered.

    `n_control`: control tokens that the template puts around each text; empty for pretraining.
    `input_bytes` is what the sampled records take in their files, as far as that is known, and
    `stored_bytes` what was read for them: the head of a compressed file packs worse than the rest.
    `window_bytes` are the ranges that they had to start in (0 where there were none); `texts` are
    their documents, `rejects` counts what was refused by reason, `unread` describes breaks;
    `raw` the same records as they stand there, in pieces of the fragments' size. `fragments` are
    pieces from all over the input, of `fragment_bytes` in all; both are empty where files can be
    read only from their heads. `fields`: by file, what those of its records hold; see `Counts`.

    For each of n windows: `window_read`, the bytes read for it, and `window_ranges`, the range that
    its records had to start in, 0 where there was none. `raw_windows`: the window of each piece of
    `raw`; `blocks`: the blocks with their windows, if they are to be kept. `is_whole`: all of the
    input was read.
    """

    texts: list[str] = field(default_factory=list)
    input_bytes: int = 0
    stored_bytes: int = 0
    window_bytes: int = 0
    heads_only: bool = False
    raw: list[str] = field(default_factory=list)
    fragments: list[str] = field(default_factory=list)
    fragment_bytes: int = 0
    n_control: list[int] = field(default_factory=list)
    rejects: Counter[str] = field(default_factory=Counter)
    first_reject: str = ""
    unread: list[str] = field(default_factory=list)
    fields: dict[str, Counter[str]] = field(default_factory=dict)
    window_read: list[int] = field(default_factory=list)
    window_ranges: list[int] = field(default_factory=list)
    raw_windows: list[int] = field(default_factory=list)
    blocks: list[tuple[int, Block]] = field(default_factory=list)
    is_whole: bool = False

    @property
    def n_rejects(self) -> int:
        """Return the number of sampled records that were rejected."""
        return self.rejects.total()

    @property
    def sources(self) -> list[dict[str, Any]]:
        """Return the sampled files whose fields were weighed, as rows of a manifest."""
        return [{"path": path, "fields": found} for path, found in sorted(self.fields.items())]

    @property
    def text_bytes(self) -> int:
        """Return the bytes of the rendered sample."""
        return sum(len(text.encode()) for text in self.texts)

    @property
    def records_per_byte(self) -> float:
        """Return how many records start in a byte of input.

        Counted in windows and fragments, whose sizes do not depend on the records in them.
        """
        n_records = len(self.texts) + self.n_rejects
        if not self.window_bytes:
            return n_records / self.input_bytes
        n_records += sum(text.count("\n") for text in self.fragments)
        return n_records / (self.window_bytes + self.fragment_bytes)

    def new_share(self, n_bytes: int) -> float:
        """Estimate which share of an input of `n_bytes` has not been seen before when it comes.

        From documents met once and twice in a sample at random (Chao, 1984, doi 10.2307/4615964).
        """
        met = Counter(self.texts)
        times = Counter(met.values())
        if times[2] < _FEWEST_TWINS:
            return 1.0
        n_different = len(met) + times[1] ** 2 / (2 * times[2])
        return min(1.0, n_different / (self.records_per_byte * n_bytes))

    @property
    def read_bytes(self) -> int:
        """Return the bytes of input that the sample read."""
        return self.stored_bytes + self.fragment_bytes
