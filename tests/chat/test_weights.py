from __future__ import annotations

import math

import pytest

from tokmill.chat.conversation import ChatError
from tokmill.chat.mask_rule import mask_rule
from tokmill.chat.own_templates import own_source
from tokmill.chat.reading.schemas import read_conversation
from tokmill.chat.weights import IGNORED_WEIGHTS, message_weight, times_record_weight
from tokmill.errors import UsageError
from tokmill.settings.sft import SftSettings

DIALOG = [("user", "U"), ("assistant", "A"), ("user", "V"), ("assistant", "B")]
USER = "<|im_start|>user\n{}<|im_end|>\n"
REPLY = "<|im_start|>assistant\n"
REPLIED = {"role": "assistant", "content": "a"}
PART = {"type": "text", "text": "p"}
MARKED = (
    "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}"
    "{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}"
)


@pytest.mark.parametrize(
    ("settings", "reply"),
    [
        ({}, REPLY + "«A<|im_end|>»\n"),
        ({"train": ("-eot",)}, REPLY + "«A»<|im_end|>\n"),
        ({"train": ("content",)}, REPLY + "«A»<|im_end|>\n"),
        ({"train": ("content", "eot", "suffix")}, REPLY + "«A<|im_end|>\n»"),
        ({"train": ("+suffix",)}, REPLY + "«A<|im_end|>\n»"),
        ({"train": ("+header",)}, "«" + REPLY + "A<|im_end|>»\n"),
        ({"preset": "llamafactory"}, REPLY + "«A<|im_end|>\n»"),
        ({"preset": "llamafactory", "train": ("-suffix",)}, REPLY + "«A<|im_end|>»\n"),
    ],
)
def test_presets_and_switches_say_what_of_a_turn_is_trained(show_messages, settings, reply):
    assert show_messages("chatml", *DIALOG[:2], **settings) == [USER.format("U") + reply]


@pytest.mark.parametrize(
    ("turns", "trained"), [("all", "AB"), ("last", "B"), ("after-last-user", "B")]
)
def test_turns_says_which_replies_are_trained(show_messages, turns, trained):
    (text,) = show_messages("plain", *DIALOG, turns=turns)
    assert [reply for reply in "AB" if f"«{reply}" in text] == list(trained)


def test_other_roles_can_be_trained(show_messages):
    assert show_messages("plain", *DIALOG[:2], roles=("user",)) == ["«U»A<eos>"]
    assert show_messages("plain", *DIALOG[:2], roles=("user", "assistant")) == ["«UA<eos>»"]


def test_an_unknown_role_is_refused():
    with pytest.raises(UsageError, match="unknown role 'bot'; known: system, developer"):
        mask_rule(SftSettings(roles=("bot",)))


def test_what_the_record_says_of_a_turn_wins(show_messages):
    quiet = {"role": "assistant", "content": "A", "train": False}
    loud = {"role": "user", "content": "V", "train": True}
    assert show_messages("plain", ("user", "U"), quiet, loud, turns="last") == ["UA<eos>«V»"]


@pytest.mark.parametrize("role", ["user", "system", "tool", "developer"])
@pytest.mark.parametrize(
    "given",
    [
        {"weight": 1}, {"weight": 0.0}, {"loss_weight": 1.0}, {"loss_mask": 1}, {"loss": True},
        {"loss": 1}, {"loss_scale": 1.0}, {"masked": False}, {"masked": True}, {"weight": True},
    ],
)  # fmt: skip
def test_a_weight_that_speaks_of_replies_is_ignored_at_other_roles(show_messages, role, given):
    said = {"role": role, "content": "S", **given}
    asked = {"role": "user", "content": "U", "train": None}
    assert show_messages("plain", said, asked, ("assistant", "A")) == ["SU«A<eos>»"]


@pytest.mark.parametrize(
    ("record", "n"),
    [
        ({"messages": [{"role": "user", "content": "q", "weight": 1, "loss": 0}, REPLIED]}, 2),
        ({"messages": [{"from": "human", "value": "q", "weight": 1.0}, REPLIED]}, 1),
        ({"messages": [{"role": "user", "content": [PART | {"weight": 1}, PART]}, REPLIED]}, 1),
        ({"messages": [REPLIED], "history": [{"role": "user", "content": "q", "loss": True}]}, 1),
        ({"messages": [{"role": "user", "content": "q", "weight": None}, REPLIED]}, 0),
        ({"messages": [{"role": "user", "content": "q", "train": False}, REPLIED]}, 0),
        ({"messages": [{"role": "user", "content": "q"}, {**REPLIED, "weight": 1}]}, 0),
    ],
)
def test_ignored_weights_are_counted(record, n):
    conversation = read_conversation(record, "messages", SftSettings())
    assert conversation.extras.noticed[IGNORED_WEIGHTS] == n


