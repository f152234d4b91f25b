from __future__ import annotations

import pytest

from tokmill.chat.conversation import ChatError
from tokmill.chat.jinja.spans import spans_by_prefix

CHAT = ["u:hi|", "a:yo|", "u:well|", "a:bye|"]


def plain(n_messages, *, prompt):
    return "".join(CHAT[:n_messages]) + ("a:" if prompt else "")


def spans(render, replies=(1, 3), n_messages=4):
    whole = render(n_messages, prompt=False)
    found = spans_by_prefix(whole, render, replies, n_messages)
    return [whole[start:stop] for start, stop in found]


def drops_old_reasoning(n_messages, *, prompt):
    drops = n_messages > 2
    return plain(n_messages, prompt=prompt).replace("a:yo", "a:yo" if drops else "a:(hm)yo")


def changes_the_beginning(n_messages, *, prompt):
    return f"{n_messages} messages: " + plain(n_messages, prompt=prompt)


def prompts_otherwise(n_messages, *, prompt):
    thinks = prompt or n_messages == 2  # before the last reply alone
    return plain(n_messages, prompt=prompt).replace("a:", "a:()" if thinks else "a:")


def leaves_the_reply_out(n_messages, *, prompt):
    return "u:" if n_messages < 3 and not prompt else "u:a:"


@pytest.mark.parametrize(
    "render", [drops_old_reasoning, changes_the_beginning, prompts_otherwise, leaves_the_reply_out]
)
def test_a_template_that_hides_turns_is_refused_with_the_message_and_what_to_do(render):
    with pytest.raises(ChatError, match=r"^message 2: .*one sample per turn") as error:
        spans(render)
    assert error.value.reason == "template rewrites earlier turns"


def test_one_sample_per_turn_needs_the_last_turn_alone():
    assert spans(prompts_otherwise, replies=(1,), n_messages=2) == ["yo|"]


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
