"""transformers' own assistant masks, and TRL's templates, held against ours.

Where the two differ by one of the reference's listed faults, a small case shows which is right.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tokenizers import AddedToken
from tokenizers import Tokenizer as Library
from tokenizers.processors import ByteLevel as ByteLevelOffsets

from tests.oracles import transformers_faults as faults
from tests.oracles.masks_compared import CONTROL, DEVELOPER, WEIGHTS, Comparison
from tests.oracles.masks_ours import Case, DataSet, read_data, written
from tests.oracles.transformers_chat import FIRST, UNWRITTEN, TransformersChat
from tokmill.chat.conversation import Conversation
from tokmill.errors import UsageError
from tokmill.settings.sft import SftSettings

REASON = "the oracle is not installed: make oracles"

with warnings.catch_warnings():
    # Importing them warns of optional packages that are not here, as UserWarning and others.
    warnings.simplefilter("ignore")
    pytest.importorskip("transformers", reason=REASON)

SAMPLES = Path(__file__).parents[2] / "data_samples"
CHATS = SAMPLES / "sft" / "chats.jsonl"
QWEN = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."

# The reply alone is between the tags, its end of turn is not.
BARE = """{% for m in messages %}
{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}
{% else %}{{ m.content }}{% endif %}
{% endfor %}"""
ENDED = BARE.replace("{% endfor %}", "{{ '<eos>' }}{% endfor %}")
PARTS = """{% for m in messages %}{{ '<|im_start|>' + m.role }}{% generation %}
{% for part in m.content %}{% if part.type == 'text' %}{{ part.text }}{% endif %}{% endfor %}
{% endgeneration %}{% endfor %}"""
MACRO = """{% macro say(m) %}{{ '<|im_start|>' + m.role + ':' }}{% generation %}{{ m.content }}\
{{ '<eos>' }}{% endgeneration %}{% endmacro %}
{% for m in messages %}
{% if m.role == 'assistant' %}{{ say(m) }}{% else %}{{ '<|im_start|>' + m.content }}{% endif %}
{% endfor %}"""
CHATML = """{% for m in messages %}
{% if m.role == 'assistant' %}{{ '<|im_start|>assistant\n' }}{% generation %}{{ m.content }}\
{{ '<|im_end|>\n' }}{% endgeneration %}
{% else %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endif %}
{% endfor %}"""
MINIMIND = """{% for m in messages %}
{% if m.role == 'assistant' %}{{ '<|im_start|>assistant\n' }}{% generation %}
{{ '<think>\n' + (m.reasoning_content or '').strip('\n') + '\n</think>\n\n' }}\
{{ m.content.lstrip('\n') + '<|im_end|>\n' }}{% endgeneration %}
{% else %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endif %}
{% endfor %}"""


@pytest.fixture
def compare(tokenizer_dir, tmp_path):
    """Both sides of one conversation: what each trains, in bytes, and the named reason."""

    def run(template, turns, tokenizer=tokenizer_dir):
        directory = tmp_path / "case"
        directory.mkdir()
        jinja, records = directory / "t.jinja", directory / "in.jsonl"
        jinja.write_text(template)
        messages = [{"role": role, "content": content} for role, content in turns]
        records.write_text(json.dumps({"messages": messages}))
        case = Case(tokenizer, SftSettings(preset="trl", template=str(jinja)), "<eos>")
        reference = TransformersChat(tokenizer, "<eos>", template)
        data = read_data(records)
        (ours,) = written(case, [records], directory / "out")
        (theirs,) = reference.outcomes(data.conversations)
        row = Comparison(case, reference).row(data)
        assert row.equal + row.different == 0
        return [*(trained(sample, tokenizer) for sample in (ours, theirs)), *row.explained]

    return run


def trained(sample, tokenizer) -> bytes:
    """Return the bytes of the trained tokens, 256 of which are single bytes."""
    library = Library.from_file(str(tokenizer / "tokenizer.json"))
    ids = [id_ for id_, mask in zip(sample.ids, sample.mask, strict=True) if mask]
    # Bytes that make no character become U+FFFD, whichever they are.
    return library.decode(ids, skip_special_tokens=False).encode()


def test_all_tokens_of_the_last_character_of_a_reply_are_trained(compare):
    ours, theirs, reason = compare(ENDED, [("user", "hi"), ("assistant", "yes 👍")])
    assert ours == "yes 👍".encode()
    assert theirs == "yes \ufffd".encode()
    assert reason == faults.LAST_CHARACTER


def test_a_span_that_ends_at_token_0_trains_nothing_behind_it(compare):
    turns = [("assistant", "a"), ("user", "bcd"), ("assistant", "e")]
    ours, theirs, reason = compare(ENDED, turns)
    assert ours == b"e"
    assert theirs == b"a<eos>bcd<eos>e<eos>"
    assert reason == f"{faults.TOKEN_ZERO} + {FIRST}"


def test_a_reply_that_begins_with_a_space_is_trained_where_offsets_are_trimmed(
    compare, tokenizer_dir, tmp_path
):
    library = Library.from_file(str(tokenizer_dir / "tokenizer.json"))
    library.post_processor = ByteLevelOffsets(trim_offsets=True)
    library.save(str(tmp_path / "tokenizer.json"))
    turns = [("user", "hi"), ("assistant", " yes"), ("user", "more"), ("assistant", "no")]
    ours, theirs, reason = compare(ENDED, turns, tmp_path)
    assert ours == b" yesno"
    assert theirs == b""
    assert reason == faults.TRIMMED


def test_tags_in_a_macro_train_the_reply_and_not_what_is_before_it(compare):
    ours, theirs, reason = compare(MACRO, [("user", "q"), ("assistant", "xyz")])
    assert ours == b"xyz<eos>"
    assert not theirs.endswith(b"xyz<eos>")
    assert reason == faults.WRAPPED


def test_an_empty_reply_trains_no_token_that_others_wrote(compare):
    # "hello" is one token: the empty reply stands inside it.
    turns = [("user", "xhel"), ("assistant", ""), ("user", "lo"), ("assistant", "y")]
    ours, theirs, reason = compare(BARE, turns)
    assert ours == b"y"
    assert theirs.endswith(b"y")
    assert len(theirs) > 1
    assert reason == faults.EMPTY


def test_a_header_that_swallows_the_white_space_of_a_reply_is_not_trained(
    compare, tokenizer_dir, tmp_path
):
    library = Library.from_file(str(tokenizer_dir / "tokenizer.json"))
    library.add_special_tokens([AddedToken("<|assistant|>", rstrip=True)])
    library.save(str(tmp_path / "tokenizer.json"))
    template = ENDED.replace("{% generation %}", "{{ '<|assistant|>\n' }}{% generation %}")
    turns = [("user", "hi"), ("assistant", " yes"), ("user", "more"), ("assistant", "no")]
    ours, theirs, reason = compare(template, turns, tmp_path)
    assert ours == b"yesno"
    assert theirs == b"<|assistant|>yesno"
    assert reason == faults.STRIPPED


def test_the_first_token_of_a_sample_is_no_target(compare):
    ours, theirs, reason = compare(ENDED, [("assistant", "ab"), ("user", "c")])
    assert ours == b"b"
    assert theirs == b"ab"
    assert reason == FIRST


def test_a_control_tokens_string_in_a_reply_is_text(compare):
    ours, theirs, reason = compare(ENDED, [("user", "what ends it?"), ("assistant", "a <eos>")])
    assert ours == theirs == b"a <eos>"
    assert reason == CONTROL


def test_a_template_for_typed_parts_writes_nothing_of_a_text_and_is_refused(
    tokenizer_dir, tmp_path
):
    path, records = tmp_path / "t.jinja", tmp_path / "in.jsonl"
    path.write_text(PARTS)
    turns = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    records.write_text(json.dumps({"messages": turns}))
    case = Case(tokenizer_dir, SftSettings(preset="trl", template=str(path)), "<eos>")
    with pytest.raises(UsageError, match="writes nothing of a reply that is a text"):
        written(case, [records], tmp_path / "out")
    reference = TransformersChat(tokenizer_dir, "<eos>", PARTS)
    row = Comparison(case, reference).row(read_data(records))
    assert dict(row.explained) == {UNWRITTEN: 1}


@pytest.fixture(scope="module")
def chat_tokenizer(tmp_path_factory) -> Path:
    """The sample tokenizer with the control tokens of Llama 3 as well."""
    directory = tmp_path_factory.mktemp("chat")
    library = Library.from_file(str(SAMPLES / "tokenizer" / "tokenizer.json"))
    library.add_special_tokens(["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"])
    library.save(str(directory / "tokenizer.json"))
    named = {"bos_token": "<bos>", "eos_token": "<eos>"}
    (directory / "tokenizer_config.json").write_text(json.dumps(named))
    return directory


@pytest.fixture(scope="module")
def chats() -> DataSet:
    """The hand-written conversations."""
    return read_data(CHATS)


def only(data: DataSet, keep: Callable[[Conversation], bool]) -> DataSet:
    """Keep some conversations."""
    kept = [i for i, conversation in enumerate(data.conversations) if keep(conversation)]
    texts = [data.texts[i] for i in kept]
    return DataSet(texts, [data.conversations[i] for i in kept])


def has_reasoning(conversation: Conversation) -> bool:
    return any("reasoning_content" in message for message in conversation.messages)


def has_tools(conversation: Conversation) -> bool:
    messages = conversation.messages
    return bool(conversation.tools) or any(
        message["role"] == "tool" or "tool_calls" in message for message in messages
    )


def writes_think_tags(conversation: Conversation) -> bool:
    return any("think>" in message["content"] for message in conversation.messages)


def rows_of(tokenizer, settings, template, data):
    reference = TransformersChat(tokenizer, "", template)
    row = Comparison(Case(tokenizer, settings, reference.eos), reference).row(data)
    assert row.first == ""
    assert row.different == 0
    return row


def test_every_conversation_is_equal_with_a_template_of_our_own(chats, chat_tokenizer, tmp_path):
    path = tmp_path / "own.jinja"
    path.write_text(CHATML)
    settings = SftSettings(preset="trl", template=str(path))
    row = rows_of(chat_tokenizer, settings, CHATML, chats)
    assert row.refused == 0
    assert set(row.explained) == {CONTROL, WEIGHTS, DEVELOPER}
    assert row.equal >= 110


def test_the_built_in_minimind_is_equal_to_a_template(chats, chat_tokenizer):
    settings = SftSettings(preset="trl", template="minimind")

    def is_plain(conversation):
        return not (has_tools(conversation) or writes_think_tags(conversation))

    row = rows_of(chat_tokenizer, settings, MINIMIND, only(chats, is_plain))
    assert row.refused == 0
    assert row.equal >= 80


@pytest.fixture(scope="module")
def trl_templates() -> Path:
    """TRL's own folder of templates; the package itself is not imported."""
    from importlib.util import find_spec

    found = find_spec("trl")
    if found is None or found.origin is None:
        pytest.skip(REASON)
    return Path(found.origin).parent / "chat_templates"


