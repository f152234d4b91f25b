"""Schemas: the shape of a record, and the conversation that is read from it.

A schema is one row of the table: its fields, its keys, its reader.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from tokmill.chat.conversation import ChatError, Conversation, Extras
from tokmill.chat.mask_rule import is_everything
from tokmill.chat.names import (
    ANSWER_KEYS,
    DROP,
    HISTORY_KEYS,
    INPUT_KEYS,
    MEDIA_KEYS,
    PROMPT_KEYS,
    RATING_KEY,
    REASONING_KEYS,
    SYSTEM_KEYS,
    TOOL_KEYS,
    TURN_KEYS,
    VARIABLES_KEY,
    WEIGHT_KEYS,
    filled_key,
    first_present,
    given_fields,
    is_filled,
    known_names,
    known_roles,
    load_json,
    may_hold_null,
    parsed,
    rating,
    read_variables,
    renamed,
    rows_of,
    shown_keys,
    text_of,
    wrong_type,
)
from tokmill.chat.reading.agents import gemini_messages, gemini_text, is_content, is_item
from tokmill.chat.reading.content import read_content
from tokmill.chat.reading.messages import (
    Turns,
    check_media,
    message_list,
    read_messages,
)
from tokmill.chat.reading.preference import SUSPECT, preference
from tokmill.chat.reading.table_nulls import without_table_nulls
from tokmill.chat.reading.tools import Tools, read_tools
from tokmill.chat.weights import NOT_TRAINED, prompt_weights, times_record_weight

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tokmill.chat.conversation import Message
    from tokmill.settings.sft import SftSettings

    Reader = Callable[[Mapping[str, Any], SftSettings], Conversation]

MIXED = "mixed"

STANFORD = "stanford"
JOINS = {"auto": "\n", "newline": "\n", "blank-line": "\n\n", STANFORD: "\n\n### Input:\n"}
"""The text between an instruction and its input, if neither is empty. Stanford's heading precedes
every input, also after an empty instruction; with template alpaca, `auto` means Stanford's."""

_SPECIAL = SUSPECT.union(MEDIA_KEYS, WEIGHT_KEYS, (VARIABLES_KEY,))
"""Nearly all records have none of these keys, and need none of their checks."""

BAD_ANSWER = f"bad answer ({RATING_KEY})"

_SYSTEM_ROLES = ("system", "developer")


def parse_record(text: str) -> dict[str, Any]:
    """Return the object of a line of JSON, in which halves of surrogate pairs may stand."""
    record = load_json(text, "malformed JSON", "record")
    if not isinstance(record, dict):
        raise wrong_type("record", "an object", record)
    return record


def read_conversation(
    record: Mapping[str, Any], schema: str, settings: SftSettings, *, text: str | None = None
) -> Conversation:
    """Return the conversation of a record; `schema`: one of the table or "mixed".

    `text`: the JSON that the record was read from, if any. Takes about 1 µs per message, and 1 µs
    per record.
    """
    original = record
    if settings.ignore_keys or settings.fields:
        _check_not_bad(record, settings)
        record = renamed(record, settings)
    is_special = not _SPECIAL.isdisjoint(record)
    if is_special:
        if reason := preference(record, recognise(record), settings):
            raise ChatError("preference data", f"record: {reason}")
        check_media(record, "record")
    name = recognise(record) if schema == MIXED else schema
    if name is None:
        raise _no_such_fields("the fields of a schema", record)
    try:
        conversation = _TABLE[name].read(record, settings)
    except ChatError as error:
        raise _of_other_schema(record, name, error) from None
    if settings.default_system:
        _add_default_system(conversation, settings)
    has_objects = bool(conversation.tools or conversation.extras.has_calls)
    if has_objects and (text is None or may_hold_null(text)):
        conversation.tools = without_table_nulls(
            record, conversation.messages, conversation.tools, conversation.extras.noticed
        )
    if is_special:
        if record.get(VARIABLES_KEY) is not None:
            conversation.variables = read_variables(record)
        conversation.weights = times_record_weight(
            record, conversation.messages, conversation.weights, settings
        )
    unread = _unread_keys(original, record, name, settings)
    if unread:
        conversation.extras.record = {
            key: record[key] for key in unread if _may_be_variable(record, key)
        }
    if conversation.unread:
        unread = tuple(sorted({*unread, *conversation.unread}))
    conversation.unread = unread
    return conversation


