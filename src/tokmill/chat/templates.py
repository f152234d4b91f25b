"""Which template writes a conversation: a built-in one by name, or Jinja."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from tokmill.chat.builtin.chatml import ChatML, Minimind, Torchtune
from tokmill.chat.builtin.formats import Alpaca, BabyLlama2, Llama3, Nanochat, Plain
from tokmill.chat.builtin.literals import require
from tokmill.chat.jinja.training_templates import TRAINING, training_source
from tokmill.chat.jinja.variables import check_read, chosen_variables
from tokmill.errors import UsageError
from tokmill.extensions import find, names_of_packages, nearest
from tokmill.settings.load import check_regular
from tokmill.tables import TEMPLATES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from tokmill.chat.control_strings import Vocabulary
    from tokmill.chat.conversation import Conversation
    from tokmill.chat.segments import Segments
    from tokmill.extensions import Extension, TableEntry
    from tokmill.settings.sft import SftSettings


class ChatTemplate(Protocol):
    """Writes one conversation as the segments of one sample; threads may share one."""

    name: str

    def render(self, conversation: Conversation, segments: Segments) -> None:
        """Write it; the sample is open. Raises `ChatError` where it cannot."""


def template_source(settings: SftSettings, preset_template: str, own: str | None) -> str:
    """Return the name of a built-in template, or the text of a Jinja one.

    Args:
        settings: the settings.
        preset_template: the built-in template of the preset, or ''.
        own: the tokenizer's chat template.

    Raises:
        UsageError: there is none, or its file cannot be read.
    """
    name = settings.template
    if name == "auto" and preset_template:
        return preset_template
    if name in ("auto", "tokenizer"):
        if not own:
            raise UsageError(
                "this tokenizer has no chat template: give --template, one of "
                f"{', '.join(BUILT_IN)} or a Jinja file"
            )
        return own
    if name in BUILT_IN:
        return name
    if name in TRAINING:
        return training_source(name)
    try:
        check_regular(Path(name))
        return Path(name).read_text(encoding="utf-8-sig")  # a mark at the start is no text
    except FileNotFoundError:
        if found := _find_outside(name):
            return str(found.value)
        known = [*BUILT_IN, *TRAINING, *sorted(names_of_packages(TEMPLATES))]
        raise UsageError(
            f"{name}: no such template; built in are {', '.join((*BUILT_IN, *TRAINING))}, or name "
            f"a Jinja file{nearest(name, known)}"
        ) from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{name}: the template cannot be read: {error}") from None


def template_extension(name: str) -> Extension | None:
    """Return the identity of the template of a setting if it is another package's."""
    is_own = name in ("auto", "tokenizer", *BUILT_IN, *TRAINING) or Path(name).is_file()
    found = None if is_own else _find_outside(name)
    return found.extension if found else None


def _find_outside(name: str) -> TableEntry | None:
    if name not in names_of_packages(TEMPLATES):
        return None
    found = find(TEMPLATES, name)
    if not isinstance(found.value, str) and found.extension:
        raise UsageError(
            f"{found.extension.label}: expected Jinja source, a str, found "
            f"{type(found.value).__name__}"
        )
    return found


def is_foreign(source: str) -> bool:
    """Return whether a `template_source` is code that did not come with tokmill."""
    ours = source in BUILT_IN or any(source == training_source(name) for name in TRAINING)
    return source != "" and not ours


def emitted_strings(source: str, added: Collection[str]) -> set[str]:
    """Return the added tokens that a template itself writes, special or not."""
    if source in BUILT_IN:
        return {string for string in _TAGS if string in added}
    from tokmill.chat.jinja.environment import emitted_tokens

    return emitted_tokens(source, added)


def make_template(source: str, settings: SftSettings, vocabulary: Vocabulary) -> ChatTemplate:
    """Return the template of a `template_source`.

    Raises:
        UsageError: the tokenizer lacks its control tokens, or the Jinja template is wrong.
    """
    if source in BUILT_IN:
        check_read(chosen_variables(settings), (), f"template {source}")
        return BUILT_IN[source](vocabulary, settings.default_system)
    if settings.default_system:
        raise UsageError("only built-in templates take it", "sft.default_system")
    if settings.template in TRAINING:
        require(vocabulary.control, TRAINING[settings.template], settings.template)
    from tokmill.chat.jinja.template import JinjaTemplate

    where = template_name(source, settings)
    template = JinjaTemplate(
        source,
        control=vocabulary.control,
        variables=vocabulary.named,
        settings=settings,
        where=where,
        parse=vocabulary.parse,
    )
    template.check_written()
    return template


def template_name(source: str, settings: SftSettings) -> str:
    """Return the name of a `template_source` in messages and manifests."""
    if source in BUILT_IN:
        return source
    return settings.template if settings.template != "auto" else "the tokenizer's chat template"


ALPACA = "alpaca"

_TAGS = (
    "<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"
)  # fmt: skip
"""What built-in templates write that is an added token of some tokenizers."""

BUILT_IN: dict[str, Callable[[Vocabulary, str], ChatTemplate]] = {
    "chatml": lambda v, system: ChatML(v.control, system),
    "llama3": lambda v, system: Llama3(v.control, v.bos, system),
    ALPACA: lambda v, system: Alpaca(v.eos, system),
    "plain": lambda v, system: Plain(v.eos, system),
    "minimind": lambda v, system: Minimind(v.control, system, parse=v.parse),
    "torchtune": lambda v, system: Torchtune(v.control, system),
    "nanochat": lambda v, _: Nanochat(v.control),
    "baby-llama2": lambda v, _: BabyLlama2(v.bos, v.eos),
}
