from __future__ import annotations

import pytest

from tokmill.chat.conversation import ChatError
from tokmill.chat.jinja.spans import (
    check_unchanged,
    keep_last_span,
    spans_by_prefix,
    split_at_marks,
)

CHAT = ["u:hi|", "a:yo|", "u:well|", "a:bye|"]


def plain(n_messages, *, prompt):
    return "".join(CHAT[:n_messages]) + ("a:" if prompt else "")


def spans(render, replies=(1, 3), n_messages=4):
    whole = render(n_messages, prompt=False)
    found = spans_by_prefix(whole, render, replies, n_messages)
    return [whole[start:stop] for start, stop in found]


def test_a_span_is_what_a_reply_adds_to_its_prompt():
    assert spans(plain) == ["yo|", "bye|"]


def test_only_the_replies_asked_for_are_found():
    assert spans(plain, replies=(3,)) == ["bye|"]
    assert spans(plain, replies=()) == []


def test_equal_replies_have_spans_of_their_own():
    assert spans_by_prefix(
        "a:x|a:x|", lambda n, *, prompt: "a:x|" * n + "a:" * prompt, (0, 1), 2
    ) == [
        (2, 4),
        (6, 8),
    ]


def test_the_last_reply_costs_no_rendering_of_its_own():
    calls = []

    def render(n_messages, *, prompt):
        calls.append((n_messages, prompt))
        return plain(n_messages, prompt=prompt)

    spans(render)
    assert calls == [(4, False), (1, True), (2, False), (3, True)]


def test_an_empty_reply_has_an_empty_span():
    assert spans(
        lambda n, *, prompt: "u:" + "a:" * (prompt or n == 2), replies=(1,), n_messages=2
    ) == [""]


def test_a_template_that_drops_old_reasoning_is_refused_with_the_message():
    def render(n_messages, *, prompt):
        drops = n_messages > 2
        return plain(n_messages, prompt=prompt).replace("a:yo", "a:yo" if drops else "a:(hm)yo")

    with pytest.raises(ChatError, match=r"^message 2: this turn renders diff") as error:
        spans(render)
    assert error.value.reason == "template rewrites earlier turns"
    assert error.value.message.endswith("or one sample per turn (--samples turn)")


def test_a_template_that_changes_what_stands_before_a_reply_is_refused():
    def render(n_messages, *, prompt):
        return f"{n_messages} messages: " + plain(n_messages, prompt=prompt)

    with pytest.raises(ChatError, match=r"^message 2: earlier turns render differently") as error:
        spans(render)
    assert error.value.reason == "template rewrites earlier turns"
    assert error.value.message.endswith(": use a template with generation tags")


def test_a_prompt_that_thinks_where_the_rendering_does_not_is_refused():
    def render(n_messages, *, prompt):
        return plain(n_messages, prompt=prompt) + ("<think>" if prompt else "")

    with pytest.raises(
        ChatError, match=r"^message 2: the template's generation prompt is not"
    ) as error:
        spans(render)
    assert error.value.reason == "generation prompt differs"
    assert error.value.message.endswith(": use a template with generation tags")


def test_a_sample_per_turn_is_advised_where_it_helps_against_a_prompt_of_its_own():
    def render(n_messages, *, prompt):
        thinks = prompt or n_messages == 2  # before the last reply alone
        return plain(n_messages, prompt=prompt).replace("a:", "a:()" if thinks else "a:")

    with pytest.raises(ChatError) as error:
        spans(render)
    assert error.value.reason == "generation prompt differs"
    assert error.value.message.endswith("or one sample per turn (--samples turn)")
    assert spans(render, replies=(1,), n_messages=2) == ["yo|"]


def test_a_template_that_refuses_shorter_chats_is_still_told_why_this_one_fails():
    def render(n_messages, *, prompt):
        if n_messages == 2:
            raise ChatError("template error", "the chat template raises: too short")
        return plain(n_messages, prompt=prompt) + ("<think>" if prompt else "")

    with pytest.raises(ChatError) as error:
        spans(render)
    assert error.value.reason == "generation prompt differs"


def test_a_template_that_leaves_a_reply_out_is_refused():
    def render(n_messages, *, prompt):
        return "u:" if n_messages < 3 and not prompt else "u:a:"

    with pytest.raises(ChatError, match=r"^message 2: the template writes nothing") as error:
        spans(render, replies=(1,), n_messages=3)
    assert error.value.reason == "template drops a turn"
    assert "--samples" not in error.value.message


def test_a_reply_that_is_first_where_the_template_reads_what_is_before_it_says_what_is_lacking():
    def render(n_messages, *, prompt):
        if not n_messages:
            raise ChatError("template error", "the chat template raises: no element 0")
        return plain(n_messages, prompt=prompt)

    with pytest.raises(ChatError) as error:
        spans(render, replies=(0, 1))
    assert error.value.reason == "nothing before the reply"
    assert error.value.message == (
        "message 1 is the assistant's, and this template cannot ask for a reply without a message "
        "before it (the chat template raises: no element 0): put a user message first, or choose a "
        "template that takes such records, such as --template chatml"
    )


MARKS = ("[", "]", "|")


@pytest.mark.parametrize(
    ("text", "n_replies", "parts"),
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
    text, n_replies, parts
):
    assert split_at_marks(text, MARKS, n_replies) == parts


@pytest.mark.parametrize("text", ["[a[b]c]", "]a[", "a[b", "a[b]]", "[a]b]"])
def test_marks_that_are_no_pairs_are_refused(text):
    with pytest.raises(ChatError, match="generation tags of the template stand within") as error:
        split_at_marks(text, MARKS, 1)
    assert error.value.reason == "template changes spans"


def test_regions_that_are_not_the_rendering_without_marks_are_refused():
    check_unchanged(["a", " b ", "c"], "a b c")
    with pytest.raises(ChatError, match="put the tags around what is written in the end"):
        check_unchanged(["a", " b ", "c"], "abc")


def test_the_last_span_is_kept_alone_if_it_is_that_of_the_last_reply():
    assert keep_last_span(["a", "b", "c", "d", "e"], 2) == ["abc", "d", "e"]
    assert keep_last_span(["a"], 0) == ["a"]
    with pytest.raises(ChatError, match="1 generation blocks for 2 assistant messages"):
        keep_last_span(["a", "b", "c"], 2)
