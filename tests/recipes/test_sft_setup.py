from __future__ import annotations

import dataclasses

import pytest

from tokmill.chat.own_templates import own_source
from tokmill.errors import UsageError
from tokmill.recipes.sft_setup import (
    make_chat_renderer,
    resolve_records,
    resolve_sft,
    sft_settings,
    vocabulary_of,
)
from tokmill.settings.schema import Config
from tokmill.settings.sft import SftSettings
from tokmill.tokenizer.tokenizer import load_tokenizer

CHAT = {"messages": [{"role": "user", "content": "hi"}]}
ALPACA = {"instruction": "say hi", "output": "hi"}
METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"}
THINKING = "{% for m in messages %}<think>{{ m.content }}</think>{{ eos_token }}{% endfor %}"


@pytest.fixture
def settled(chat_config):
    """Settle a run whose first record is given; settings as for `chat_config`."""

    def run(record=None, sft=None, **settings):
        record = record or CHAT
        config = chat_config([record], sft, **settings)
        tokenizer = load_tokenizer(config.tokenizer, for_chat=True)
        where = f"first records of {config.input.paths[0]}"
        sft = resolve_records(sft_settings(config), tokenizer, [record], where)
        return resolve_sft(dataclasses.replace(config, sft=sft), tokenizer)

    return run


def test_a_run_of_pretraining_has_no_settings_of_sft():
    with pytest.raises(UsageError, match=r"^not a run of SFT: the configuration has no \[sft\]$"):
        sft_settings(Config())
    assert sft_settings(Config(sft=SftSettings(preset="trl"))).preset == "trl"


@pytest.mark.parametrize(
    ("record", "asked", "schema"),
    [(CHAT, "auto", "messages"), (ALPACA, "auto", "alpaca"), (ALPACA, "messages", "messages")],
)
def test_the_first_records_decide_the_schema_unless_it_is_set(settled, record, asked, schema):
    config, _, _ = settled(record, SftSettings(schema=asked))
    assert config.sft.schema == schema


@pytest.mark.parametrize(
    ("sft", "source"),
    [
        (SftSettings(template="chatml"), own_source("chatml")),
        (SftSettings(template="tokenizer"), THINKING),
        (SftSettings(), THINKING),
    ],
)
def test_the_template_is_the_named_one_or_the_tokenizer_s(settled, chat_tokenizer, sft, source):
    path = str(chat_tokenizer(template=THINKING))
    assert settled(sft=sft, path=path)[2] == source


@pytest.mark.parametrize(
    ("sft", "limits", "message"),
    [
        (
            {"packing": 8},
            {"min_tokens": 9},
            "sft.packing: no sample of --min-tokens, 9, fits into rows of 8 tokens: "
            "set --min-tokens to 8 or less",
        ),
        (
            {"packing": 8},
            {"max_tokens": 9},
            "sft.packing: rows of 8 tokens cannot hold samples of up to 9 tokens: "
            "set --max-tokens to 8 or less",
        ),
        (
            {"too_long": "window", "window_overlap": 8},
            {"max_tokens": 8},
            "sft.window_overlap: 8 must be below --max-tokens, 8",
        ),
        (
            {"packing": (1 << 28) + 1},
            {"max_tokens": 8},
            "sft.packing: expected at most 268435456 tokens a row, found 268435457",
        ),
        (
            {"too_long": "window"},
            {"max_tokens": 1},
            "sft.too_long: a window of 1 token has no target, as the first token of "
            "a sample is none: raise --max-tokens",
        ),
        (
            {"packed_rows": True},
            {},
            "sft.packed_rows: needs --packing, the tokens of a row",
        ),
    ],
)
def test_lengths_that_contradict_each_other_are_refused(settled, sft, limits, message):
    with pytest.raises(UsageError) as caught:
        settled(sft=SftSettings(**sft), **limits)
    assert str(caught.value) == message


def test_max_tokens_defaults_to_the_row_of_packing(settled):
    assert settled(sft=SftSettings(packing=8))[0].limits.max_tokens == 8
    assert settled(sft=SftSettings(packing=8), max_tokens=7)[0].limits.max_tokens == 7
    assert settled()[0].limits.max_tokens == 0


