"""The engines of a run: the chosen one, and the reference beside it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tokmill.engines.added_tokens import for_engine
from tokmill.engines.engine import REFERENCE
from tokmill.engines.loaded import EngineMemory, RenewableEngine
from tokmill.engines.routing import RoutedEngine

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokmill.engines.choice import Continuation, EngineChoice
    from tokmill.engines.engine import Engine
    from tokmill.recipes.spec import RunSpec
    from tokmill.tokenizer.tokenizer import Tokenizer


def reference_loader(spec: RunSpec, tokenizer: Tokenizer) -> Callable[[], Engine]:
    """Return a function that returns the reference engine, and loads it at the first call."""
    control = spec.config.tokenizer.control_tokens_in_text
    return partial(spec.engines.load, REFERENCE, tokenizer, control_in_text=control)


def make_engine(
    spec: RunSpec,
    tokenizer: Tokenizer,
    choice: EngineChoice | Continuation,
    memory: EngineMemory,
) -> RenewableEngine:
    """Return the chosen engine; it is loaded with the first texts.

    Texts that are routed go to the reference engine of `tokenizer`, which the process has loaded at
    most once: 150,000 tokens take 0.4 s. `memory`: the bound that its engines share.
    """
    load_reference = reference_loader(spec, tokenizer)
    has_threads = tokenizer.kind == "sentencepiece"  # then it is loaded for those of the run
    if choice.name == REFERENCE and not has_threads:
        return RenewableEngine(load_reference, memory)

    def load() -> Engine:
        control, n_threads = spec.config.tokenizer.control_tokens_in_text, spec.n_threads
        is_reference = choice.name == REFERENCE
        engine = spec.engines.load(
            choice.name,
            tokenizer if is_reference else for_engine(tokenizer, choice.added),
            control_in_text=control,
            n_threads=n_threads,
            is_taken=True,
        )
        return engine if is_reference else RoutedEngine(engine, load_reference, choice.routes)

    return RenewableEngine(load, memory)
