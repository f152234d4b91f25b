from __future__ import annotations

import pytest

from tokmill.chat.jinja.asked import strings_asked_for
from tokmill.chat.jinja.environment import parsed

LOOP = "{% for message in messages %}"


def asked(body: str) -> list[str] | None:
    found = strings_asked_for(parsed(f"{LOOP}{body}{{% endfor %}}"))
    return None if found is None else sorted(found)


@pytest.mark.parametrize(
    ("body", "strings"),
    [
        ("{% if '</think>' in message.content %}x{% endif %}", ["</think>"]),
        ("{{ message.content.split('</think>')[-1].lstrip('\\n') }}", ["</think>"]),
        ("{% set c = message['content'] %}{% if c.startswith('<t>') %}x{% endif %}", ["<t>"]),
        ("{{ message.content | replace('<image>', '') }}", ["<image>"]),
        ("{% if message.content == 'stop' %}x{% endif %}", ["stop"]),
        ("{% if message.content != '' %}x{% endif %}", []),
        ("{% for part in message.content.split('||') %}{{ part }}{% endfor %}", ["||"]),
        (
            "{% set ns = namespace(c='') %}{% set ns.c = message.content %}"
            "{% if 'x' in ns.c %}y{% endif %}",
            ["x"],
        ),
        (
            "{% macro m(text) %}{% if '/no' in text %}y{% endif %}{% endmacro %}"
            "{{ m(message.content) }}",
            ["/no"],
        ),
    ],
)
def test_the_strings_are_found_that_a_template_looks_for(body, strings):
    assert asked(body) == strings


@pytest.mark.parametrize(
    "body",
    [
        "{% if message.content | length > 9 %}x{% endif %}",
        "{% if message.content[0] == 'x' %}x{% endif %}",
        "{% if message.content | upper == 'X' %}x{% endif %}",
        "{% if message.content.isdigit() %}x{% endif %}",
        "{% if message.content in ['yes', 'no'] %}x{% endif %}",
        "{% if message == messages[-1] %}x{% endif %}",
        "{% if message in messages[1:] %}x{% endif %}",
        "{% if message.content == messages[0].content %}x{% endif %}",
        "{% if message.role in message.content %}x{% endif %}",
        "{{ message.content.strip('ab') }}",
        "{{ message.content | trim('ab') }}",
        "{% for key in message %}{% if message[key] == 'x' %}y{% endif %}{% endfor %}",
        "{% for key, value in message.items() %}{% if value %}y{% endif %}{% endfor %}",
        "{% for part in message.content %}{% if part %}y{% endif %}{% endfor %}",
        "{% if messages | map(attribute='content') | list %}x{% endif %}",
        "{% if messages | selectattr('content', 'equalto', 'x') | list %}x{% endif %}",
        "{{ messages | sort(attribute='role') }}",
        "{% if loop.changed(message.content) %}x{% endif %}",
        "{% if loop.previtem == message %}x{% endif %}",
        "{% if message.content % 2 %}x{% endif %}",
        "{% if message.content is eq('x') %}x{% endif %}",
        "{% if unknown(message.content) %}x{% endif %}",
        "{% filter upper %}{{ message.content }}{% endfilter %}",
        "{% if message.content.split() | length > 0 %}x{% endif %}",
        "{% if message.content is string %}{% for part in message.content %}"
        "{% if part == 'x' %}y{% endif %}{% endfor %}{% endif %}",
        "{% if message.content.split() | length > 3 %}x{% endif %}",
        "{% if message.content > 'm' %}x{% endif %}",
        "{% if -message.content %}x{% endif %}",
        "{% if range(message.content | int) %}x{% endif %}",
    ],
)
def test_a_template_that_decides_by_contents_in_another_way_is_not_understood(body):
    assert asked(body) is None


def test_a_variable_keeps_the_highest_rank_of_a_later_loop():
    body = "{% if last == 'x' %}y{% endif %}{% set last = message.content %}"
    assert asked(body) == ["x"]
    assert asked(body.replace("message.content", "message.content | lower")) is None
