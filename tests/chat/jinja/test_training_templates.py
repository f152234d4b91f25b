from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from tokmill.chat.control_strings import Vocabulary
from tokmill.chat.conversation import ChatError, Conversation
from tokmill.chat.jinja.spans import HIDES_TURNS
from tokmill.chat.jinja.template import BY_TWIN, JinjaTemplate
from tokmill.chat.mask_rule import mask_rule
from tokmill.chat.own_templates import TRAINING, own_source
from tokmill.chat.segments import Sample, columns_of
from tokmill.chat.template_source import make_template, template_source
from tokmill.chat.weights import segment_weights
from tokmill.errors import UsageError
from tokmill.settings.sft import SftSettings

TOKENS = ("<eos>", "<think>", "</think>", *dict.fromkeys(t for ts in TRAINING.values() for t in ts))
CONTROL = {string: number for number, string in enumerate(TOKENS)}
NAMED = {"eos_token": "<eos>", "bos_token": "<bos>"}

QWEN3 = (
    "{%- if tools %}{{- raise_exception('no tools') }}{%- endif %}"
    "{%- set ns = namespace(last=0) %}"
    "{%- for m in messages %}{%- if m.role == 'user' %}{%- set ns.last = loop.index0 %}{%- endif %}"
    "{%- endfor %}"
    "{%- for m in messages %}{%- if m.role == 'tool' %}"
    "{{- '<|im_start|>user\n<tool_response>\n' + m.content + '\n</tool_response><|im_end|>\n' }}"
    "{%- else %}{{- '<|im_start|>' + m.role + '\n' }}"
    "{%- if m.role == 'assistant' and loop.index0 > ns.last %}"
    "{{- '<think>\n' + (m.reasoning_content or '') + '\n</think>\n\n' }}{%- endif %}"
    "{{- m.content }}"
    "{%- for c in m.tool_calls or [] %}"
    "{{- '<tool_call>\n' + {'name': c.function.name, 'arguments': c.function.arguments}|tojson + "
    "'\n</tool_call>' }}{%- endfor %}"
    "{{- '<|im_end|>\n' }}{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"
)
"""The form of Qwen3's own template: the reasoning of earlier turns is dropped."""

DATE = "2026-01-02"
DOCS = Path(__file__).parents[3] / "docs" / "sft.md"
USER = {"role": "user", "content": "a"}


def bot(content, reasoning=None):
    said = {"role": "assistant", "content": content}
    return said if reasoning is None else {**said, "reasoning_content": reasoning}


def shown(name, *messages, variables=None, **settings):
    """The sample as text, what is trained between « and »."""
    settings = SftSettings(template=name, **settings)
    vocabulary = Vocabulary(CONTROL, "<eos>", "", NAMED)
    template = make_template(template_source(settings, "", None), settings, vocabulary)
    sample = Sample(CONTROL)
    template.render(
        Conversation(list(messages), [None] * len(messages), variables=variables), sample
    )
    columns = columns_of([sample])
    weights, _ = segment_weights(columns.table, mask_rule(settings))
    parts = [f"«{t}»" if w else t for t, w in zip(columns.text.to_pylist(), weights, strict=True)]
    return "".join(parts).replace("»«", "")


def test_gpt_oss_ends_replies_of_the_history_as_at_inference():
    assert shown(
        "gpt-oss-training", USER, bot("b", "r"), USER, bot("c", "s"),
        date=DATE, history_reasoning="drop",
    ).partition("<|start|>user")[2] == (
        "<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b<|end|>"
        "<|start|>user<|message|>a<|end|><|start|>assistant"
        "«<|channel|>analysis<|message|>s<|end|><|start|>assistant"
        "<|channel|>final<|message|>c<|return|>»"
    )  # fmt: skip


def test_qwen3_writes_every_reply_as_it_is_where_it_is_the_last():
    asked, thought = (
        "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n",
        "<think>\n\n</think>\n\n",
    )
    messages = (USER, bot("b"), USER, bot("c"))
    assert shown("qwen3-training", *messages) == "".join(
        f"{asked}«{thought}{text}<|im_end|>»\n" for text in "bc"
    )
    quiet = "".join(f"{asked}{thought}«{text}<|im_end|>»\n" for text in "bc")
    assert shown("qwen3-training", *messages, template_kwargs='{"enable_thinking": false}') == quiet
    assert shown("qwen3-training", *messages, variables={"enable_thinking": False}) == quiet
    # As with the form of the model's own template, one sample for each turn.
    for n in (2, 4):
        own, _ = rendered(QWEN3, *messages[:n], samples="turn")
        last = "".join(own).rpartition("<|im_start|>assistant\n")[2]
        assert last == f"{thought}{'bc'[n // 2 - 1]}<|im_end|>\n"


