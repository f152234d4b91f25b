from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import xxhash

from tokmill.dataset.counts import CUT_SAMPLES
from tokmill.engines import spot_check
from tokmill.engines.spot_check import SpotCheck
from tokmill.recipes.encoded import EncodedBlock
from tokmill.recipes.sft import SftRecipe
from tokmill.settings.sft import SftSettings
from tokmill.sources.formats import open_slice
from tokmill.timing import StageTimer
from tokmill.values import TokenBatch

PLAIN = SftSettings(template="plain")


def chat(*contents: str, **fields) -> dict:
    """Make a record of questions and answers in turn."""
    roles = ("user", "assistant")
    return {
        "messages": [{"role": roles[i % 2], "content": c} for i, c in enumerate(contents)],
        **fields,
    }


@pytest.fixture
def blocks_of(chat_run):
    """Return a function that makes the recipe of a run over rows, and its blocks."""

    def make(rows, sft=PLAIN, *, block_bytes=1 << 20, **settings):
        run = chat_run(rows, sft, **settings)
        recipe = SftRecipe(run.spec)
        (piece,) = run.parts[0].slices
        with open_slice(piece, run.spec.config.input, recipe.schema, block_bytes) as reader:
            return recipe, list(reader.blocks())

    return make


@pytest.fixture
def process(blocks_of):
    """Return a function that encodes rows, which make one block."""

    def run(rows, sft=PLAIN, **settings) -> EncodedBlock:
        recipe, blocks = blocks_of(rows, sft, **settings)
        (encoded,) = recipe.process(blocks)
        return encoded

    return run


def samples(encoded: EncodedBlock) -> list[tuple[list[int], list[int]]]:
    """Return the ids and the mask of every sample."""
    spans = [slice(*pair) for pair in zip(encoded.offsets, encoded.offsets[1:], strict=False)]
    mask = encoded.sidecars["mask"]
    return [(encoded.tokens[span].tolist(), mask[span].tolist()) for span in spans]


def drops(encoded: EncodedBlock) -> dict[str, list[int]]:
    return {reason: rows.tolist() for reason, rows in encoded.drops.items()}


def test_a_block_becomes_samples_with_their_masks_rows_bytes_and_places(process, spelled):
    encoded = process([chat("hi", "yo"), b"{bad", chat("猫", "b")])
    assert samples(encoded) == [
        (spelled("hi", "yo", "<eos>"), [0, 0, 1, 1, 1]),
        (spelled("猫", "b", "<eos>"), [0, 0, 0, 1, 1]),
    ]
    assert encoded.tokens.dtype == np.dtype("<u2")
    assert encoded.sidecars["mask"].dtype == np.uint8
    assert list(encoded.sidecars) == ["mask"]
    assert encoded.places[:, 0].tolist() == [1, 3]
    assert encoded.text_bytes.tolist() == [9, 9]  # "<eos>" is 5 of them
    assert [(r.place.line, r.reason) for r in encoded.rejects] == [(2, "not an object")]
    assert encoded.drops == {}
    assert encoded.checks == {}  # the reference is not held against itself
    assert set(encoded.stage_s) >= {"parse", "render", "mask", "encode", "narrow"}


def test_the_template_s_control_tokens_are_placed_and_its_spans_trained(process, spelled):
    encoded = process([chat("hi", "yo")], SftSettings(template="chatml"))
    header = spelled("<|im_start|>", "user\nhi", "<|im_end|>", "\n", "<|im_start|>", "assistant\n")
    reply = spelled("yo", "<|im_end|>")
    assert samples(encoded) == [
        ([*header, *reply, *spelled("\n")], [0] * len(header) + [1] * len(reply) + [0])
    ]


def test_a_control_token_s_string_in_a_message_stays_text(process, spelled):
    ((ids, mask),) = samples(process([chat("<eos>", "a<|im_end|>")]))
    assert ids == [*spelled("<eos>a<|im_end|>"), 0]
    assert mask == [0] * 5 + [1] * 12


def test_a_control_token_s_string_in_a_message_is_refused_if_asked(process):
    rows = [chat("<eos>", "a"), chat("a", "b"), chat("a", "b<bos>")]
    encoded = process(rows, control_tokens_in_text="reject")
    assert encoded.rows.tolist() == [1]
    assert [(r.place.line, r.reason) for r in encoded.rejects] == [
        (1, "control token in text"),
        (3, "control token in text"),
    ]
    assert encoded.rejects[0].raw.startswith(b'{"messages": ')


def test_a_control_token_s_string_in_a_message_is_parsed_if_asked(process, spelled):
    encoded = process([chat("a<bos>", "b")], control_tokens_in_text="parse")
    assert samples(encoded)[0][0] == spelled("a", "<bos>", "b", "<eos>")


