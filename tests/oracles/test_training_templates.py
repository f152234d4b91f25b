"""Training templates, held against the families' own templates, and transformers.

TRL has most of the own templates. `OWN_TEMPLATES` names a folder with the others, each NAME.jinja:
glm4_6, glm4_7 and minimax_m2 as llama.cpp has them (models/templates), deepseek_v3_1 and
kimi_k2_thinking as it had them (commits 0374c5b and 0c3c896), and smollm3 as its model has it.
"""

from __future__ import annotations

import json
import os
import random
import warnings
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as Library

from tests.oracles.masks_compared import Comparison
from tests.oracles.masks_ours import Case, read_data
from tests.oracles.transformers_chat import TransformersChat
from tokmill.chat.conversation import ChatError, Conversation
from tokmill.chat.jinja.template import JinjaTemplate
from tokmill.chat.mask_rule import mask_rule
from tokmill.chat.own_templates import TRAINING, own_source
from tokmill.chat.segments import Sample, columns_of
from tokmill.chat.weights import segment_weights
from tokmill.settings.sft import SftSettings

REASON = "the oracle is not installed: make oracles"

with warnings.catch_warnings():
    # Importing them warns of optional packages that are not here, as UserWarning and others.
    warnings.simplefilter("ignore")
    pytest.importorskip("transformers", reason=REASON)

SAMPLES = Path(__file__).parents[2] / "data_samples"
FOLDERS = {"": "chat_templates", "axolotl": "utils/chat_templates/templates"}
OTHERS = [os.environ["OWN_TEMPLATES"]] if "OWN_TEMPLATES" in os.environ else []


@dataclass(frozen=True)
class Family:
    """A family's own template, as TRL has it, and how a model is asked.

    `thinking`, `quiet`: the variables with which the prompt asks for replies with reasoning, and
    without. `without`: words of the kinds of chats that the template cannot write. `asks`: whether
    its prompt begins each last reply, so that it shows what a model would write.
    """

    training: str
    thinking: dict[str, Any] = field(default_factory=dict)
    quiet: dict[str, Any] = field(default_factory=dict)
    without: frozenset[str] = frozenset()
    asks: bool = True


