from __future__ import annotations

import pytest

from tokmill.chat.conversation import ChatError
from tokmill.chat.media import check_media


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
