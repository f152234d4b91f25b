"""Routes documents with certain characters to the reference, all others to a fast engine."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tokmill.dataset.counts import ROUTED
from tokmill.engines.characters import CharacterFinder
from tokmill.offsets import merge_tokens

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from tokmill.engines.characters import CharacterSet
    from tokmill.engines.engine import Engine
    from tokmill.values import TokenBatch


class RoutedEngine:
    """Encodes documents with certain characters by the reference, all others by an engine.

    `reference` loads the reference; it is called with the first such document. `characters`: those
    on which the two differ or were not compared, at least one.
    """

    def __init__(
        self, engine: Engine, reference: Callable[[], Engine], characters: CharacterSet
    ) -> None:
        self.name = engine.name
        self.renewable = engine.renewable
        self.concurrent = engine.concurrent
        self._engine = engine
        self._reference = reference
        self._finder = CharacterFinder(characters)

    def encode(self, text: pa.LargeStringArray) -> TokenBatch:
        """Encode documents; see `Engine`."""
        routed = self._finder.documents(text)
        if not len(routed):
            return self._engine.encode(text)
        is_routed = np.zeros(len(text), np.bool_)
        is_routed[routed] = True
        rest = self._reference().encode(text.filter(pa.array(is_routed)))
        first = self._engine.encode(text.filter(pa.array(~is_routed)))
        return replace(merge_tokens(first, rest, is_routed), routed=routed)


def routed_counts(
    tokens: TokenBatch, owner: npt.NDArray[np.int64], n_documents: int
) -> dict[str, npt.NDArray[np.int64]]:
    """Return 1 for each document with a routed text, as `Counts.checks`; empty if there is none.

    `owner`: (n_texts,), the document of each text.
    """
    if tokens.routed is None:
        return {}
    counts = np.zeros(n_documents, np.int64)
    counts[owner[tokens.routed]] = 1
    return {ROUTED: counts}