def test_phi_ends_the_text_with_eos_once():
    messages = (USER, bot("b"), USER, bot("c"))
    assert shown("phi-4-mini-training", *messages) == (
        "<|user|>a<|end|><|assistant|>«b<|end|>»<|user|>a<|end|><|assistant|>«c<|end|><eos>»"
    )
    assert shown("phi-3-training", *messages, USER) == (
        "<|user|>\na<|end|>\n<|assistant|>\n«b<|end|>»\n<|user|>\na<|end|>\n"
        "<|assistant|>\n«c<|end|>»\n<|user|>\na<|end|>\n<eos>"
    )


def test_gpt_oss_keeps_the_reasoning_of_every_turn_and_ends_each_answer():
    reasoned = {**bot("", "q"), "tool_calls": [CALL]}
    messages = (SYSTEM, USER, reasoned, RESULT, bot("b", "r"), USER, bot("c"))
    text = shown("gpt-oss-training", *messages, date=DATE)
    head, _, tail = text.partition("<|start|>user")
    assert head == (
        "<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.\n"
        "Knowledge cutoff: 2024-06\nCurrent date: 2026-01-02\n\nReasoning: medium\n\n"
        "# Valid channels: analysis, commentary, final. Channel must be included for every message."
        "<|end|><|start|>developer<|message|># Instructions\n\ns\n\n<|end|>"
    )
    assert tail == (
        "<|message|>a<|end|><|start|>assistant"
        "«<|channel|>analysis<|message|>q<|end|><|start|>assistant to=functions.f<|channel|>"
        'commentary json<|message|>{"x": 1}<|call|>»'
        '<|start|>functions.f to=assistant<|channel|>commentary<|message|>"r"<|end|>'
        "<|start|>assistant«<|channel|>analysis<|message|>r<|end|><|start|>assistant<|channel|>"
        "final<|message|>b<|return|>»<|start|>user<|message|>a<|end|>"
        "<|start|>assistant«<|channel|>final<|message|>c<|return|>»"
    )


def test_deepseek_writes_calls_and_their_results():
    round_of_calls = ({**bot("b", "q"), "tool_calls": [CALL, CALL]}, RESULT, RESULT)
    asked = (
        '<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{"x": 1}\n```<｜tool▁call▁end｜>'
    )
    calls = (
        f"b<｜tool▁calls▁begin｜>{asked}\n{asked}<｜tool▁calls▁end｜>"
        "<｜end▁of▁sentence｜>»"
        "<｜tool▁outputs▁begin｜><｜tool▁output▁begin｜>r<｜tool▁output▁end｜>"
        "<｜tool▁output▁begin｜>r<｜tool▁output▁end｜><｜tool▁outputs▁end｜>"
    )
    text = shown("deepseek-r1-training", USER, *round_of_calls, *round_of_calls, bot("c"))
    assert text == (
        f"<bos><｜User｜>a<｜Assistant｜><think>\n«q\n</think>\n\n{calls}"
        f"«<think>\nq\n</think>\n\n{calls}«c<｜end▁of▁sentence｜>»"
    )


def test_the_token_of_the_next_role_ends_a_reply_that_has_no_end_of_its_own():
    messages = (USER, bot("b", "r"), USER, bot("c"))
    assert shown("glm-4.5-training", *messages, train=("+next-role",)) == (
        "[gMASK]<sop><|user|>\na<|assistant|>«\n<think>r</think>\nb<|user|>»\na"
        "<|assistant|>«\n<think></think>\nc»"
    )
    assert "»<|user|>" in shown("glm-4.5-training", *messages)
    assert shown("qwen3-training", *messages, train=("+next-role",)) == shown(
        "qwen3-training", *messages
    )