CALLS, REASONING = frozenset({"call"}), frozenset({"reasoning"})
QUIET = {"enable_thinking": False}
DATE = {"date_string": "26 Jul 2024"}
FAMILIES = {
    "qwen2_5": Family("qwen2.5-training", without=REASONING),
    "llama3": Family("llama-3-training", without=CALLS | REASONING),
    "llama3_2": Family("llama-3.1-training", quiet=DATE, without=REASONING | {"parallel"}),
    "gemma": Family("gemma-training", without=CALLS | REASONING | {"system"}),
    "gemma3": Family("gemma-training", without=CALLS | REASONING),
    "phi3": Family("phi-3-training", without=CALLS | REASONING, asks=False),
    "phi3_5": Family("phi-3-training", without=CALLS | REASONING, asks=False),
    "deepseek_r1_distill": Family("deepseek-r1-training", without=CALLS | REASONING, asks=False),
    "deepseekv3": Family("deepseek-r1-training", without=CALLS | REASONING, asks=False),
    "qwen3": Family("qwen3-training"),
    "qwen3_5_think": Family("qwen3.5-training"),
    "qwen3_5_nothink": Family("qwen3.5-quiet-training", thinking={"enable_thinking": True}),
    "gptoss": Family("gpt-oss-training", without=frozenset({"parallel"})),
    "glm4moe": Family("glm-4.5-training", quiet=QUIET),
    "nemotron_3_nano": Family("nemotron-3-training", quiet=QUIET),
    "nemotron_3_super": Family("nemotron-3-training", quiet=QUIET),
    "nemotron_3_ultra": Family("nemotron-3-ultra-training", quiet=QUIET),
    "nemotron_3_5_lightning": Family("nemotron-3-ultra-training", quiet=QUIET),
    "gemma4": Family("gemma-4-training", without=REASONING),
    "gemma4_v3": Family("gemma-4-training", without=REASONING),
    "gemma4_v4": Family("gemma-4-training", without=REASONING),
    "gemma4_v5": Family("gemma-4-training", thinking={"enable_thinking": True}),
    "qwen3_6": Family("qwen3.6-training", quiet=QUIET),
    "deepseek_v3_1": Family("deepseek-v3.1-training", without=CALLS | REASONING),
    "glm4_6": Family("glm-4.5-training", quiet=QUIET),
    "glm4_7": Family("glm-4.7-training", quiet=QUIET),
    "kimi_k2_thinking": Family("kimi-k2-thinking-training", without=REASONING),
    "minimax_m2": Family("minimax-m2-training"),
}
KINDS = (
    "plain", "several", "system", "system several", "tools", "call", "call several",
    "parallel call", "system parallel call several", "reasoning", "system reasoning several",
    "reasoning call", "reasoning call several", "reasoning parallel call several",
)  # fmt: skip
N_CHATS = 28
WORDS = ("sun", "tree 字", "river,", "stone", "(cloud)", "a\nb")
PLACE = {"city": {"type": "string", "description": "its name"}, "zip": {"type": "integer"}}
PROPERTIES: dict[str, Any] = {
    **PLACE,
    "unit": {"type": "string", "enum": ["C", "F"], "default": "C", "description": "of degrees"},
    "hours": {"type": "array", "items": {"type": "integer"}, "description": "from 0 to 23"},
    "near": {"type": "array", "items": {"type": "object", "properties": PLACE}},
    "is_now": {"type": "boolean", "default": True},
    "place": {"type": "object", "properties": PLACE, "required": ["city"], "description": "it"},
    "height": {"type": "number", "nullable": True},
    "any": {"description": "of no type"},
    "one": {"oneOf": [{"type": "string", "description": "a name"}, {"type": "integer"}]},
}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "Weather of a city",
            "parameters": {"type": "object", "properties": properties, "required": ["city"]},
        },
    }
    for properties in ({}, PLACE, PROPERTIES)
]
NAMED = {"eos_token": "<eos>", "bos_token": "<bos>"}
COHERE = ("<|START_OF_TURN_TOKEN|>", "<|CHATBOT_TOKEN|>", "<|END_OF_TURN_TOKEN|>")
CONTROL = {
    string: number
    for number, string in enumerate(
        dict.fromkeys(
            t for t in (*NAMED.values(), *COHERE, *(t for ts in TRAINING.values() for t in ts))
        )
    )
    if string != "bos_token"
}


def chat(kind: str, seed: int) -> Conversation:
    """A conversation with what the words of its kind say."""
    chosen = random.Random(f"{kind} {seed}")

    def text() -> str:
        return " ".join(chosen.choices(WORDS, k=chosen.randint(1, 4)))

    def reply(content: str, **more: Any) -> dict[str, Any]:
        thought = {"reasoning_content": text()} if "reasoning" in kind else {}
        return {"role": "assistant", "content": content, **thought, **more}

    messages: list[dict[str, Any]] = []
    if "system" in kind:
        messages.append({"role": "system", "content": text()})
    for turn in range(chosen.randint(2, 4) if "several" in kind else 1):
        messages.append({"role": "user", "content": f"{text()} {turn}?"})
        if "call" in kind:
            calls = [
                {
                    "id": f"call{turn:04d}{i}",
                    "type": "function",
                    "function": {
                        "name": "weather",
                        "arguments": {"city": text(), "days": i, "is_now": True},
                    },
                }
                for i in range(chosen.randint(2, 3) if "parallel" in kind else 1)
            ]
            messages.append(reply("", tool_calls=calls))
            messages += [
                {"role": "tool", "content": text(), "name": "weather", "tool_call_id": call["id"]}
                for call in calls
            ]
        messages.append(reply(text()))
    tools = TOOLS if "tools" in kind or "call" in kind else None
    return Conversation(messages, [None] * len(messages), tools)


