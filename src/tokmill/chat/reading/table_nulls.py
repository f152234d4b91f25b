"""Nulls that a table puts into tools and tool calls.

A column of a table gives every object in it the keys of all: of {"city": "Rome"} and {"query": "x"}
it makes {"city": "Rome", "query": null} and {"city": null, "query": "x"}. A model would learn to
write them. A null leaves only where nobody can have meant it:

    in a schema     a keyword that can never be null, or an entry of `properties`
    in arguments    a key that the schema of its tool does not have and does not allow

All others are kept and counted. Arguments that a record gives as JSON text are no object of a
table: they stay as they are written.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from tokmill.chat.conversation import ChatError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tokmill.chat.conversation import Counts, Message

    Schema = dict[str, Any]

LEFT_OUT = "nulls of a table left out of tools and tool calls"
KEPT = "nulls kept in tools and tool calls (a table may have put them there)"

_OF_TOOL = frozenset(
    (
        "type", "function", "name", "description", "parameters", "input_schema", "strict", "return",
        "returns", "response",
    )
)  # fmt: skip
"""Keys of a tool or a function that mean the same as null and absent."""

_MAPS = frozenset(("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"))
"""Keywords that hold schemas by name."""

_SCHEMAS = frozenset(
    (
        "items", "prefixItems", "additionalProperties", "unevaluatedProperties", "propertyNames",
        "unevaluatedItems", "additionalItems", "contains", "contentSchema", "anyOf", "oneOf",
        "allOf", "not", "if", "then", "else",
    )
)  # fmt: skip
"""Keywords that hold a schema or a list of schemas."""

_NEVER_NULL = _MAPS | _SCHEMAS | frozenset(
    (
        "type", "enum", "required", "description", "title", "format", "pattern", "minimum",
        "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength",
        "minItems", "maxItems", "uniqueItems", "minContains", "maxContains", "minProperties",
        "maxProperties", "dependentRequired", "deprecated", "readOnly", "writeOnly", "$ref", "$id",
        "$schema", "$anchor", "$comment", "contentEncoding", "contentMediaType", "nullable",
    )
)  # fmt: skip
"""Keywords of JSON Schema that can never be null; `default`, `const` and `examples` can be."""

_COMBINING = ("anyOf", "oneOf", "allOf")
_CONDITIONS = frozenset(("if", "then", "else", "dependentSchemas"))
_PARAMETERS = ("parameters", "input_schema")


def without_table_nulls(
    record: Mapping[str, Any],
    messages: Iterable[Message],
    tools: list[Any] | None,
    counts: Counts,
) -> list[Any] | None:
    """Return the tools of a record without the nulls of a table, and take those out of its calls.

    `messages`: of the record, as read; their arguments are replaced. `counts`: gets both numbers.

    Raises:
        ChatError: an object is nested too deep.
    """
    try:
        if any(has_null(tool) for tool in tools or ()):
            tools = [_tool_without_nulls(tool, counts) for tool in tools or ()]
        functions = [
            call["function"]
            for message in messages
            for call in message.get("tool_calls", ())
            if has_null(call["function"]["arguments"])
        ]
        # Arguments that were JSON text are no object of the record.
        given = set(map(id, _objects_in(record))) if functions else set()
        for function in functions:
            arguments = function["arguments"]
            if id(arguments) in given:
                places = [
                    _of_function(tool["function"])
                    for tool in tools or ()
                    if _is_named(tool, function)
                ]
                function["arguments"] = _value_without_nulls(arguments, places, counts)
    except RecursionError:
        raise ChatError("broken tools", "tools: expected objects, found nested too deep") from None
    return tools


def _is_named(tool: Any, function: Mapping[str, Any]) -> bool:
    """Return whether a tool is a function with the name of the called one."""
    described = tool.get("function")
    return isinstance(described, dict) and described.get("name") == function["name"]


_DEEPEST = 64


def for_template(value: Any, depth: int = 0) -> Any:
    """Return a value that only a template reads, without keys that are null.

    None if it is too deep, or text with half of a surrogate pair, which cannot be UTF-8; such keys
    are left out too.
    """
    if depth == _DEEPEST or (isinstance(value, str) and not is_utf8(value)):
        return None
    if isinstance(value, dict):
        held = {key: for_template(item, depth + 1) for key, item in value.items() if is_utf8(key)}
        return {key: item for key, item in held.items() if item is not None}
    if isinstance(value, list):
        return [for_template(item, depth + 1) for item in value]
    return value


def is_utf8(text: str) -> bool:
    """Return whether a text has no half of a surrogate pair."""
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


def has_null(value: Any) -> bool:
    """Return whether a key within a value of JSON is null."""
    waiting = [value]
    for item in waiting:
        if isinstance(item, dict):
            values = item.values()
            if None in values:
                return True
            waiting += values
        elif isinstance(item, list):
            waiting += item
    return False


def _nulls_in(value: Any) -> Iterator[str]:
    """Yield the keys within a value that are null."""
    for item in _objects_in(value):
        yield from (key for key, held in item.items() if held is None)


def _objects_in(value: Any) -> Iterator[dict[str, Any]]:
    """Yield all objects within a value of JSON."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            yield item
            waiting += item.values()
        elif isinstance(item, list):
            waiting += item