SYSTEM = {"role": "system", "content": "s"}
CALL = {"type": "function", "function": {"name": "f", "arguments": {"x": 1}}}
CALLED = {**bot("b "), "tool_calls": [CALL]}
RESULT = {"role": "tool", "content": "r"}
XML_CALL = (
    "<tool_call>\n<function=f>\n<parameter=x>\n1\n</parameter>\n"
    "<parameter=y>\n{}\n</parameter>\n</function>\n</tool_call>"
)
CALLS = [{"type": "function", "function": {"name": "f", "arguments": {"x": 1, "y": True}}}]
TOOLS_CALLED = [USER, {**bot("b ", "q"), "tool_calls": CALLS}, RESULT, bot("c")]
KIMI_RESULT = {**RESULT, "name": "f", "tool_call_id": "f:0"}
QWEN35 = (
    "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n<think>\n«q\n</think>\n\nb\n\n"
    + XML_CALL
    + "<|im_end|>»\n<|im_start|>user\n<tool_response>\nr\n</tool_response><|im_end|>\n"
    "<|im_start|>assistant\n<think>\n«\n</think>\n\nc<|im_end|>»\n"
)
NEMOTRON = (
    "<|im_start|>system\n<|im_end|>\n<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n"
    "<think>\n«q{}b\n"
    + XML_CALL.format("True")
    + "\n<|im_end|>»\n<|im_start|>user\n<tool_response>\nr\n</tool_response>\n<|im_end|>\n"
    "<|im_start|>assistant\n<think></think>«c<|im_end|>»\n"
)
FORMS = {
    "qwen3.5-training": (TOOLS_CALLED, QWEN35.format("True")),
    "qwen3.5-quiet-training": (
        TOOLS_CALLED,
        QWEN35.format("True").replace("«\n</think>\n\n", "\n</think>\n\n«"),
    ),
    "nemotron-3-training": (TOOLS_CALLED, NEMOTRON.format("\n</think>\n")),
    "nemotron-3-ultra-training": (TOOLS_CALLED, NEMOTRON.format("</think>")),
    "glm-4.5-training": (
        [SYSTEM, *TOOLS_CALLED],
        "[gMASK]<sop><|system|>\ns<|user|>\na<|assistant|>«\n<think>q</think>\nb\n<tool_call>f\n"
        "<arg_key>x</arg_key>\n<arg_value>1</arg_value>\n<arg_key>y</arg_key>\n"
        "<arg_value>true</arg_value>\n</tool_call><|observation|>»\n<tool_response>\nr\n"
        "</tool_response><|assistant|>«\n<think></think>\nc»",
    ),
    "glm-4.7-training": (
        [SYSTEM, *TOOLS_CALLED, USER, bot("d", "s")],
        "[gMASK]<sop><|system|>s<|user|>a<|assistant|><think>«q</think>b<tool_call>f<arg_key>x"
        "</arg_key><arg_value>1</arg_value><arg_key>y</arg_key><arg_value>true</arg_value>"
        "</tool_call><|observation|>»<tool_response>r</tool_response><|assistant|></think>«c»<|user|>"
        "a<|assistant|><think>«s</think>d»",
    ),
    "deepseek-v3.1-training": (
        [SYSTEM, {**SYSTEM, "content": "t"}, *TOOLS_CALLED, USER, bot("d", "s"), USER, bot("e")],
        "<bos>s\n\nt<｜User｜>a<｜Assistant｜><think>«q</think>b <｜tool▁calls▁begin｜>"
        '<｜tool▁call▁begin｜>f<｜tool▁sep｜>{"x": 1, "y": true}<｜tool▁call▁end｜>'
        "<｜tool▁calls▁end｜><｜end▁of▁sentence｜>»<｜tool▁output▁begin｜>r<｜tool▁output▁end｜>"
        "«c<｜end▁of▁sentence｜>»<｜User｜>a<｜Assistant｜><think>«s</think>d<｜end▁of▁sentence｜>»"
        "<｜User｜>a<｜Assistant｜></think>«e<｜end▁of▁sentence｜>»",
    ),
    "kimi-k2-thinking-training": (
        [USER, {**bot("b", "q"), "tool_calls": [{**CALLS[0], "id": "f:0"}]}, KIMI_RESULT, bot("c")],
        "<|im_system|>system<|im_middle|>You are Kimi, an AI assistant created by Moonshot AI."
        "<|im_end|><|im_user|>user<|im_middle|>a<|im_end|><|im_assistant|>assistant<|im_middle|>"
        "«<think>q</think>b<|tool_calls_section_begin|><|tool_call_begin|>f:0"
        '<|tool_call_argument_begin|>{"x": 1, "y": true}<|tool_call_end|><|tool_calls_section_end|>'
        "<|im_end|>»<|im_system|>f<|im_middle|>## Return of f:0\nr<|im_end|>"
        "<|im_assistant|>assistant<|im_middle|>«<think></think>c<|im_end|>»",
    ),
    "minimax-m2-training": (
        [SYSTEM, *TOOLS_CALLED, USER, bot("d", "s")],
        "]~!b[]~b]system\ns[e~[\n]~b]user\na[e~[\n]~b]ai\n<think>\n«q\n</think>\n\nb \n"
        '<minimax:tool_call>\n<invoke name="f">\n<parameter name="x">1</parameter>\n'
        '<parameter name="y">true</parameter>\n</invoke>\n</minimax:tool_call>[e~[»\n'
        "]~b]tool\n<response>r</response>[e~[\n]~b]ai\n«c[e~[»\n"
        "]~b]user\na[e~[\n]~b]ai\n<think>\n«s\n</think>\n\nd[e~[»\n",
    ),
    "smollm3-training": (
        [{**SYSTEM, "content": "s /no_think"}, *TOOLS_CALLED],
        "<|im_start|>system\n## Metadata\n\nKnowledge Cutoff Date: June 2025\n"
        "Today Date: 02 January 2026\nReasoning Mode: /no_think\n\n## Custom Instructions\n\ns\n\n"
        "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n«<think>\nq\n</think>\nb \n"
        '<tool_call>\n{"name": "f", "arguments": {"x": 1, "y": true}}\n</tool_call><|im_end|>»\n'
        "<|im_start|>user\nr<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n«c<|im_end|>»\n",
    ),
    "gemma-4-training": (
        [
            SYSTEM,
            USER,
            {**bot("", "q"), "tool_calls": CALLS},
            RESULT,
            bot("b ", "r"),
            USER,
            bot("c"),
        ],
        "<bos><|turn>system\ns<turn|>\n<|turn>user\na<turn|>\n<|turn>model\n"
        "«<|channel>thought\nq\n<channel|><|tool_call>call:f{x:1,y:true}<tool_call|>"
        '<|tool_response>»response:f{value:<|"|>r<|"|>}<tool_response|>'
        "«<|channel>thought\nr\n<channel|>b<turn|>»\n<|turn>user\na<turn|>\n<|turn>model\n"
        "«c<turn|>»\n",
    ),
    "qwen3.6-training": (TOOLS_CALLED, QWEN35.format("true")),
    "qwen2.5-training": (
        [USER, CALLED, RESULT, bot("<think>c")],
        "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant."
        "<|im_end|>\n<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n«b \n<tool_call>\n"
        '{"name": "f", "arguments": {"x": 1}}\n</tool_call><|im_end|>»\n<|im_start|>user\n'
        "<tool_response>\nr\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
        "«<think>c<|im_end|>»\n",
    ),
    "minimind-training": (
        [SYSTEM, USER, bot("b", "r"), USER, bot("c")],
        "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n"
        "<think>\n«r\n</think>\n\nb<|im_end|>»\n<|im_start|>user\na<|im_end|>\n"
        "<|im_start|>assistant\n<think>\n\n</think>\n\n«c<|im_end|>»\n",
    ),
    "llama-3-training": (
        [SYSTEM, USER, bot(" b\n")],
        "<bos><|start_header_id|>system<|end_header_id|>\n\ns<|eot_id|><|start_header_id|>user"
        "<|end_header_id|>\n\na<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
        "«b<|eot_id|>»",
    ),
    "llama-3.1-training": (
        [SYSTEM, USER, CALLED, RESULT, bot("c ")],
        "<bos><|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\n"
        "Today Date: 26 Jul 2024\n\ns<|eot_id|><|start_header_id|>user<|end_header_id|>\n\na"
        "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n«"
        '{"name": "f", "parameters": {"x": 1}}<|eot_id|>»<|start_header_id|>ipython'
        '<|end_header_id|>\n\n"r"<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n'
        "«c<|eot_id|>»",
    ),
    "mistral-training": (
        [SYSTEM, USER, bot("b "), USER, bot("c")],
        "<bos>[INST] s\n\na[/INST]« b<eos>»[INST] a[/INST]« c<eos>»",
    ),
    "mistral-v1-training": (
        [SYSTEM, USER, bot("b "), USER, bot("c")],
        "<bos> [INST] s\n\na [/INST]« b <eos>» [INST] a [/INST]« c<eos>»",
    ),
    "gemma-training": (
        [SYSTEM, USER, bot(" b")],
        "<bos><start_of_turn>user\ns\n\na<end_of_turn>\n<start_of_turn>model\n«b<end_of_turn>»\n",
    ),
    "phi-4-training": (
        [SYSTEM, USER, bot(" b")],
        "<|im_start|>system<|im_sep|>s<|im_end|><|im_start|>user<|im_sep|>a<|im_end|>"
        "<|im_start|>assistant<|im_sep|>« b<|im_end|>»",
    ),
    "deepseek-training": (
        [SYSTEM, USER, bot("b"), USER, bot("c")],
        "<bos>s\n\nUser: a\n\nAssistant:« b<eos>»User: a\n\nAssistant:« c<eos>»",
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_a_training_template_writes_the_form_of_its_models_and_trains_replies(name):
    messages, expected = FORMS[name]
    assert shown(name, *messages, date=DATE) == expected


TOOL = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {}}}
TEXTS = (
    "a", "", " b", "c \n", "\n\nd", "<|im_end|>", "<|eot_id|> e", "[/INST] f", "Assistant: g",
    "<think>h", "i</think>", "<think>\nj\n</think>\n\nk", '<tool_call>\n{"l": 1}', "é字",
)  # fmt: skip