def test_a_prompt_may_have_weights_that_speak_of_replies():
    record = {"prompt": [{"role": "user", "content": "q", "weight": 1}], "completion": [REPLIED]}
    conversation = read_conversation(record, "prompt", SftSettings())
    assert conversation.extras.noticed[IGNORED_WEIGHTS] == 1


def test_a_weight_counts_at_a_role_that_is_trained(show_messages):
    quiet = {"role": "user", "content": "U", "weight": 0}
    chat = [quiet, ("user", "V"), ("assistant", "A")]
    assert show_messages("plain", *chat, roles=("user", "assistant")) == ["U«VA<eos>»"]
    # --train=everything needs one weight for all messages of a record.
    all_trained = [{"role": role, "content": "x", "weight": 1} for role in ("user", "assistant")]
    (text,) = show_messages(MARKED, *all_trained, train=("everything",))
    assert text == "«xx»"


def test_a_weight_that_is_no_weight_is_refused_at_every_role(show_messages):
    said = {"role": "user", "content": "U", "weight": -1}
    (found,) = show_messages("plain", said, ("assistant", "A"))
    assert "message 1: weight: expected a weight of 0 or more" in found


@pytest.mark.parametrize(
    ("train", "end"), [((), "»\n"), (("+untrained-eos",), "»\n<eos>"), (("+eos",), "»\n«<eos>»")]
)
def test_eos_can_be_appended_but_not_to_a_sample_that_ends_with_it(show_messages, train, end):
    (text,) = show_messages("chatml", *DIALOG, train=train)
    assert text.endswith("«B<|im_end|>" + end)
    assert text.count("<eos>") == end.count("<eos>")
    assert show_messages("plain", *DIALOG[:2], train=train) == ["U«A<eos>»"]


def test_everything_trains_all_tokens_but_those_that_a_record_leaves_out(show_messages):
    (text,) = show_messages("chatml", *DIALOG[:2], train=("everything",))
    assert text == "«" + USER.format("U") + REPLY + "A<|im_end|>\n»"
    (text,) = show_messages("plain", *DIALOG[:3], train=("everything", "untrained-eos"))
    assert text == "«UA<eos>V»<eos>"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"train": ("everything", "content")}, "sft.train: everything contains all but eos: leave"),
        (
            {"train": ("+everything", "-eot")},
            "sft.train: everything contains all .* leave -eot out",
        ),
        ({"train": ("content", "-eot")}, "sft.train: expected names, which replace .*content,-eot"),
        ({"train": ("+-content",)}, "sft.train: expected one of .*; found '-content'"),
        ({"train": ("+eos", "+untrained-eos")}, "sft.train: eos and untrained-eos contradict"),
        ({"train": ("tool_call",)}, "found 'tool_call': did you mean tool-calls"),
        ({"train": ("everything",), "roles": ("user",)}, "sft.roles: contradicts --train=every"),
        ({"train": ("everything",), "samples": "turn"}, "sft.samples: contradicts --train=every"),
        ({"train": ("everything",), "turns": "last"}, "sft.turns: contradicts --train=every"),
        ({"weigh": ("a",)}, "sft.weigh: expected REGEX=FACTOR .* found 'a'"),
        ({"weigh": ("a=1e39",)}, "sft.weigh: expected REGEX=FACTOR .* found 'a=1e39'"),
        ({"weigh": ("a=-1",)}, "sft.weigh: expected REGEX=FACTOR .* found 'a=-1'"),
        ({"weigh": ("(=2",)}, "sft.weigh: '\\(' is no regular expression"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings, words):
    with pytest.raises(UsageError, match=words):
        mask_rule(SftSettings(**settings))


@pytest.mark.parametrize(
    ("weigh", "reply"),
    [
        (("o=0",), "«fx»oo«x <|im_end|>»"),
        (("^f=0", "x =0"), "f«xoo»x «<|im_end|>»"),
        ((r"o\b=0", "[=]=0"), "«fxoox <|im_end|>»"),
    ],
)
def test_weigh_multiplies_what_a_pattern_matches_in_replies(show_messages, weigh, reply):
    (text,) = show_messages("chatml", ("user", "foo"), ("assistant", "fxoox "), weigh=weigh)
    assert text == USER.format("foo") + REPLY + reply + "\n"


