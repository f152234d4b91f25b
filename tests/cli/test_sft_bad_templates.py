"""Chat templates that cannot do, through `tokmill sft`: broken, or for other contents."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import write_lines

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


def template(directory: Path, source: str | bytes) -> Path:
    path = directory / "own.jinja"
    path.write_bytes(source if isinstance(source, bytes) else source.encode())
    return path


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("{% for m in messages %}{{ m", ":1: not a Jinja template: unexpected end of template"),
        ("{{ x|foo }}", ":1: not a Jinja template: No filter named 'foo'"),
        ("{{ strftime_now('%Y') }}", ": the template writes today's date"),
        ("", ": writes nothing of a reply that is a text"),
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
        ("{% for m in messages|reverse %}{{ m.content }}{% endfor %}", "template rewrites earlier"),
        (
            "{% for m in messages %}{{ m.content }}{% endfor %}"
            "{% if add_generation_prompt %}>{% endif %}",
            "generation prompt differs",
        ),
    ],
)
def test_a_template_that_fails_on_every_record_stops_the_run_with_the_first(
    sft, good, tmp_path, source, reason
):
    outcome = sft(good, "--template", template(tmp_path, source))
    assert outcome.code == 3
    assert outcome.error.startswith(f"20 of 20 records were rejected (20 {reason}")
    assert f"the first: {good}:1 (byte 0): {reason}" in outcome.error
    assert not (tmp_path / "out/manifest.json").exists()


def test_a_template_that_fails_on_some_records_rejects_those(totals, tmp_path):
    says = [{"messages": [{"role": "user", "content": text}, HELLO]} for text in ("a", "no")]
    source = (
        "{% if messages[0].content == 'no' %}{{ raise_exception('never') }}{% endif %}" + CHATML
    )
    found = totals(
        write_lines(tmp_path / "in.jsonl", says), "--template", template(tmp_path, source)
    )
    assert found["documents"] == 1
    assert found["rejects"] == {"template error": 1}