def chat(seed):
    """A conversation of several turns, with tools, calls, reasoning and control strings."""
    chosen = random.Random(seed)

    def maybe(share, *messages):
        return list(messages) if chosen.random() < share else []

    def text():
        return chosen.choice(TEXTS)

    messages = maybe(0.4, {"role": "system", "content": text()})
    for _ in range(chosen.choice((1, 1, 2, 4))):
        messages += maybe(0.95, {"role": "user", "content": text()})
        calls = [{**CALL, "id": "c"}] * chosen.choice((1, 2))
        called = {**bot(text()), "tool_calls": calls}
        messages += maybe(0.2, called, *[{"role": "tool", "content": text()}] * len(calls))
        messages += [bot(text(), text() if chosen.random() < 0.2 else None)]
    return Conversation(messages, [None] * len(messages), maybe(0.3, TOOL) or None)


def trained(template, conversation):
    """The columns and weights of a sample; None if it is refused."""
    sample = Sample(CONTROL)
    try:
        template.render(conversation, sample)
    except ChatError:
        return None
    columns = columns_of([sample])
    weights, ends = segment_weights(columns.table, mask_rule(SftSettings()))
    return columns.text.to_pylist(), columns.ids.tolist(), weights.tolist(), ends.tolist()


@pytest.mark.parametrize("name", TRAINING)
def test_the_twin_of_a_template_without_tags_trains_what_prefixes_would(name):
    own = re.sub(r"\{%- (end)?generation -%\}", "", own_source(name))
    by_twin, by_prefix = (
        JinjaTemplate(
            own,
            control=CONTROL,
            variables=NAMED,
            settings=SftSettings(spans=spans, date=DATE if "strftime_now" in own else ""),
            where="own",
        )
        for spans in ("auto", "prefix")
    )
    assert by_twin._twin is not None
    assert by_twin._twin.name == name
    n_compared = 0
    for seed in range(30):
        expected = trained(by_prefix, chat(seed))
        if expected is not None:
            n_compared += 1
            assert trained(by_twin, chat(seed)) == expected, chat(seed)
    assert n_compared > 5


