"""Decisions from the first records of a run: schema, names of fields and roles, rendered texts.

Names that nobody knows are not guessed: the run stops, and its message names them and the option.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from tokmill.chat.control_strings import RenderedTexts
from tokmill.chat.conversation import ChatError
from tokmill.chat.names import (
    ANSWER_KEYS,
    CALL_ROLE,
    CONTENT_KEYS,
    LABEL_KEY,
    PREFERENCE_KEYS,
    PROMPT_KEYS,
    ROLE_KEYS,
    ROLE_NAMES,
    TURN_KEYS,
    advised_gap,
    advised_roles,
    check_names,
    first_present,
    given_fields,
    is_filled,
    parsed,
    rating,
    renamed,
    role_of,
    rows_of,
    shown_keys,
)
from tokmill.chat.reading.preference import preference
from tokmill.chat.reading.schemas import FIELDS_BY_SCHEMA, MIXED, recognise
from tokmill.errors import UsageError
from tokmill.settings.names import in_toml
from tokmill.settings.schema import UnclearNamesError
from tokmill.words import plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tokmill.settings.sft import SftSettings

    Records = Sequence[Mapping[str, Any]]

_NEEDED = ("messages", "prompt", "completion", "instruction", "output", "text")
"""Fields whose key must occur in one of the first records."""

_SCHEMA_BY_FIELD = {"messages": "messages", "prompt": "prompt", "instruction": "alpaca"}
"""The schema of records for which one of these fields is named; the first decides."""

_SPEAKER_KEYS = (*ROLE_KEYS, "participant", "who", "user", "name", "type")
_SINGLE_KEYS, _PROMPTER = ("role", "from", "speaker", "sender"), "prompter"
"""Keys of the role in a record that is a single message; OASST's name of users."""

_N_LOOKED_AT = 20
_LEAST_SHARE = 0.1
"""With fewer rendered texts, the texts are ordinary and some quote a template."""


def resolve_schema(settings: SftSettings, records: Records, where: str = "records") -> SftSettings:
    """Return the settings with schema and fields resolved for the whole run.

    `label` is ignored if one record has another label than good or bad. With a chosen schema,
    records that do not fit are refused when they are read.

    Raises:
        UsageError: no record has a known shape, one is preference data, or a given name is wrong.
    """
    check_names(settings)
    _check_keys(settings, records, where)
    settings = _without_other_labels(settings, records)
    if settings.schema != "auto":
        return settings
    read = [renamed(record, settings) for record in records]
    for record in read:
        if reason := preference(record, recognise(record), settings):
            raise _preference_error(f"{where}: {reason}")
    fields = given_fields(settings.fields)
    named = [schema for field, schema in _SCHEMA_BY_FIELD.items() if field in fields]
    settings = replace(settings, schema=named[0] if named else detect_schema(read, where))
    if settings.schema == "text":
        _check_not_single_messages(read, settings, where)
    if settings.schema in ("messages", "conversations"):
        _check_roles(read, settings, where)
    return settings


def _check_keys(settings: SftSettings, records: Records, where: str) -> None:
    """Refuse a needed field whose key none of the first records has."""
    keys = _keys_of(records)
    for field, key in given_fields(settings.fields).items():
        if records and field in _NEEDED and key not in keys:
            raise UsageError(
                f"--fields={field}={key}: not in the {where}, which have {shown_keys(keys)}"
            )


def _without_other_labels(settings: SftSettings, records: Records) -> SftSettings:
    """Return the settings, which ignore `label` if one is not that of a good or bad answer."""
    labels = [renamed(record, settings).get(LABEL_KEY) for record in records]
    if any(is_filled(label) and rating(label) is None for label in labels):
        return replace(settings, ignore_keys=(*settings.ignore_keys, LABEL_KEY))
    return settings


def _keys_of(records: Records) -> list[str]:
    """Return all keys of records, in the order in which they come."""
    return list(dict.fromkeys(key for record in records for key in record))


