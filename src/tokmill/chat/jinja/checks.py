"""Checks of a Jinja template's text, and of settings that it cannot follow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokmill.chat.conversation import ChatError
from tokmill.chat.escaping import escaped_forms
from tokmill.errors import UsageError

if TYPE_CHECKING:
    from tokmill.settings.sft import SftSettings

_EMPTY = ("empty rendering", "the chat template writes nothing")


def check_text(parts: list[str], separator: str) -> None:
    """Check that a template has written something, and separators as they are.

    Raises:
        ChatError: it has not.
    """
    if not any(parts):
        raise ChatError(*_EMPTY)
    if separator and any(form in part for form in escaped_forms(separator) for part in parts):
        raise ChatError(
            "control token in text",
            "a control token's string stands in a text that the template escapes, so that it "
            "cannot be kept apart: parse control tokens in text, or leave the record out",
        )


def check_settings(settings: SftSettings, where: str, *, has_tags: bool, has_header: bool) -> None:
    """Check that a Jinja template marks what the settings ask for.

    Raises:
        UsageError: it does not; `where` names it.
    """
    if settings.spans == "tags" and not has_tags:
        raise UsageError(
            f"{where}: has no generation tags, and --spans=tags asks for them: "
            "use --spans=prefix, or a template with tags"
        )
    if set(settings.roles) != {"assistant"}:
        raise UsageError(
            "a Jinja template marks the text of role assistant only, found "
            f"{', '.join(settings.roles) or 'no role'}: use a built-in --template",
            "sft.roles",
        )
    for name in ("reasoning", "tool_calls"):
        if getattr(settings, name) == "mask":
            raise UsageError(
                "a Jinja template does not mark this part of a reply: use a built-in --template",
                f"sft.{name}",
            )
    is_open = settings.header == "train" or (settings.header == "mask" and has_tags)
    if is_open and not has_header:
        raise UsageError(
            f"{where} does not always write the same header: use a built-in --template",
            "sft.header",
        )