def _may_be_variable(record: Mapping[str, Any], key: str) -> bool:
    """Return whether a key that nothing reads may be a variable of the template.

    `thinking` turns thinking on or off; the text of someone's reasoning must not.
    """
    is_thought = key in REASONING_KEYS and not isinstance(record.get(key), bool)
    return key in record and not is_thought


def _check_not_bad(record: Mapping[str, Any], settings: SftSettings) -> None:
    """Leave out a record whose answer is bad, also if the key that says so is ignored."""
    if RATING_KEY in settings.ignore_keys and rating(record.get(RATING_KEY)) == 0:
        raise ChatError(
            BAD_ANSWER, f"record: {RATING_KEY} says that its answer is bad", is_drop=True
        )


def _add_default_system(conversation: Conversation, settings: SftSettings) -> None:
    """Insert the default system message, unless a conversation begins with another one."""
    is_rendered = conversation.is_text and settings.rendered_text == "parse"
    if not is_rendered and conversation.messages[0]["role"] not in _SYSTEM_ROLES:
        conversation.messages.insert(0, {"role": "system", "content": settings.default_system})
        conversation.weights.insert(0, None)


def _unread_keys(
    original: Mapping[str, Any], record: Mapping[str, Any], name: str, settings: SftSettings
) -> tuple[str, ...]:
    """Return the filled keys of a record that the schema `name` does not read, sorted.

    `record`: the record `original`, with its keys under the known names.
    """
    filled = tuple(  # for every record: most values need no call
        [k for k, v in record.items() if (v and type(v) is not list) or is_filled(v)]
    )
    if record is original:
        return _without_read_keys(filled, name)
    own_keys = frozenset(key for key, value in original.items() if is_filled(value))
    kept = own_keys.difference(settings.ignore_keys)
    keys = {known: key for key, known in known_names(settings.fields).items() if key in kept}
    read = {keys.get(known, known) for known in _read_keys(filled, name)}
    return tuple(sorted(own_keys - read))


@lru_cache(maxsize=1024)
def _without_read_keys(filled: tuple[str, ...], name: str) -> tuple[str, ...]:
    """Return the keys that a schema does not read, sorted."""
    return tuple(sorted(frozenset(filled) - _read_keys(filled, name)))


def _read_keys(filled: tuple[str, ...], name: str) -> frozenset[str]:
    """Return the keys that a schema reads: of each group the first that is filled."""
    schema = _TABLE[name]
    groups = (*schema.keys, *schema.beside)
    first_filled = (next((key for key in group if key in filled), None) for group in groups)
    read = frozenset(key for key in first_filled if key is not None)
    # Beside an instruction, an input is the instruction's own.
    return read.difference(INPUT_KEYS) if name == "prompt" and "instruction" in filled else read


def _of_other_schema(record: Mapping[str, Any], name: str, error: ChatError) -> ChatError:
    """Add the schema that a record does fit to the error about missing fields."""
    other = recognise(record)
    if error.reason != "no such fields" or other in (None, name):
        return error
    return ChatError(
        error.reason,
        f"{error.message}: a record of schema {other} among those of {name}: use --schema mixed",
    )


def recognise(record: Mapping[str, Any]) -> str | None:
    """Return the first schema of the table whose fields a record has; None if there is none.

    Columnar files fill absent fields with null, so that null counts as absent. Only if nothing else
    fits, a null prompt is an empty one.
    """
    name = next((name for name, schema in _TABLE.items() if schema.fits(record)), None)
    if name is None and _has_turns(record):
        return "messages"
    if name in (None, "text") and first_present(record, ANSWER_KEYS) is not None:
        for empty in ("prompt", "alpaca"):
            if any(key in record for key in _TABLE[empty].keys[0]):
                return empty
    return name


def _has_turns(record: Mapping[str, Any]) -> bool:
    """Return whether a record has turns under another name, and no half of a sample beside them."""
    if not _are_objects(first_present(record, TURN_KEYS)):
        return False
    return not filled_key(record, (*PROMPT_KEYS, *ANSWER_KEYS, "instruction"))


def _objects(value: Any) -> Sequence[Any]:
    """Return the objects in a list, which may be JSON text; none if there is anything else."""
    if not _are_objects(value):
        return ()
    try:
        return message_list(value, "")
    except ChatError:
        return ()


def _are_objects(value: Any) -> bool:
    """Return whether a value is a list of objects, or JSON text that begins so."""
    if isinstance(value, str):
        return value.lstrip().startswith("[{")
    return bool(value) and isinstance(value, list) and all(type(item) is dict for item in value)


