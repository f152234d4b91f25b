"""Variables of a chat template, such as `enable_thinking`, from the settings or from a record."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tokmill.chat.conversation import ChatError
from tokmill.chat.names import VARIABLE_KEYS, parsed, wrong_type
from tokmill.chat.weights import HISTORY_REASONING
from tokmill.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from tokmill.settings.sft import SftSettings

(VARIABLES_KEY,) = VARIABLE_KEYS
_OURS = frozenset(("messages", "tools", "add_generation_prompt", HISTORY_REASONING))


def read_variables(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the variables of a record, which may be JSON text."""
    variables = parsed(record[VARIABLES_KEY], "broken template variables", VARIABLES_KEY)
    if variables is None:
        return {}
    if not isinstance(variables, dict):
        raise wrong_type(VARIABLES_KEY, "an object", variables)
    if taken := _taken(variables):
        raise ChatError(
            "broken template variables",
            f"{VARIABLES_KEY}: expected variables of the template's own, found {taken}, which "
            "tokmill sets",
        )
    return variables


def chosen_variables(settings: SftSettings) -> dict[str, Any]:
    """Return the variables of the settings; refuse one that tokmill sets."""
    if not settings.template_kwargs:
        return {}
    variables: dict[str, Any] = json.loads(settings.template_kwargs)
    if taken := _taken(variables):
        raise UsageError(f"{taken} is set by tokmill: leave it out", "sft.template_kwargs")
    return variables


def check_read(names: Collection[str], read: Collection[str], where: str) -> None:
    """Check that a template reads the variables that the settings give."""
    if unread := [name for name in names if name not in read]:
        known = ", ".join(sorted(name for name in read if not _taken((name,)))) or "no variables"
        raise UsageError(
            f"{where} does not read {', '.join(unread)}: it reads {known}", "sft.template_kwargs"
        )


def _taken(names: Collection[str]) -> str:
    """Return the first name that tokmill sets, such as eos_token, or ''."""
    return next(
        (n for n in names if n in _OURS or n.startswith("tokmill_") or n.endswith("_token")), ""
    )
