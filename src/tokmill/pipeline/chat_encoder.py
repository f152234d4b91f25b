"""The sample encoder of a run: its engines, for texts and for text that continues text."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tokmill.encode.byte_lengths import byte_lengths
from tokmill.encode.continuation import (
    after_control,
    closed_texts,
    continuation_tokenizer,
    prove_continuation,
)
from tokmill.encode.control import control_strings
from tokmill.encode.control_variant import added_tokens
from tokmill.encode.engine import REFERENCE, load_engine
from tokmill.encode.hostile import hostile_texts
from tokmill.encode.renewal import EngineMemory, RenewableEngine
from tokmill.encode.samples import SampleEncoder, SampleRules, offsets_of
from tokmill.errors import TokenizerError
from tokmill.pipeline.chat import sft_settings
from tokmill.render.chat.rule import mask_rule
from tokmill.render.chat.templates import emitted_strings

if TYPE_CHECKING:
    from tokmill.encode.engine import Engine
    from tokmill.encode.tokenizer import Tokenizer
    from tokmill.pipeline.spec import RunSpec


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
    engine = RenewableEngine(partial(_load, spec, tokenizer, spec.engine.name), memory)
    rest: RenewableEngine | None = engine
    if continuation is None:
        rest = None
    elif continuation is not tokenizer:
        rest = None
        # Joint boundaries cut no text, so that only text behind control tokens may need it.
        with suppress(TokenizerError) if is_joint and behind == "first" else nullcontext():
            name = _prove(spec, continuation)
            rest = RenewableEngine(partial(_load, spec, continuation, name), memory)
    is_variant = continuation is not None and continuation is not tokenizer
    lengths = byte_lengths(tokenizer) if is_joint or settings.too_long == "drop-turns" else None
    offsets = None
    if is_joint:  # loads nothing until lengths do not add up
        offsets = offsets_of(tokenizer, continuation, parse=parse)
    rules = SampleRules(
        rule.boundary,
        settings.straddling,
        behind,
        strips_left=frozenset(token.id for token in added.values() if token.lstrip),
        strips_right=frozenset(token.id for token in added.values() if token.rstrip),
        closed=closed_texts(tokenizer, added) if parse and is_variant else "",
    )
    return SampleEncoder(engine, rest, rules, lengths=lengths, offsets=offsets)


def _load(spec: RunSpec, tokenizer: Tokenizer, name: str) -> Engine:
    control = spec.config.tokenizer.control_tokens_in_text
    return load_engine(name, tokenizer, control_in_text=control, n_threads=spec.n_threads)


def _prove(spec: RunSpec, continuation: Tokenizer) -> str:
    """Prove that continuations go with texts; give the engine that may encode them.

    The run's own engine was proven with the tokenizer, not with this variant of it.

    Raises:
        TokenizerError: they do not go together.
    """
    parse = spec.config.tokenizer.control_tokens_in_text == "parse"
    first = _load(spec, spec.tokenizer, REFERENCE)
    reference = _load(spec, continuation, REFERENCE)
    prove_continuation(spec.tokenizer, first, reference, parse=parse)
    if spec.engine.name == REFERENCE:
        return REFERENCE
    texts = pa.array(hostile_texts(control_strings(continuation)), pa.large_string())
    try:
        found = _load(spec, continuation, spec.engine.name).encode(texts)
    except TokenizerError:
        return REFERENCE
    expected = reference.encode(texts)
    equal = np.array_equal(found.ids, expected.ids) and np.array_equal(
        found.offsets, expected.offsets
    )
    return spec.engine.name if equal else REFERENCE