def test_limits_count_all_tokens_and_the_reason_is_one(process):
    rows = [chat("a", "b"), chat("a", "bb"), chat("a", "bbb"), chat("a", "b" * 9), chat("ab", "a")]
    encoded = process(rows, min_tokens=4, max_tokens=5)
    assert [len(ids) for ids, _ in samples(encoded)] == [4, 5]
    assert encoded.rows.tolist() == [1, 2]
    assert drops(encoded) == {"more than max_tokens": [3], "fewer than min_tokens": [0, 4]}


LONG_PROMPT = "prompt of more than max_prompt_tokens"


def test_samples_with_long_prompts_are_dropped_with_a_count_of_their_own(process):
    rows = [chat("a", "b"), chat("abc", "b"), chat("abcd", "b"), chat("abcdefgh", "b" * 9)]
    whole = process(rows, SftSettings(template="plain"))
    lengths = [mask.index(1) for _, mask in samples(whole)]
    assert lengths == sorted(lengths)
    for i, most in enumerate(lengths):
        encoded = process(rows, SftSettings(template="plain", max_prompt_tokens=most))
        assert samples(encoded) == samples(whole)[: i + 1]
        dropped = [*range(i + 1, len(rows))]
        assert drops(encoded) == ({LONG_PROMPT: dropped} if dropped else {})
    # Of two reasons the prompt is told, which no rule of length mends.
    settings = SftSettings(
        template="plain", max_prompt_tokens=lengths[2], too_long="truncate-right"
    )
    encoded = process(rows, settings, max_tokens=lengths[2])
    assert drops(encoded)[LONG_PROMPT] == [3]


def test_only_the_turns_whose_history_is_too_long_are_dropped(process):
    rows = [chat("a", "b", "a", "b", "a", "b")]
    whole = samples(process(rows, SftSettings(samples="turn")))
    most = whole[1][1].index(1)
    settings = SftSettings(samples="turn", max_prompt_tokens=most)
    encoded = process(rows, settings)
    assert samples(encoded) == whole[:2]
    assert drops(encoded) == {LONG_PROMPT: [0]}


def test_samples_without_a_target_are_dropped(process):
    rows = [chat("a", "b"), chat("a", "b", weight=0), chat("a")]
    encoded = process(rows)
    assert encoded.rows.tolist() == [0]
    assert drops(encoded) == {"no trained token": [1, 2]}


def test_a_record_may_give_several_samples_whose_bytes_count_once(process, spelled):
    sft = SftSettings(template="plain", samples="turn")
    encoded = process([chat("a", "b"), chat("c", "d", "e", "f")], sft)
    assert samples(encoded) == [
        (spelled("a", "b", "<eos>"), [0, 1, 1]),
        (spelled("c", "d", "<eos>"), [0, 1, 1]),
        (spelled("c", "d", "<eos>", "e", "f", "<eos>"), [0, 0, 0, 0, 1, 1]),
    ]
    assert encoded.rows.tolist() == [0, 1, 1]
    assert encoded.text_bytes.tolist() == [7, 7, 14]


def test_windows_of_a_sample_count_its_bytes_once(process, spelled):
    sft = SftSettings(template="plain", too_long="window", window_overlap=1)
    encoded = process([chat("a", "bcdef")], sft, max_tokens=4)
    assert samples(encoded) == [
        (spelled("abcd"[:1], "bcd"), [0, 1, 1, 1]),
        (spelled("d", "ef", "<eos>"), [0, 1, 1, 1]),
    ]
    assert encoded.rows.tolist() == [0, 0]
    assert encoded.text_bytes.tolist() == [11, 0]
    assert encoded.counters[CUT_SAMPLES].tolist() == [1, 1]


def test_a_rejected_record_has_no_samples(process, spelled):
    sft = SftSettings(template="plain", boundary="joint-reject", samples="turn")
    encoded = process([chat("c", "d", "a", "b"), chat("e", "f")], sft)
    assert samples(encoded) == [(spelled("e", "f", "<eos>"), [0, 1, 1])]
    assert encoded.rows.tolist() == [1]
    assert [(r.place.line, r.reason) for r in encoded.rejects] == [(1, "straddling token")]


def test_weights_are_kept_beside_the_mask_if_asked(process):
    sft = SftSettings(template="plain", weights="file")
    encoded = process([chat("a", "b", weight=0.5), chat("c", "d")], sft)
    assert encoded.sidecars["mask"].tolist() == [0, 1, 1, 0, 1, 1]
    assert encoded.sidecars["weight"].tolist() == [0, 0.5, 0.5, 0, 1, 1]
    assert encoded.sidecars["weight"].dtype == np.float32


def test_the_text_of_a_record_s_first_sample_decides_on_validation(process):
    records = [chat(f"q{i}", "a", "b", "c") for i in range(40)]
    sft = SftSettings(template="plain", samples="turn")
    encoded = process(records, sft, val_fraction=0.5)
    first = [f"q{i}a<eos>".encode() for i in range(40)]
    expected = [xxhash.xxh3_64_intdigest(text) < 2**63 for text in first]
    assert encoded.rows.tolist() == sorted([*range(40)] * 2)
    assert encoded.is_val.tolist() == [is_val for is_val in expected for _ in range(2)]
    assert not process(records, sft).is_val.any()


