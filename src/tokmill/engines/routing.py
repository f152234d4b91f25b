"""Routes documents to the reference: with certain characters, or on which a fast engine raises."""

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
    """Encodes documents by an engine, and by the reference where that differs or raises.

    `reference` loads the reference; it is called with the first such document. `characters`: those
    on which the two differ or were not compared; may be empty.
    """

    def __init__(
        self, engine: Engine, reference: Callable[[], Engine], characters: CharacterSet
    ) -> None:
        self.name = engine.name
        self.renewable = engine.renewable
        self.concurrent = engine.concurrent
        self._engine = engine
        self._reference = reference
        self._finder = CharacterFinder(characters) if characters else None

    def encode(self, text: pa.LargeStringArray) -> TokenBatch:
        """Encode documents; see `Engine`."""
        routed = self._finder.documents(text) if self._finder else ()
        if not len(routed):
            return self._encode_or_route(text)
        is_routed = np.zeros(len(text), np.bool_)
        is_routed[routed] = True
        rest = self._route(text.filter(pa.array(is_routed)))
        first = self._encode_or_route(text.filter(pa.array(~is_routed)))
        return merge_tokens(first, rest, is_routed)

    def _encode_or_route(self, text: pa.LargeStringArray) -> TokenBatch:
        """Encode documents by the engine, and those on which it raises by the reference.

        A batch raises as a whole: it is halved until the engine takes a half, or one document is
        left. So the documents that go to the reference do not depend on the size of blocks.
        """
        try:
            return self._engine.encode(text)
        except MemoryError:
            raise
        except Exception:
            if len(text) < 2:
                return self._route(text)
        middle = len(text) // 2
        first, rest = (self._encode_or_route(half) for half in (text[:middle], text[middle:]))
        return merge_tokens(first, rest, np.arange(len(text)) >= middle)

    def _route(self, text: pa.LargeStringArray) -> TokenBatch:
        return replace(self._reference().encode(text), routed=np.arange(len(text)))


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
