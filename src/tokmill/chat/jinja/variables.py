"""Variables of a chat template, such as `enable_thinking`: read, checked, and advised."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tokmill.chat.conversation import ChatError
from tokmill.chat.reading.names import VARIABLE_KEYS
from tokmill.chat.reading.values import parsed, quoted, wrong_type
from tokmill.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from tokmill.chat.conversation import Message
    from tokmill.settings.sft import SftSettings

    Render = Callable[[list[Message], bool, Mapping[str, bool]], str]

(VARIABLES_KEY,) = VARIABLE_KEYS
_OPTION = "--template-kwargs (sft.template_kwargs)"
_OURS = frozenset(("messages", "tools", "add_generation_prompt"))
_PREFIX, _TOKEN = "tokmill_", "_token"


def read_variables(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record's own variables, which may be JSON text."""
    found = parsed(record[VARIABLES_KEY], "broken template variables", VARIABLES_KEY)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise wrong_type(VARIABLES_KEY, "an object", found)
    if taken := _taken(found):
        raise ChatError(
            "broken template variables",
            f"{VARIABLES_KEY}: expected variables of the template's own, found {taken}, which "
            "tokmill sets",
        )
    return found


def chosen_variables(settings: SftSettings) -> dict[str, Any]:
    """Return the variables of the settings.

    Raises:
        UsageError: one is a variable that tokmill sets.
    """
    if not settings.template_kwargs:
        return {}
    found: dict[str, Any] = json.loads(settings.template_kwargs)
    if taken := _taken(found):
        raise UsageError(f"{_OPTION}: {taken} is set by tokmill: leave it out")
    return found


def check_read(given: Collection[str], read: Collection[str], where: str) -> None:
    """Check that a template reads the variables that the settings give.

    Raises:
        UsageError: it does not read one; the error names those that it reads.
    """
    unread = [name for name in given if name not in read]
    if not unread:
        return
    known = own_names(read)
    raise UsageError(
        f"{_OPTION}: {where} does not read {', '.join(unread)}: "
        + (f"it reads {', '.join(known)}" if known else "it reads no variables")
    )


def own_names(read: Collection[str]) -> list[str]:
    """Return those of the variables that a template reads that are not tokmill's, sorted."""
    return sorted(name for name in read if not _taken((name,)))


def _taken(names: Collection[str]) -> str:
    """Return the first name that is a variable of tokmill's, such as eos_token, or ''."""
    return next((n for n in names if n in _OURS or n.startswith(_PREFIX) or n.endswith(_TOKEN)), "")


_USER: Message = {"role": "user", "content": "a"}
_REPLIES: tuple[Message, ...] = (
    {"role": "assistant", "content": "b"},
    {"role": "assistant", "content": "b", "reasoning_content": "c"},
)


def option_for_prompt(names: Collection[str], render: Render) -> str:
    """Return the option that makes the prompt a prefix of replies with and without reasoning.

    Args:
        names: the variables that the template reads.
        render: renders messages, with or without a prompt, with some variables.

    Returns:
        '' where no variable does that, true or false.
    """
    for name in own_names(names):
        for value in (True, False):
            given = {name: value}
            if all(_begins(render, given, reply) for reply in _REPLIES):
                return f"--template-kwargs {quoted(json.dumps(given))}"
    return ""


def _begins(render: Render, given: Mapping[str, bool], reply: Message) -> bool:
    try:
        return render([_USER, reply], False, given).startswith(render([_USER], True, given))
    except ChatError:
        return False