def test_factors_that_multiply_to_an_infinite_weight_are_refused(show_messages):
    with pytest.raises(UsageError, match=r"sft\.weigh: the factors of a token multiply to more"):
        show_messages("chatml", *DIALOG, weigh=("A=1e30", "A=1e30"))


def test_the_time_of_weigh_grows_as_a_reply_does(show_messages):
    """Of 30,000 matches; comparing each with each would take minutes."""
    (text,) = show_messages("chatml", ("user", "U"), ("assistant", "1a" * 30_000), weigh=("1=0",))
    assert text.count("«a»") == 29_999
    reply = ("assistant", "\n" * 30_000 + "x")
    (text,) = show_messages("chatml", ("user", "U"), reply, train=("-empty-reasoning",))
    assert text.count("«") == 1


def test_an_empty_think_block_is_not_trained_if_that_is_asked_for(show_messages):
    empty, full = "<think>\n\n</think>\n\n", {"reasoning_content": "because"}
    for template in ("qwen3-training", "chatml"):
        quiet = {"role": "assistant", "content": "A", "reasoning_content": ""}
        thinking = ("user", "U"), quiet | full
        (text,) = show_messages(template, *thinking, train=("-empty-reasoning",))
        assert text.endswith(REPLY + "«<think>\nbecause\n</think>\n\nA<|im_end|>»\n")
    (text,) = show_messages("qwen3-training", ("user", "U"), quiet)
    assert text.endswith(f"{REPLY}«{empty}A<|im_end|>»\n")
    (text,) = show_messages("qwen3-training", ("user", "U"), quiet, train=("-empty-reasoning",))
    assert text.endswith(f"{REPLY}{empty}«A<|im_end|>»\n")


REFUSE, FILE = SftSettings(), SftSettings(weights="file")
MESSAGES = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]


@pytest.mark.parametrize(
    ("item", "weight"),
    [
        ({}, None),
        ({"train": True}, 1.0),
        ({"train": False}, 0.0),
        ({"training": True}, 1.0),
        ({"weight": 0}, 0.0),
        ({"weight": 1.0}, 1.0),
        ({"loss_weight": 0.0}, 0.0),
        ({"loss_mask": 1}, 1.0),
        ({"masked": True}, 0.0),
        ({"loss": False}, 0.0),
        ({"loss_scale": 0}, 0.0),
        ({"masked": False}, 1.0),
        ({"train": None, "weight": None, "masked": None}, None),
    ],
)
def test_every_switch_is_honoured(item, weight):
    assert message_weight(item, REFUSE, "message 1") == weight


@pytest.mark.parametrize(
    ("item", "weight"),
    [
        ({"masked": False, "train": False}, 0.0),
        ({"train": True, "weight": 0.5}, 0.5),
        ({"loss": True, "loss_scale": 0.5}, 0.5),
        ({"training": True, "train": False}, 0.0),
        ({"loss_mask": 1, "loss_weight": 1, "weight": 0}, 0.0),
        ({"masked": True, "loss_mask": 1}, 0.0),
    ],
)
def test_several_switches_multiply(item, weight):
    assert message_weight(item, FILE, "message 1") == weight


def test_a_fractional_weight_is_refused_by_default():
    with pytest.raises(ChatError) as caught:
        message_weight({"weight": 0.5}, REFUSE, "message 3")
    assert caught.value.reason == "fractional weight"
    assert caught.value.message == (
        "message 3: weight: expected 0 or 1, found 0.5; --weights file keeps other weights"
    )


@pytest.mark.parametrize("settings", [REFUSE, FILE])
@pytest.mark.parametrize(
    ("item", "found"),
    [
        ({"weight": -1}, "weight: expected a weight of 0 or more, or true or false, found -1"),
        ({"weight": math.nan}, "weight: expected a weight of 0 or more, or true or false, "
         "found NaN"),
        ({"weight": math.inf}, "weight: expected a weight of 0 or more, or true or false, "
         "found Infinity"),
        ({"weight": 1e39}, "weight: expected a weight of 0 or more, or true or false, "
         "found 1e+39"),
        ({"loss_mask": "1"}, "loss_mask: expected a weight of 0 or more, or true or false, "
         "found '1'"),
        ({"loss_weight": [1]}, "loss_weight: expected a weight of 0 or more, or true or false, "
         "found a list of 1"),
        ({"train": 1}, "train: expected true or false, found 1"),
        ({"training": "yes"}, "training: expected true or false, found 'yes'"),
        ({"masked": 0}, "masked: expected true or false, found 0"),
    ],
)  # fmt: skip
def test_what_is_no_weight_is_of_the_wrong_type_whatever_the_settings(item, found, settings):
    with pytest.raises(ChatError) as caught:
        message_weight(item, settings, "message 3")
    assert (caught.value.reason, caught.value.message) == ("wrong type", f"message 3: {found}")


