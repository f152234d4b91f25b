from __future__ import annotations

import dataclasses
import json

import psutil
import pytest

import tokmill.engines.engine_child as module
from tokmill.engines.engine import FAST_ENGINES, REFERENCE, is_installed
from tokmill.engines.engine_child import compare_in_children
from tokmill.engines.texts import Context


@pytest.fixture(autouse=True)
def _few_texts(monkeypatch):
    """Let the parent encode two texts; the child, another process, has all of them."""
    monkeypatch.setattr(module, "character_texts", lambda **_: [(Context("", ""), "a")] * 2)
    monkeypatch.setattr(module, "sequences", tuple)


def test_a_child_that_dies_refuses_the_engine_and_leaves_nothing(tokenizer):
    process = psutil.Process()
    before, others = process.num_fds(), set(process.children())
    found = compare_in_children([REFERENCE], tokenizer, 1, every=False)[REFERENCE]
    assert found.refused.startswith("died with status 1: ")  # fingerprints of other texts
    assert set(process.children()) == others
    assert process.num_fds() == before


def test_a_child_that_does_not_answer_in_time_refuses_the_engine(tokenizer):
    found = compare_in_children([REFERENCE], tokenizer, 1, every=False, timeout_s=0.001)
    assert found[REFERENCE].refused == "did not finish within 0.001 s"


@pytest.mark.parametrize("name", FAST_ENGINES)
def test_an_engine_that_cannot_load_the_tokenizer_says_why(tokenizer, name):
    if not is_installed(name):
        pytest.skip(f"{name} has no wheel here")
    words = {"type": "WordLevel", "vocab": {"a": 0, "<unk>": 1}, "unk_token": "<unk>"}
    other = dataclasses.replace(tokenizer, json=json.dumps({"model": words}))
    found = compare_in_children([name], other, 1, every=False)
    assert found[name].refused.startswith(f"engine {name} refuses the tokenizer: ")
