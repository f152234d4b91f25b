"""Samples become ids and weights: split and joint, and where the two differ."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Library
from tokenizers import pre_tokenizers

from tests.fixtures.tokenizers import MARKS, META
from tokmill.engines.loaded import EngineMemory, RenewableEngine
from tokmill.engines.reference import load_reference
from tokmill.errors import TokenizerError
from tokmill.masks.encoder import (
    JOINT_DIFFERS,
    STRADDLING_TOKENS,
    STRIPPED_SAMPLES,
    SampleEncoder,
    SplitJointCheck,
)
from tokmill.masks.layout import SampleRules
from tokmill.timing import StageTimer
from tokmill.tokenizer.byte_lengths import byte_lengths
from tokmill.tokenizer.continuation import continuation_tokenizer
from tokmill.tokenizer.control_tokens import with_control_tokens

BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
FLAGS = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)


def engine(tokenizer):
    return RenewableEngine(lambda: load_reference(tokenizer, parse=False), EngineMemory(1 << 40))


def encoder(tokenizer, boundary, *, is_known=True, **rules):
    continuation = continuation_tokenizer(tokenizer)
    first = engine(tokenizer)
    if continuation is not tokenizer:
        rest = None if continuation is None else engine(continuation)
    else:
        rest = first
    return SampleEncoder(
        first,
        rest,
        SampleRules(boundary, **rules),
        lengths=byte_lengths(tokenizer) if is_known else None,
    )


def encoded(tokenizer, batch, boundary, **options):
    return encoder(tokenizer, boundary, **options).encode(batch, StageTimer())


def totals(encoding):
    return {name: int(counts.sum()) for name, counts in encoding.counters.items()}


def reasons(encoding):
    return {sample: reason for sample, (reason, _) in encoding.refused.items()}


def strings(tokenizer, encoding):
    """Return the string and the weight of every token, by sample."""
    library, found = Library.from_str(tokenizer.json), encoding.tokens
    pairs = [
        (library.id_to_token(id_), weight)
        for id_, weight in zip(found.ids.tolist(), found.weights.tolist(), strict=True)
    ]
    return [
        pairs[start:stop]
        for start, stop in zip(found.offsets[:-1].tolist(), found.offsets[1:].tolist(), strict=True)
    ]


@pytest.fixture
def merging(make_tokenizer, bytes_model):
    """Bytes, and ":\\n" and "\\n\\n" as one token: it straddles."""
    model = bytes_model((":", "Ċ"), ("Ċ", "Ċ"), ("a", "b"))
    return make_tokenizer(model, pre_tokenizer=BYTES)


@pytest.fixture
def marking(make_tokenizer, marks_model):
    added = [{"id": 267, "content": "<c>", "special": True} | FLAGS]
    return make_tokenizer(marks_model, normalizer=MARKS, added_tokens=added)


def test_split_encodes_trained_text_separately(merging, sample_batch):
    batch = sample_batch([[("a:", 0), ("\nab", 1)], [("a:\n", 0), ("\n", 1), ("\n", 1)]])
    encoding = encoded(merging, batch, "split")
    assert strings(merging, encoding) == [
        [("a", 0), (":", 0), ("Ċ", 1), ("ab", 1)],
        [("a", 0), (":Ċ", 0), ("ĊĊ", 1)],
    ]
    assert totals(encoding) == {"samples whose joint ids differ": 1}
    assert encoding.counters[JOINT_DIFFERS].tolist() == [1, 0]


@pytest.mark.parametrize(("straddling", "weight"), [("train", 1), ("mask", 0)])
def test_joint_encodes_trained_and_untrained_text_at_once(
    merging, sample_batch, straddling, weight
):
    batch = sample_batch([[("a:", 0), ("\nab", 1)], [("a", 0), ("b", 0), ("\n", 1)]])
    encoding = encoded(merging, batch, "joint", straddling=straddling)
    assert strings(merging, encoding) == [
        [("a", 0), (":Ċ", weight), ("ab", 1)],
        [("ab", 0), ("Ċ", 1)],
    ]
    assert totals(encoding) == {STRADDLING_TOKENS: 1}


@pytest.mark.parametrize("straddling", ["train", "mask", "reject"])
def test_a_token_of_two_weights_above_0_has_the_larger(merging, sample_batch, straddling):
    batch = sample_batch([[("a:", 0.5), ("\nab", 1)], [("a:", 1), ("\nab", 0.5)]])
    encoding = encoded(merging, batch, "joint", straddling=straddling)
    assert encoding.tokens.weights.tolist() == [0, 1, 1, 0, 1, 0.5]
    assert totals(encoding) == {STRADDLING_TOKENS: 0}


@pytest.mark.parametrize("before", ["a", ""])
def test_the_sample_of_a_straddling_token_is_refused(merging, sample_batch, before):
    straddling = [(f"{before}:", 0), ("\nab", 1)]
    batch = sample_batch(
        [[("a", 0, True), ("b", 0), ("a", 1)], straddling, [("a", 1), (":", 0), ("b", 1)]]
    )
    encoding = encoded(merging, batch, "joint", straddling="reject")
    message = "a token holds bytes that are trained and bytes that are not"
    assert encoding.refused == {1: ("straddling token", message)}
    assert encoding.samples.tolist() == [0, 2]
    assert encoding.counters[STRADDLING_TOKENS].tolist() == [0, 0]


def test_text_after_a_control_token_is_encoded_by_the_rule(
    make_tokenizer, marks_model, sample_batch
):
    tokenizer = make_tokenizer(marks_model, pre_tokenizer=META)
    batch = sample_batch([[("ab", 0), (9, 0), ("ab", 0), ("c", 1), (9, 0)]])
    for boundary in ("split", "joint"):
        first = encoded(tokenizer, batch, boundary, after_control="first")
        assert [token for token, _ in strings(tokenizer, first)[0]][2] == "▁ab"
        rest = encoded(tokenizer, batch, boundary, after_control="continuation")
        tokens = [token for token, _ in strings(tokenizer, rest)[0]]
        assert (tokens[0], tokens[2:4]) == ("▁ab", ["ab", "c"])
        assert [weight for _, weight in strings(tokenizer, rest)[0]] == [0, 0, 0, 1, 0]


def test_text_that_continues_text_is_encoded_by_another_engine(
    make_tokenizer, marks_model, sample_batch
):
    tokenizer = make_tokenizer(marks_model, pre_tokenizer=META)
    encoding = encoded(tokenizer, sample_batch([[("ab", 0), (9, 0), ("ab", 0), ("c", 1)]]), "split")
    assert encoding.by_continuation_engine.tolist() == [False, False, True]
    for is_continuation, token in ((False, "▁ab"), (True, "ab")):
        tokens = encoder(tokenizer, "split").encode_text(
            column(["ab"]), StageTimer(), is_continuation=is_continuation
        )
        assert [Library.from_str(tokenizer.json).id_to_token(i) for i in tokens.ids] == [token]


def test_text_that_cannot_be_continued_is_refused(make_tokenizer, marks_model, sample_batch):
    split = {"type": "WhitespaceSplit"}
    always = META | {"prepend_scheme": "always"}
    parts = {"type": "Sequence", "pretokenizers": [split, always]}
    tokenizer = make_tokenizer(marks_model, pre_tokenizer=parts)
    batch = sample_batch([[("ab", 0), ("a", 1)], [("ab", 0), (9, 1), ("a", 1)]])
    encoding = encoded(tokenizer, batch, "split")
    assert strings(tokenizer, encoding)[0][0] == ("▁ab", 0)
    assert reasons(encoding) == {0: "no continuation"}
    assert encoding.samples.tolist() == [1]


def test_a_sample_is_refused_if_its_tokens_do_not_cover_the_text(marking, sample_batch):
    batch = sample_batch([[("▁", 0), ("a", 1)], [("a", 0), ("c", 1)], [("▁", 1), ("a", 1)]])
    encoding = encoded(marking, batch, "joint")
    assert reasons(encoding) == {0: "tokens do not cover the text"}
    assert encoding.samples.tolist() == [1, 2]


def test_joint_is_an_error_without_the_byte_lengths_of_tokens(marking):
    with pytest.raises(TokenizerError, match="choose boundary split"):
        encoder(marking, "joint", is_known=False)


def test_turns_end_inside_texts_where_the_token_is_known(merging, sample_batch):
    batch = sample_batch([[(1, 0), ("a:", 1, True), ("\nb", 1, True), ("c", 1)]])
    for boundary in ("split", "joint"):
        assert encoded(merging, batch, boundary).tokens.turn_ends.tolist() == [3, 4]
    assert encoded(merging, batch, "split", is_known=False).tokens.turn_ends.tolist() == []
    assert encoded(merging, batch, "split", is_known=False).tokens.weights.tolist() == [
        0,
        1,
        1,
        1,
        1,
    ]


@pytest.fixture
def stripping(make_tokenizer, bytes_model):
    """Bytes, 256 that strips white space before it, 257 behind it, and 258 both."""
    ends = [(True, False), (False, True), (True, True)]
    added = [
        {"id": 256 + i, "content": f"<{i}>", "special": True} | FLAGS | {"lstrip": a, "rstrip": b}
        for i, (a, b) in enumerate(ends)
    ]
    return make_tokenizer(bytes_model(), pre_tokenizer=BYTES, added_tokens=added)


STRIPS = {"strips_left": frozenset({256, 258}), "strips_right": frozenset({257, 258})}


def test_white_space_is_stripped_as_the_library_does(stripping, sample_batch):
    tokenizer = stripping
    library = Library.from_str(tokenizer.json)
    texts = ["a ", "", " ", " a", "\n\u3000", " \x1c ", "a b"]
    parts = [[x, 256 + i, y, 256 + j, z] for i, x, y, j, z in _products(texts)]
    batch = sample_batch([[(part, 0) for part in sample] for sample in parts])
    encoding = encoded(tokenizer, batch, "joint", **STRIPS)
    for i, sample in enumerate(parts):
        text = "".join(p if isinstance(p, str) else f"<{p - 256}>" for p in sample)
        start, stop = encoding.tokens.offsets[i : i + 2]
        assert encoding.tokens.ids[start:stop].tolist() == library.encode(text).ids


@pytest.mark.parametrize(
    ("sample", "is_counted"),
    [
        ([("a ", 1), (256, 0)], True),
        ([("a ", 1), (256, 1)], True),
        ([("a ", 0), (256, 1)], False),  # nothing trained is lost
        ([("a", 1), (256, 0)], False),
        ([(257, 0), (" a", 1)], True),
        ([(257, 1), (" a", 1)], False),  # it is part of the suffix of a trained turn
        ([(257, 0), (" ", 0), (" a", 1)], True),
    ],
)
def test_samples_that_lose_trained_white_space_are_counted(
    stripping, sample_batch, sample, is_counted
):
    batch = sample_batch([[("a", 1)], sample, [(258, 0), ("a", 1)]])
    counters = encoded(stripping, batch, "split", **STRIPS).counters
    found = counters.get(STRIPPED_SAMPLES, np.zeros(3, int)).tolist()
    assert found == [0, int(is_counted), 0]


@pytest.mark.parametrize(
    ("sample", "n_tokens"),
    [
        ([(" ", 0), (256, 0), ("a ", 1)], 3),
        ([(" a", 0), (258, 0), (" ", 1)], 3),
        ([("a ", 0), (0, 0), (256, 0)], 4),
        ([(257, 0), (0, 0), (" a", 0)], 4),
    ],
)
def test_white_space_that_is_not_beside_stays(stripping, sample_batch, sample, n_tokens):
    assert len(encoded(stripping, sample_batch([sample]), "split", **STRIPS).tokens.ids) == n_tokens


@pytest.mark.parametrize(
    ("samples", "turn_ends"),
    [
        ([[(" ", 1, True), (256, 0), ("a", 1)]], []),
        ([[("a", 1), (" ", 1, True), (256, 0), ("b", 1)]], [1]),
        ([[("a", 1), (" ", 1), (" ", 1, True), (256, 0), ("b", 1)]], [1]),
        ([[("a", 1), (" ", 1), (256, 0), ("b", 1)]], []),
        ([[("a", 1)], [(" ", 1, True), (256, 0), ("b", 1, True)]], [3]),
        ([[("a", 1)], [("b", 1), (" ", 1, True), (256, 0)]], [2]),
    ],
)
def test_a_turn_that_loses_its_last_segment_ends_with_the_one_before(
    stripping, sample_batch, samples, turn_ends
):
    encoding = encoded(stripping, sample_batch(samples), "split", **STRIPS)
    assert encoding.tokens.turn_ends.tolist() == turn_ends


def _products(texts):
    return [
        (i, x, y, j, z)
        for n, (x, z) in enumerate((x, z) for x in texts for z in texts)
        for m, y in enumerate(texts)
        for i, j in [((n + m) % 3, (n // 3 + m) % 3)]
    ]


WORDS = st.sampled_from([*"ab \n\t:▁é猫👍", "\u0301", "<eos>", "<tool>", "hello "])
TEXTS = st.lists(WORDS, max_size=8).map("".join)
SEGMENT = st.tuples(TEXTS | st.integers(0, 2), st.sampled_from([0, 1, 1, 0.5]), st.booleans())
SAMPLES = st.lists(st.lists(SEGMENT, min_size=1, max_size=7), max_size=4)


@pytest.fixture(scope="module")
def tiny(tokenizer):
    marked = with_control_tokens(tokenizer, ["<tool>"])
    first = engine(marked)
    lengths = byte_lengths(marked)

    def make(boundary):
        return SampleEncoder(first, first, SampleRules(boundary), lengths=lengths)

    return marked, make


@settings(deadline=None)
@given(SAMPLES)
def test_split_trains_exactly_the_trained_text(tiny, sample_batch, samples):
    tokenizer, make = tiny
    controls = ["<eos>", "<bos>", "<|im_start|>"]
    batch = sample_batch([[((0), 0, False), *sample] for sample in samples])
    tokens = make("split").encode(batch, StageTimer()).tokens
    library = Library.from_str(tokenizer.json)
    for i, sample in enumerate(samples):
        start, stop = tokens.offsets[i : i + 2]
        ids, weights = tokens.ids[start:stop], tokens.weights[start:stop]
        whole = [part if isinstance(part, str) else controls[part] for part, *_ in sample]
        trained = [text for text, (_, weight, _) in zip(whole, sample, strict=True) if weight]
        decoded = library.decode(ids[weights > 0].tolist(), skip_special_tokens=False)
        assert decoded == "".join(trained)
        assert library.decode(ids.tolist(), skip_special_tokens=False) == "<eos>" + "".join(whole)


@settings(deadline=None)
@given(SAMPLES)
def test_joint_weights_are_those_of_the_offsets_of_the_library(tiny, sample_batch, samples):
    tokenizer, make = tiny
    tokens = make("joint").encode(sample_batch(samples), StageTimer()).tokens
    parts = json.loads(tokenizer.json)
    library = Library.from_str(json.dumps(parts | {"post_processor": None}))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False)
    library.encode_special_tokens = True
    for i, sample in enumerate(samples):
        expected, text, of_text = [], "", []
        for part, weight, _ in [*sample, (-1, 0, False)]:
            if isinstance(part, str):
                text, of_text = text + part, of_text + [weight] * len(part)
                continue
            spans = library.encode(text, add_special_tokens=False).offsets
            expected += [max(of_text[start:stop]) for start, stop in spans] + [weight]
            text, of_text = "", []
        expected = [0, *expected[1:-1]] if expected[:-1] else []
        assert tokens.weights[tokens.offsets[i] : tokens.offsets[i + 1]].tolist() == expected


def test_text_that_the_tokenizer_composes_has_its_boundaries(
    make_tokenizer, bytes_model, sample_batch
):
    tokenizer = make_tokenizer(bytes_model(), normalizer={"type": "NFC"}, pre_tokenizer=BYTES)
    samples = [[("xe\u0301", 0), ("e\u0301", 1)], [("\u212b", 0), ("x", 1)]]
    encoding = encoded(tokenizer, sample_batch(samples), "joint")
    library = Library.from_str(tokenizer.json)
    for i, sample in enumerate(samples):
        start, stop = encoding.tokens.offsets[i : i + 2]
        whole = "".join(text for text, _ in sample)
        assert encoding.tokens.ids[start:stop].tolist() == library.encode(whole).ids
    assert encoding.tokens.weights.tolist() == [0, 0, 0, 1, 1, 0, 0, 1]
    across = encoded(tokenizer, sample_batch([[("xe", 0), ("\u0301x", 1)]]), "joint")
    assert reasons(across) == {0: "tokens do not cover the text"}


@settings(deadline=None)
@given(SAMPLES)
def test_joint_ids_are_those_of_the_complete_text(tiny, sample_batch, samples):
    tokenizer, make = tiny
    batch = sample_batch(samples)
    tokens = make("joint").encode(batch, StageTimer()).tokens
    reference = load_reference(tokenizer, parse=False)
    for i, sample in enumerate(samples):
        expected, text = [], ""
        for part, *_ in [*sample, (-1,)]:
            if isinstance(part, str):
                text += part
                continue
            expected += reference.encode(pa.array([text], pa.large_string())).ids.tolist()
            expected.append(part)
            text = ""
        assert tokens.ids[tokens.offsets[i] : tokens.offsets[i + 1]].tolist() == expected[:-1]


@pytest.fixture
def check_engine(make_tokenizer, bytes_model):
    model = bytes_model(("a", "b"), ("Ċ", "Ċ"), ("c", "d"), ("cd", "e"), ("d", "e"))
    return load_reference(make_tokenizer(model, pre_tokenizer=BYTES), parse=False)


def column(texts):
    return pa.array(texts, pa.large_string())


@pytest.mark.parametrize(
    ("left", "right", "differs"),
    [
        ("xa", "bx", True),  # two tokens become one
        ("xa", "cx", False),
        ("x\n", "\nx", True),
        ("a b", "c", False),
        ("xc", "dex", True),  # c, de and cde
        ("猫", "猫", False),
        ("猫" * 50 + "a", "b" + "猫" * 50, True),
        ("a", "b", True),
        ("a" * 100, " b", False),
    ],
)
def test_a_split_differs_where_the_joint_text_has_other_tokens(check_engine, left, right, differs):
    found = SplitJointCheck().find(column([left, right]), np.array([1]), check_engine.encode)
    assert found.tolist() == [differs]


def test_a_split_is_compared_in_its_own_two_texts(make_tokenizer, bytes_model):
    model = bytes_model(("c", "d"), ("d", "e"))
    encode = load_reference(make_tokenizer(model, pre_tokenizer=BYTES), parse=False).encode
    found = SplitJointCheck().find(column(["c", "d", "e"]), np.array([2]), encode)
    assert found.tolist() == [True]  # behind a c, the d would not join the e


def test_a_split_is_compared_with_the_whole_word(make_tokenizer, bytes_model):
    model = bytes_model(("d", "e"), ("c", "d"))
    encode = load_reference(make_tokenizer(model, pre_tokenizer=BYTES), parse=False).encode
    for right, differs in (("de", False), ("de f", False), ("d e", True)):
        found = SplitJointCheck().find(column(["c", right]), np.array([1]), encode)
        assert found.tolist() == [differs]
