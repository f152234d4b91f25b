"""Setting up a run of SFT: its schema, template, control tokens and limits."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from tokmill.chat.control_strings import Vocabulary
from tokmill.chat.mask_rule import mask_rule
from tokmill.chat.own_templates import own_name, own_source
from tokmill.chat.reading.detect import resolve_rendered_text, resolve_schema
from tokmill.chat.reading.schemas import MIXED, STANFORD
from tokmill.chat.render_pool import ChatRenderer, shared_pool
from tokmill.chat.template_source import emitted_strings, template_name, template_source
from tokmill.dataset.packing import MOST_LENGTH
from tokmill.errors import UsageError
from tokmill.tokenizer.control_tokens import added_tokens, kept_as_text, with_control_tokens

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from tokmill.settings.schema import Config
    from tokmill.settings.sft import SftSettings
    from tokmill.tokenizer.tokenizer import Tokenizer


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


def resolve_sft(config: Config, tokenizer: Tokenizer) -> tuple[Config, Tokenizer, str]:
    """Resolve the settings that are `auto` besides those of reading; choose the control tokens.

    Returns:
        the settings without `auto`; the tokenizer, which encodes the strings of control tokens in
        texts as text; and the source of the template.

    Raises:
        UsageError: no template fits.
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
    emitted = emitted_strings(source, added)
    if config.tokenizer.control_tokens_in_text != "parse":
        tokenizer = with_control_tokens(tokenizer, {*emitted, *kept_as_text(tokenizer)})
    tokenizer = replace(tokenizer, max_emittable_id=tokenizer.vocab_size - 1)
    return replace(config, sft=settings), tokenizer, source


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
    if settings.packed_rows and not row:
        raise UsageError("needs --packing, the tokens of a row", "sft.packed_rows")
    return replace(config, limits=replace(config.limits, max_tokens=longest))


def vocabulary_of(config: Config, tokenizer: Tokenizer, template: str) -> Vocabulary:
    """Return the control tokens and named tokens that a template may use."""
    named = dict(tokenizer.named)
    added = added_tokens(tokenizer)
    emitted = emitted_strings(template, added)
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
    pool = shared_pool(source, vocabulary_of(config, tokenizer, source), n_processes)
    pool.check(settings)
    return ChatRenderer(settings, template_name(source, settings), partial(pool.write, settings))