def _preference_error(message: str) -> UsageError:
    """Return the error about preference data; its option can be given to some files alone."""
    about, dashes, rest = message.rpartition(" --")
    if not dashes:
        return UsageError(message)
    option = f"--{rest.partition(' ')[0]}"
    return UnclearNamesError(f"{about} ", f"--{rest}", in_toml(option))


def detect_schema(records: Records, where: str = "records") -> str:
    """Return the schema of the first records, "mixed" if there are several.

    Records of unknown shape do not count if others are known: they are refused when they are read.
    Without any records the schema is "messages".

    Raises:
        UsageError: no record has a known shape.
    """
    kinds = {kind for kind in map(recognise, records) if kind}
    if kinds:
        return kinds.pop() if len(kinds) == 1 else MIXED
    if not records:
        return "messages"
    lists = _lists_in(records)
    keys_inside = {key: _keys_of(items) for key, items in lists.items()}
    keys = [
        f"{key}[]: {', '.join(keys_inside[key])}" if key in keys_inside else key
        for key in _keys_of(records)
    ]
    known = "; ".join(f"{name}: {fields}" for name, fields in FIELDS_BY_SCHEMA.items())
    raise _unclear(
        f"{where}: no known schema: found {shown_keys(keys)}; known: {known}: rename the fields, "
        "or name them: ",
        f"--fields={shlex.quote(_advised_fields(records, keys_inside))}",
    )


def _advised_fields(records: Records, keys_inside: Mapping[str, Sequence[str]]) -> str:
    """Return the fields to name, with KEY where only the user knows which.

    `keys_inside`: the keys of the objects in lists, by the key of the list.
    """
    halves = (*PROMPT_KEYS, *ANSWER_KEYS, "instruction")
    has_half = any(is_filled(record.get(key)) for record in records for key in halves)
    if has_half or not keys_inside:
        return "prompt=KEY,completion=KEY"
    turns, of_message = next(iter(keys_inside.items()))
    fields = [f"messages={turns}"]
    if set(of_message).isdisjoint(ROLE_KEYS):
        fields.append("role=KEY")
    if set(of_message).isdisjoint(CONTENT_KEYS):
        fields.append("content=KEY")
    return ",".join(fields)


def _unclear(about: str, option: str) -> UnclearNamesError:
    table = in_toml(option)
    return UnclearNamesError(about, f"{option} (under [sft]: {table})", table)


def _check_roles(records: Records, settings: SftSettings, where: str) -> None:
    """Refuse turns of which no record has only known roles, or in which the system answers."""
    chats = _speakers(records, settings)
    roles = [[_role(name, settings) for name in chat] for chat in chats]
    if all(None in chat for chat in roles):
        _check_no_name_is_unknown(chats, roles, settings, where)
    if _system_answers(roles):
        raise UnclearNamesError(
            f"{where}: no message is the assistant's, and system speaks behind user: if that is "
            "who answers, ",
            "--role-names=system=assistant",
            'role_names = {system = "assistant"}',
        )


def _speakers(records: Records, settings: SftSettings) -> list[list[Any]]:
    """Return who speaks in each chat of the first records, by the names there."""
    keys = TURN_KEYS if settings.schema == "messages" else ("conversations",)
    chats = []
    for record in records[:_N_LOOKED_AT]:
        items = [
            renamed(item, settings, in_message=True) for item in _turns(first_present(record, keys))
        ]
        if items:
            chats.append([first_present(item, ROLE_KEYS) for item in items])
    return chats


def _check_no_name_is_unknown(
    chats: Sequence[Sequence[Any]],
    roles: Sequence[Sequence[str | None]],
    settings: SftSettings,
    where: str,
) -> None:
    """Refuse names of roles that nobody knows. `chats`: who speaks, `roles`: as it is known."""
    names = list(dict.fromkeys(name for chat in chats for name in chat if isinstance(name, str)))
    unknown = [name for name in names if not _role(name, settings)]
    if not unknown:
        return
    known = {role for chat in roles for role in chat if role}
    if CALL_ROLE in known:
        known.add("assistant")
    advised = advised_roles(unknown[:4], names[0], known)
    pairs = [f"{name}={role}" for name, role in advised.items()]
    raise _unclear(
        f"{where}: unknown roles in every record: name them (NAME=drop leaves one out): "
        f"{advised_gap(advised.values())}",
        f"--role-names={shlex.quote(','.join(pairs))}",
    )


