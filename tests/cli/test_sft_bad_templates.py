"""Chat templates that cannot do, through `tokmill sft`: broken, endless, or for other contents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

HI, HELLO = {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}
TAGS = "{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}"
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.role == 'assistant' %}" + TAGS + "{% else %}{{ m.content }}<|im_end|>{% endif %}"
    "\n{% endfor %}"
)


@pytest.fixture
def good(tmp_path: Path) -> Path:
    return write_lines(tmp_path / "good.jsonl", [{"messages": [HI, HELLO]}] * 20)


def write_lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def template(directory: Path, source: str | bytes) -> Path:
    path = directory / "own.jinja"
    path.write_bytes(source if isinstance(source, bytes) else source.encode())
    return path


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("{% for m in messages %}{{ m", ":1: not a Jinja template: unexpected end of template"),
        ("{{ x|foo }}", ":1: not a Jinja template: No filter named 'foo'"),
        ("{% generation %}{{ x }}", ":1: not a Jinja template: Unexpected end of template"),
        ("{% if 1 %}" * 3000 + "{% endif %}" * 3000, ": not a Jinja template: maximum recursion"),
        (b"\xff\xfe{{ x }}", ": the template cannot be read: 'utf-8' codec"),
        ("{{ strftime_now('%Y') }}", ": the template writes today's date"),
        ("", ": writes nothing of a reply that is a text"),
        ("{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}", ": writes no"),
        (
            "{% for m in messages %}{% for part in m.content if part.type == 'text' %}"
            "{{ part.text }}{% endfor %}<|im_end|>{% endfor %}",
            ": writes nothing of a reply that is a text",
        ),
        (
            "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
            ": the chat template is stopped: its loops do not end within reason",
        ),
        (
            "{% set n = namespace(x='xx') %}{% for i in range(99) %}{% set n.x = n.x ~ n.x %}"
            "{% endfor %}{{ n.x }}",
            ": the chat template is stopped: it writes or copies too much text",
        ),
        (
            "{{ 'x' * 10 ** 12 }}",
            ": the chat template is stopped: it writes or copies too much text",
        ),
        (
            "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
            ": the chat template is stopped: its macros call each other more than 60 deep",
        ),
    ],
)
def test_a_template_that_can_never_do_is_one_line_before_any_work(
    sft, good, tmp_path, source, said
):
    path = template(tmp_path, source)
    outcome = sft(good, "--template", path)
    assert outcome.code == 2
    assert outcome.error.startswith(f"{path}{said}")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{{ raise_exception('no\nway') }}", "template error"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "template error"),
        ("{% include '/etc/passwd' %}", "template error"),
        ("{{ messages.append(1) }}", "template error"),
        ("{% for m in messages|reverse %}{{ m.content }}{% endfor %}", "template rewrites earlier"),
        (
            "{% for m in messages %}{{ m.content }}{% endfor %}"
            "{% if add_generation_prompt %}>{% endif %}",
            "generation prompt differs",
        ),
        (f"{{% for m in messages %}}{{% generation %}}{TAGS}{{% endgeneration %}}{{% endfor %}}",
         "template changes spans"),
    ],
)  # fmt: skip
def test_a_template_that_fails_on_every_record_stops_the_run_with_the_first(
    sft, good, tmp_path, source, reason
):
    outcome = sft(good, "--template", template(tmp_path, source))
    assert outcome.code == 3
    assert outcome.error.startswith(f"20 of 20 records were rejected (20 {reason}")
    assert f"the first: {good}:1 (byte 0): {reason}" in outcome.error
    assert not (tmp_path / "out/manifest.json").exists()


def test_a_template_that_fails_on_some_records_rejects_those(totals, tmp_path):
    says = [{"messages": [{"role": "user", "content": text}, HELLO]} for text in ("a", "no", "on")]
    source = (
        "{% if messages[0].content == 'no' %}{{ raise_exception('never') }}{% endif %}"
        "{% if messages[0].content == 'on' %}{% for a in range(99999) %}{% for b in range(99999) %}"
        "{% endfor %}{% endfor %}{% endif %}" + CHATML
    )
    found = totals(
        write_lines(tmp_path / "in.jsonl", says), "--template", template(tmp_path, source)
    )
    assert found["documents"] == 1
    assert found["rejects"] == {"template error": 1, "endless template": 1}


def test_a_byte_order_mark_before_a_template_is_no_text(totals, good, tmp_path):
    words = ("--template", template(tmp_path, CHATML.encode()))
    plain = totals(good, *words)["tokens"]
    template(tmp_path, b"\xef\xbb\xbf" + CHATML.encode())
    assert totals(good, *words, "--overwrite")["tokens"] == plain


def test_eos_behind_a_template_with_tags_is_trained_if_asked_for(totals, good):
    before = totals(good)["trained_tokens"]
    assert totals(good, "--append-eos", "train", "--overwrite")["trained_tokens"] == before + 20


@pytest.mark.parametrize("content", ["Hi", "Hi.", "Hi\n", "", "。"])
def test_a_text_that_merges_with_what_the_template_writes_behind_it_is_no_lie(
    totals, tmp_path, content
):
    messages = [HI, HELLO, {"role": "user", "content": content}]
    path = write_lines(tmp_path / "in.jsonl", [{"messages": messages}])
    assert totals(path, "--template", "alpaca")["documents"] == 1