def chats(family: Family) -> list[tuple[bool, Conversation]]:
    """Whether each chat has reasoning, and the chat."""
    kinds = [kind for kind in KINDS if not family.without & {*kind.split()}]
    return [
        ("reasoning" in kind, chat(kind, seed))
        for kind in kinds
        for seed in range(-(-N_CHATS // len(kinds)))
    ]


def beginnings(conversation: Conversation) -> list[Conversation]:
    """Return the chat up to each of its replies."""
    messages = conversation.messages
    return [
        Conversation(messages[:n], [None] * n, conversation.tools)
        for n in range(1, len(messages) + 1)
        if messages[n - 1]["role"] == "assistant"
    ]


def template(source: str, variables: dict[str, Any], **settings: Any) -> JinjaTemplate:
    kwargs = json.dumps(variables) if variables else ""
    return _template(source, SftSettings(date="2026-01-02", template_kwargs=kwargs, **settings))


@cache
def _template(source: str, settings: SftSettings) -> JinjaTemplate:
    return JinjaTemplate(
        source, control=CONTROL, variables=NAMED, settings=settings, where="t.jinja"
    )


def trained(chosen: JinjaTemplate, conversation: Conversation) -> list[tuple[str, bool]] | None:
    """The text of a sample in pieces, and which of them are trained; None if it is refused."""
    sample = Sample(CONTROL)
    try:
        chosen.render(conversation, sample)
    except ChatError:
        return None
    columns = columns_of([sample])
    weights, _ = segment_weights(columns.table, mask_rule(SftSettings(preset="trl")))
    pieces: list[tuple[str, bool]] = []
    for text, weight in zip(columns.text.to_pylist(), weights, strict=True):
        before, is_trained = pieces.pop() if pieces else ("", bool(weight))
        if is_trained != bool(weight):
            pieces.append((before, is_trained))
            before = ""
        pieces.append((before + text, bool(weight)))
    return pieces


def spans(pieces: list[tuple[str, bool]]) -> list[str]:
    return [text for text, is_trained in pieces if is_trained]


def own_of(name: str) -> str:
    """Return the source of a family's own template; the name may begin with `axolotl/`."""
    library, _, stem = name.rpartition("/")
    folders = [folder_of(library or "trl") / FOLDERS[library], *map(Path, OTHERS)]
    for path in (folder / f"{stem}.jinja" for folder in folders):
        if path.exists():
            return path.read_text()
    pytest.skip(f"OWN_TEMPLATES names no folder with {stem}.jinja, which TRL does not have")


def folder_of(package: str) -> Path:
    """Return the folder of a package, which is not imported."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        pytest.skip(REASON)
    return Path(spec.origin).parent


@pytest.mark.parametrize("name", FAMILIES)
def test_a_training_template_writes_what_its_familys_own_template_shows(name):
    family, source = FAMILIES[name], own_of(name)
    twin = template(source, {})._twin
    assert twin is not None
    assert twin.name == family.training
    n_whole = 0
    for number, (has_reasoning, conversation) in enumerate(chats(family)):
        variables = family.thinking if has_reasoning else family.quiet
        ours = template(own_source(family.training), variables)
        pieces = trained(ours, conversation)
        assert pieces is not None
        whole = trained(template(source, variables, spans="prefix"), conversation)
        if whole is not None:
            n_whole += 1
            assert pieces == whole
        own = template(source, variables, spans="prefix", samples="turn")
        if not family.asks:
            assert "".join(text for text, _ in pieces) == own.text_of(conversation.messages)
            continue
        if number % 2:  # half of them, since it takes a rendering of every beginning
            continue
        own_turns = template(source, variables, samples="turn")
        for span, beginning in zip(spans(pieces), beginnings(conversation), strict=True):
            check_last(own, ours, beginning, span)
            turn = trained(own, beginning) if number % 6 == 0 else None
            assert turn is None or trained(own_turns, beginning) == turn
    assert not family.asks or n_whole > N_CHATS / 7


def check_last(
    own: JinjaTemplate, ours: JinjaTemplate, conversation: Conversation, span: str
) -> None:
    """Check the trained text of the last reply of a chat."""
    turn = trained(own, conversation)
    if turn is not None:
        assert span == spans(turn)[-1]
        return
    # The own template rewrites what it has shown when it asked: both must have asked the same.
    *asked, _ = conversation.messages
    assert own.text_of(conversation.messages, tools=conversation.tools).endswith(span)
    question = next(m["content"] for m in reversed(asked) if m["role"] == "user")
    prompts = [t.text_of(asked, tools=conversation.tools, prompt=True) for t in (own, ours)]
    assert prompts[0].partition(question)[2] == prompts[1].partition(question)[2] != ""


@pytest.mark.parametrize("name", FAMILIES)
def test_history_without_reasoning_is_that_of_the_familys_own_template(name):
    family, source = FAMILIES[name], own_of(name)
    for has_reasoning, conversation in chats(family)[::6]:
        variables = family.thinking if has_reasoning else family.quiet
        own = template(source, variables)
        drops = template(own_source(family.training), variables, history_reasoning="drop")
        for shape in (conversation, partly_reasoned(conversation)):
            pieces = trained(drops, shape)
            assert pieces == trained(template(source, variables, history_reasoning="drop"), shape)
            text = "".join(text for text, _ in pieces)
            beginnings_of_own = {own.text_of(c.messages, tools=c.tools) for c in beginnings(shape)}
            if text != own.text_of(shape.messages, tools=shape.tools):
                # gpt-oss loses the reasoning of a call once it is answered; its prompt shows it.
                assert name == "gptoss"
                assert shape.messages[-2]["role"] == "tool"
                *asked, _ = shape.messages
                assert text.startswith(own.text_of(asked, tools=shape.tools, prompt=True))
                beginnings_of_own.add(text)
            ends = set(map(without_end, beginnings_of_own))
            for i in range(1, len(pieces), 2):
                assert pieces[i][1]
                # The model saw this, and wrote the reply so.
                assert without_end("".join(text for text, _ in pieces[: i + 1])) in ends


def without_end(text: str) -> str:
    """Return a chat without the eos of a whole one, as Phi 3 has it, and newlines."""
    return text.removesuffix("<eos>").rstrip("\n")


UNSEEN = {
    "deepseek_r1_distill": ({}, "{}\n</think>\n\n{}<｜end▁of▁sentence｜>"),
    "deepseekv3": ({}, "{}\n</think>\n\n{}<｜end▁of▁sentence｜>"),
    "deepseek_v3_1": ({"thinking": True}, "{}</think>{}<｜end▁of▁sentence｜>"),
    "kimi_k2_thinking": ({}, "<think>{}</think>{}<|im_end|>"),
}
"""Families whose own templates do not write the reasoning of a last reply, and how a model does."""


@pytest.mark.parametrize("name", UNSEEN)
def test_a_last_reply_that_the_own_template_does_not_show_answers_its_prompt(name):
    variables, form = UNSEEN[name]
    own = template(own_of(name), variables)
    turns = template(own_of(name), {}, samples="turn")
    drops = template(own_source(FAMILIES[name].training), {}, history_reasoning="drop")
    calls = ["reasoning call several", "reasoning parallel call several"]
    kinds = ["reasoning several", "system reasoning several", *(calls if "kimi" in name else [])]
    for seed in range(N_CHATS):
        conversation = chat(kinds[seed % len(kinds)], seed)
        *asked, last = conversation.messages
        pieces = trained(drops, conversation)
        assert pieces is not None
        answer = form.format(last["reasoning_content"], last["content"])
        assert pieces.pop() == (answer, True)
        prompt = own.text_of(asked, tools=conversation.tools, prompt=True)
        assert "".join(text for text, _ in pieces) == prompt
        calling = [text for text, is_trained in pieces if is_trained]
        assert len(calling) == (asked[-1]["role"] == "tool")
        # It is found by itself.
        assert trained(turns, conversation) == [(prompt, False), (answer, True)]


def partly_reasoned(conversation: Conversation) -> Conversation:
    """Return a chat with every third reasoning left out, and a last message of the user."""
    messages = [
        {key: message[key] for key in message if key != "reasoning_content" or i % 3}
        for i, message in enumerate(conversation.messages)
    ]
    messages.append({"role": "user", "content": "more?"})
    return Conversation(messages, [None] * len(messages), conversation.tools)


@pytest.mark.parametrize("kind", ["call", "parallel call", "system call"])
@pytest.mark.parametrize("name", ["deepseekv3", "deepseek_v3_1"])
def test_deepseeks_tool_calls_are_those_of_its_own_template(name, kind):
    own = template(own_of(name), {})
    ours = template(own_source(FAMILIES[name].training), {})
    for seed in range(N_CHATS // 3):
        messages = chat(kind, seed).messages
        # The own template takes arguments as text, and loses the beginning of later calls.
        text = json.loads(json.dumps(messages), object_hook=with_arguments_as_text)
        for n in range(1, len(messages) + 1):
            assert ours.text_of(messages[:n]) == own.text_of(text[:n])


def with_arguments_as_text(item: dict[str, Any]) -> dict[str, Any]:
    arguments = item.get("arguments")
    return {**item, "arguments": json.dumps(arguments, ensure_ascii=False)} if arguments else item


@pytest.mark.parametrize(
    ("name", "without"),
    [
        ("qwen3_instruct_2507", frozenset()),
        ("qwen3_vl", frozenset()),
        ("qwen3_8", frozenset()),
        ("cohere", CALLS),
        ("cohere2", CALLS),
        ("lfm2", frozenset()),
        ("llama3_1", frozenset({"parallel"})),
        ("axolotl/command_a", CALLS),
        ("axolotl/command_a_tool_use", frozenset()),
        ("axolotl/llama4", frozenset()),
        ("axolotl/mistral_v7_tekken", CALLS),
        ("axolotl/deepseek_v3", CALLS),
    ],
)
def test_a_family_whose_own_template_hides_nothing_needs_no_training_template(name, without):
    own = template(own_of(name), {})
    assert own._twin is None
    for _, conversation in chats(Family("", without=without)):
        pieces = trained(own, conversation)
        assert pieces is not None
        assert "<|CHATBOT_TOKEN|>" not in "".join(spans(pieces))


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Path:
    """The sample tokenizer with the control tokens of all training templates."""
    directory = tmp_path_factory.mktemp("tokenizer")
    library = Library.from_file(str(SAMPLES / "tokenizer" / "tokenizer.json"))
    library.add_special_tokens([string for string in CONTROL if string not in NAMED.values()])
    library.save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(json.dumps(NAMED))
    return directory


@pytest.mark.parametrize("family", [*FAMILIES.values(), Family("smollm3-training")])
def test_transformers_trains_the_same_tokens_of_it(family, tokenizer, tmp_path):
    source = own_source(family.training)
    path = tmp_path / "chats.jsonl"
    chosen = [conversation for _, conversation in chats(family)][::5]
    path.write_text(
        "".join(
            json.dumps({"messages": c.messages, **({"tools": c.tools} if c.tools else {})}) + "\n"
            for c in chosen
        )
    )
    settings = SftSettings(preset="trl", template=family.training)
    reference = TransformersChat(tokenizer, "", source)
    row = Comparison(Case(tokenizer, settings, reference.eos), reference).row(read_data(path))
    assert (row.equal, row.first) == (len(chosen), "")
