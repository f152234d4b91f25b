"""Encodes texts as a run does: by an engine that is chosen, and compared before and meanwhile."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.engines.choose import EngineRequest, choose_engine
from tokmill.engines.engine import REFERENCE, engine_threads
from tokmill.engines.loaded import EngineMemory, EngineStore
from tokmill.engines.spot_check import SpotCheck
from tokmill.errors import ParityError
from tokmill.machine.limits import usable_cores, usable_memory
from tokmill.recipes.engines import make_engine, reference_loader
from tokmill.recipes.memory_bounds import engine_bytes
from tokmill.recipes.spec import RunSpec
from tokmill.timing import StageTimer

if TYPE_CHECKING:
    import pyarrow as pa

    from tokmill.engines.loaded import RenewableEngine
    from tokmill.settings.schema import Config
    from tokmill.tokenizer.tokenizer import Tokenizer
    from tokmill.values import TokenBatch


class TextEncoder:
    """Encodes columns of texts; safe to call from several threads, and to be pickled.

    `sample`: texts of the corpus, on which engines are compared, too. `n_bytes`: about how much
    text there is; None: much.

    Raises:
        TokmillError: the engine is missing, refuses the tokenizer, or is not exact.
    """

    def __init__(
        self, config: Config, tokenizer: Tokenizer, sample: list[str], n_bytes: int | None
    ) -> None:
        self.tokenizer = tokenizer
        self.n_threads = config.run.threads or usable_cores()

        def sampled(limit_bytes: int) -> list[str]:
            """Return the first texts of so many bytes."""
            stops = np.cumsum([len(text) for text in sample])
            return sample[: int(np.searchsorted(stops, limit_bytes)) + 1]

        engines = EngineStore()
        request = EngineRequest(
            tokenizer,
            config.run.engine,
            config.tokenizer.control_tokens_in_text,
            self.n_threads,
            n_bytes,
            sampled,
            engines,
        )
        with engine_threads(self.n_threads):
            choice = choose_engine(request, has_continuations=False)
        self._spec = RunSpec(
            config,
            tokenizer,
            choice,
            self.n_threads,
            memory_bytes=usable_memory(),
            engines=engines,
        )

    def __getstate__(self) -> dict[str, Any]:
        """Return what another process needs; it loads the engine itself."""
        names = ("tokenizer", "n_threads", "_spec")
        return {name: getattr(self, name) for name in names}

    @cached_property
    def engine(self) -> RenewableEngine:
        """Load the engine, once."""
        spec = self._spec
        return make_engine(spec, spec.tokenizer, spec.engine, EngineMemory(engine_bytes(spec)))

    @cached_property
    def _spot(self) -> SpotCheck | None:
        spec = self._spec
        if spec.engine.name == REFERENCE:
            return None
        return SpotCheck(reference_loader(spec, spec.tokenizer), spec.engine.spot_share)

    def encode(self, text: pa.LargeStringArray) -> TokenBatch:
        """Return the ids of texts; a share of them is compared with the reference's.

        Raises:
            ParityError: they differ.
        """
        timer = StageTimer()
        batch = self.engine.encode(text, timer)
        if self._spot is None:
            return batch
        numbers = np.arange(len(text))
        _, differences = self._spot.check(
            text, batch, lambda _, window: self.engine.encode(window, timer), numbers, numbers
        )
        for _, line in differences:
            raise ParityError(line)
        return batch
