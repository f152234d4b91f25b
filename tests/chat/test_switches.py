from __future__ import annotations

import math

import pytest

from tokmill.chat.conversation import ChatError
from tokmill.chat.switches import turn_weight, weigh_sample
from tokmill.settings.schema import SftSettings

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
        ({"weight": True}, 1.0),
        ({"loss_weight": 0.0}, 0.0),
        ({"loss_mask": 1}, 1.0),
        ({"loss_mask": False}, 0.0),
        ({"masked": True}, 0.0),
        ({"masked": False}, 1.0),
        ({"train": None, "weight": None, "masked": None}, None),
    ],
)
def test_every_switch_is_honoured(item, weight):
    assert turn_weight(item, REFUSE, "message 1") == weight


@pytest.mark.parametrize(
    ("item", "weight"),
    [
        ({"masked": False, "train": False}, 0.0),
        ({"weight": 0, "training": True}, 1.0),
        ({"training": True, "train": False}, 0.0),
        ({"train": None, "weight": 1}, 1.0),
        ({"loss_mask": 1, "loss_weight": 1, "weight": 0}, 0.0),
        ({"loss_mask": 0, "loss_weight": 1}, 1.0),
        ({"masked": True, "loss_mask": 1}, 1.0),
    ],
)
def test_of_several_switches_the_first_in_the_list_of_names_wins(item, weight):
    assert turn_weight(item, REFUSE, "message 1") == weight


def test_a_fractional_weight_is_refused_by_default():
    with pytest.raises(ChatError) as caught:
        turn_weight({"weight": 0.5}, REFUSE, "message 3")
    assert caught.value.reason == "fractional weight"
    assert caught.value.message == (
        "message 3: weight: expected 0 or 1, found 0.5; --weights file keeps other weights"
    )


@pytest.mark.parametrize("weight", [0.5, 2, 1e-9, 3.4e38])
def test_a_fractional_weight_is_kept_where_the_settings_say_so(weight):
    assert turn_weight({"loss_weight": weight}, FILE, "message 3") == weight


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
        turn_weight(item, settings, "message 3")
    assert (caught.value.reason, caught.value.message) == ("wrong type", f"message 3: {found}")


def test_an_integer_too_large_for_a_float_is_no_weight():
    with pytest.raises(ChatError, match="expected a weight of 0 or more"):
        turn_weight({"weight": 10**400}, FILE, "message 3")


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
    assert weigh_sample(record, MESSAGES, [None, 1.0], REFUSE) == weights


@pytest.mark.parametrize(
    ("own", "weights"),
    [
        ([None, None], [None, 0.5]),
        ([None, 0.5], [None, 0.25]),
        ([1.0, 0.0], [0.5, 0.0]),
    ],
)
def test_a_fractional_weight_of_a_record_multiplies_and_goes_to_trained_roles(own, weights):
    assert weigh_sample({"weight": 0.5}, MESSAGES, own, FILE) == weights


def test_a_fractional_weight_of_a_record_needs_all_turns_to_be_trained():
    settings = SftSettings(weights="file", turns="last")
    with pytest.raises(ChatError) as caught:
        weigh_sample({"weight": 0.5}, MESSAGES, [None, None], settings)
    assert caught.value.reason == "fractional weight"
    assert caught.value.message == (
        "weight: expected 0 or 1 with turns = last, found 0.5; put weights at the messages"
    )
    assert weigh_sample({"weight": 0}, MESSAGES, [None, None], settings) == [0.0, 0.0]


def test_weights_that_overflow_when_multiplied_are_refused():
    with pytest.raises(ChatError, match=r"^weight of a message times that of its record: expected"):
        weigh_sample({"weight": 1e38}, MESSAGES, [None, 1e38], FILE)


def test_a_fractional_weight_of_a_record_is_refused_by_default():
    with pytest.raises(ChatError, match=r"^weight: expected 0 or 1, found 0\.5"):
        weigh_sample({"weight": 0.5}, MESSAGES, [None, None], REFUSE)