def _read_dialog(key: str, record: Mapping[str, Any], settings: SftSettings) -> Conversation:
    """Return the messages under `key`, or under another known name if it is "messages"."""
    if key == "messages":
        key = filled_key(record, TURN_KEYS) or key
    if record.get(key) is None:
        raise _no_such_fields(key, record)
    items = message_list(record[key], key)
    turns = read_messages(items, settings)
    tools = read_tools(record, items[0] if items else None)
    return _dialog(turns, tools, key, record, settings)


def _unread_in(turns: Turns, where: str, settings: SftSettings) -> tuple[str, ...]:
    """Return the unread keys of the messages under the field `where`, as `messages[].id`."""
    if not turns.unread:
        return ()
    where = given_fields(settings.fields).get(where, where)
    return tuple([f"{where}[].{key}" for key in sorted(turns.unread)])


def _read_prompt(record: Mapping[str, Any], settings: SftSettings) -> Conversation:
    """Return a prompt and its completion, texts or lists of messages."""
    prompt, answer = (first_present(record, keys) for keys in (PROMPT_KEYS, ANSWER_KEYS))
    if not isinstance(prompt, list | dict) and not isinstance(answer, list | dict):
        return _read_pair(PROMPT_KEYS, record, settings)
    if answer is None:
        raise _no_such_fields(" or ".join(ANSWER_KEYS), record)
    items = _messages_of(prompt, "prompt", "user")
    answer = _messages_of(answer, "completion", "assistant")
    asked = read_messages(items, settings, "prompt message")
    weights, parts = asked.weights, asked.parts
    of_prompt = None if is_everything(settings.train) else NOT_TRAINED
    if of_prompt is not None:
        weights = prompt_weights([*weights, *(part.factor for part in parts)])[: len(weights)]
        parts = []
    replies = read_messages(answer, settings, "completion message")
    tools = read_tools(record, (items or answer or [None])[0])
    unread = [
        *tools.unread,
        *filter(None, (filled_key(record, keys) for keys in (INPUT_KEYS, REASONING_KEYS))),
        *_unread_in(asked, "prompt", settings),
        *_unread_in(replies, "completion", settings),
    ]
    dialog = Conversation(
        asked.messages + replies.messages,
        weights + replies.weights,
        tools.functions,
        tuple(unread),
        parts=parts + replies.parts,
        extras=asked.extras.add(replies.extras),
    )
    return _with_beside(dialog, record, settings, of_prompt)


def _messages_of(value: Any, where: str, role: str) -> list[Any]:
    """Return the messages of half a sample: a list, one message, or the text of one of `role`."""
    if isinstance(value, list):
        return value
    if isinstance(value, dict):
        return rows_of(value) or [value]
    if value is None:
        return []
    return [{"role": role, "content": text_of(value, where)}]


def _read_contents(record: Mapping[str, Any], settings: SftSettings) -> Conversation:
    """Return the conversation of Gemini's contents."""
    contents = record.get("contents")
    if contents is None:
        raise _no_such_fields("contents", record)
    listed = [contents] if isinstance(contents, dict) else message_list(contents, "contents")
    turns = read_messages(gemini_messages(listed, "content"), settings, "content")
    unread = {key.replace("content[]", "parts[]") for key in turns.unread}
    turns = turns._replace(unread=unread)
    instruction = filled_key(record, _INSTRUCTION_KEYS)
    if instruction and not filled_key(record, SYSTEM_KEYS):
        text = gemini_text(record[instruction], instruction)
        record = {**record, SYSTEM_KEYS[0]: text}
    return _dialog(turns, read_tools(record), "contents", record, settings)


def _read_responses(record: Mapping[str, Any], settings: SftSettings) -> Conversation:
    """Return the conversation of OpenAI's Responses: what went in, and what came out."""
    items: list[Any] = []
    for where, role in (("input", "user"), ("output", "assistant")):
        value = record.get(where)
        if isinstance(value, str) and _are_objects(value):
            value = message_list(value, where)
        items += _messages_of(value, where, role)
    if not items:
        raise _no_such_fields("input or output", record)
    turns = read_messages(items, settings, "item")
    instructions = record.get("instructions")
    if is_filled(instructions) and not filled_key(record, SYSTEM_KEYS):
        record = {**record, SYSTEM_KEYS[0]: instructions}
    where = "input" if is_filled(record.get("input")) else "output"
    return _dialog(turns, read_tools(record), where, record, settings)


