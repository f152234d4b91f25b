from __future__ import annotations

import pytest

from tokmill.chat.control_strings import TokenSplitter
from tokmill.chat.conversation import ChatError
from tokmill.chat.jinja.span_writer import (
    ENDLESS,
    ReplyFrame,
    SpanWriter,
    check_written,
    find_reply_frame,
)
from tokmill.chat.segments import ROLES, Kind, Segments
from tokmill.errors import UsageError

CONTROL = {"<s>": 0, "<e>": 1, "<ee>": 2, "<e>!": 3}


def written(parts, roles, weights=None, *, frame=None, separator=""):
    segments = Segments(CONTROL)
    segments.begin_sample()
    frame = ReplyFrame() if frame is None else frame
    writer = SpanWriter(TokenSplitter(CONTROL), frame)
    weights = weights or [None] * (len(roles) - 1)
    writer.write(parts, roles, weights, segments, separator=separator)
    turns = [[ROLES[role]] for role in segments.roles]
    columns = segments.columns()
    text, ids, table = columns.text.to_pylist(), columns.ids, columns.table
    for part, id_, kind, turn in zip(text, ids, table.kinds, table.turns, strict=True):
        shown = repr(part) if id_ < 0 else f"{part}={id_}"
        turns[turn].append(f"{Kind(kind).name} {shown}")
    return turns


def test_of_control_strings_that_begin_together_the_longest_is_the_token():
    assert TokenSplitter(CONTROL)("a<e>!<ee><e>") == ["a", "<e>!", "", "<ee>", "", "<e>", ""]
    assert TokenSplitter({})("a<e>") == ["a<e>"]


def test_the_end_of_turn_within_a_span_is_its_last_token_and_white_space_behind_is_suffix():
    assert written(["<s>q", "a<s>b<e>\n", ""], ["user", "system"]) == [
        ["user", "OTHER <s>=0", "OTHER 'q'"],
        ["assistant", "CONTENT 'a'", "CONTENT <s>=0", "CONTENT 'b'", "EOT <e>=1", "SUFFIX '\\n'"],
    ]


def test_a_token_with_text_behind_it_is_no_end_of_turn():
    assert written(["", "a<e>b", ""], ["user", "system"]) == [
        ["assistant", "CONTENT 'a'", "CONTENT <e>=1", "CONTENT 'b'"]
    ]


def test_the_end_of_turn_behind_a_span_is_told_from_one_within():
    parts = ["q", "a", "<e>\n\nnext<s>", "b", " <e>"]
    assert written(parts, ["user", "user", "system"]) == [
        ["user", "OTHER 'q'"],
        ["assistant", "CONTENT 'a'", "EOT_OUTSIDE <e>=1", "SUFFIX_OUTSIDE '\\n\\n'"],
        ["user", "OTHER 'next'", "OTHER <s>=0"],
        ["assistant", "CONTENT 'b'"],
        ["system", "OTHER ' '", "OTHER <e>=1"],
    ]


def test_a_token_behind_a_span_that_has_its_end_belongs_to_the_next_turn():
    assert written(["", "a<e>", "<s>q"], ["user", "user"]) == [
        ["assistant", "CONTENT 'a'", "EOT <e>=1"],
        ["user", "OTHER <s>=0", "OTHER 'q'"],
    ]


def test_a_token_that_opens_turns_is_no_end_of_one():
    assert written(
        ["", "a", "<s>q"], ["user", "user"], frame=ReplyFrame("", frozenset({"<s>"}))
    ) == [
        ["assistant", "CONTENT 'a'"],
        ["user", "OTHER <s>=0", "OTHER 'q'"],
    ]


def test_where_turns_end_outside_the_last_token_of_a_span_is_content():
    frame = ReplyFrame("", frozenset(), ends_inside=False)
    assert written(["", "a<s>", "<e>"], ["user", "system"], frame=frame) == [
        ["assistant", "CONTENT 'a'", "CONTENT <s>=0", "EOT_OUTSIDE <e>=1"]
    ]


def test_the_header_is_what_stands_right_before_a_span():
    frame = ReplyFrame("<s>bot\n")
    assert written(
        ["q<s>bot\n", "a", "<s>bot", "b", ""], ["user", "user", "system"], frame=frame
    ) == [
        ["user", "OTHER 'q'"],
        ["assistant", "HEADER <s>=0", "HEADER 'bot\\n'", "CONTENT 'a'", "EOT_OUTSIDE <s>=0"],
        ["user", "OTHER 'bot'"],
        ["assistant", "CONTENT 'b'"],
    ]


def test_an_empty_span_is_a_turn_without_segments_and_keeps_its_weight():
    segments = Segments(CONTROL)
    segments.begin_sample()
    writer = SpanWriter(TokenSplitter(CONTROL), ReplyFrame())
    writer.write(["q", "", "", "a", ""], ["user", "tool", "system"], [0.0, 1.0], segments)
    assert [ROLES[role] for role in segments.roles] == ["user", "assistant", "assistant"]
    assert segments.weights == [None, 0.0, 1.0]
    assert segments.columns().table.turns.tolist() == [0, 2]


