from __future__ import annotations

import pytest

from tokmill.chat.conversation import ChatError
from tokmill.chat.reading.unsuitable import check_media, has_other_labels, preference

LABELS = (
    1.0, 0.0, "1.0", True, "True", "good", "Bad", "desirable", "undesirable", "thumbs_up",
    "thumbs-down", "Thumbs Up", "rejected",
)  # fmt: skip


@pytest.mark.parametrize("label", LABELS)
def test_labels_of_good_and_bad_answers_are_preference_data_in_any_spelling(label):
    said = preference({"prompt": "p", "completion": "c", "label": label}, "prompt")
    assert said.startswith("preference data, found label of good and bad answers (KTO)")
    assert said.endswith("or train all with --ignore-keys label")


@pytest.mark.parametrize("label", [2, 0.5, "billing", "positive", "", None, ["good"]])
def test_another_label_is_none(label):
    assert preference({"prompt": "p", "completion": "c", "label": label}, "prompt") == ""


def test_a_class_is_told_from_good_and_bad_by_the_other_records():
    assert has_other_labels([{"label": 0}, {"label": 1}, {"label": 7}])
    assert not has_other_labels([{"label": 0}, {"label": 1}, {"label": None}, {"label": ""}, {}])


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        ({"images": ["a.png"]}, "images"),
        ({"image": "a.png"}, "images"),
        ({"video": "v.mp4"}, "videos"),
        ({"audios": [{"bytes": ""}]}, "audios"),
    ],
)
def test_what_comes_with_an_image_is_refused_and_the_option_named(item, reason):
    (key,) = item
    with pytest.raises(ChatError, match=f"--ignore-keys {key} trains on the text") as caught:
        check_media(item, "record")
    assert caught.value.reason == reason


@pytest.mark.parametrize("item", [{}, {"images": []}, {"images": None, "image": ""}])
def test_no_image_is_none(item):
    check_media(item, "record")