def with_whole_header(template: str) -> str:
    """Move the line end of the header out of the tags, where it is trained in TRL's template."""
    for old, new in (
        ("'<|im_start|>assistant' }}", "'<|im_start|>assistant\\n' }}"),
        ("{{- '\\n' + message.content + '<|im_end|>", "{{- message.content + '<|im_end|>"),
        ("'\\n' + message.content }}", "message.content }}"),
        ("'\\n<tool_call>", "('\\n' if message.content or not loop.first else '') + '<tool_call>"),
    ):
        assert template.count(old) == 1
        template = template.replace(old, new)
    return template


def test_the_built_in_chatml_is_equal_to_the_template_of_qwen(chat_tokenizer, trl_templates):
    settings = SftSettings(preset="trl", template="chatml", default_system=QWEN)
    template = with_whole_header((trl_templates / "qwen2_5_training.jinja").read_text())
    data = only(read_data(CHATS, settings), lambda one: not has_reasoning(one))
    row = rows_of(chat_tokenizer, settings, template, data)
    assert row.refused == 0
    assert row.equal >= 100


def test_the_built_in_llama3_is_equal_to_the_template_of_llama(
    chats, chat_tokenizer, trl_templates
):
    settings = SftSettings(preset="trl", template="llama3")
    template = (trl_templates / "llama3_training.jinja").read_text()
    data = only(chats, lambda one: not (has_tools(one) or has_reasoning(one)))
    row = rows_of(chat_tokenizer, settings, template, data)
    assert row.refused == 0
    assert row.equal >= 80


@pytest.mark.usefixtures("rendered_here")
def test_every_template_of_trl_is_equal_or_explained(chats, chat_tokenizer, trl_templates):
    data = replace(chats, texts=chats.texts[:40:2], conversations=chats.conversations[:40:2])
    paths = [
        path
        for path in sorted(trl_templates.glob("*.jinja"))
        if re.search(r"\{%-?\s*generation", path.read_text())
    ]
    assert len(paths) >= 30
    for path in paths:
        settings = SftSettings(preset="trl", template=str(path))
        row = rows_of(chat_tokenizer, settings, path.read_text(), data)
        assert row.equal + row.refused + row.explained.total() == 20
