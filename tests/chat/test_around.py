from __future__ import annotations

import pytest

from tokmill.chat.around import ENDLESS, check_written, look_around
from tokmill.chat.conversation import ChatError
from tokmill.chat.regions import Around, Cutter
from tokmill.errors import UsageError

CUT = Cutter(["<u>", "<a>", "<e>", "<end>"])


def around(written, prompt, close="", *, reply_as=None):
    """Look at a template that writes `written` for a message, by role."""

    def render(messages, *, prompt):
        text = "".join(written[m["role"]].format(m["content"]) for m in messages)
        return text + (prompt_text if prompt else close)

    def regions(messages):
        if reply_as is None:
            raise ChatError("template error", "the chat template raises: no")
        return [written["user"].format(messages[0]["content"]) + reply_as[0], *reply_as[1:]]

    prompt_text = prompt
    return look_around(render, regions, CUT)


CHATML = {"user": "<u>{}<e>\n"}


def test_the_header_is_the_generation_prompt():
    assert around(CHATML, "<a>bot\n", reply_as=("<a>bot\n", "Rz3<e>\n", "")) == (
        "<a>bot\n",
        Around("<a>bot\n", frozenset({"<u>", "<a>"}), ends_inside=True),
    )


def test_what_the_tag_holds_of_the_prompt_is_no_header():
    prompt = "<a>bot\n<think>\n"
    found = around(CHATML, prompt, reply_as=("<a>bot\n", "<think>\nRz3", "<e>\n"))
    assert found == (prompt, Around("<a>bot\n", frozenset({"<u>", "<a>"}), ends_inside=False))
    assert around(CHATML, prompt, reply_as=("", "<a>bot\nRz3<e>", ""))[1].header == ""


def test_an_ending_that_only_finished_conversations_have_is_not_taken_for_the_prompt():
    prompt, _ = around(CHATML, "<a>bot\n", close="<end>", reply_as=("<a>bot\n", "Rz3", "<e>"))
    assert prompt == "<a>bot\n"


def test_a_template_that_takes_no_reply_shows_its_prompt_all_the_same():
    assert around({"user": "Q: {}\n"}, "A: ") == ("A: ", Around("A: ", frozenset()))


def test_a_template_that_does_not_write_the_question_shows_no_opener_of_it():
    assert around({"user": "<u>?<e>"}, "A: ")[1].openers == frozenset()


@pytest.mark.parametrize("role", ["user", "assistant"])
def test_of_a_template_that_refuses_everything_nothing_is_known(role):
    def refuse(messages, *, prompt=False):
        raise ChatError("template error", role)

    assert look_around(refuse, refuse, CUT) == ("", Around())


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
