from __future__ import annotations

import pytest

from tokmill.chat.rule import mask_rule
from tokmill.errors import UsageError
from tokmill.settings.schema import PRESETS, SftSettings

DIALOG = [("user", "U"), ("assistant", "A"), ("user", "V"), ("assistant", "B")]
USER = "<|im_start|>user\n{}<|im_end|>\n"
REPLY = "<|im_start|>assistant\n"


@pytest.mark.parametrize(
    ("settings", "reply"),
    [
        ({}, REPLY + "«A<|im_end|>»\n"),
        ({"eot": "mask"}, REPLY + "«A»<|im_end|>\n"),
        ({"suffix": "train"}, REPLY + "«A<|im_end|>\n»"),
        ({"header": "train"}, "«" + REPLY + "A<|im_end|>»\n"),
        ({"preset": "llamafactory"}, REPLY + "«A<|im_end|>\n»"),
        ({"preset": "llamafactory", "suffix": "mask"}, REPLY + "«A<|im_end|>»\n"),
    ],
)
def test_presets_and_switches_say_what_of_a_turn_is_trained(show_messages, settings, reply):
    assert show_messages("chatml", *DIALOG[:2], **settings) == [USER.format("U") + reply]


@pytest.mark.parametrize(
    ("turns", "trained"),
    [("all", "AB"), ("last", "B"), ("after-last-user", "B")],
)
def test_turns_says_which_replies_are_trained(show_messages, turns, trained):
    (text,) = show_messages("plain", *DIALOG, turns=turns)
    assert [reply for reply in "AB" if f"«{reply}" in text] == list(trained)


def test_all_replies_behind_the_last_user_are_trained(show_messages):
    turns = [*DIALOG, ("assistant", "C")]
    assert show_messages("plain", *turns, turns="after-last-user") == ["UA<eos>V«B<eos>C<eos>»"]
    assert show_messages("plain", *turns, turns="last") == ["UA<eos>VB<eos>«C<eos>»"]


def test_late_turns_are_counted_in_each_sample(make_renderer, whole_records, shown):
    line = '{"messages": [{"role": "user", "content": "U"}, {"role": "assistant", "content": "A"}]}'
    batch = make_renderer("plain", turns="last").render(whole_records([line, line]))
    assert shown(batch) == ["U«A<eos>»", "U«A<eos>»"]


def test_other_roles_can_be_trained(show_messages):
    assert show_messages("plain", *DIALOG[:2], roles=("user",)) == ["«U»A<eos>"]
    assert show_messages("plain", *DIALOG[:2], roles=("user", "assistant")) == ["«UA<eos>»"]


def test_an_unknown_role_is_refused():
    with pytest.raises(UsageError, match="unknown role 'bot'; known: system, developer"):
        mask_rule(SftSettings(roles=("bot",)))


def test_what_the_record_says_of_a_turn_wins(show_messages):
    quiet = {"role": "assistant", "content": "A", "train": False}
    loud = {"role": "user", "content": "V", "weight": 1}
    assert show_messages("plain", ("user", "U"), quiet, loud, turns="last") == ["UA<eos>«V»"]


def test_fractions_of_weight_are_kept_where_asked(show_messages):
    half = {"role": "assistant", "content": "A", "weight": 0.5}
    assert show_messages("plain", ("user", "U"), half, weights="file") == ["U0.5«A<eos>»"]


@pytest.mark.parametrize(
    ("setting", "sample"),
    [("no", "U«A<eos>»"), ("mask", "U«A<eos>»<eos>"), ("train", "U«A<eos><eos>»")],
)
def test_eos_can_be_appended(show_messages, setting, sample):
    assert show_messages("plain", *DIALOG[:2], append_eos=setting) == [sample]


def test_turns_end_behind_the_last_segment_of_a_trained_turn(make_renderer, whole_records):
    line = (
        '{"messages": [{"role": "user", "content": "U"}, {"role": "assistant", "content": "A"}, '
        '{"role": "user", "content": "V"}]}'
    )
    batch = make_renderer("chatml").render(whole_records([line]))
    ends = [i for i, ends in enumerate(batch.turn_ends) if ends]
    assert [batch.text[i].as_py() for i in ends] == ["\n"]
    assert [batch.text[ends[0] + 1].as_py()] == ["<|im_start|>"]


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_fixes_a_boundary(preset):
    rule = mask_rule(SftSettings(preset=preset))
    assert rule.boundary == ("joint" if preset in ("trl", "minimind") else "split")
    assert mask_rule(SftSettings(preset=preset, boundary="joint")).boundary == "joint"


def test_everything_trains_all_tokens_but_those_that_a_record_leaves_out(show_messages):
    (text,) = show_messages("chatml", *DIALOG[:2], turns="everything")
    assert text == "«" + USER.format("U") + REPLY + "A<|im_end|>\n»"
    (text,) = show_messages("plain", *DIALOG[:2], turns="everything", append_eos="mask")
    assert text == "«UA<eos>»<eos>"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"eot": "mask"}, r"--eot \(sft.eot\): mask contradicts"),
        ({"roles": ("user",)}, "--turns everything trains all roles"),
        ({"samples": "turn"}, "turn trains one turn"),
    ],
)
def test_everything_and_settings_that_leave_something_out_contradict_each_other(settings, words):
    with pytest.raises(UsageError, match=words):
        mask_rule(SftSettings(turns="everything", **settings))