def _dialog(
    turns: Turns,
    tools: Tools,
    where: str,
    record: Mapping[str, Any],
    settings: SftSettings,
) -> Conversation:
    """Return the conversation of turns under the field `where`, and of what stands beside them."""
    dialog = Conversation(
        turns.messages,
        turns.weights,
        tools.functions,
        (*_unread_in(turns, where, settings), *tools.unread),
        parts=turns.parts,
        extras=turns.extras,
    )
    return _with_beside(dialog, record, settings)


def _with_beside(
    dialog: Conversation,
    record: Mapping[str, Any],
    settings: SftSettings,
    weight: float | None = None,
) -> Conversation:
    """Insert the record's history, and its system message unless the turns have one.

    `weight`: of the inserted messages, None for the history's own.
    """
    if not dialog.messages and DROP in known_roles(settings.role_names).values():
        raise ChatError("no message left", "record: --role-names leaves none", is_drop=True)
    if not dialog.messages:
        raise ChatError("empty conversation", "record: expected messages, found an empty list")
    if key := filled_key(record, HISTORY_KEYS):
        history = _read_history(record[key], key, settings)
        start = int(dialog.messages[0]["role"] in _SYSTEM_ROLES)
        n = len(history.messages)
        dialog.messages[start:start] = history.messages
        dialog.weights[start:start] = history.weights if weight is None else [weight] * n
        dialog.parts = [*history.parts, *dialog.parts]
        dialog.extras.add(history.extras)
    key = filled_key(record, SYSTEM_KEYS)
    if not key or known_roles(settings.role_names)["system"] == DROP:
        return dialog
    system = _system_text(record[key], key, settings)
    own = [m["content"] for m in dialog.messages if m["role"] in _SYSTEM_ROLES]
    if not system:  # a list of parts without text
        return dialog
    if not own:
        dialog.messages.insert(0, {"role": "system", "content": system})
        dialog.weights.insert(0, weight)
    elif system not in own:
        dialog.unread = (*dialog.unread, given_fields(settings.fields).get("system", key))
    return dialog


def _system_text(value: Any, key: str, settings: SftSettings) -> str:
    """Return a system message beside the turns: a text, or as at Anthropic a list of parts."""
    content = read_content(value, settings, key) if isinstance(value, list) else None
    if content is None:
        return text_of(value, key)
    if content.reasoning is not None or content.calls:
        raise wrong_type(key, "text alone", value)
    return content.text


def _read_pair(
    keys: Sequence[str], record: Mapping[str, Any], settings: SftSettings
) -> Conversation:
    """Return the conversation of a prompt or an instruction, under one of `keys`, and its answer.

    An input is added to it; beside an instruction, a prompt has none. With `instruction` =
    "stanford", the message gets `with_input` if it has one: template alpaca then writes another
    preamble.
    """
    asked = text_of(first_present(record, keys), keys[0])
    has_input = "instruction" in keys or not is_filled(record.get("instruction"))
    context = _optional_text(record, INPUT_KEYS if has_input else ())
    user: Message = {"role": "user", "content": asked or context}
    if context and settings.instruction == STANFORD:
        user["with_input"] = True
    if context and (asked or settings.instruction == STANFORD):
        user["content"] = asked + JOINS[settings.instruction] + context
    answer = first_present(record, ANSWER_KEYS)
    if answer is None:
        raise _no_such_fields(" or ".join(ANSWER_KEYS), record)
    tools = read_tools(record)
    if isinstance(answer, list | dict):
        said = _messages_of(answer, "completion", "assistant")
        replies = read_messages(said, settings, "completion message")
        dialog = Conversation(
            [user, *replies.messages],
            [None, *replies.weights],
            tools.functions,
            (*_unread_in(replies, "completion", settings), *tools.unread),
            parts=replies.parts,
            extras=replies.extras,
        )
    else:
        reply: Message = {"role": "assistant", "content": text_of(answer, "answer")}
        dialog = Conversation([user, reply], [None, None], tools.functions, tools.unread)
    reasoning = _optional_text(record, REASONING_KEYS)
    if reasoning and len(dialog.messages) > 1:
        dialog.messages[1].setdefault("reasoning_content", reasoning)
    return _with_beside(dialog, record, settings)


