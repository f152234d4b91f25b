"""Nulls that a table puts into tools and tool calls reach no sample; others do."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from tokmill.chat.conversation import ChatError
from tokmill.chat.reading.schemas import read_conversation
from tokmill.chat.reading.table_nulls import KEPT, LEFT_OUT
from tokmill.settings.sft import SftSettings

STRING = {"type": "string"}


def tool(properties, *, name="f", **schema):
    parameters = {"type": "object", "properties": properties, **schema}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def record(arguments, *tools, name="f"):
    call = {"type": "function", "function": {"name": name, "arguments": arguments}}
    asked = {"role": "user", "content": "q"}
    reply = {"role": "assistant", "content": None, "tool_calls": [call]}
    return {"messages": [asked, reply], "tools": list(tools)}


def read(item):
    return read_conversation(item, "messages", SftSettings())


def arguments_of(item):
    return [
        call["function"]["arguments"]
        for message in read(item).messages
        for call in message.get("tool_calls", ())
    ]


def test_rows_of_a_table_are_read_as_they_were_before_it():
    city = record({"city": "Rome"}, tool({"city": STRING}, name="w"), name="w")
    query = record({"query": "x"}, tool({"query": STRING}, name="s", required=["query"]), name="s")
    nothing = record({}, tool({}, name="now"), name="now")
    deep = tool({"at": tool({"x": STRING})["function"]["parameters"]}, name="go")
    nested = record({"at": {"x": "1"}}, deep, name="go")
    rows = [city, query, nothing, nested]
    for row in rows:
        row["tools"] = [city["tools"][0], query["tools"][0], nothing["tools"][0], deep]
    from_table = pa.Table.from_pylist(rows).to_pylist()
    assert '"query": null' in json.dumps(from_table)
    for before, after in zip(rows, from_table, strict=True):
        expected, found = read(before), read(after)
        assert found.messages == expected.messages
        assert found.tools == expected.tools
        assert found.extras.noticed[LEFT_OUT]
        assert not found.extras.noticed[KEPT]


OPEN = {"additionalProperties": True}
OWN = {"$defs": {"P": {"type": "object", "properties": {"x": STRING}}}}
UNION = {"anyOf": [{"$ref": "#/$defs/P"}, {"type": "null"}]}


@pytest.mark.parametrize(
    ("schema", "given", "expected"),
    [
        (tool({"a": STRING}), {"a": None, "b": None}, {"a": None}),
        (tool({"a": STRING}, additionalProperties=False), {"b": None}, {}),
        (tool({"a": STRING}, additionalProperties=None), {"b": None}, {}),
        ({"type": "function", "function": {"name": "f", "description": "d"}}, {"b": None}, {}),
        ({"name": "f", "input_schema": {"type": "object", "properties": {}}}, {"b": None}, {}),
        (tool({"a": STRING}, type="OBJECT"), {"b": None}, {}),
        (tool({"o": OWN["$defs"]["P"]}), {"o": {"x": None, "b": None}}, {"o": {"x": None}}),
        (
            tool({"l": {"type": "array", "items": OWN["$defs"]["P"]}}),
            {"l": [{"x": "1", "b": None}, None]},
            {"l": [{"x": "1"}, None]},
        ),
        (tool({"o": UNION}, **OWN), {"o": {"x": "1", "b": None}}, {"o": {"x": "1"}}),
        (
            tool({}, allOf=[{"properties": {"a": STRING}}, {"required": ["a"]}]),
            {"a": None, "b": None},
            {"a": None},
        ),
    ],
)
def test_a_null_of_a_key_that_a_closed_schema_does_not_have_goes(schema, given, expected):
    item = record(given, schema)
    assert arguments_of(item) == [expected]
    assert read(item).extras.noticed[LEFT_OUT]


@pytest.mark.parametrize(
    ("schemas", "given"),
    [
        ([tool({"a": STRING}, **OPEN)], {"b": None}),
        ([tool({"a": STRING}, additionalProperties={"type": "null"})], {"b": None}),
        ([tool({"a": STRING}, patternProperties={"^b": {}})], {"b": None}),
        ([tool({"a": STRING}, name="g")], {"b": None}),
        ([], {"b": None}),
        ([tool({"a": STRING}), tool({"b": STRING})], {"b": None}),
        ([tool({"o": {"type": "object"}})], {"o": {"b": None}}),
        ([tool({"o": {"$ref": "https://a.b/c"}})], {"o": {"b": None}}),
        ([tool({"a": STRING}, **{"if": {"required": ["a"]}})], {"b": None}),
        ([tool({"a": STRING})], {"c": {"b": None}}),
        ([tool({"l": {"prefixItems": [{}]}})], {"l": [{"b": None}]}),
    ],
)
def test_a_null_that_may_be_meant_stays_and_is_counted(schemas, given):
    item = record(given, *schemas)
    assert arguments_of(item) == [given]
    assert read(item).extras.noticed[KEPT] == 1


@pytest.mark.parametrize("as_text", ["arguments", "tool_calls", "value"])
def test_arguments_that_are_json_text_stay_as_they_are_written(as_text):
    given = {"b": None}
    item = record(given, tool({"a": STRING}))
    reply = item["messages"][1]
    if as_text == "arguments":
        reply["tool_calls"][0]["function"]["arguments"] = json.dumps(given)
    elif as_text == "tool_calls":
        reply["tool_calls"] = json.dumps(reply["tool_calls"])
    else:
        call = json.dumps({"name": "f", "arguments": given})
        item["messages"][1] = {"from": "function_call", "value": call}
    assert arguments_of(item) == [given]
    assert not any(read(item).extras.noticed.values())


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": None, "enum": None, "items": None, "description": None}, {}),
        ({"properties": None, "required": None}, {}),
        ({"properties": {"a": STRING, "type": None}}, {"properties": {"a": STRING}}),
        ({"items": {"enum": None, "type": "string"}}, {"items": STRING}),
        ({"anyOf": [{"type": "string", "items": None}, None]}, {"anyOf": [STRING, None]}),
        ({"$defs": {"A": {"format": None}, "B": None}}, {"$defs": {"A": {}}}),
        ({"additionalProperties": {"minimum": None}}, {"additionalProperties": {}}),
    ],
)
def test_a_null_that_no_schema_can_have_goes(schema, expected):
    (found,) = read(record({}, tool({"p": schema}))).tools
    assert found == tool({"p": expected})


@pytest.mark.parametrize(
    "schema",
    [
        {"default": None},
        {"const": None},
        {"examples": None},
        {"default": {"type": None}},
        {"examples": [{"type": None}]},
        {"x-order": None},
    ],
)
def test_a_null_that_a_schema_can_have_stays_and_is_counted(schema):
    read_back = read(record({}, tool({"p": schema})))
    assert read_back.tools == [tool({"p": schema})]
    assert read_back.extras.noticed[KEPT] == 1


def test_elements_of_lists_stay():
    schema = {"enum": ["a", None], "type": ["string", None]}
    read_back = read(record({}, tool({"p": schema})))
    assert read_back.tools == [tool({"p": schema})]
    assert not any(read_back.extras.noticed.values())


def test_keys_of_a_tool_that_are_null_go():
    described = {**tool({})["function"], "description": None, "strict": None, "return": None}
    item = record({}, {"type": "function", "function": described, "name": None})
    assert read(item).tools == [tool({})]
    as_text = {**item, "tools": json.dumps(item["tools"])}
    assert read(as_text).tools == [tool({})]


def test_objects_that_are_nested_too_deep_are_refused():
    schema = {"type": None}
    for _ in range(5000):
        schema = {"items": schema}
    with pytest.raises(ChatError, match="nested too deep"):
        read(record({}, tool({"p": schema})))


def test_references_may_lead_to_themselves():
    schema = {"type": "object", "properties": {"next": {"$ref": "#"}, "a": STRING}}
    given = {"next": {"next": {"a": "1", "b": None}, "b": None}}
    item = record(given, {"name": "f", "parameters": schema})
    assert arguments_of(item) == [{"next": {"next": {"a": "1"}}}]
    looped = tool({"o": {"$ref": "#/$defs/P"}}, **{"$defs": {"P": {"$ref": "#/$defs/P"}}})
    assert arguments_of(record({"o": {"b": None}}, looped)) == [{"o": {"b": None}}]
