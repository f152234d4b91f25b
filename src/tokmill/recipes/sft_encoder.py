"""The sample encoder of a run: its engines for texts and for text that continues text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokmill.chat.templates import emitted_strings
from tokmill.chat.weights import mask_rule
from tokmill.engines.choice import Continuation
from tokmill.engines.continuation_check import check_continuation
from tokmill.engines.engine import REFERENCE
from tokmill.errors import TokenizerError
from tokmill.masks.encoder import SampleEncoder, reference_offsets
from tokmill.masks.layout import SampleRules
from tokmill.recipes.engines import make_engine, reference_loader
from tokmill.recipes.sft_setup import sft_settings
from tokmill.tokenizer.byte_lengths import byte_lengths
from tokmill.tokenizer.continuation import after_control, closed_texts, continuation_tokenizer
from tokmill.tokenizer.control_tokens import added_tokens

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokmill.engines.engine import Engine
    from tokmill.engines.loaded import EngineMemory, RenewableEngine
    from tokmill.recipes.spec import RunSpec
    from tokmill.tokenizer.tokenizer import Tokenizer


def make_sample_encoder(
    spec: RunSpec, memory: EngineMemory, reference: Callable[[], Engine] | None = None
) -> SampleEncoder:
    """Return the encoder that a run's settings describe.

    `reference`: returns the reference engine, if the process may have loaded it already.

    `memory`: the bound that its engines share.

    Raises:
        TokenizerError: this tokenizer does not support the boundary of the settings.
    """
    config, tokenizer = spec.config, spec.tokenizer
    settings, rule = sft_settings(config), mask_rule(sft_settings(config))
    parse = config.tokenizer.control_tokens_in_text == "parse"
    is_joint = rule.boundary == "joint"
    continuation, added = continuation_tokenizer(tokenizer), added_tokens(tokenizer)
    load_reference = reference or reference_loader(spec, tokenizer)
    engine = make_engine(spec, tokenizer, spec.engine, load_reference, memory)
    rest: RenewableEngine | None = engine
    encoded_as, restart_pattern = "first", ""
    if continuation is not tokenizer:
        emitted = emitted_strings(spec.template, added) | ({tokenizer.eos.content} & set(added))
        encoded_as = after_control(tokenizer, continuation, emitted)
        # Joint boundaries cut no text: only text after control tokens may be a continuation.
        is_optional = is_joint and encoded_as == "first"
        rest = _continuation_engine(spec, continuation, memory, is_optional=is_optional)
        if parse and continuation is not None:
            restart_pattern = closed_texts(tokenizer, added)
    rules = SampleRules(
        rule.boundary,
        settings.straddling,
        encoded_as,
        strips_left=frozenset(token.id for token in added.values() if token.lstrip),
        strips_right=frozenset(token.id for token in added.values() if token.rstrip),
        restart_pattern=restart_pattern,
    )
    needs_lengths = is_joint or settings.too_long == "drop-turns"
    return SampleEncoder(
        engine,
        rest,
        rules,
        lengths=byte_lengths(tokenizer) if needs_lengths else None,
        offsets=reference_offsets(tokenizer, continuation, parse=parse) if is_joint else None,
    )


def _continuation_engine(
    spec: RunSpec, continuation: Tokenizer | None, memory: EngineMemory, *, is_optional: bool
) -> RenewableEngine | None:
    """Return the engine for continuations; None if the tokenizer cannot encode them.

    Raises:
        TokenizerError: the tokenizer encodes them wrongly, and they are not optional.
    """
    if continuation is None:
        return None
    parse = spec.config.tokenizer.control_tokens_in_text == "parse"
    first, rest = (reference_loader(spec, one)() for one in (spec.tokenizer, continuation))
    try:
        check_continuation(spec.tokenizer, first, rest, parse=parse)
    except TokenizerError:
        if is_optional:
            return None
        raise
    choice = spec.engine.continuation or Continuation(REFERENCE)
    return make_engine(spec, continuation, choice, reference_loader(spec, continuation), memory)
