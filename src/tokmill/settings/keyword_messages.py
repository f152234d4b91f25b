"""Messages for Python: options of the command line become keyword arguments.

`--renderer text --text-field abstract` becomes `renderer="text", text_field="abstract"`. An option
without a value becomes its name, or `output=…` where the message asks for a value.
"""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple, get_type_hints

from tokmill.errors import TokmillError
from tokmill.settings.declare import section_type
from tokmill.settings.names import option_name, unescaped
from tokmill.settings.schema import BILL_SECTIONS, PRETRAIN_SECTIONS, SFT_SECTIONS, Config

_OPTION = re.compile(
    r"(?P<asks>\b(?:with|give|add) )?"
    r"(?<![\w-])--(?P<name>[a-z][a-z-]+)"
    r"""(?: (?P<value>(?!\()(?:'[^']*'|"[^"]*"|[^\s'"])+))?"""
)
_COMMAND = re.compile(r"\btokmill (pretrain|sft|plan|verify)\b")
_NUMBER = re.compile(r"[\d.]+([kKMGTB]i?B?(/s)?)?")
_ENGLISH = re.compile("and|as|file|for|if|in|is|on|or|out|such|that|the|to|with")
"""Words of messages that can follow an option without being its value."""


class _Setting(NamedTuple):
    kind: Any
    metadata: Any


@contextmanager
def keyword_messages() -> Iterator[None]:
    """Rewrite the messages of errors for callers in Python."""
    try:
        yield
    except TokmillError as error:
        error.args = tuple(
            in_python(part) if isinstance(part, str) else part for part in error.args
        )
        raise


def in_python(message: str) -> str:
    """Return a message with keyword arguments instead of options."""
    message = message.replace("tokmill sft --plan", 'tokmill plan(recipe="sft")')
    message = message.replace("tokmill memory and tokmill report", "tokmill.bill and Dataset.bill")
    written: list[str] = []
    end = 0
    while found := _OPTION.search(message, end):
        written.append(message[end : found.start()])
        text, end = _argument(found)
        written.append(text)
        if message[end : end + 3] == " --" and "=" in text:
            written.append(",")
    written.append(message[end:])
    message = "".join(written).replace("run the same command", "make the same call")
    return _COMMAND.sub(r"tokmill.\1", message)


def _argument(found: re.Match[str]) -> tuple[str, int]:
    """Return the text that replaces an option, and the index where the message continues."""
    asks, name = found["asks"] or "", found["name"].replace("-", "_")
    setting = _settings().get(name)
    if setting is None:
        return found[0][: found.end("name") - found.start()], found.end("name")
    if setting.kind is bool:
        return f"{asks}{name}=True", found.end("name")
    word = (found["value"] or "").rstrip(":;,.)")
    if word and (value := _value(name, setting, word)) is not None:
        shown = json.dumps(value, ensure_ascii=False)
        return f"{asks}{name}={shown}", found.start("value") + len(word)
    return f"{asks}{name}{'=…' if asks else ''}", found.end("name")


def _value(name: str, setting: _Setting, word: str) -> Any:
    """Return the value after an option; None if it is a word of the message."""
    if setting.kind in (int, float):
        is_plain = word.replace(".", "", 1).isdigit()
        return json.loads(word) if is_plain else word if _NUMBER.fullmatch(word) else None
    choices = setting.metadata.get("choices")
    if (choices and word not in choices) or _ENGLISH.fullmatch(word):
        return None
    text = " ".join(shlex.split(word))
    if setting.metadata.get("is_mapping"):
        pairs = [pair.partition("=") for pair in text.split(",")]
        return {key: value for key, equals, value in pairs if equals} or None
    if setting.kind is str:
        return unescaped(name, text)
    return text.split(",")


@cache
def _settings() -> dict[str, _Setting]:
    """Return the keyword arguments by name, with their types and limits."""
    types = get_type_hints(Config)
    found = {"overwrite": _Setting(bool, {}), "config": _Setting(str, {})}
    for section in (*PRETRAIN_SECTIONS, *SFT_SECTIONS, *BILL_SECTIONS):
        kind = section_type(types[section])
        hints = get_type_hints(kind)
        for setting in dataclasses.fields(kind):
            name = option_name(section, setting.name)
            found.setdefault(name, _Setting(hints[setting.name], setting.metadata))
    return found
