from __future__ import annotations

import pytest

from tokmill.text_shape import is_text


@pytest.mark.parametrize(
    "value",
    [
        "https://en.wikipedia.org/wiki/Cat", "https://zh.wikipedia.org/wiki/猫", "a/b/c.py",
        "a.png", "12", "-3.5", "Q42", "enwiki-12", "<urn:uuid:12f0-a>", "2019-04-25T12:57:54Z",
        "2019-04-25 12:57:54", "25 April 2019", "Thu, 25 Apr 2019 12:57:54 GMT", "2019年4月25日",
        "0f" * 32, "aGVsbG8gd29ybGQ=" * 99, "en", "", "CC-BY-SA-4.0", "a@b.c",
        '{"extraction_info": {"found math": true}}', "[1, 2, 3]",
    ],
)  # fmt: skip
def test_labels_of_a_record_are_no_text(value):
    assert not is_text(value)


@pytest.mark.parametrize(
    "value",
    ["Paris", "猫", "def f(x): return x", "hello world", "习近平", "in 2019 we met", "[see below]",
     "{not json}", "\ud800 alone"],
)  # fmt: skip
def test_words_are_text(value):
    assert is_text(value)
