"""The sample encoder of a run: its engines for texts and for text that continues text."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING

from tokmill.chat.templates import emitted_strings
from tokmill.chat.weights import mask_rule
from tokmill.engines.choice import Continuation
from tokmill.engines.continuation_check import check_continuation
from tokmill.engines.engine import REFERENCE
from tokmill.errors import TokenizerError
from tokmill.masks.encoder import SampleEncoder, SampleRules, reference_offsets
from tokmill.recipes.engines import make_engine, reference_loader
from tokmill.recipes.sft_setup import sft_settings
from tokmill.tokenizer.byte_lengths import byte_lengths
from tokmill.tokenizer.continuation import (
    after_control,
    closed_texts,
    continuation_tokenizer,
)
from tokmill.tokenizer.control_tokens import added_tokens

if TYPE_CHECKING:
    from tokmill.engines.engine_memory import EngineMemory, RenewableEngine
    from tokmill.recipes.spec import RunSpec
    from tokmill.tokenizer.tokenizer import Tokenizer


def make_sample_encoder(spec: RunSpec, memory: EngineMemory) -> SampleEncoder:
    """Return the encoder that a run's settings describe.

    `memory`: the bound that its engines share.

    Raises:
        TokenizerError: this tokenizer does not support the boundary of the settings.
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
    engine = make_engine(spec, tokenizer, spec.engine, reference_loader(spec, tokenizer), memory)
    rest: RenewableEngine | None = None
    pattern = ""
    if continuation is tokenizer:
        rest = engine
    elif continuation is not None:
        # Joint boundaries cut no text: only text after control tokens may be a continuation.
        with suppress(TokenizerError) if is_joint and behind == "first" else nullcontext():
            _prove(spec, continuation)
            choice = spec.engine.continuation or Continuation(REFERENCE)
            load_reference = reference_loader(spec, continuation)
            rest = make_engine(spec, continuation, choice, load_reference, memory)
        pattern = closed_texts(tokenizer, added) if parse else ""
    rules = SampleRules(
        rule.boundary,
        settings.straddling,
        behind,
        strips_left=frozenset(token.id for token in added.values() if token.lstrip),
        strips_right=frozenset(token.id for token in added.values() if token.rstrip),
        restart_pattern=pattern,
    )
    needs_lengths = is_joint or settings.too_long == "drop-turns"
    return SampleEncoder(
        engine,
        rest,
        rules,
        lengths=byte_lengths(tokenizer) if needs_lengths else None,
        offsets=reference_offsets(tokenizer, continuation, parse=parse) if is_joint else None,
    )


def _prove(spec: RunSpec, continuation: Tokenizer) -> None:
    """Prove with the reference that continuations fit to the texts before them.

    The run's engines were compared with the reference before the run.

    Raises:
        TokenizerError: they do not fit.
    """
    parse = spec.config.tokenizer.control_tokens_in_text == "parse"
    first, second = (reference_loader(spec, one)() for one in (spec.tokenizer, continuation))
    check_continuation(spec.tokenizer, first, second, parse=parse)
