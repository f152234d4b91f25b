"""What a record says beyond what is read of it reaches a template that reads it."""

from __future__ import annotations

import json

import pytest

USER = {"role": "user", "content": "q"}
REPLY = {"role": "assistant", "content": "a"}
CALL = {"type": "function", "function": {"name": "f", "arguments": {}}}

EACH = "{% for m in messages %}<|im_start|>{{ m.role }}\n"
END = "<|im_end|>\n{% endfor %}"
COHERE = (
    EACH + "{% if m.tool_calls %}{% generation %}<think>{{ m.tool_plan }}</think><tool_call>"
    "{{ m.tool_calls[0].function.name }}</tool_call>{% endgeneration %}{% else %}{{ m.content }}"
    "{% endif %}" + END
)
OLMO = (
    "{%- for message in messages -%}{%- if message['role'] == 'system' -%}<|im_start|>system\n"
    "{{ message['content'] }}{%- if message.get('functions', none) is not none -%}"
    "{{ ' <functions>' + message['functions'] + '</functions>' }}{%- endif -%}<|im_end|>\n"
    "{%- elif message['role'] == 'user' -%}{{ '<|im_start|>user\n' + message['content'] }}"
    "<|im_end|>\n{%- elif message['role'] == 'assistant' -%}<|im_start|>assistant\n"
    "{% generation %}{{ message['content'] }}"
    "{%- if message.get('function_calls', none) is not none -%}"
    "{{ '<function_calls>' + message['function_calls'] + '</function_calls>' }}{%- endif -%}"
    "<|im_end|>{% endgeneration %}\n{%- elif message['role'] == 'environment' -%}"
    "{{ '<|im_start|>environment\n' + message['content'] + '<|im_end|>\n' }}{%- endif -%}"
    "{%- endfor -%}"
)


def own(reading):
    """A template that writes `reading` behind each content."""
    return (
        EACH + "{% if m.role == 'assistant' %}{% generation %}{{ m.content }}" + reading
        + "{% endgeneration %}{% else %}{{ m.content }}{% endif %}" + END
    )  # fmt: skip


@pytest.fixture
def made(make_renderer, whole_records, shown):
    """Return the texts of the samples of a record, or why it is refused, and its unread keys."""

    def make(template, record, schema="messages", **settings):
        renderer = make_renderer(template, schema, train=("-eot",), **settings)
        batch = renderer.render(whole_records([json.dumps(record)]))
        refused = [reject.message for _, reject in batch.refused]
        unread = batch.unread_keys
        return shown(batch) + refused, list(unread.sets[0]) if unread else []

    return make


def test_the_plan_of_a_call_is_trained(made):
    called = {"role": "assistant", "tool_plan": "I look.", "tool_calls": [CALL]}
    (text,), unread = made(COHERE, {"messages": [USER, called]})
    assert "«<think>I look.</think><tool_call>f»" in text
    assert unread == []


def test_functions_calls_and_results_of_olmo_are_written(made):
    chat = [
        {"role": "system", "content": "s", "functions": "[f]"},
        USER,
        {"role": "assistant", "content": "I look. ", "function_calls": "f()"},
        {"role": "environment", "content": "r"},
        {"role": "assistant", "function_calls": "g()"},
        {"role": "tool", "content": "t"},
        REPLY,
    ]
    (text,), unread = made(OLMO, {"messages": chat})
    assert "s <functions>[f]</functions><|im_end|>" in text
    assert "«I look. <function_calls>f()</function_calls>»<|im_end|>" in text
    assert "«<function_calls>g()</function_calls>»<|im_end|>" in text
    assert "<|im_start|>environment\nr" in text
    assert "<|im_start|>environment\nt" in text
    assert unread == []


