"""Documents of a corpus: what engines have to reproduce, and what they are timed on."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from tokmill.engines.trial.candidate import Parity, Timing
from tokmill.engines.trial.hostile import hostile_texts
from tokmill.tokenizer.control_strings import control_strings

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt

    from tokmill.engines.engine import Engine
    from tokmill.tokenizer.tokenizer import Tokenizer

PARITY_BYTES = 512 << 10
"""Corpus text that every candidate must encode like the reference, besides the hostile texts."""

_TIMED_BYTES = 16 << 10
"""Of fewer bytes the reference's speed is not told."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Documents of a corpus, spread over it.

    `corpus_bytes`: of text, in the whole corpus; `new_share`: how much of it has not been
    seen before when it comes, 1 where no document comes twice.
    """

    texts: Sequence[str]
    corpus_bytes: int = 0
    new_share: float = 1.0


@dataclass(frozen=True, slots=True)
class Taken:
    """What candidates have to reproduce, and the MB/s of the reference meanwhile; 0: not known."""

    parity: Parity
    sample: Sample
    mb_per_s: float


def take(tokenizer: Tokenizer, reference: Engine, sample: Sample) -> Taken:
    """Return the hostile texts and a part of the sample, with the ids that the reference gives."""
    some = list(sample.texts[:: step_of(sample.texts)])
    hostile = hostile_texts(control_strings(tokenizer))
    expected = _ids(reference, hostile)
    start = time.perf_counter()
    expected += _ids(reference, some)
    seconds, n_bytes = time.perf_counter() - start, sum(len(text.encode()) for text in some)
    speed = round(n_bytes / seconds / 1e6, 1) if n_bytes >= _TIMED_BYTES else 0.0
    return Taken(Parity(hostile + some, expected), sample, speed)


def _ids(reference: Engine, texts: Sequence[str]) -> list[npt.NDArray[np.uint32]]:
    batch = reference.encode(pa.array(texts, pa.large_string()))
    ends = zip(batch.offsets, batch.offsets[1:], strict=False)
    return [batch.ids[start:stop] for start, stop in ends]


def timing_texts(sample: Sample) -> Timing:
    """Return the documents that `take` left, if any: those that it has shown are not new."""
    step = step_of(sample.texts)
    return Timing([text for i, text in enumerate(sample.texts) if i % step] or sample.texts)


def step_of(texts: Sequence[str]) -> int:
    """Return the step over a sample that takes about `PARITY_BYTES` of it, evenly spread."""
    total = sum(len(text) for text in texts)
    return max(1, -(-total * 2 // PARITY_BYTES))
