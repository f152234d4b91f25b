"""The sample encoder of a run: its engines, for texts and for text that continues text."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from functools import cache, partial
from typing import TYPE_CHECKING

from tokmill.chat.templates import emitted_strings
from tokmill.chat.weights import mask_rule
from tokmill.engines.choice import Continuation
from tokmill.engines.continuation_check import check_continuation
from tokmill.engines.engine import REFERENCE, load_engine
from tokmill.engines.engine_memory import EngineMemory, RenewableEngine
from tokmill.engines.routing import load_routed
from tokmill.errors import TokenizerError
from tokmill.masks.encoder import SampleEncoder, SampleRules, reference_offsets
from tokmill.recipes.sft_setup import sft_settings
from tokmill.tokenizer.byte_lengths import byte_lengths
from tokmill.tokenizer.continuation import (
    after_control,
    closed_texts,
    continuation_tokenizer,
)
from tokmill.tokenizer.control_tokens import added_tokens

if TYPE_CHECKING:
    from tokmill.engines.engine import Engine
    from tokmill.recipes.spec import RunSpec
    from tokmill.tokenizer.tokenizer import Tokenizer


def make_sample_encoder(spec: RunSpec, memory: EngineMemory) -> SampleEncoder:
    """Give the encoder that a run's settings describe.

    Args:
        spec: the run.
        memory: what its engines share.

    Raises:
        TokenizerError: the boundary asked for cannot be had with this tokenizer.
    """
    config, tokenizer = spec.config, spec.tokenizer
    settings, rule = sft_settings(config), mask_rule(sft_settings(config))
    parse = config.tokenizer.control_tokens_in_text == "parse"
    continuation = continuation_tokenizer(tokenizer)
    added = added_tokens(tokenizer)
    is_joint = rule.boundary == "joint"
    behind = "first"
    if continuation is not tokenizer:
        emitted = emitted_strings(spec.template, added) | ({tokenizer.eos.content} & set(added))
        behind = after_control(tokenizer, continuation, emitted)
    first = Continuation(spec.engine.name, spec.engine.differs)
    engine = RenewableEngine(partial(_load, spec, tokenizer, first), memory)
    rest: RenewableEngine | None = engine
    if continuation is None:
        rest = None
    elif continuation is not tokenizer:
        rest = None
        # Joint boundaries cut no text, so that only text behind control tokens may need it.
        with suppress(TokenizerError) if is_joint and behind == "first" else nullcontext():
            _prove(spec, continuation)
            second = spec.engine.continuation or Continuation(REFERENCE)
            rest = RenewableEngine(partial(_load, spec, continuation, second), memory)
    is_variant = continuation is not None and continuation is not tokenizer
    lengths = byte_lengths(tokenizer) if is_joint or settings.too_long == "drop-turns" else None
    offsets = None
    if is_joint:  # loads nothing until lengths do not add up
        offsets = reference_offsets(tokenizer, continuation, parse=parse)
    rules = SampleRules(
        rule.boundary,
        settings.straddling,
        behind,
        strips_left=frozenset(token.id for token in added.values() if token.lstrip),
        strips_right=frozenset(token.id for token in added.values() if token.rstrip),
        restart_pattern=closed_texts(tokenizer, added) if parse and is_variant else "",
    )
    return SampleEncoder(engine, rest, rules, lengths=lengths, offsets=offsets)


def _load(spec: RunSpec, tokenizer: Tokenizer, chosen: Continuation) -> Engine:
    control = spec.config.tokenizer.control_tokens_in_text
    load = partial(load_engine, tokenizer=tokenizer, control_in_text=control)
    return load_routed(
        chosen.name,
        chosen.differs,
        tokenizer,
        cache(partial(load, REFERENCE, n_threads=1)),
        control_in_text=control,
        n_threads=spec.n_threads,
    )


def _prove(spec: RunSpec, continuation: Tokenizer) -> None:
    """Prove that continuations go with texts, with the reference for both.

    The run's engine for either was held against it before the run.

    Raises:
        TokenizerError: they do not go together.
    """
    parse = spec.config.tokenizer.control_tokens_in_text == "parse"
    first, second = (
        _load(spec, tokenizer, Continuation(REFERENCE))
        for tokenizer in (spec.tokenizer, continuation)
    )
    check_continuation(spec.tokenizer, first, second, parse=parse)