@pytest.mark.parametrize(
    "reading",
    [
        "{{ m.mood }}", "{{ m['mood'] }}", "{{ m.get('mood', '') }}",
        "{{ m.values() | list | last }}", "{% for k, v in m.items() if k == 'mood' %}{{ v }}"
        "{% endfor %}", "{{ dict(m)['mood'] }}", "{{ (m | tojson)[-8:-2] }}",
        "{{ m | attr('get')('mood') }}", "{{ [m] | map(attribute='mood') | join }}",
        "{{ m.copy().mood }}", "{{ '%(mood)s' | format(**m) }}", "{{ (m | string)[-8:-2] }}",
    ],
)  # fmt: skip
def test_a_key_is_taken_however_a_template_reads_it(made, reading):
    (text,), unread = made(own(reading), {"messages": [USER, {**REPLY, "mood": "serene"}]})
    assert "«aserene»" in text
    assert unread == []


def test_a_key_that_is_only_asked_for_is_taken(made):
    for asked in ("{{ 'mood' in m }}", "{{ m.mood is defined }}"):
        (text,), unread = made(own(asked), {"messages": [USER, {**REPLY, "mood": "serene"}]})
        assert "«aTrue»" in text
        assert unread == []


def test_what_the_template_does_not_take_is_unread(made):
    said = {**REPLY, "mood": "serene", "id": 7}
    record = {"messages": [USER, said], "url": "u", "documents": ["d"]}
    (text,), unread = made(own("{{ m.mood }}{{ documents }}"), record)
    assert "«aserene['d']»" in text
    assert unread == ["messages[].id", "url"]
    (text,), unread = made("chatml", record)
    assert "serene" not in text
    assert unread == ["documents", "messages[].id", "messages[].mood", "url"]


@pytest.mark.parametrize(
    ("record", "schema"),
    [
        ({"prompt": [USER], "completion": [{**REPLY, "mood": "serene"}]}, "prompt"),
        ({"conversations": [{"from": "human", "value": "q"},
                            {"from": "gpt", "value": "a", "mood": "serene"}]}, "conversations"),
        ({"messages": [USER, {**REPLY, "mood": "serene"}], "history": [["x", "y"]]}, "messages"),
        ({"messages": json.dumps([USER, {**REPLY, "mood": "serene"}])}, "messages"),
    ],
)  # fmt: skip
def test_every_schema_hands_its_messages_over(made, record, schema):
    (text,), unread = made(own("{{ m.mood }}"), record, schema)
    assert "«aserene»" in text
    assert unread == []


@pytest.mark.parametrize(
    ("record", "schema"),
    [
        ({"messages": [USER, REPLY]}, "messages"),
        ({"prompt": "q", "completion": "a"}, "prompt"),
        ({"instruction": "q", "output": "a"}, "alpaca"),
    ],
)
def test_keys_of_a_record_reach_the_template(made, record, schema):
    documents = [{"title": "t", "text": "d", "url": None}]
    (text,), unread = made(own("{{ documents | tojson }}"), {**record, "documents": documents},
                           schema)  # fmt: skip
    assert '«a[{"title": "t", "text": "d"}]»' in text
    assert unread == []


def test_settings_and_variables_of_the_record_win_over_its_keys(made):
    record = {"messages": [USER, REPLY], "mood": "key"}
    template = own("{{ mood }}")
    assert "«akey»" in made(template, record)[0][0]
    chosen = json.dumps({"mood": "chosen"})
    assert "«achosen»" in made(template, record, template_kwargs=chosen)[0][0]
    record["chat_template_kwargs"] = {"mood": "own"}
    assert "«aown»" in made(template, record, template_kwargs=chosen)[0][0]


def test_keys_that_tokmill_sets_itself_are_not_taken_from_a_record(made):
    record = {"messages": [USER, REPLY], "add_generation_prompt": True, "eos_token": "x"}
    (text,), unread = made(own("{{ add_generation_prompt }}{{ eos_token }}"), record)
    assert "«aFalse»<eos>" in text
    assert unread == ["add_generation_prompt", "eos_token"]


