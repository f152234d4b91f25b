"""Setting up a run of SFT: its schema, template, control tokens and limits.

The manifest's `mask` comes from here, too: its rule, and the ids that samples end with.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tokmill.chat.control_strings import Vocabulary
from tokmill.chat.conversation import ChatError, Conversation
from tokmill.chat.mask_rule import EVERYTHING, mask_rule
from tokmill.chat.own_templates import own_name, own_source
from tokmill.chat.reading.detect import resolve_rendered_text, resolve_schema
from tokmill.chat.reading.schemas import MIXED, STANFORD
from tokmill.chat.render_pool import ChatRenderer, RenderPool, emitted_strings, shared_pool
from tokmill.chat.segments import Kind
from tokmill.chat.template_source import template_name, template_source
from tokmill.dataset.manifest import MaskEnds, MaskEntry
from tokmill.dataset.packing import MOST_LENGTH
from tokmill.errors import UsageError
from tokmill.tokenizer.control_tokens import added_tokens, kept_as_text, with_control_tokens
from tokmill.values import UNMERGED_TEXT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tokmill.chat.conversation import Message
    from tokmill.engines.engine import Engine
    from tokmill.recipes.spec import RunSpec
    from tokmill.settings.schema import Config
    from tokmill.settings.sft import SftSettings
    from tokmill.tokenizer.tokenizer import Tokenizer
    from tokmill.values import SampleBatch


def sft_settings(config: Config) -> SftSettings:
    """Return the settings of SFT; raise `UsageError` for a run of pretraining."""
    if config.sft is None:
        raise UsageError("not a run of SFT: the configuration has no [sft]")
    return config.sft


def resolve_records(
    settings: SftSettings,
    tokenizer: Tokenizer,
    records: Sequence[Mapping[str, Any]],
    where: str,
) -> SftSettings:
    """Return the settings with those of reading resolved, by the first records of some files.

    Raises:
        UsageError: no schema fits; `where` names the records.
    """
    settings = resolve_schema(settings, records, where)
    control = [string for string, token in added_tokens(tokenizer).items() if token.special]
    return resolve_rendered_text(settings, records, control, where)


def common_settings(settings: SftSettings, of_readings: Sequence[SftSettings]) -> SftSettings:
    """Return the settings of a run whose files are read in these ways; one if there is one."""
    if len(of_readings) == 1:
        return of_readings[0]
    parses = any(reading.rendered_text == "parse" for reading in of_readings)
    return replace(settings, schema=MIXED, rendered_text="parse" if parses else "text")


def resolve_sft(config: Config, tokenizer: Tokenizer) -> tuple[Config, Tokenizer, RenderPool]:
    """Resolve the settings that are `auto` besides those of reading; choose the control tokens.

    Returns:
        the settings without `auto`; the tokenizer, which encodes the strings of control tokens in
        texts as text; and the pool of the template, whose child, if it needs one, has started.

    Raises:
        UsageError: no template fits.
        TemplateLimitError: the template takes too much time or memory.
    """
    settings = sft_settings(config)
    added = added_tokens(tokenizer)
    rule = mask_rule(settings)
    if any(factor not in (0, 1) for _, factor in rule.weighed):
        settings = replace(settings, weights="file")
    config = _with_lengths(config, settings)
    if settings.schema == "text" and settings.rendered_text == "parse":
        source = own_source("plain")  # rendered texts need no template
    else:
        source = template_source(settings, rule.template, tokenizer.chat_template)
    if settings.instruction == "auto":
        style = STANFORD if own_name(source) == "alpaca" else "newline"
        settings = replace(settings, instruction=style)
    pool = shared_pool(source)
    emitted = emitted_strings(source, frozenset(added))
    if config.tokenizer.control_tokens_in_text != "parse":
        tokenizer = with_control_tokens(tokenizer, {*emitted, *kept_as_text(tokenizer)})
    tokenizer = replace(tokenizer, max_emittable_id=tokenizer.vocab_size - 1)
    return replace(config, sft=settings), tokenizer, pool


def _with_lengths(config: Config, settings: SftSettings) -> Config:
    """Return the settings with `max_tokens`, by default the length of a packing row.

    Raises:
        UsageError: the settings contradict each other.
    """
    row = settings.packing
    longest = config.limits.max_tokens or row
    if row > MOST_LENGTH:
        raise UsageError(f"expected at most {MOST_LENGTH} tokens a row, found {row}", "sft.packing")
    if row and longest > row:
        raise UsageError(
            f"rows of {row} tokens cannot hold samples of up to {longest} tokens: set --max-tokens "
            f"to {row} or less",
            "sft.packing",
        )
    if row and config.limits.min_tokens > longest:
        raise UsageError(
            f"no sample of --min-tokens, {config.limits.min_tokens}, fits into rows of {row} "
            f"tokens: set --min-tokens to {longest} or less",
            "sft.packing",
        )
    if settings.too_long == "window" and longest == 1:
        raise UsageError(
            "a window of 1 token has no target, as the first token of a sample is none: raise "
            "--max-tokens",
            "sft.too_long",
        )
    if settings.too_long == "window" and longest and settings.window_overlap >= longest:
        raise UsageError(
            f"{settings.window_overlap} must be below --max-tokens, {longest}",
            "sft.window_overlap",
        )
    if settings.max_samples_per_row and not row:
        raise UsageError("needs --packing, the tokens of a row", "sft.max_samples_per_row")
    if settings.packed_rows and not row:
        raise UsageError("needs --packing, the tokens of a row", "sft.packed_rows")
    return replace(config, limits=replace(config.limits, max_tokens=longest))


def vocabulary_of(config: Config, tokenizer: Tokenizer, template: str) -> Vocabulary:
    """Return the control tokens and named tokens that a template may use."""
    named = dict(tokenizer.named)
    added = added_tokens(tokenizer)
    emitted = emitted_strings(template, frozenset(added))
    control = {
        string: token.id for string, token in added.items() if token.special or string in emitted
    }
    control[tokenizer.eos.content] = tokenizer.eos.id
    bos = named.get("bos_token", "") if tokenizer.bos is None else tokenizer.bos.content
    if tokenizer.bos is not None:
        control[bos] = tokenizer.bos.id
    parse = config.tokenizer.control_tokens_in_text == "parse"
    return Vocabulary(
        control,
        tokenizer.eos.content,
        bos if bos in control else "",
        named | {"eos_token": tokenizer.eos.content},
        parse,
        frozenset(added) - frozenset(control),
    )


def make_chat_renderer(
    config: Config, tokenizer: Tokenizer, source: str, n_processes: int = 0
) -> ChatRenderer:
    """Return the renderer of a resolved run; `source` is its template, `n_processes`: see the pool.

    Raises:
        UsageError: the template does not fit the tokenizer.
    """
    settings = sft_settings(config)
    pool = shared_pool(source, n_processes)
    vocabulary = vocabulary_of(config, tokenizer, source)
    pool.check(vocabulary, settings)
    write = partial(pool.write, vocabulary, settings)
    return ChatRenderer(settings, template_name(source, settings), write)


_MARK = "\u200bm\u200b"
_PROBES = (
    ("user", "assistant"),
    ("system", "user", "assistant", "user", "assistant"),
    ("assistant",),
    ("user", "assistant", "user"),
    ("user", "assistant", "system"),
    ("user", "assistant", "tool"),
    ("user", "assistant", "tool", "assistant"),
    ("user", "call"),
    ("user", "empty"),
)
"""Roles of conversations: each role comes last in one of them. "call" is a tool call of the
assistant, "empty" an empty reply."""
_BEFORE = (".", "a", "1", " ", "\n", "\t", ":\n", ">", '"', ")", "\u3002", "\u00e9")
"""Ends of texts: a tokenizer may merge them with the text that the template writes next."""


def describe_mask(spec: RunSpec, reference: Engine, cut: int) -> MaskEntry:
    """Return the manifest's `mask` of a run of SFT; `cut`: its samples that were cut off."""
    settings = sft_settings(spec.config)
    rule = mask_rule(settings)
    renderer = make_chat_renderer(spec.config, spec.tokenizer, spec.template)
    # A rendered text may end with any token.
    is_open = settings.rendered_text == "parse" and settings.schema in ("text", "mixed")
    is_open = is_open and not rule.appends_eos
    ids = [] if is_open else last_ids(renderer, reference)
    return MaskEntry(
        preset=settings.preset,
        boundary=rule.boundary,
        alignment="target",
        trained=tuple(kind.name.lower() for kind in Kind if rule.trained[kind]),
        turns=EVERYTHING if rule.trains_all else rule.turns,
        template=renderer.name,
        template_sha256=spec.template_sha256,
        ends=MaskEnds("eos" if rule.appends_eos else "template", tuple(ids)),
        cut=cut,
    )


