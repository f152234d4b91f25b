"""What a run of SFT settles before its first block, and how the manifest describes the mask."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from tokenizers import AddedToken, Tokenizer

import tokmill
from tests.fixtures.datasets import TOKENIZER
from tokmill.chat.control_strings import KEPT_CONTROL
from tokmill.chat.own_templates import own_source
from tokmill.dataset.checksum import sha256_hex
from tokmill.dataset.typed_json import to_json
from tokmill.engines.engine import REFERENCE, load_engine
from tokmill.errors import UsageError
from tokmill.recipes.sft_setup import (
    describe_mask,
    last_ids,
    make_chat_renderer,
    resolve_records,
    resolve_sft,
    sft_settings,
    vocabulary_of,
)
from tokmill.settings.schema import Config
from tokmill.settings.sft import SftSettings
from tokmill.tokenizer.tokenizer import load_tokenizer
from tokmill.values import TokenBatch

pytestmark = pytest.mark.usefixtures("rendered_here")

CHAT = {"messages": [{"role": "user", "content": "hi"}]}
ALPACA = {"instruction": "say hi", "output": "hi"}
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
        config, tokenizer, pool = resolve_sft(dataclasses.replace(config, sft=sft), tokenizer)
        return config, tokenizer, pool.source

    return run


def test_a_flag_that_may_say_what_is_trained_stops_the_run_in_any_of_its_files(
    write_rows, tmp_path
):
    turns = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a", "mask": 0}]
    plain = [{key: turn[key] for key in ("role", "content")} for turn in turns]
    paths = [
        write_rows(tmp_path / f"{i}.jsonl", [{"messages": chat}] * 3)
        for i, chat in enumerate((plain, turns))
    ]
    with pytest.raises(UsageError, match=r"first records of .*: messages\[\]\.mask has only flags"):
        tokmill.sft(
            paths, tokenizer=str(TOKENIZER), output=tmp_path / "out", template="plain",
            progress=False,
        )  # fmt: skip


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
        ({"packed_rows": True}, {}, "sft.packed_rows: needs --packing, the tokens of a row"),
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


def test_a_template_whose_tokens_are_missing_is_refused(settled):
    config, tokenizer, template = settled(sft=SftSettings(template="llama3"))
    with pytest.raises(UsageError, match="template llama3 needs the control tokens bos, "):
        make_chat_renderer(config, tokenizer, template)


@pytest.fixture
def described(chat_run):
    """Describe the mask of a run with settings of SFT."""

    def describe(sft: SftSettings, **settings):
        spec = chat_run([CHAT], sft, **settings).spec
        return to_json(describe_mask(spec, reference_of(spec), cut=0))

    return describe


@pytest.fixture
def ends(chat_run):
    """Return the ids that samples may end with."""

    def find(sft: SftSettings, **settings) -> list[int]:
        spec = chat_run([CHAT], sft, **settings).spec
        renderer = make_chat_renderer(spec.config, spec.tokenizer, spec.template)
        return last_ids(renderer, reference_of(spec))

    return find


def reference_of(spec):
    control = spec.config.tokenizer.control_tokens_in_text
    return load_engine(REFERENCE, spec.tokenizer, control_in_text=control, n_threads=1)


def test_the_manifest_describes_the_mask_completely(described, spelled):
    assert described(SftSettings(template="chatml")) == {
        "preset": "tokmill",
        "boundary": "split",
        "alignment": "target",
        "trained": ["content", "reasoning", "tool_call", "eot", "eot_outside", "header_inside"],
        "turns": "all",
        "template": "messages as chatml",
        "template_sha256": sha256_hex(own_source("chatml").encode()),
        "ends": {"rule": "template", "last_ids": spelled("\n")},
        "cut": 0,
    }


def test_a_tokenizer_that_drops_the_last_text_may_end_with_any_id(chat_run):
    class Dropping:
        def encode(self, text):
            ids = [ord(one) for one in text[0].as_py() if not one.isspace()]
            return TokenBatch(np.array(ids, np.uint32), np.array([0, len(ids)]))

    spec = chat_run([CHAT], SftSettings(template="chatml")).spec
    renderer = make_chat_renderer(spec.config, spec.tokenizer, spec.template)
    assert last_ids(renderer, Dropping()) == []


def test_a_preset_and_its_switches_are_written_resolved(described):
    sft = SftSettings(
        preset="trl", template="chatml", boundary="split", turns="last",
        train=("+eos", "+header", "-suffix", "-reasoning"),
    )  # fmt: skip
    found = described(sft)
    assert found["preset"] == "trl"
    assert found["boundary"] == "split"
    assert found["turns"] == "last"
    assert found["trained"] == ["header", "content", "tool_call", "eot", "end", "header_inside"]
    assert found["ends"] == {"rule": "eos", "last_ids": [0]}


@pytest.mark.parametrize(
    ("template", "parts"),
    [
        ("chatml", ["\n"]),
        ("minimind", ["\n"]),
        ("torchtune", ["<|im_end|>"]),
        ("plain", []),  # a user's text may come last
        ("alpaca", ["<eos>", "\n"]),  # eos behind replies, an empty line behind instructions
        ("tokenizer", ["\n"]),
    ],
)
def test_samples_end_like_any_turn_of_the_template(ends, spelled, template, parts):
    assert sorted(ends(SftSettings(template=template))) == sorted(spelled(*parts))


def test_an_ending_whose_own_text_merges_is_the_merged_token(ends, tmp_path):
    path = tmp_path / "ab.jinja"
    path.write_text("{% for m in messages %}{{ m.content }}ab{% endfor %}")
    assert ends(SftSettings(template=str(path), spans="prefix")) == [262]


def test_an_ending_that_merges_with_texts_before_it_is_not_known(ends, tmp_path):
    path = tmp_path / "b.jinja"
    path.write_text("{% for m in messages %}{{ m.content }}b{% endfor %}")
    assert ends(SftSettings(template=str(path), spans="prefix")) == []


@pytest.mark.parametrize("condition", ["m.tool_calls", "not m.content and not m.tool_calls"])
def test_tool_calls_and_empty_replies_may_end_differently(ends, tmp_path, condition):
    path = tmp_path / "two.jinja"
    path.write_text(
        "{% for m in messages %}{{ m.role }}: {{ m.content }}"
        f"{{% if {condition} %}}{{{{ m.tool_calls }}}}<eos>{{% else %}}<|im_end|>{{% endif %}}"
        "{% endfor %}"
    )
    assert ends(SftSettings(template=str(path), spans="prefix")) == [0, 2]


def test_an_appended_eos_is_the_only_ending(ends):
    for name in ("+untrained-eos", "+eos"):
        assert ends(SftSettings(template="plain", train=(name,))) == [0]


MARKS = ("<|fim_prefix|>", "|||IP_ADDRESS|||", "</s>")
ORDINARY = ("    ", "hello", "±")


@pytest.fixture
def tokens(tokenizer_dir, tmp_path) -> tuple[str, dict[str, int]]:
    """The tiny tokenizer with six more tokens, none of them special, and their ids."""
    library = Tokenizer.from_file(str(tokenizer_dir / "tokenizer.json"))
    library.add_tokens([AddedToken(one, normalized=False) for one in (*MARKS, *ORDINARY)])
    folder = tmp_path / "added"
    folder.mkdir()
    library.save(str(folder / "tokenizer.json"))
    config = (tokenizer_dir / "tokenizer_config.json").read_text()
    (folder / "tokenizer_config.json").write_text(config)
    ids = {one: library.token_to_id(one) for one in (*MARKS, *ORDINARY)}
    return str(folder), ids


@pytest.fixture
def run(tokens, write_rows, tmp_path):
    """Return a function that makes a dataset of one chat in which all six strings stand."""

    def make(**settings) -> tokmill.Dataset:
        text = " a ".join((*MARKS, *ORDINARY))
        turns = [{"role": "user", "content": text}, {"role": "assistant", "content": text}]
        rows = write_rows(tmp_path / "in.jsonl", [{"messages": turns}])
        chosen = {"template": "plain", **settings}
        return tokmill.sft(
            rows, tokenizer=tokens[0], output=tmp_path / "out", progress=False, **chosen
        )

    return make


@pytest.mark.parametrize(
    ("engine", "template"),
    [
        ("reference", "jinja"),
        ("gigatoken", "plain"),
        ("gigatoken", "jinja"),
        ("fastokens", "plain"),
    ],
)
def test_only_added_tokens_that_encode_ordinary_text_are_parsed(
    run, tokens, tmp_path, engine, template
) -> None:
    (tmp_path / "jinja").write_text(
        "{% for m in messages %}<|im_start|>{{ m.role }}\n"
        "{% generation %}{{ m.content }}<eos>{% endgeneration %}{% endfor %}"
    )
    name = template if template == "plain" else str(tmp_path / "jinja")
    dataset, ids = run(engine=engine, template=name), tokens[1]
    found = set(dataset[0].tolist())
    assert found.isdisjoint(ids[one] for one in MARKS)
    assert found.issuperset(ids[one] for one in ORDINARY)
    assert dataset.manifest["totals"]["counters"][KEPT_CONTROL] == 2 * len(MARKS)
    dataset.verify()


def test_all_are_parsed_if_that_is_asked_for(run, tokens) -> None:
    dataset = run(control_tokens_in_text="parse")
    assert set(dataset[0].tolist()).issuperset(tokens[1].values())
    assert KEPT_CONTROL not in dataset.manifest["totals"].get("counters", {})


def test_records_with_such_a_string_can_be_rejected(run) -> None:
    with pytest.raises(tokmill.TokmillError, match="control token in text"):
        run(control_tokens_in_text="reject")


def test_a_token_that_the_template_writes_is_a_token_there_alone(run, tokens, tmp_path) -> None:
    (tmp_path / "t.jinja").write_text(
        "{% for m in messages %}<|fim_prefix|>{% generation %}{{ m.content }}<eos>"
        "{% endgeneration %}{% endfor %}"
    )
    dataset = run(template=str(tmp_path / "t.jinja"))
    assert dataset[0].tolist().count(tokens[1]["<|fim_prefix|>"]) == 2


def test_pretraining_has_the_ids_of_the_reference(tokens, write_rows, tmp_path) -> None:
    text = " a ".join((*MARKS, *ORDINARY))
    rows = write_rows(tmp_path / "in.jsonl", [{"text": text}])
    dataset = tokmill.pretrain(rows, tokenizer=tokens[0], output=tmp_path / "o", progress=False)
    library = Tokenizer.from_file(f"{tokens[0]}/tokenizer.json")
    assert dataset[0].tolist()[:-1] == library.encode(text).ids
    assert json.loads(library.to_str())["added_tokens"][-1]["special"] is False
