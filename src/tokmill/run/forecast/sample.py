"""A sample of the input: its documents, and what follows from them for the complete input."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokmill.sources.blocks import Block
    from tokmill.sources.slices import SourceFile

_FEWEST_PAIRS = 3
"""Fewer documents seen twice are too few for an estimate."""


@dataclass(slots=True)
class InputSample:
    """A sample of the input, rendered.

    `texts`: the documents. `n_control`: control tokens that the template adds to each; empty for
    pretraining. `rejects`: counts by reason. `unread`: a line for each break. `fields`: by file,
    the bytes of its records' fields; see `Counts`.

    `stored_bytes`: bytes read for the sampled records; `input_bytes`: their share of the files, if
    known: the head of a compressed file is compressed less than the rest. `heads_only`: only the
    beginnings of files were read. `is_complete`: all input was read.

    `window_bytes`: sum of the ranges in which sampled records start, 0 for files without ranges.
    For each of n windows: `window_read`, the bytes read; `window_ranges`, its range or 0.
    `raw`: the sampled records as they stand in the file, in pieces as long as fragments;
    `raw_windows`: the window of each. `fragments`: pieces from the complete input,
    `fragment_bytes` in all; none for files that can be read only from their beginning.
    `blocks`: the blocks with their windows and files, if they are kept.
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
    blocks: list[tuple[int, SourceFile, Block]] = field(default_factory=list)
    is_complete: bool = False

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
        """Return the records per byte of input.

        Counted in windows and fragments, whose sizes do not depend on the records in them.
        """
        n_records = len(self.texts) + self.n_rejects
        if not self.window_bytes:
            return n_records / self.input_bytes
        n_records += sum(text.count("\n") for text in self.fragments)
        return n_records / (self.window_bytes + self.fragment_bytes)

    @property
    def read_bytes(self) -> int:
        """Return the bytes of input that the sample read."""
        return self.stored_bytes + self.fragment_bytes
