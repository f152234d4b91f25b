from __future__ import annotations

from typing import Any

import pytest

from tokmill.chat.conversation import ChatError, Conversation
from tokmill.chat.learned.pattern import Joints, learn
from tokmill.chat.segments import ROLES

USER, REPLY = ROLES.index("user"), ROLES.index("assistant")
ASKS = "{% if add_generation_prompt %}[assistant] {% endif %}"


def turns(content: str) -> str:
    """Return a template that writes every message like this."""
    return "{% for m in messages %}[{{ m.role }}] " + content + "{{ eos_token }}{% endfor %}" + ASKS


@pytest.fixture
def learned(make_renderer):
    """Learn a pattern: `learned(source, roles)`, and say how often the template was rendered."""

    def of(source: str, roles: list[int], control: tuple[str, ...] = ("<eos>",), prompt: str = ""):
        writer = make_renderer(source).writer
        calls = []

        def render(roles: Any, contents: Any) -> Any:
            calls.append(contents)
            messages = [
                {"role": ROLES[role], "content": content}
                for role, content in zip(roles, contents, strict=True)
            ]
            try:
                return writer.write_conversation(
                    Conversation(messages, [None] * len(messages))
                ).columns
            except ChatError:
                return None

        return learn(roles, render, Joints(control, prompt), ("</think>",)), len(calls)

    return of


@pytest.mark.parametrize(
    "content",
    [
        "{{ m.content | upper }}",
        "{{ m.content | tojson }}",
        "{{ m.content | replace('\n\n', '\n') }}",
        "{{ m.content[:3] }}",
        "{{ m.content | escape }}",
        "{{ m.content.split(',')[0] }}",
    ],
)
def test_a_template_that_rewrites_contents_has_no_pattern(learned, content):
    assert learned(turns(content), [USER, REPLY])[0] is None


def test_a_template_that_refuses_the_roles_has_no_pattern_and_is_asked_once(learned):
    source = "{% if messages | length > 1 %}{{ raise_exception('no') }}{% endif %}"
    assert learned(source + turns("{{ m.content }}"), [USER, REPLY]) == (None, 1)


@pytest.mark.parametrize(
    ("before", "behind", "control"),
    [
        ("a[", "b", "[x]"),
        ("a", "]b", "[x]"),
        ("a", "x", "<xx<eos>"),
        ("", "b", "<eos>q"),
    ],
)
def test_no_content_may_complete_a_control_token_with_the_text_beside_it(
    learned, before, behind, control
):
    turn = before + "{{ m.content }}" + behind + "{{ eos_token }}"
    source = "{% for m in messages %}" + turn + "{% endfor %}"
    roles = [USER, REPLY, USER, REPLY]
    assert learned(source, roles, ("<eos>", control))[0] is None
    assert learned(source, roles, ("<eos>",))[0] is not None


def test_a_content_must_not_be_able_to_continue_as_the_prompt_does(learned):
    source = (
        "{% for m in messages %}{{ m.content }}{{ ': ' if m.role == 'user' else eos_token }}"
        "{% endfor %}"
    )
    assert learned(source, [USER, REPLY])[0] is not None
    assert learned(source, [USER, REPLY], prompt="B> ")[0] is not None
    assert learned(source, [USER, REPLY], prompt="A: ")[0] is None
