"""Which road a run takes: for pretraining, or for SFT."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tokmill.pipeline.road import PretrainRoad

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    import pyarrow as pa

    from tokmill.encode.engine import Engine
    from tokmill.pipeline.encoded import Encoded
    from tokmill.pipeline.spec import RunSpec
    from tokmill.sources.blocks import Block


class Road(Protocol):
    """Blocks of input to encoded documents; loaded once a process, shared by its threads.

    `schema`: the columns it wants of a source. `dtype`: of the tokens.
    """

    schema: pa.Schema
    dtype: np.dtype[np.unsignedinteger]

    def process(self, blocks: Sequence[Block]) -> list[Encoded]:
        """Parse, render and encode blocks, at least one, as if each came alone."""


def make_road(spec: RunSpec, reference: Callable[[], Engine] | None = None) -> Road:
    """Give the road of a run; `reference` gives the reference engine, where it is loaded already.

    Raises:
        TokmillError: the renderer, the template or the engine does not fit the tokenizer.
    """
    if spec.config.sft is None:
        return PretrainRoad(spec, reference)
    from tokmill.pipeline.chat_road import ChatRoad

    return ChatRoad(spec, reference)
