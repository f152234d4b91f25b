"""`--weigh`: text of trained replies has another weight, in mask and weight files."""

from __future__ import annotations

import re

import pytest
from tokenizers import Tokenizer

import tokmill

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
