"""Which template writes a conversation: one of tokmill, the tokenizer's own, or a file."""

from __future__ import annotations

from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from tokmill.chat.conversation import ChatError
from tokmill.chat.limits import LONGEST_SOURCE, checked_source
from tokmill.chat.names import check_read, chosen_variables
from tokmill.chat.own_templates import BUILT_IN, NAMES, check_tokens, own_name, own_source
from tokmill.errors import UsageError
from tokmill.extensions import find, names_of_packages, nearest
from tokmill.opening import LFS_ADVICE, LFS_POINTER, open_named
from tokmill.tables import TEMPLATES

if TYPE_CHECKING:
    from collections.abc import Collection

    from tokmill.chat.control_strings import Vocabulary
    from tokmill.chat.conversation import Conversation, Message
    from tokmill.chat.segments import Sample
    from tokmill.extensions import Extension, TableEntry
    from tokmill.settings.sft import SftSettings


class ChatTemplate(Protocol):
    """Writes one conversation as the turns of one sample; threads may share one.

    `literals`: the text that it writes itself, '' if that cannot be taken for text of messages.
    `generation_prompt`: the text that asks for a reply, '' if there is none or it varies.
    """

    name: str
    literals: str
    generation_prompt: str

    @property
    def family(self) -> ChatTemplate | None:
        """The training template that writes plain chats as this one does, None if none does."""

    def render(self, conversation: Conversation, sample: Sample) -> None:
        """Write it into an empty sample. Raises `ChatError` where it cannot."""

    def text_of(self, messages: list[Message]) -> str:
        """Return the text of messages; raises `ChatError`."""


def template_source(settings: SftSettings, preset_template: str, own: str | None) -> str:
    """Return the Jinja source of the template that the settings name.

    Args:
        settings: the settings.
        preset_template: the built-in template of the preset, or ''.
        own: the tokenizer's chat template.

    Raises:
        UsageError: there is none, its file cannot be read, or it is no text of a template.
    """
    name = settings.template
    if name == "auto" and preset_template:
        return own_source(preset_template)
    if name in NAMES:
        return own_source(name)
    if name not in ("auto", "tokenizer"):
        return checked_source(_named_source(name), name)
    if not own:
        raise UsageError(
            "this tokenizer has no chat template: give --template, one of "
            f"{', '.join(BUILT_IN)} or a Jinja file"
        )
    return checked_source(own, "the tokenizer's chat template")


def _named_source(name: str) -> str:
    """Return the template of a file or of another package."""
    try:
        with TextIOWrapper(open_named(Path(name)), encoding="utf-8-sig") as file:
            source = file.read(LONGEST_SOURCE + 1)  # without a mark at the start, which is no text
    except FileNotFoundError:
        if entry := _find_outside(name):
            return str(entry.value)
        known = [*NAMES, *sorted(names_of_packages(TEMPLATES))]
        raise UsageError(
            f"{name}: no such template; built in are {', '.join(NAMES)}, or name a "
            f"Jinja file{nearest(name, known)}"
        ) from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{name}: the template cannot be read: {error}") from None
    if source.startswith(LFS_POINTER.decode()):
        raise UsageError(f"{name}: {': '.join(LFS_ADVICE)}")
    return source


def template_extension(name: str) -> Extension | None:
    """Return the identity of the template of a setting if it is another package's."""
    is_own = name in ("auto", "tokenizer", *NAMES) or Path(name).is_file()
    entry = None if is_own else _find_outside(name)
    return entry.extension if entry else None


def _find_outside(name: str) -> TableEntry | None:
    """Return the template of another package, None if none has this name."""
    if name not in names_of_packages(TEMPLATES):
        return None
    entry = find(TEMPLATES, name)
    if not isinstance(entry.value, str) and entry.extension:
        raise UsageError(
            f"{entry.extension.label}: expected Jinja source, a str, found "
            f"{type(entry.value).__name__}"
        )
    return entry


def is_foreign(source: str) -> bool:
    """Return whether a `template_source` is code that did not come with tokmill."""
    return source != "" and not own_name(source)


def written_tokens(source: str, added: Collection[str]) -> set[str]:
    """Return the added tokens that a template itself writes, special or not.

    A template from outside must not be read in this process: `chat.render_pool` asks a child.
    """
    from tokmill.chat.jinja.environment import emitted_tokens

    # Those of a reply's parts count for all built-in templates: `plain` writes them as they stand.
    tags = _TAGS if own_name(source) in BUILT_IN else ()
    return emitted_tokens(source, added) | {tag for tag in tags if tag in added}


def make_template(source: str, settings: SftSettings, vocabulary: Vocabulary) -> ChatTemplate:
    """Return the template of a `template_source`.

    Raises:
        UsageError: the tokenizer lacks its control tokens, or the Jinja template is wrong.
    """
    from tokmill.chat.jinja.marked import MarkedTemplate
    from tokmill.chat.jinja.span_writer import check_written
    from tokmill.chat.jinja.template import JinjaTemplate

    name, where = own_name(source), template_name(source, settings)
    template: MarkedTemplate | JinjaTemplate
    if name:
        check_tokens(name, vocabulary)
    if name in BUILT_IN:
        check_read(chosen_variables(settings), (), f"template {name}")
        template = MarkedTemplate(name, source, vocabulary=vocabulary)
    else:
        template = JinjaTemplate(
            source,
            control=vocabulary.control,
            variables=vocabulary.named,
            settings=settings,
            where=where,
            parse=vocabulary.parse,
        )
        check_written(template.text_of, where)
    if settings.default_system:
        _check_takes_system(template, settings.default_system, where)
    return template


def _check_takes_system(template: ChatTemplate, system: str, where: str) -> None:
    """Check that a template writes a small chat with this system message, if it does without."""
    chat = [("system", system), ("user", "a"), ("assistant", "b")]
    messages: list[Message] = [{"role": role, "content": content} for role, content in chat]
    with suppress(ChatError):
        template.text_of(messages[1:])
        try:
            template.text_of(messages)
        except ChatError as error:
            raise UsageError(f"{where} refuses it: {error.message}", "sft.default_system") from None


def template_name(source: str, settings: SftSettings) -> str:
    """Return the name of a `template_source` in messages and manifests."""
    if name := own_name(source):
        return name
    return settings.template if settings.template != "auto" else "the tokenizer's chat template"


_TAGS = (
    "<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"
)  # fmt: skip