def _tool_without_nulls(tool: Any, counts: Counts) -> Any:
    """Return a tool, or the function in it, without keys and keywords that are null."""
    if not isinstance(tool, dict):
        return tool
    kept = {}
    for key, value in tool.items():
        if value is None and key in _OF_TOOL:
            counts[LEFT_OUT] += 1
        elif key == "function":
            kept[key] = _tool_without_nulls(value, counts)
        elif key in _OF_TOOL and isinstance(value, dict):
            kept[key] = _schema_without_nulls(value, counts)
        else:
            kept[key] = _counted(key, value, counts)
    return kept


def _schema_without_nulls(schema: Any, counts: Counts) -> Any:
    """Return a schema, or a list of schemas, without keywords and properties that are null."""
    if isinstance(schema, list):
        return [_schema_without_nulls(item, counts) for item in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {}
    for key, value in schema.items():
        if value is None and key in _NEVER_NULL:
            counts[LEFT_OUT] += 1
        elif key in _MAPS and isinstance(value, dict):
            filled = {name: item for name, item in value.items() if item is not None}
            counts[LEFT_OUT] += len(value) - len(filled)
            kept[key] = {name: _schema_without_nulls(item, counts) for name, item in filled.items()}
        elif key in _SCHEMAS:
            kept[key] = _schema_without_nulls(value, counts)
        else:
            kept[key] = _counted(key, value, counts)
    return kept


def _counted(key: str, value: Any, counts: Counts) -> Any:
    """Return a value that is kept under a key; count it if it is null, or the nulls in it."""
    counts[KEPT] += sum(1 for _ in _nulls_in({key: value}))
    return value


class _Place(NamedTuple):
    """A schema, and the whole one that it stands in: references begin there."""

    schema: Any
    root: Any


def _of_function(function: Mapping[str, Any]) -> _Place:
    """Return the schema of a function's arguments; one that describes none has none (OpenAI)."""
    filled = [function[key] for key in _PARAMETERS if function.get(key)]
    schema = filled[0] if filled else {"properties": {}}
    return _Place(schema, schema)


def _value_without_nulls(value: Any, places: Sequence[_Place], counts: Counts) -> Any:
    """Return a value of arguments without the nulls that none of its schemas allows.

    `places`: the schemas that it may follow; [] if they are unknown.
    """
    leaves = _leaves(places)
    if isinstance(value, list):
        of_items = _of_items(leaves)
        return [_value_without_nulls(item, of_items, counts) for item in value]
    if not isinstance(value, dict):
        return value
    closed = _closed(leaves)
    kept = {}
    for key, item in value.items():
        own = [
            _Place(place.schema["properties"][key], place.root)
            for place in closed
            if key in place.schema.get("properties", ())
        ]
        if item is None and closed and not own:
            counts[LEFT_OUT] += 1
        else:
            counts[KEPT] += item is None
            kept[key] = _value_without_nulls(item, own, counts)
    return kept


def _leaves(places: Sequence[_Place]) -> list[_Place]:
    """Return schemas with references and combinations replaced by what these hold.

    [] if one of them allows any value, or depends on the value.
    """
    waiting, leaves, seen = [*places], list[_Place](), set[int]()
    while waiting:
        place = waiting.pop()
        schema = place.schema
        if not isinstance(schema, dict) or not schema or not _CONDITIONS.isdisjoint(schema):
            return []
        if id(schema) in seen or schema.keys() == {"required"}:  # a rule beside other schemas
            continue
        seen.add(id(schema))
        options = [schema[key] for key in _COMBINING if key in schema]
        if not all(isinstance(option, list) for option in options):
            return []
        held = list(chain.from_iterable(options))
        if "$ref" in schema:
            held.append(_referred(schema["$ref"], place.root))
        waiting += [_Place(item, place.root) for item in held]
        if not held or "properties" in schema:
            leaves.append(place)
    return leaves


def _referred(reference: Any, root: Any) -> Any:
    """Return the schema at a reference such as #/$defs/Place; None if it stands elsewhere."""
    first, *names = str(reference).split("/")
    found = root if first == "#" else None
    for name in names:
        plain = name.replace("~1", "/").replace("~0", "~")
        found = found.get(plain) if isinstance(found, dict) else None
    return found


def _closed(leaves: Sequence[_Place]) -> list[_Place]:
    """Return the schemas of objects that name all their keys; [] if an object may have others.

    Schemas of functions seldom say that other keys are refused: those that do not allow them are
    meant so.
    """
    closed = []
    for place in leaves:
        schema = place.schema
        if not _may_be(schema, "object"):
            continue
        others = schema.get("additionalProperties", False)
        has_names = isinstance(schema.get("properties"), dict)
        is_empty = "properties" not in schema and "additionalProperties" in schema
        if others is not False or schema.get("patternProperties") or not (has_names or is_empty):
            return []
        closed.append(place)
    return closed


def _of_items(leaves: Sequence[_Place]) -> list[_Place]:
    """Return the schemas of the items of a list; [] if one may be anything."""
    lists = [place for place in leaves if _may_be(place.schema, "array")]
    if any("prefixItems" in place.schema or "items" not in place.schema for place in lists):
        return []
    return [_Place(place.schema["items"], place.root) for place in lists]


def _may_be(schema: Schema, kind: str) -> bool:
    """Return whether a schema allows a value of a type; Gemini writes types in upper case."""
    types = schema.get("type", kind)
    names = types if isinstance(types, list) else [types]
    return any(isinstance(name, str) and name.lower() == kind for name in names)
