from __future__ import annotations

import numpy as np
import pytest

from tokmill.chat.own_templates import own_source
from tokmill.dataset.canonical import sha256_hex
from tokmill.engines.engine import REFERENCE, load_engine
from tokmill.recipes.sft_setup import describe_mask, last_ids, make_chat_renderer
from tokmill.settings.sft import SftSettings
from tokmill.values import TokenBatch

CHAT = {"messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture
def described(chat_run):
    """Describe the mask of a run with settings of SFT."""

    def describe(sft: SftSettings, **settings):
        spec = chat_run([CHAT], sft, **settings).spec
        return describe_mask(spec, reference_of(spec))

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


def test_the_digest_of_a_jinja_template_is_that_of_its_source(described, tmp_path):
    source = "{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}"
    path = tmp_path / "own.jinja"
    path.write_text(source)
    found = described(SftSettings(template=str(path), spans="prefix"))
    assert found["template_sha256"] == sha256_hex(source.encode())
    assert found["ends"] == {"rule": "template", "last_ids": [0]}


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


def test_a_template_of_one_reply_ends_with_its_eos(ends):
    assert ends(SftSettings(template="baby-llama2"), bos_token="<bos>") == [0]


def test_texts_end_with_any_token(ends):
    sft = SftSettings(schema="text", template="plain")
    assert ends(sft) == []


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