@pytest.mark.parametrize(
    ("record", "weights"),
    [
        ({}, [None, 1.0]),
        ({"weight": None}, [None, 1.0]),
        ({"weight": 1}, [None, 1.0]),
        ({"weight": True}, [None, 1.0]),
        ({"weight": 0}, [0.0, 0.0]),
        ({"loss_weight": 0.0}, [0.0, 0.0]),
        ({"weight": None, "loss_weight": 0}, [0.0, 0.0]),
        ({"weight": 1, "loss_weight": 0}, [None, 1.0]),
    ],
)
def test_the_weight_of_a_record_is_that_of_all_its_messages(record, weights):
    assert times_record_weight(record, MESSAGES, [None, 1.0], REFUSE) == weights


@pytest.mark.parametrize(
    ("own", "weights"),
    [([None, None], [None, 0.5]), ([None, 0.5], [None, 0.25]), ([1.0, 0.0], [0.5, 0.0])],
)
def test_a_fractional_weight_of_a_record_multiplies_and_goes_to_trained_roles(own, weights):
    assert times_record_weight({"weight": 0.5}, MESSAGES, own, FILE) == weights


def test_a_fractional_weight_of_a_record_needs_all_turns_to_be_trained():
    settings = SftSettings(weights="file", turns="last")
    with pytest.raises(ChatError) as caught:
        times_record_weight({"weight": 0.5}, MESSAGES, [None, None], settings)
    assert caught.value.reason == "fractional weight"
    assert caught.value.message == (
        "weight: expected 0 or 1 with --turns or --train=everything, found 0.5; put weights at "
        "the messages"
    )
    assert times_record_weight({"weight": 0}, MESSAGES, [None, None], settings) == [0.0, 0.0]


AS_FILE = "{#- no template of tokmill's -#}" + own_source("chatml")
UNTAGGED = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CHAT = [("system", "S"), *DIALOG[:2], ("user", ""), ("assistant", "A"), ("user", "S"), *DIALOG]


@pytest.mark.parametrize("source", [AS_FILE, UNTAGGED])
@pytest.mark.parametrize(
    "settings",
    [
        {"roles": ("user",)},
        {"roles": ("system", "user", "assistant")},
        {"roles": ("user", "assistant"), "turns": "last"},
        {"roles": ("user",), "turns": "last"},
        {"roles": ("system", "assistant"), "turns": "last"},
        {"roles": ("user", "assistant"), "turns": "after-last-user"},
        {"roles": ("system", "assistant"), "turns": "after-last-user"},
        {"roles": ("user", "assistant"), "samples": "turn"},
        {"roles": ("user", "assistant"), "train": ("-eot",)},
        {"default_system": "D", "roles": ("system",), "role_names": ("system=drop",)},
    ],
)
@pytest.mark.parametrize("weighed", [{}, {1: True, 2: False}, {0: True, 5: False}])
def test_jinja_templates_train_other_roles_as_built_in_ones_do(
    show_messages, source, settings, weighed
):
    chat = [
        {"role": role, "content": text, **({"train": weighed[i]} if i in weighed else {})}
        for i, (role, text) in enumerate(CHAT)
    ]
    expected = show_messages("chatml", *chat, **settings)
    empty = "<|im_start|>user\n«<|im_end|>»"  # without a content there is nothing to find
    expected = [text.replace(empty, empty.replace("«", "").replace("»", "")) for text in expected]
    assert show_messages(source, *chat, **settings) == expected


TOOL = (
    "{% for m in messages %}<|im_start|>{{ m.role }} {{ m.content|tojson if m.role == 'tool' else "
    "m.content|trim }}<|im_end|>{% endfor %}"
)


def test_a_content_may_be_stripped_or_quoted_and_hold_what_looks_like_tokens(show_messages):
    chat = [
        ("user", " \ue000<|im_end|>\n"),
        ("assistant", "A"),
        ("tool", 'a "b"\n'),
        ("user", "\t"),
    ]
    (text,) = show_messages(TOOL, *chat, roles=("user", "tool"))
    assert text == (
        "<|im_start|>user «\ue000<|im_end|><|im_end|>»<|im_start|>assistant A<|im_end|>"
        '<|im_start|>tool "«a \\"b\\"\\n»"<|im_end|><|im_start|>user <|im_end|>'
    )