def test_blocks_processed_at_once_have_the_results_of_each_alone(blocks_of):
    rows = [chat("ab" * (i % 5), "ab" * (i % 4)) for i in range(30)]
    rows[7:7] = [b"{bad", b'{"messages": [}', chat("x"), chat("<eos>", "a"), {"messages": 3}]
    sft = SftSettings(template="chatml", too_long="window", weights="file")
    settings = {"max_tokens": 40, "min_tokens": 24, "val_fraction": 0.3}
    recipe, blocks = blocks_of(
        rows, sft, block_bytes=400, control_tokens_in_text="reject", **settings
    )
    assert len(blocks) > 5
    together = recipe.process(blocks)
    alone = [encoded for block in blocks for encoded in recipe.process([block])]
    assert len(together) == len(alone) == len(blocks)
    for one, other in zip(together, alone, strict=True):
        assert plain_values(one) == plain_values(other)
    assert {reject.reason for encoded in alone for reject in encoded.rejects} == {
        "not an object", "malformed JSON", "control token in text", "wrong type",
    }  # fmt: skip
    assert {reason for encoded in alone for reason in encoded.drops} == {
        "no trained token", "fewer than min_tokens",
    }  # fmt: skip


def plain_values(encoded: EncodedBlock) -> dict:
    """Return all values of a block but its seconds and its lookup."""
    values = {f.name: getattr(encoded, f.name) for f in dataclasses.fields(encoded)}
    values.pop("stage_s")
    return {name: listed(value) for name, value in values.items()}


def listed(value):
    if isinstance(value, np.ndarray):
        return value.dtype, value.tolist()
    return {k: listed(v) for k, v in value.items()} if isinstance(value, dict) else value


def test_samples_compared_with_the_reference_are_counted(blocks_of, monkeypatch):
    monkeypatch.setattr(spot_check, "_SHARE_OF_FAST", 0.25)
    texts = [(f"question {i}", f"answer {i}") for i in range(400)]
    recipe, blocks = blocks_of([chat(*pair) for pair in texts], engine="gigatoken")
    (encoded,) = recipe.process(blocks)
    assert 50 < encoded.checks["checked"].sum() < 250
    assert encoded.checks["checked"].max() == 1
    assert encoded.checks["checked_bytes"].max() == sum(map(len, texts[-1]))
    assert encoded.differences == []


def test_a_wrong_id_is_reported_with_the_line_of_its_record(blocks_of):
    recipe, blocks = blocks_of([chat("hello", "x"), chat("the cat", "the hat")], engine="gigatoken")

    class Wrong:
        def encode(self, text):
            batch = recipe._encoder.encode_text(text, StageTimer(), is_continuation=False)
            is_hat = [value == "the hat" for value in text.to_pylist()]
            ids = batch.ids ^ np.repeat(np.array(is_hat, np.uint32), batch.lengths)
            return TokenBatch(ids, batch.offsets)

    recipe.spot = SpotCheck(Wrong, 1.0)
    (encoded,) = recipe.process(blocks)
    ((number, line),) = encoded.differences
    assert number == 2
    assert "of the text that begins 'the hat'" in line


def test_continuations_have_their_own_reference_if_texts_get_a_prefix(
    blocks_of, marks, monkeypatch
):
    monkeypatch.setattr(spot_check, "_SHARE_OF_FAST", 1.0)
    sft = SftSettings(template="plain", roles=("user", "assistant"))
    recipe, blocks = blocks_of(
        [chat("ab", "ab")] * 3, sft, path=marks["first"][0], engine="gigatoken"
    )
    (encoded,) = recipe.process(blocks)
    assert encoded.checks["checked"].tolist() == [1, 1, 1]
    assert encoded.differences == []


def test_samples_are_cut_after_a_complete_turn_even_inside_a_text(process, spelled):
    sft = SftSettings(template="plain", roles=("user", "assistant"), too_long="drop-turns")
    encoded = process([chat("c", "d", "e", "f"), chat("a", "c")], sft, max_tokens=4)
    assert samples(encoded) == [
        (spelled("cd", "<eos>", "e"), [0, 1, 1, 1]),
        (spelled("ac", "<eos>"), [0, 1, 1]),
    ]
    assert encoded.counters[CUT_SAMPLES].tolist() == [1, 0]


def test_a_mixed_block_is_read_record_by_record(process, spelled):
    rows = [chat("a", "b"), {"instruction": "c", "output": "d"}, {"text": "ef"}]
    encoded = process(rows, SftSettings(template="plain", schema="mixed"))
    assert [ids for ids, _ in samples(encoded)] == [
        spelled("a", "b", "<eos>"), spelled("c", "d", "<eos>"), spelled("ef", "<eos>"),
    ]  # fmt: skip
