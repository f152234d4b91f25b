"""Keys, roles, values and template variables of records: known names, and those of settings."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from tokmill.chat.conversation import ChatError
from tokmill.chat.segments import ROLES
from tokmill.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from tokmill.settings.sft import SftSettings

TURN_KEYS = ("messages", "dialogue", "dialog", "turns", "chat", "conversation")
ROLE_KEYS = ("role", "from", "speaker", "author", "sender")
CONTENT_KEYS = ("content", "value", "utterance", "text")
PROMPT_KEYS = ("prompt", "question", "query")
ANSWER_KEYS = ("response", "completion", "answer", "output")
INPUT_KEYS = ("input", "context")
SYSTEM_KEYS = ("system", "system_prompt", "system_message")
TOOL_KEYS = (
    "tools", "functions", "available_tools", "tool_definitions", "function_definitions",
    "available_functions", "tools_list", "tool_list", "tool_defs",
)  # fmt: skip
REASONING_KEYS = ("reasoning_content", "thinking", "reasoning")
HISTORY_KEYS = ("history",)
"""The names of one field each; the first that is filled is read."""

WEIGHT_KEYS = ("weight", "loss_weight")
VARIABLES_KEY = "chat_template_kwargs"
"""Variables for the template; the name is TRL's."""

HISTORY_REASONING = "history_reasoning"
"""The variable that tells a template what --history-reasoning says; undefined if it says keep."""

PART_KEYS = ("text", "value", "content")
"""The names of the text of a typed part."""

CALL_KEYS = ("tool_calls", "function_call")
SWITCH_KEYS = (
    "train", "training", "weight", "loss_weight", "loss_mask", "masked", "loss", "loss_scale",
)  # fmt: skip
"""The names of the weight of a message or of a part of its content; several multiply."""

DETAIL_KEYS = ("train_detail", "training_detail")
"""The names of the spans of a content that are trained, as axolotl has them."""

MEDIA_KEYS = ("images", "image", "videos", "video", "audios", "audio")
RATING_KEY = "kto_tag"
"""Whether the answer of a record is good, as LLaMA-Factory has it."""

PREFERENCE_KEYS = ("chosen", "rejected", "rejected_response", "rejected_messages", RATING_KEY)
LABEL_KEY = "label"


_GOOD = frozenset(
    (
        "true", "1", "1.0", "good", "desirable", "thumbs_up", "thumbup", "thumbsup", "up", "upvote",
        "like", "liked", "accept", "accepted", "chosen", "preferred", "👍",
    )
)  # fmt: skip
_BAD = frozenset(
    (
        "false", "0", "0.0", "bad", "undesirable", "thumbs_down", "thumbdown", "thumbsdown", "down",
        "downvote", "dislike", "disliked", "reject", "rejected", "dispreferred", "👎",
    )
)  # fmt: skip


def rating(label: Any) -> float | None:
    """Return 1 for a label of a good answer, 0 for that of a bad one, None for another label."""
    if not isinstance(label, str | int | float):
        return None
    word = str(label).strip().lower().replace("-", "_").replace(" ", "_")
    if word in _GOOD:
        return 1.0
    return 0.0 if word in _BAD else None


def is_filled(value: Any) -> bool:
    """Return whether a value is something else than null, an empty text or a list of nulls."""
    if value:  # for every key of every record: the quick answers first
        if type(value) is not list or value[0] is not None:
            return True
        return any(item is not None for item in value)  # columnar files have lists of one null
    return not (value is None or value == "" or value == [])


def is_refusal(item: Mapping[str, Any]) -> bool:
    """Return whether a message, as OpenAI's may, holds nothing but its refusal."""
    if not is_filled(item.get("refusal")):
        return False
    return not any(is_filled(item.get(key)) for key in (*CONTENT_KEYS, *CALL_KEYS))


CALL_ROLE = "function_call"
"""In ShareGPT, an assistant turn whose value is the call."""

DROP = "drop"
"""The role of a name in --role-names whose messages are left out."""

ROLE_NAMES = {
    "system": "system",
    "developer": "developer",
    "user": "user",
    "human": "user",
    **dict.fromkeys(("assistant", "gpt", "model", "chatgpt", "bing", "bard"), "assistant"),
    **dict.fromkeys(
        (
            "tool",
            "function",
            "observation",
            "ipython",
            "environment",
            "function_response",
            "tool_response",
        ),
        "tool",
    ),
    **dict.fromkeys((CALL_ROLE, "tool_call"), CALL_ROLE),
}
"""The role of each known name; case does not matter."""

_OF_RECORD = {
    "messages": "messages",
    "prompt": PROMPT_KEYS[0],
    "completion": ANSWER_KEYS[0],
    "instruction": "instruction",
    "input": INPUT_KEYS[0],
    "output": ANSWER_KEYS[0],
    "system": SYSTEM_KEYS[0],
    "history": "history",
    "tools": TOOL_KEYS[0],
    "text": "text",
    "reasoning": REASONING_KEYS[0],
    "weight": WEIGHT_KEYS[0],
}
_OF_MESSAGE = {
    "role": "role",
    "content": "content",
    "reasoning": REASONING_KEYS[0],
    "tool_calls": "tool_calls",
    "weight": "weight",
    "masked": "masked",
}
"""The key that is read first, for each field that --fields may name."""