def _system_answers(roles: Sequence[Sequence[str | None]]) -> bool:
    """Return whether only users and the system speak, and the system somewhere behind a user."""
    if any(role not in ("user", "system") for chat in roles for role in chat):
        return False
    return any(("user", "system") in pairwise(chat) for chat in roles)


def _check_not_single_messages(records: Records, settings: SftSettings, where: str) -> None:
    """Refuse texts that are single messages: a user's message would be trained as a reply."""
    for key in _SINGLE_KEYS:
        values = [record.get(key) for record in records]
        names = [name for name in values if isinstance(name, str)]
        known = [n for n in names if n == _PROMPTER or _role(n, settings) not in (None, "system")]
        if records and len(known) == len(records):
            shown = ", ".join(dict.fromkeys(known))
            raise UsageError(
                f"{where}: each record is one message ({key}: {shown}), and would become a reply: "
                "put all messages of a conversation into one record, as a list under messages; "
                "--schema=text trains each as a text of its own"
            )


def _role(name: Any, settings: SftSettings) -> str | None:
    return role_of(name, settings.role_names) if isinstance(name, str) else None


def speakers_in(records: Records) -> set[str]:
    """Return the known names of roles in the turns of the first records, in lower case."""
    items = [item for objects in _lists_in(records).values() for item in objects]
    names = {item.get(key) for item in items for key in _SPEAKER_KEYS}
    return {name.lower() for name in names if isinstance(name, str)} & ROLE_NAMES.keys()


def _lists_in(records: Records) -> dict[str, list[Mapping[str, Any]]]:
    """Return the objects in lists of the first records, by key."""
    lists: dict[str, list[Mapping[str, Any]]] = {}
    for record in records[:_N_LOOKED_AT]:
        for key, value in record.items():
            if key not in PREFERENCE_KEYS and (items := _objects(value)):
                lists.setdefault(key, []).extend(items)
    return lists


def _turns(value: Any) -> Sequence[Mapping[str, Any]]:
    return rows_of(value) if isinstance(value, dict) else _objects(value)


def _objects(value: Any) -> list[Mapping[str, Any]]:
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = parsed(value, "", "")
        except ChatError:
            return []
    if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
        return []
    return value


def resolve_rendered_text(
    settings: SftSettings, records: Records, control: Iterable[str], where: str
) -> SftSettings:
    """Return the settings with `rendered_text` resolved: `text` if no text looks rendered.

    Raises:
        UsageError: the first texts look rendered, and --rendered-text is not given.
    """
    if settings.rendered_text != "refuse":
        return settings
    known = RenderedTexts(set(control))
    texts = []
    for record in records:
        read = renamed(record, settings)
        schema = recognise(read) if settings.schema == MIXED else settings.schema
        if schema == "text" and isinstance(read.get("text"), str):
            texts.append(read["text"])
    signs = [sign for sign in map(known.sign, texts) if sign]
    if not signs or len(signs) < _LEAST_SHARE * len(texts):
        return replace(settings, rendered_text="text")
    raise UsageError(
        f"{where}: rendered conversations in {len(signs)} of {plural(len(texts), 'text')} (found "
        f"{signs[0]!r}), which would become one reply each, their control tokens spelled out: "
        "--rendered-text=parse takes them as they are and trains all of each, --rendered-text=text "
        "wraps them; without masks: tokmill pretrain --control-tokens-in-text=parse"
    )


def text_note(settings: SftSettings) -> str:
    """Return a note on the treatment of records of schema text; '' for other schemas."""
    if settings.schema != "text":
        return ""
    if settings.rendered_text == "parse":
        return "text: each record is taken as it is, control tokens read; all of it is trained"
    return "text: each record becomes one assistant message; all of it is trained"
