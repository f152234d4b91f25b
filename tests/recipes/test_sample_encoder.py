from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tokmill.engines.loaded import EngineMemory
from tokmill.errors import TokenizerError
from tokmill.masks.encoder import JOINT_DIFFERS, STRADDLING_TOKENS, STRIPPED_SAMPLES
from tokmill.recipes.sft import make_sample_encoder
from tokmill.settings.sft import SftSettings
from tokmill.timing import StageTimer
from tokmill.values import SampleBatch

ADDED = ("<eos>", "<|im_start|>", "<|im_end|>", "<bos>", "<think>", "</think>")
CHAT = {"messages": [{"role": "user", "content": "hi"}]}
MEMORY = 1 << 30
METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}


def batch(*segments: tuple[str | int, float]) -> SampleBatch:
    """Make one sample of texts, or ids of control tokens, and their weights."""
    return SampleBatch(
        text=pa.array([s if isinstance(s, str) else "" for s, _ in segments], pa.large_string()),
        offsets=np.array([0, len(segments)], np.int64),
        control=np.array([-1 if isinstance(s, str) else s for s, _ in segments], np.int32),
        weights=np.array([weight for _, weight in segments], np.float32),
        turn_ends=np.zeros(len(segments), np.bool_),
        rows=np.zeros(1, np.int64),
        refused=[],
        drops={},
    )


@pytest.fixture
def phi(chat_tokenizer, marks):
    """Return a tokenizer like phi-3's, and its ids: `<|im_start|>` strips to its right."""
    _, ids = marks["every"]
    flags = {"<|im_start|>": {"rstrip": True}, "<|im_end|>": {"rstrip": True}}
    content = json.loads((Path(marks["every"][0]) / "tokenizer.json").read_text())
    parts = {key: content[key] for key in ("model", "normalizer", "pre_tokenizer")}
    added = {token["content"]: token["id"] for token in content["added_tokens"]}
    parts["model"]["vocab"] = added | ids
    return str(chat_tokenizer(flags, **parts)), added | ids


@pytest.fixture
def encode(chat_run):
    """Encode one sample: its ids and weights, or why it was refused."""

    def run(*segments, sft: SftSettings | None = None, **settings):
        spec = chat_run([CHAT], sft or SftSettings(template="plain"), **settings).spec
        encoding = make_sample_encoder(spec, EngineMemory(MEMORY)).encode(
            batch(*segments), StageTimer()
        )
        if encoding.refused:
            return [reason for reason, _ in encoding.refused.values()]
        counters = {name: int(counts.sum()) for name, counts in encoding.counters.items()}
        return encoding.tokens.ids.tolist(), encoding.tokens.weights.tolist(), counters

    return run


@pytest.mark.parametrize(
    ("boundary", "expected"), [("joint", [0, 1]), ("joint-mask", [0, 0]), ("joint-reject", None)]
)
def test_the_settings_decide_on_a_straddling_token(encode, spelled, boundary, expected):
    joint = SftSettings(template="plain", boundary=boundary)
    found = encode(("c", 0), ("a", 0), ("b", 1), sft=joint)
    if expected is None:
        assert found == ["straddling token"]
    else:
        assert found == (spelled("c", "ab"), expected, {STRADDLING_TOKENS: 1})


def test_control_tokens_strip_the_white_space_beside_them(encode, spelled, chat_tokenizer):
    flags = {"<|im_end|>": {"lstrip": True}, "<|im_start|>": {"rstrip": True}}
    path = str(chat_tokenizer(flags))
    ids, weights, counters = encode((1, 0), (" \n a ", 1), (2, 1), path=path)
    assert ids == spelled("<|im_start|>", "a", "<|im_end|>")
    assert weights == [0, 1, 1]
    assert counters == {STRIPPED_SAMPLES: 1, JOINT_DIFFERS: 0}


@pytest.mark.parametrize(
    ("prefix", "engine"),
    [
        ("first", "reference"),
        ("first", "gigatoken"),
        ("every", "reference"),
        ("every", "gigatoken"),
        ("every", "fastokens"),
    ],
)
def test_a_continuation_gets_no_space_before_it(encode, marks, prefix, engine):
    path, ids = marks[prefix]
    found, weights, _ = encode(("ab", 0), ("ab", 1), (0, 1), ("ab", 0), path=path, engine=engine)
    behind_control = [ids["▁"]] if prefix == "every" else []
    assert found == [ids["▁"], ids["ab"], ids["ab"], 0, *behind_control, ids["ab"]]
    assert weights == [0, 0, 1, 1, *[0 for _ in behind_control], 0]


@pytest.mark.parametrize("engine", ["reference", "gigatoken"])
@pytest.mark.parametrize("boundary", ["split", "joint"])
def test_text_after_a_parsed_control_token_is_encoded_like_the_start_of_a_text(
    encode, phi, engine, boundary
):
    path, ids = phi
    sft = SftSettings(template="plain", boundary=boundary)
    found, weights, counters = encode(
        ("ab", 0), (ids["<|im_start|>"], 0), ("\n", 0), ("ab", 1), ("ab", 0),
        path=path, engine=engine, sft=sft, control_tokens_in_text="parse",
    )  # fmt: skip
    start, prefix, ab = ids["<|im_start|>"], ids["▁"], ids["ab"]
    assert found == [prefix, ab, start, prefix, ab, ab]
    assert weights == [0, 0, 0, 1, 1, 0]
    assert not any(counters.values())


def test_a_parsed_token_that_is_not_special_is_no_part_of_a_text_that_continues_another(
    encode, chat_tokenizer, marks
):
    content = json.loads((Path(marks["every"][0]) / "tokenizer.json").read_text())
    parts = {key: content[key] for key in ("model", "normalizer", "pre_tokenizer")}
    path = str(chat_tokenizer({"<|im_start|>": {"special": False}}, **parts))
    run = partial(encode, path=path, control_tokens_in_text="parse")
    assert run(("ab", 0), ("ab<|im_start|>ab", 1)) == ["control token in text"]
    assert run(("ab<|im_start|>ab", 0), ("ab", 1))[1] == [0, 0, 0, 0, 0, 1]


def test_joint_needs_no_check_of_continuations(encode, chat_tokenizer, marks):
    vocab = [[token, 0.0] for token in (*ADDED, "[UNK]", "▁abab")]
    model = {"type": "Unigram", "vocab": vocab, "unk_id": 6}
    normalizer = json.loads((Path(marks["every"][0]) / "tokenizer.json").read_text())["normalizer"]
    path = str(chat_tokenizer(model=model, pre_tokenizer=None, normalizer=normalizer))
    with pytest.raises(TokenizerError, match=r"cannot be encoded separately.*boundary joint$"):
        encode(("ab", 0), ("ab", 1), path=path)
    joint = SftSettings(template="plain", boundary="joint")
    found, weights, _ = encode((1, 0), ("ab", 0), ("ab", 1), path=path, sft=joint)
    assert (found, weights) == ([1, 7], [0, 1])


def test_a_tokenizer_with_a_prefix_for_every_word_has_no_continuations(encode, chat_tokenizer):
    words = {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, METASPACE]}
    path = str(chat_tokenizer(pre_tokenizer=words))
    bos = SftSettings(template="baby-llama2")  # one that cuts text is refused before
    found = encode(("ab", 0), ("ab", 1), path=path, sft=bos, bos_token="<bos>")
    assert found == ["no continuation"]