_FIELDS = tuple(dict.fromkeys((*_OF_RECORD, *_OF_MESSAGE)))


@lru_cache(maxsize=64)
def given_fields(pairs: tuple[str, ...]) -> Mapping[str, str]:
    """Return the record's key of each field in `sft.fields`."""
    return dict(_pair(pair, "fields", "role=speaker") for pair in pairs)


@lru_cache(maxsize=64)
def known_names(pairs: tuple[str, ...], *, in_message: bool = False) -> Mapping[str, str]:
    """Return the known name of each key of a record, or of a message, in `sft.fields`."""
    names = _OF_MESSAGE if in_message else _OF_RECORD
    return {key: names[field] for field, key in given_fields(pairs).items() if field in names}


@lru_cache(maxsize=64)
def known_roles(pairs: tuple[str, ...]) -> Mapping[str, str]:
    """Return the role of each name in its usual spellings; `role_of` takes any spelling."""
    named = dict(_pair(pair, "role_names", "bot=assistant") for pair in pairs)
    lower = ROLE_NAMES | {name.lower(): role for name, role in named.items()}
    spellings = (str.upper, str.capitalize)
    spelled = {spell(name): role for name, role in lower.items() for spell in spellings}
    return {**spelled, **lower}


def role_of(name: str, role_names: tuple[str, ...]) -> str | None:
    """Return the role of a name, `function_call` for a call, `drop`, None if unknown."""
    known = known_roles(role_names)
    return known.get(name) or known.get(name.strip().lower())


_TOOL_WORDS = frozenset(
    (
        "tool", "tools", "function", "functions", "environment", "env", "observation",
        "observations", "observer", "executor", "execution", "interpreter", "terminal", "shell",
        "bash", "python", "sandbox", "api", "result", "results", "output", "outputs", "browser",
        "retriever", "retrieval",
    )
)  # fmt: skip
"""Words in the name of a role that speaks of what a tool returned."""

ROLE_GAP = "ROLE"
"""What stands for a role that only the user knows."""


def is_tool_name(name: str) -> bool:
    """Return whether the name of a role is that of what a tool returned."""
    words = re.split(r"[^a-z]+", name.lower())
    return not _TOOL_WORDS.isdisjoint(words) and ROLE_NAMES.keys().isdisjoint(words[-1:])


def advised_roles(unknown: Sequence[str], first: str, known: Collection[str]) -> dict[str, str]:
    """Return the role to try for each unknown name, a gap where nothing speaks for one.

    `first`: who speaks first, and seldom answers; `known`: roles that the chats have already. One
    of the unknown names at most may be the assistant, so that no critic is trained.
    """
    roles: dict[str, str] = {}
    taken = set(known)
    for name in unknown:
        if is_tool_name(name):
            role = "tool"
        elif name == first and "user" not in taken:
            role = "user"
        elif "assistant" not in taken:
            role = "assistant"
        elif "user" not in taken:
            role = "user"
        else:
            role = ROLE_GAP
        roles[name] = role
        taken.add(role)
    return roles


def advised_gap(names: Collection[str]) -> str:
    """Return what a gap among advised roles stands for; '' if there is none."""
    return f"{ROLE_GAP} is yours to choose: tool, user, system or drop; " * (ROLE_GAP in names)


def check_names(settings: SftSettings) -> None:
    """Check the fields and roles that --fields and --role-names give."""
    for field in given_fields(settings.fields):
        if field not in _FIELDS:
            raise UsageError(
                f"expected a field of {', '.join(_FIELDS)}, found {field!r}: write FIELD=KEY, such "
                "as role=speaker",
                "sft.fields",
            )
    for pair in settings.role_names:
        name, role = _pair(pair, "role_names", "bot=assistant")
        if role not in (roles := (*ROLES, CALL_ROLE, DROP)):
            raise UsageError(
                f"{name}: expected a role of {', '.join(roles)}, found {role!r}: "
                "write NAME=ROLE, such as bot=assistant",
                "sft.role_names",
            )


def _pair(text: str, setting: str, example: str) -> tuple[str, str]:
    first, equals, second = text.partition("=") if setting == "fields" else text.rpartition("=")
    if not (equals and first.strip() and second.strip()):
        raise UsageError(f"expected pairs such as {example}, found {text!r}", f"sft.{setting}")
    return first.strip(), second.strip()


def renamed(
    item: Mapping[str, Any], settings: SftSettings, *, in_message: bool = False
) -> Mapping[str, Any]:
    """Return a record or a message with its keys under known names, without --ignore-keys."""
    if ignored := settings.ignore_keys:
        item = {key: value for key, value in item.items() if key not in ignored}
    names = known_names(settings.fields, in_message=in_message)
    if names.keys().isdisjoint(item):
        return item
    rest = {key: value for key, value in item.items() if key not in names}
    # A key of --fields wins over the known name unless it is null.
    known = {names[key]: item[key] for key in names if item.get(key) is not None}
    return {**rest, **known}