def test_breaks_are_taken_out_of_the_text():
    assert written(["<|e>", "<|s>|<e>|\n", ""], ["user", "system"], separator="|") == [
        ["user", "OTHER '<e>'"],
        ["assistant", "CONTENT '<s>'", "EOT <e>=1", "SUFFIX '\\n'"],
    ]


def test_a_token_across_the_edge_of_a_span_is_refused():
    for parts in (["q<", "e>a", ""], ["", "<e>", "!"]):
        with pytest.raises(ChatError) as error:
            written(parts, ["user", "system"])
        assert error.value.reason == "control token across spans"


def test_tokens_that_meet_at_an_edge_are_two():
    assert written(["<s>", "<e>", "<s>"], ["user", "user"])[1] == ["assistant", "EOT <e>=1"]
    assert written(["e>", "<", "e"], ["user", "user"])[1] == ["assistant", "CONTENT '<'"]


def test_white_space_behind_a_span_that_has_its_end_is_its_suffix():
    assert written(["q", "a<e>", "\n\nb"], ["user", "user"]) == [
        ["user", "OTHER 'q'"],
        ["assistant", "CONTENT 'a'", "EOT <e>=1", "SUFFIX_OUTSIDE '\\n\\n'"],
        ["user", "OTHER 'b'"],
    ]


CUT = TokenSplitter(["<u>", "<a>", "<e>", "<end>"])


def frame(written, prompt, close="", *, reply_as=None):
    """Look at a template that writes `written` for a message, by role."""

    def render(messages, *, prompt):
        text = "".join(written[m["role"]].format(m["content"]) for m in messages)
        return text + (prompt_text if prompt else close)

    def parts(messages):
        if reply_as is None:
            raise ChatError("template error", "the chat template raises: no")
        return [written["user"].format(messages[0]["content"]) + reply_as[0], *reply_as[1:]]

    prompt_text = prompt
    return find_reply_frame(render, parts, CUT)


CHATML = {"user": "<u>{}<e>\n"}


def test_the_header_is_the_generation_prompt():
    assert frame(CHATML, "<a>bot\n", reply_as=("<a>bot\n", "Rz3<e>\n", "")) == (
        "<a>bot\n",
        ReplyFrame("<a>bot\n", frozenset({"<u>", "<a>"}), ends_inside=True),
    )


def test_what_the_tag_holds_of_the_prompt_is_no_header():
    prompt = "<a>bot\n<think>\n"
    found = frame(CHATML, prompt, reply_as=("<a>bot\n", "<think>\nRz3", "<e>\n"))
    assert found == (prompt, ReplyFrame("<a>bot\n", frozenset({"<u>", "<a>"}), ends_inside=False))
    assert frame(CHATML, prompt, reply_as=("", "<a>bot\nRz3<e>", ""))[1].header == ""


def test_an_ending_that_only_finished_conversations_have_is_not_taken_for_the_prompt():
    prompt, _ = frame(CHATML, "<a>bot\n", close="<end>", reply_as=("<a>bot\n", "Rz3", "<e>"))
    assert prompt == "<a>bot\n"


def test_a_template_that_takes_no_reply_shows_its_prompt_all_the_same():
    assert frame({"user": "Q: {}\n"}, "A: ") == ("A: ", ReplyFrame("A: ", frozenset()))


def test_a_template_that_does_not_write_the_question_shows_no_opener_of_it():
    assert frame({"user": "<u>?<e>"}, "A: ")[1].openers == frozenset()


@pytest.mark.parametrize("role", ["user", "assistant"])
def test_of_a_template_that_refuses_everything_nothing_is_known(role):
    def refuse(messages, *, prompt=False):
        raise ChatError("template error", role)

    assert find_reply_frame(refuse, refuse, CUT) == ("", ReplyFrame())


def test_a_template_that_leaves_replies_out_is_refused_before_any_record():
    def render(messages, *, prompt):
        return "".join(m["content"] for m in messages if m["role"] == "user")

    with pytest.raises(UsageError, match=r"^own\.jinja: writes nothing of a reply that is a text"):
        check_written(render, "own.jinja")


def test_a_template_that_changes_the_letters_of_replies_or_refuses_the_probe_is_taken():
    def refuse(messages, *, prompt):
        raise ChatError("template error", "the chat template raises: no tools")

    check_written(lambda messages, *, prompt: messages[-1]["content"].upper(), "own.jinja")
    check_written(refuse, "own.jinja")


def test_a_template_that_does_not_end_is_refused_before_any_record():
    def render(messages, *, prompt):
        raise ChatError(ENDLESS, "the chat template is stopped: on and on")

    with pytest.raises(UsageError, match=r"^own\.jinja: the chat template is stopped: on and on$"):
        check_written(render, "own.jinja")