def test_a_system_message_that_mistrals_template_moves_stays_with_the_first_message():
    own = (
        "{{- bos_token }}{%- for m in messages %}{%- if m.role == 'user' %}{{- '[INST] ' }}"
        "{%- if loop.last and messages[0].role == 'system' %}"
        "{{- messages[0].content + '\n\n' }}{%- endif %}{{- m.content + '[/INST]' }}"
        "{%- elif m.role == 'assistant' %}{{- ' ' + m.content|trim + eos_token }}{%- endif %}"
        "{%- endfor %}"
    )
    text, noted = rendered(own, SYSTEM, USER, bot("b"))
    assert "".join(text) == "<bos>[INST] s\n\na[/INST] b<eos>"
    assert noted == {f"{BY_TWIN} mistral-training": 1}


@pytest.mark.parametrize("name", TRAINING)
def test_every_training_template_has_tags_and_needs_the_control_tokens_of_its_models(name):
    assert "generation" in own_source(name)
    assert f"\n| `{name}` |" in DOCS.read_text(encoding="utf-8")
    settings = SftSettings(template=name)
    with pytest.raises(UsageError, match=f"template {name} needs the control tokens"):
        make_template(own_source(name), settings, Vocabulary({"<eos>": 0}, "<eos>", "", NAMED))