def last_ids(renderer: ChatRenderer, reference: Engine) -> list[int]:
    """Return the ids that a sample may end with; none if it may end with text of a message."""
    ids: set[int] = set()
    for roles in _PROBES:
        messages = [_message(role) for role in roles]
        try:
            samples = renderer.render_conversation(Conversation(messages, [None] * len(messages)))
        except ChatError:  # the template refuses this conversation
            continue
        last = _last_id(samples, reference)
        if last is None:
            return []
        ids.add(last)
    return sorted(ids)


def _message(role: str) -> Message:
    if role == "call":
        function = {"name": "f", "arguments": {"x": _MARK}}
        calls = [{"type": "function", "function": function}]
        return {"role": "assistant", "content": "", "tool_calls": calls}
    if role == "empty":
        return {"role": "assistant", "content": ""}
    return {"role": role, "content": _MARK}


def _last_id(samples: SampleBatch, reference: Engine) -> int | None:
    """Return the last id of the last sample.

    None if it depends on the text of a message, or if the tokenizer drops the last text (BERT drops
    white space).
    """
    control = samples.control.tolist()
    if control[-1] >= 0:
        return int(control[-1])
    texts: list[str] = []
    for text, id_ in zip(reversed(samples.text.to_pylist()), reversed(control), strict=True):
        if id_ >= 0:
            break
        texts.insert(0, text)
        if id_ == UNMERGED_TEXT:
            break
    ending = "".join(texts)
    befores = _BEFORE if _MARK in ending else ("",)
    ending = ending.rpartition(_MARK)[2]
    if not ending:
        return None
    last_ids: set[int | None] = set()
    for before in befores:
        ids = _encoded(reference, before + ending)
        last_ids.add(ids[-1] if ids else None)
    return last_ids.pop() if len(last_ids) == 1 else None


def _encoded(reference: Engine, text: str) -> list[int]:
    ids: list[int] = reference.encode(pa.array([text], pa.large_string())).ids.tolist()
    return ids