def test_control_strings_in_keys_are_text(made, make_renderer, whole_records):
    said = {**REPLY, "mood": "<|im_end|>"}
    record = {"messages": [USER, said], "documents": "<bos>"}
    batch = make_renderer(own("{{ m.mood }}{{ documents }}")).render(
        whole_records([json.dumps(record)])
    )
    trained = [i for i, weight in enumerate(batch.weights) if weight]
    assert [int(batch.control[i]) for i in trained[:-1]] == [-1] * len(trained[:-1])
    assert "".join(batch.text[i].as_py() for i in trained[:-1]) == "a<|im_end|><bos>"


def test_null_keys_of_tables_do_not_reach_the_template(made):
    said = {**REPLY, "mood": None, "more": {"a": 1, "b": None, "c": [{"d": None}, None]}}
    reading = "{{ m.mood is defined }}{{ m.more | tojson }}"
    (text,), unread = made(own(reading), {"messages": [USER, said]})
    assert '«aFalse{"a": 1, "c": [{}, null]}»' in text
    assert unread == []


def test_ignored_keys_do_not_reach_the_template(made):
    record = {"messages": [USER, {**REPLY, "mood": "serene"}]}
    (text,), _ = made(own("{{ m.mood }}"), record, ignore_keys=("mood",))
    assert "«a»" in text


def test_a_message_with_other_keys_alone_needs_a_template_that_reads_them(made):
    record = {"messages": [USER, {"role": "assistant", "verse": "v"}]}
    assert "«v»" in made(own("{{ m.verse }}"), record)[0][0]
    for template in ("chatml", own("")):
        (refused,), _ = made(template, record)
        assert refused == "message 2: expected content, found keys role, verse"


def test_reasoning_reaches_a_template_under_each_of_its_names(made):
    for key in ("reasoning", "thinking", "reasoning_content"):
        for reading in ("reasoning", "thinking", "reasoning_content"):
            said = {**REPLY, key: "hm"}
            (text,), _ = made(own("{{ m." + reading + " }}"), {"messages": [USER, said]})
            assert "«ahm»" in text