def _read_text(record: Mapping[str, Any], _settings: SftSettings) -> Conversation:
    """Return a text as one message of the assistant, so that all of it is trained."""
    text = record.get("text")
    if text is None:
        raise _no_such_fields("text", record)
    reply = {"role": "assistant", "content": text_of(text, "text")}
    return Conversation([reply], [None], is_text=True)


def _no_such_fields(expected: str, record: Mapping[str, Any]) -> ChatError:
    return ChatError(
        "no such fields", f"record: expected {expected}, found {shown_keys(list(record))}"
    )


def _read_history(value: Any, key: str, settings: SftSettings) -> Turns:
    """Return earlier turns, pairs or messages, with their weights; they may be JSON text."""
    try:
        turns = parsed(value, "broken history", key)
        if not isinstance(turns, list | None):
            raise wrong_type(key, "a list of pairs or messages", turns)
    except ChatError as error:  # such as an essay under the key history
        raise _with_advice(error, key) from None
    if turns and all(isinstance(turn, dict) for turn in turns):
        return read_messages(turns, settings, "history, message")
    messages: list[Message] = []
    for number, pair in enumerate(turns or (), 1):
        where = f"{key}, pair {number}"
        if not isinstance(pair, list) or len(pair) != 2:
            raise wrong_type(where, "a list of a question and its answer", pair)
        messages += [{"role": "user", "content": text_of(pair[0], where)}]
        messages += [{"role": "assistant", "content": text_of(pair[1], where)}]
    return Turns(messages, [None] * len(messages), [], set(), Extras())


def _optional_text(record: Mapping[str, Any], keys: Sequence[str]) -> str:
    key = filled_key(record, keys)
    try:
        return text_of(record[key], key) if key else ""
    except ChatError as error:
        raise _with_advice(error, key) from None


def _with_advice(error: ChatError, key: str) -> ChatError:
    return ChatError(error.reason, f"{error.message}: --ignore-keys {key} leaves it out")


_INSTRUCTION_KEYS = ("systemInstruction", "system_instruction")

_BESIDE = (SYSTEM_KEYS, TOOL_KEYS, HISTORY_KEYS, WEIGHT_KEYS, (VARIABLES_KEY,))
_BESIDE_TEXTS = (INPUT_KEYS, REASONING_KEYS, *_BESIDE)


@dataclass(frozen=True, slots=True)
class _Schema:
    """A schema: its fields in words, groups of keys of which it needs one each, its reader.

    `beside`: more groups of which it reads the first filled key.
    """

    fields: str
    keys: tuple[tuple[str, ...], ...]
    read: Reader
    beside: tuple[tuple[str, ...], ...]
    is_part: Callable[[Any], bool] | None = None
    """What must stand in a list under one of the fields, if their names alone are too common."""

    def fits(self, record: Mapping[str, Any]) -> bool:
        if self.is_part is not None:
            values = [record.get(key) for keys in self.keys for key in keys]
            return any(any(map(self.is_part, _objects(value))) for value in values)
        return all(first_present(record, keys) is not None for keys in self.keys)


_TABLE = {
    "messages": _Schema(
        "messages", (("messages",),), partial(_read_dialog, "messages"), (TURN_KEYS, *_BESIDE)
    ),
    "conversations": _Schema(
        "conversations", (("conversations",),), partial(_read_dialog, "conversations"), _BESIDE
    ),
    "prompt": _Schema(
        f"{' | '.join(PROMPT_KEYS)} and {' | '.join(ANSWER_KEYS)}",
        (PROMPT_KEYS, ANSWER_KEYS), _read_prompt, _BESIDE_TEXTS,
    ),
    "alpaca": _Schema(
        "instruction and output", (("instruction",), ANSWER_KEYS),
        partial(_read_pair, ("instruction",)), _BESIDE_TEXTS
    ),
    "gemini": _Schema(
        "contents", (("contents",),), _read_contents,
        ((*SYSTEM_KEYS, *_INSTRUCTION_KEYS), *_BESIDE[1:]), is_part=is_content,
    ),
    "responses": _Schema(
        "input and output, lists of items", (("input",), ("output",)), _read_responses,
        ((*SYSTEM_KEYS, "instructions"), *_BESIDE[1:]), is_part=is_item,
    ),
    "text": _Schema("text", (("text",),), _read_text, (WEIGHT_KEYS, (VARIABLES_KEY,))),
}  # fmt: skip

FIELDS_BY_SCHEMA = {name: schema.fields for name, schema in _TABLE.items()}
"""The fields of each schema, in words."""
