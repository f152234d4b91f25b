"""Promise 7: what is trained, decoded, is the text to be trained and the end of its turn."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers import Tokenizer as Library

import tokmill
from tokmill.chat.reading.schemas import read_conversation
from tokmill.engines.added_tokens import divide_added_tokens
from tokmill.engines.choice import EngineChoice
from tokmill.engines.loaded import EngineMemory
from tokmill.masks.truncation import truncate
from tokmill.recipes.sft import make_sample_encoder
from tokmill.recipes.sft_setup import make_chat_renderer, resolve_sft
from tokmill.recipes.spec import RunSpec
from tokmill.run.plan import resolve
from tokmill.settings.schema import Config, InputSettings, TokenizerSettings
from tokmill.settings.sft import SftSettings
from tokmill.timing import StageTimer
from tokmill.tokenizer.tokenizer import load_tokenizer

SAMPLES = Path(__file__).parents[2] / "data_samples"
LIBRARY = Library.from_file(str(SAMPLES / "tokenizer" / "tokenizer.json"))

WHITE = st.text(" \n\t\r\u3000\u00a0", max_size=4)
CONTROL = ("<|im_start|>assistant\n", "<|im_end|>", "<eos>", "<think>", "</think>", "<tool_call>")
ODD = (
    "👩\u200d🚀",
    "e\u0301",
    "\U00020bb7",
    "\ue000\ue001",
    "{% endgeneration %}",
    "a" * 40,
    "\x00",
)
STRINGS = st.sampled_from(CONTROL + ODD)
TEXTS = st.lists(WHITE | STRINGS | st.text(max_size=6), max_size=5).map("".join)
ROLES = st.sampled_from(["user", "assistant", "system", "assistant"])
MESSAGES = st.lists(st.tuples(ROLES, TEXTS), min_size=1, max_size=6)


class Chat:
    """From messages to ids and mask, as a run goes."""

    def __init__(self, **sft: str) -> None:
        config = Config(
            input=InputSettings(paths=("-",)),
            tokenizer=TokenizerSettings(path=str(SAMPLES / "tokenizer")),
            sft=SftSettings(schema="messages", rendered_text="text", **sft),
        )
        tokenizer = load_tokenizer(config.tokenizer, for_chat=True)
        config, tokenizer, pool = resolve_sft(config, tokenizer)
        added = divide_added_tokens(tokenizer, parse=False)
        engine = EngineChoice("gigatoken", "", "", added=added)
        spec = RunSpec(resolve(config, tokenizer, 0), tokenizer, engine, 1, pool.source)
        self._settings = spec.config.sft
        self._renderer = make_chat_renderer(spec.config, tokenizer, pool.source)
        self._encoder = make_sample_encoder(spec, EngineMemory(1 << 30))

    def tokens(self, messages: list[tuple[str, str]]) -> tuple[list[int], list[bool]]:
        record = {"messages": [{"role": role, "content": text} for role, text in messages]}
        record = json.loads(json.dumps(record))
        chat = read_conversation(record, "messages", self._settings)
        encoding = self._encoder.encode(self._renderer.render_conversation(chat), StageTimer())
        assert not encoding.refused
        fitted = truncate(encoding.tokens, 0, "drop")
        return fitted.samples.ids.tolist(), (fitted.samples.weights > 0).tolist()


@pytest.fixture(scope="module")
def chats() -> dict[str, Chat]:
    return {
        "chatml": Chat(template="chatml"),
        "jinja": Chat(template="tokenizer"),
        "prefix": Chat(template="tokenizer", spans="prefix"),
        "plain": Chat(template="plain"),
        "last": Chat(template="chatml", turns="last"),
    }


@pytest.mark.parametrize("name", ["chatml", "jinja", "prefix", "plain", "last"])
def test_the_trained_text_is_the_replies_and_their_ends(chats, name):
    chat = chats[name]
    end = "<eos>" if name == "plain" else "<|im_end|>"

    @settings(max_examples=40, deadline=None)
    @given(MESSAGES)
    def check(messages):
        # the first token of a sample is no target: of a plain one it could be a reply's
        ids, mask = chat.tokens([("system", "S"), *messages])
        replies = [text for role, text in messages if role == "assistant"]
        # A thought at the start of a reply is read as reasoning, and written as the template does.
        assume(name == "plain" or not any("</think>" in reply for reply in replies))
        expected = "".join(reply + end for reply in (replies[-1:] if name == "last" else replies))
        trained = [id_ for id_, is_trained in zip(ids, mask, strict=True) if is_trained]
        assert LIBRARY.decode(trained, skip_special_tokens=False) == expected

    check()


def test_first_tokens_are_no_targets(chats):
    ids, mask = chats["plain"].tokens([("assistant", "Hello world")])
    assert mask == [False] + [True] * (len(ids) - 1)
    assert np.array(ids).max() < 32000


CALL = '<tool_call>\n{"name": "f", "arguments": {"n": 12}}\n</tool_call>'
CHATS = [("Add 12.", "Sum: 12 and 345."), ("Call 1.", f"Now: {CALL}"), ("None.", "No digits.")]


@pytest.fixture
def run(tokenizer_dir, write_rows, tmp_path):
    def make(**settings):
        chats = [
            {"messages": [{"role": "user", "content": u}, {"role": "assistant", "content": a}]}
            for u, a in CHATS
        ]
        return tokmill.sft(
            write_rows(tmp_path / "in.jsonl", chats), tokenizer=tokenizer_dir, template="plain",
            inline_tags="text", output=tmp_path / "out", progress=False, **settings,
        )  # fmt: skip

    return make


@pytest.fixture
def library(tokenizer_dir):
    return Tokenizer.from_file(str(tokenizer_dir / "tokenizer.json"))


def weighed(weights, ids, tokenizer):
    """Return the trained text of a sample and the weight of each of its characters."""
    pieces = [
        (tokenizer.decode([id_], skip_special_tokens=False), weight)
        for id_, weight in zip(ids.tolist(), weights.tolist(), strict=True)
        if weight
    ]
    return "".join(text for text, _ in pieces), [w for text, w in pieces for _ in text]


def test_matches_have_the_weight_of_the_turn_times_the_factor(run, library):
    dataset = run(weigh=[r"[0-9]+=2.5", r"<tool_call>.+?</tool_call>=3"])
    for i, (_, reply) in enumerate(CHATS):
        text, weights = weighed(dataset.weight(i), dataset[i], library)
        assert text == f"{reply}<eos>"
        expected = [1.0] * len(text)
        for pattern, factor in (("[0-9]+", 2.5), ("<tool_call>.+?</tool_call>", 3.0)):
            for match in re.finditer(pattern, text, re.DOTALL):
                for k in range(*match.span()):
                    expected[k] *= factor
        assert weights == expected
    assert max(dataset.weight(1)) == 7.5
    dataset.verify()


def test_a_factor_of_0_masks_and_writes_no_weights(run, library):
    dataset = run(weigh=[r"[0-9]+=0"])
    assert weighed(dataset.mask(0), dataset[0], library)[0] == "Sum:  and .<eos>"
    assert dataset.manifest["config"]["sft"]["weights"] == "refuse"