def rendered(source, *messages, **settings):
    """The parts of a sample, and what is noted."""
    template = JinjaTemplate(
        source, control=CONTROL, variables=NAMED, settings=SftSettings(**settings), where="t.jinja"
    )
    sample = Sample(CONTROL)
    template.render(Conversation(list(messages), [None] * len(messages)), sample)
    return columns_of([sample]).text.to_pylist(), dict(sample.noted)


def test_where_a_tokenizers_template_hides_turns_the_one_of_its_family_writes_them():
    chat = [USER, bot("b", "hm"), USER, bot("c", "so")]
    text, noted = rendered(QWEN3, *chat)
    assert "".join(text) == shown("qwen3-training", *chat).replace("«", "").replace("»", "")
    assert noted == {f"{BY_TWIN} qwen3-training": 1}
    assert rendered(QWEN3, *chat[:2])[1] == {}
    # A sample for each turn shows the prompt of inference, with its hidden reasoning.
    text, noted = rendered(QWEN3, *chat, samples="turn")
    assert ("hm" in "".join(text), noted) == (False, {})
    with pytest.raises(ChatError, match="use a template with generation tags, or one sample per"):
        rendered(QWEN3.replace("<|im_start|>", "<|start|>"), *chat)
    with pytest.raises(ChatError, match="use a template with generation tags, or one sample per"):
        rendered(QWEN3, *chat, spans="prefix")


KIMI = (
    "{%- if tools %}{{- raise_exception('no tools') }}{%- endif %}"
    "{%- if messages[0].role != 'system' %}{{- '<|im_system|>system<|im_middle|>"
    "You are Kimi, an AI assistant created by Moonshot AI.<|im_end|>' }}{%- endif %}"
    "{%- for m in messages %}{%- if m.role == 'tool' %}{{- raise_exception('no tools') }}"
    "{%- endif %}{{- '<|im_' + m.role + '|>' + m.role + '<|im_middle|>' }}"
    "{%- if m.role == 'assistant' %}{{- '<think></think>' }}{%- endif %}"
    "{{- m.content + '<|im_end|>' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_assistant|>assistant<|im_middle|>' }}{%- endif %}"
)
"""The form of Kimi's own template for chats without tools: it drops all reasoning."""


def test_where_a_tokenizers_template_drops_all_reasoning_the_one_of_its_family_writes_it():
    chat = [USER, bot("b", "hm"), USER, bot("c", "so")]
    text, noted = rendered(KIMI, *chat)
    whole = shown("kimi-k2-thinking-training", *chat)
    assert "".join(text) == whole.replace("«", "").replace("»", "")
    assert noted == {f"{BY_TWIN} kimi-k2-thinking-training": 1}
    text, _ = rendered(KIMI, *chat, samples="turn")  # its history is that of inference
    assert "".join(text) == whole.replace("hm", "").replace("«", "").replace("»", "")
    assert rendered(KIMI, USER, bot("b"))[1] == rendered(KIMI, *chat, spans="prefix")[1] == {}


def test_a_chat_is_refused_where_the_one_of_its_family_asks_in_other_words():
    shouts = QWEN3.replace("m.content }}", "m.content|replace('ss', 'SS') }}")
    chat = [USER, bot("b", "hm"), USER, bot("c", "so")]
    assert rendered(shouts, SYSTEM, *chat)[1] == {f"{BY_TWIN} qwen3-training": 1}
    with pytest.raises(ChatError, match="use a template with generation tags, or one sample per"):
        rendered(shouts, {"role": "system", "content": "ss"}, *chat)


PHI = (
    "{% for m in messages %}{% if m.role in ('system', 'user', 'assistant') %}"
    "{{ '<|' + m.role + '|>\n' + m.content + '<|end|>\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}"
)
"""The form of Phi 3's own template, which leaves out what tools return."""


def test_a_chat_that_the_training_template_refuses_is_refused_for_what_the_own_one_does():
    chat = [USER, bot("b"), USER, bot("c")]
    text, _ = rendered(PHI, *chat)  # the training template shows where its turns end
    assert "".join(text).endswith("<|assistant|>\nc<|end|>\n<eos>")
    with pytest.raises(ChatError) as caught:
        rendered(PHI, USER, {"role": "tool", "content": "t"}, *chat[1:])
    assert caught.value.reason == HIDES_TURNS