@pytest.mark.parametrize(
    ("template", "asked", "style"),
    [
        ("alpaca", "auto", "stanford"),
        ("chatml", "auto", "newline"),
        ("alpaca", "newline", "newline"),
        ("chatml", "stanford", "stanford"),
    ],
)
def test_an_input_has_its_heading_in_template_alpaca_unless_set_otherwise(
    settled, template, asked, style
):
    config, _, _ = settled(ALPACA, SftSettings(template=template, instruction=asked))
    assert config.sft.instruction == style


def test_lengths_that_agree_are_accepted(settled):
    sft = SftSettings(packing=8, packed_rows=True, too_long="window", window_overlap=7)
    assert settled(sft=sft, max_tokens=8)[0].sft == dataclasses.replace(
        sft, schema="messages", instruction="newline", rendered_text="text"
    )
    settled(sft=SftSettings(window_overlap=9, too_long="window"))  # nothing is too long


def test_strings_that_the_template_writes_become_control_tokens(settled, chat_tokenizer):
    path = str(chat_tokenizer(template=THINKING))
    assert settled(path=path)[1].special_ids == (0, 1, 2, 3, 4, 5)
    assert settled(path=path, control_tokens_in_text="reject")[1].special_ids == (0, 1, 2, 3, 4, 5)


def test_no_token_becomes_special_if_texts_are_parsed(settled, chat_tokenizer):
    path = str(chat_tokenizer(template=THINKING))
    _, tokenizer, _ = settled(path=path, control_tokens_in_text="parse")
    assert tokenizer.special_ids == (0, 1, 2, 3)


def test_a_template_may_write_every_token(chat_config, chat_tokenizer):
    config = chat_config([CHAT])
    loaded = load_tokenizer(config.tokenizer, for_chat=True)
    few = dataclasses.replace(loaded, max_emittable_id=0)
    assert resolve_sft(config, few)[1].max_emittable_id == loaded.vocab_size - 1 == 262


def test_control_tokens_are_added_tokens_and_with_parse_those_that_the_template_writes(
    settled, chat_tokenizer
):
    special = {"<eos>": 0, "<|im_start|>": 1, "<|im_end|>": 2, "<bos>": 3}
    found = vocabulary_of(*settled(control_tokens_in_text="parse"))
    assert found.control == special
    config, tokenizer, template = settled()
    found = vocabulary_of(config, tokenizer, template)
    assert found.control == {**special, "<think>": 4, "</think>": 5}
    assert (found.eos, found.bos, found.parse) == ("<eos>", "", False)
    assert found.named == {"eos_token": "<eos>"}

    path = str(chat_tokenizer(template=THINKING))
    config, tokenizer, template = settled(path=path, control_tokens_in_text="parse")
    found = vocabulary_of(config, tokenizer, template)
    assert (found.control["<think>"], found.control["</think>"], found.parse) == (4, 5, True)


def test_eos_and_bos_are_those_that_the_settings_name(settled):
    config, tokenizer, template = settled(eos_token="g", bos_token="h")
    found = vocabulary_of(config, tokenizer, template)
    assert (found.eos, found.bos) == ("g", "h")
    assert (found.control["g"], found.control["h"]) == (tokenizer.eos.id, tokenizer.bos.id)
    assert found.named == {"eos_token": "g"}


def test_the_bos_of_the_files_is_used_if_it_is_a_control_token(settled, chat_tokenizer):
    path = chat_tokenizer()
    named = path / "tokenizer_config.json"
    original = named.read_text()
    for bos, expected in (("<bos>", "<bos>"), ("b", "")):
        named.write_text(original.replace('"<eos>"', f'"<eos>", "bos_token": "{bos}"'))
        config, tokenizer, template = settled(path=str(path))
        assert vocabulary_of(config, tokenizer, template).bos == expected


def test_the_renderer_is_named_by_schema_and_template(settled):
    config, tokenizer, template = settled(ALPACA, SftSettings(template="alpaca"))
    assert make_chat_renderer(config, tokenizer, template).name == "alpaca as alpaca"


def test_a_template_whose_tokens_are_missing_is_refused(settled):
    config, tokenizer, template = settled(sft=SftSettings(template="llama3"))
    with pytest.raises(UsageError, match="template llama3 needs the control tokens bos, "):
        make_chat_renderer(config, tokenizer, template)