_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
"""An escaped surrogate; this search takes a third of the time of `in`."""

_SHOWN_CHARACTERS = 40
_SHOWN_KEYS = 20


def may_hold_halves(text: str) -> bool:
    """Return whether a JSON text may hold half of a surrogate pair; if not, it holds none."""
    return _SURROGATE.search(text) is not None


def may_hold_null(text: str) -> bool:
    """Return whether a JSON text, or one within it, may hold null; if not, it holds none."""
    return "null" in text or "\\u" in text


def check_text(value: Any, where: str) -> None:
    """Check that no text in a value of JSON has half of a surrogate pair; raises `ChatError`."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        surrogate = shown(error.object[error.start])
        raise ChatError(
            "lone surrogate", f"{where}: expected text that can be UTF-8, found {surrogate} in it"
        ) from None


def parse_json(text: str, reason: str, where: str) -> Any:
    """Return the value of a JSON text; integers are exact, the last of equal keys wins."""
    value = load_json(text, reason, where)
    if not text.isascii():
        check_text(text, where)
    if may_hold_halves(text):
        check_text(value, where)
    return value


def load_json(text: str, reason: str, where: str) -> Any:
    """Return the value of a JSON text, which may hold halves of surrogate pairs."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ChatError(
            reason, f"{where}: expected JSON, found {shown(text)}: {str(error).lower()}"
        ) from None


def parsed(value: Any, reason: str, where: str) -> Any:
    """Return a value that may be JSON text of itself; empty text is null."""
    if not isinstance(value, str):
        return value
    return parse_json(value, reason, where) if value.strip() else None


def as_object(value: Any) -> Any:
    """Return a map that is kept as a list of pairs, as in Arrow, as an object; else the value.

    A pair is a list of two, the first a text, or an object of `key` and `value`. A list of none is
    an empty map only where an object must stand: the caller knows.
    """
    if not isinstance(value, list) or not value:
        return value
    if all(isinstance(pair, list) and len(pair) == 2 for pair in value):
        pairs = value
    elif all(isinstance(pair, dict) and pair.keys() == {"key", "value"} for pair in value):
        pairs = [[pair["key"], pair["value"]] for pair in value]
    else:
        return value
    keys = [key for key, _ in pairs]
    if not all(isinstance(key, str) for key in keys) or len(set(keys)) < len(keys):
        return value
    return dict(pairs)


def first_present(record: Mapping[str, Any], keys: Iterable[str]) -> Any:
    """Return the first filled value, else the first that is not null, else None.

    Columnar files fill absent fields with nulls, tables with empty texts.
    """
    present = None
    for key in keys:
        value = record.get(key)
        if value is None:  # nearly always
            continue
        if value or is_filled(value):
            return value
        if present is None:
            present = value
    return present


def filled_key(record: Mapping[str, Any], keys: Iterable[str]) -> str:
    """Return the first key that is filled; '' if none is."""
    for key in keys:  # for every record: a generator would take twice as long
        value = record.get(key)
        if value is not None and is_filled(value):
            return key
    return ""


def text_of(value: Any, where: str) -> str:
    """Return a text; null is empty."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    raise wrong_type(where, "text", value)


def wrong_type(where: str, expected: str, value: object) -> ChatError:
    """Return the error for a value of another type than expected."""
    return ChatError("wrong type", f"{where}: expected {expected}, found {shown(value)}")


def shown(value: object) -> str:
    """Return a value for a message: strings shortened, containers by their type."""
    if isinstance(value, str):
        cut = len(value) > _SHOWN_CHARACTERS
        return repr(value[:_SHOWN_CHARACTERS]) + ("…" if cut else "")
    if isinstance(value, dict):
        return f"an object with {shown_keys(list(value))}"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    return json.dumps(value)


def shown_keys(keys: Sequence[str]) -> str:
    """Return the first twenty keys of an object for a message."""
    if not keys:
        return "no keys"
    names = [
        key if key.isprintable() and len(key) <= _SHOWN_CHARACTERS else shown(key)
        for key in keys[:_SHOWN_KEYS]
    ]
    more = len(keys) - len(names)
    return f"keys {', '.join(names)}" + (f" and {more} more" if more else "")


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
    return next(filter(is_ours, names), "")


def is_ours(name: str) -> bool:
    """Return whether tokmill sets a variable of templates itself."""
    return name in _OURS or name.startswith("tokmill_") or name.endswith("_token")


def objects_in(value: Mapping[str, Any]) -> list[Any]:
    """Return the objects of an object of lists, of which there may be none, or one object alone."""
    if all(item is None or item == [] for item in value.values()):
        return []
    return rows_of(value) or [dict(value)]


def rows_of(columns: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the objects that an object of lists holds; [] if it is none."""
    lists = {key: value for key, value in columns.items() if value is not None}
    if not lists or not all(isinstance(value, list) for value in lists.values()):
        return []
    if len(set(map(len, lists.values()))) > 1:
        return []
    return [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]