def test_a_key_that_stands_before_contents_is_trained_in_long_chats(made):
    template = (
        EACH + "{% if m.role == 'assistant' %}{{ m.mood }}{% endif %}{{ m.content }}<|im_end|>\n"
        "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    chat = [USER, REPLY] * 9
    chat[7] = {**REPLY, "mood": "serene "}
    (text,), unread = made(template, {"messages": chat})
    assert text.count("«a»<|im_end|>") == 8
    assert "«serene a»<|im_end|>" in text
    assert unread == []


LOCAL = (
    EACH + "{% if m.role == 'assistant' %}{% if m.reasoning_content %}"
    "{% set thought = m.reasoning_content %}{% endif %}{% set mood = m.mood or mood %}"
    "{% generation %}{{ thought if thought is defined }}{{ mood }}{{ m.content }}"
    "{% endgeneration %}{% else %}{{ m.content }}{% endif %}" + END
)


def test_a_variable_that_a_loop_sets_itself_is_not_taken_from_the_record(made):
    record = {"messages": [USER, REPLY], "thought": "of the record", "mood": "serene"}
    (text,), unread = made(LOCAL, record)
    assert "«a»" in text
    assert unread == ["mood", "thought"]


@pytest.mark.parametrize("key", ["thinking", "reasoning", "reasoning_content"])
def test_the_text_of_reasoning_beside_messages_is_no_variable(made, key):
    template = own("{{ 'on' if " + key + " else 'off' }}")
    (text,), unread = made(template, {"messages": [USER, REPLY], key: "I thought."})
    assert ("«aoff»" in text, unread) == (True, [key])
    (text,), unread = made(template, {"messages": [USER, REPLY], key: True})
    assert ("«aon»" in text, unread) == (True, [])


def test_documents_reach_a_template_that_forgets_them_in_a_loop(made):
    template = own("{{ documents | length if documents }}{% set documents = [] %}")
    (text,), unread = made(template, {"messages": [USER, REPLY], "documents": [{"text": "d"}]})
    assert "«a1»" in text
    assert unread == []


SIGNED = {**CALL, "thought_signature": "sig"}
INNER = {"type": "function", "function": {"name": "f", "arguments": {}, "thought_signature": "sig"}}
BARE = {"name": "f", "arguments": {}, "thought_signature": "sig"}


def calling(reading):
    """A template that writes `reading` of each tool call."""
    return own("{% for call in m.tool_calls or [] %}" + reading + "{% endfor %}")


@pytest.mark.parametrize(
    ("call", "reading"),
    [
        (SIGNED, "{{ call.thought_signature }}"),
        (SIGNED, "{{ call['thought_signature'] }}"),
        (SIGNED, "{{ call.get('thought_signature') }}"),
        (SIGNED, "{{ (call | tojson)[-5:-2] }}"),
        (SIGNED, "{{ (call | string)[-5:-2] }}"),
        (SIGNED, "{{ (m.tool_calls | string)[-6:-3] }}"),
        (SIGNED, "{% for k, v in call.items() if k.startswith('thou') %}{{ v }}{% endfor %}"),
        (INNER, "{{ call.function.thought_signature }}"),
        (INNER, "{{ (call | tojson)[-6:-3] }}"),
        (BARE, "{{ call.thought_signature }}"),
        (json.dumps(SIGNED), "{{ call.thought_signature }}"),
        ({**CALL, "extra_content": {"google": {"thought_signature": "sig", "none": None}}},
         "{{ call.extra_content.google.values() | join }}"),
    ],
)  # fmt: skip
def test_keys_of_a_call_reach_the_template(made, call, reading):
    called = {"role": "assistant", "content": "a", "tool_calls": [call]}
    (text,), unread = made(calling(reading), {"messages": [USER, called]})
    assert "«asig»" in text
    assert unread == []


@pytest.mark.parametrize(
    ("record", "schema", "where"),
    [
        ({"messages": [USER, {**REPLY, "tool_calls": [SIGNED]}]}, "messages", "messages"),
        ({"messages": [USER, {**REPLY, "tool_calls": json.dumps([INNER])}]}, "messages",
         "messages"),
        ({"prompt": [USER], "completion": [{**REPLY, "tool_calls": [SIGNED]}]}, "prompt",
         "completion"),
        ({"conversations": [{"from": "human", "value": "q"},
                            {"from": "function_call", "value": json.dumps(BARE)}]},
         "conversations", "conversations"),
    ],
)  # fmt: skip
def test_keys_of_a_call_that_the_template_does_not_read_are_unread(made, record, schema, where):
    name = f"{where}[].tool_calls[].thought_signature"
    for template in (calling("{{ call.function.name }}"), "chatml"):
        (text,), unread = made(template, record, schema)
        assert "sig" not in text
        assert unread == [name]
    (text,), unread = made(calling("{{ call | string }}"), record, schema)
    assert "sig" in text
    assert unread == []


def test_null_and_broken_keys_of_a_call_do_not_reach_the_template(made):
    call = {**CALL, "a": None, "b": "\ud800", "\udc00": 1, "c": {"\ud800": 2, "d": 3}}
    called = {"role": "assistant", "content": "a", "tool_calls": [call]}
    (text,), unread = made(calling("{{ call | tojson }}"), {"messages": [USER, called]})
    assert text.endswith('"arguments": {}}, "c": {"d": 3}}»<|im_end|>\n')
    assert unread == []


def test_control_strings_in_keys_of_a_call_are_text(made):
    call = {**CALL, "<|im_end|>": "<|im_start|>"}
    called = {"role": "assistant", "content": "a", "tool_calls": [call]}
    (text,), _ = made(calling("{{ call | tojson }}"), {"messages": [USER, called]})
    assert text.endswith('"<|im_end|>": "<|im_start|>"}»<|im_end|>\n')
