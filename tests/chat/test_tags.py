from __future__ import annotations

import pytest

from tokmill.chat.conversation import ChatError
from tokmill.chat.tags import check_unchanged, last_alone, regions_by_tags

MARKS = ("[", "]", "|")


@pytest.mark.parametrize(
    ("text", "n_replies", "regions"),
    [
        ("", 0, [""]),
        ("a", 0, ["a"]),
        ("a[b]c", 1, ["a", "b", "c"]),
        ("[]", 1, ["", "", ""]),
        ("a[b]c[d]", 2, ["a", "b", "c", "d", ""]),
        ("a[b][d]e", 2, ["a", "b", "", "d", "e"]),
        ("a[b][d]e", 1, ["a", "bd", "e"]),
        ("a[b]c[d][e]", 2, ["a", "b", "c", "de", ""]),
        ("a[b][d]e", 3, ["a", "b", "", "d", "e"]),
        ("a[b]c[d]e", 1, ["a", "b", "c", "d", "e"]),
    ],
)
def test_regions_alternate_and_spans_without_anything_between_join_if_that_fits(
    text, n_replies, regions
):
    assert regions_by_tags(text, MARKS, n_replies) == regions


@pytest.mark.parametrize("text", ["[a[b]c]", "]a[", "a[b", "a[b]]", "[a]b]"])
def test_marks_that_are_no_pairs_are_refused(text):
    with pytest.raises(ChatError, match="generation tags of the template stand within") as error:
        regions_by_tags(text, MARKS, 1)
    assert error.value.reason == "template changes spans"


def test_regions_that_are_not_the_rendering_without_marks_are_refused():
    check_unchanged(["a", " b ", "c"], "a b c")
    with pytest.raises(ChatError, match="put the tags around what is written in the end"):
        check_unchanged(["a", " b ", "c"], "abc")


def test_the_last_span_is_kept_alone_if_it_is_that_of_the_last_reply():
    assert last_alone(["a", "b", "c", "d", "e"], 2) == ["abc", "d", "e"]
    assert last_alone(["a"], 0) == ["a"]
    with pytest.raises(ChatError, match="1 generation blocks for 2 assistant messages"):
        last_alone(["a", "b", "c"], 2)
