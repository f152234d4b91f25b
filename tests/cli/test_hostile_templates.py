"""A template from a stranger, in each place that it can come from, under each command."""

from __future__ import annotations

import json
import sys

import pytest

from tests.cli.conftest import write_lines
from tokmill import extensions
from tokmill.chat.jinja import environment
from tokmill.chat.render_pool import emitted_strings

CHATS = [
    {"messages": [{"role": role, "content": f"{role} {i}"} for role in ("user", "assistant")]}
    for i in range(20)
]
BODY = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}"
    "{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}"
    "{% else %}{{ m.content }}<|im_end|>{% endif %}{% endfor %}"
)
NEVER_TAKEN = "{% if 0 %}{{ 9 ** (9 ** 9) }}{{ 'a'|center(10 ** 11) }}{% endif %}" + BODY
AT_ONCE = "{{ 'a'|center(10 ** 11) }}" + BODY


def in_config(folder, tokenizer, template):
    path = tokenizer / "tokenizer_config.json"
    path.write_text(json.dumps({"eos_token": "<eos>", "chat_template": template}))


def beside(folder, tokenizer, source):
    (tokenizer / "chat_template.jinja").write_text(source)


def among_named_ones(folder, tokenizer, source):
    in_config(folder, tokenizer, [{"name": "rag", "template": source}])


def by_default(folder, tokenizer, source):
    in_config(folder, tokenizer, [{"name": name, "template": source} for name in ("a", "default")])


def in_a_file(folder, tokenizer, source):
    (folder / "own.jinja").write_text(source)
    return ["--template", "own.jinja"]


def in_toml(folder, tokenizer, source):
    in_a_file(folder, tokenizer, source)
    (folder / "run.toml").write_text("[sft]\ntemplate = 'own.jinja'\n")
    return ["--config", "run.toml"]


def of_another_package(folder, tokenizer, source):
    information = folder / "site" / "stranger-1.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(
        "[tokmill.templates]\nodd = stranger_odd:SOURCE\n"
    )
    (folder / "site" / "stranger_odd.py").write_text(f"SOURCE = {source!r}\n")
    return ["--template", "odd"]


PLACES = (
    in_config, beside, among_named_ones, by_default, in_a_file, in_toml, of_another_package
)  # fmt: skip


@pytest.fixture
def lay_out(tmp_path, monkeypatch, chat_tokenizer):
    """Put a template into a place; return the arguments of a command that meets it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path / "site")
    tokenizer = chat_tokenizer(template=BODY)
    write_lines(tmp_path / "chats.jsonl", CHATS)

    def put(place, source):
        options = place(tmp_path, tokenizer, source) or ["--template", "tokenizer"]
        for function in vars(extensions).values():
            if hasattr(function, "cache_clear"):
                function.cache_clear()
        return ["chats.jsonl", "--tokenizer", tokenizer, "--output", "out", *options]

    yield put
    sys.modules.pop("stranger_odd", None)


@pytest.fixture
def read_by_children_alone(monkeypatch):
    """Fail where this process reads or compiles a template; children do not know of it."""

    def fail(source, **_):
        raise AssertionError("this process reads a template")

    monkeypatch.setattr(environment, "source_facts", fail)
    monkeypatch.setattr(environment, "compile_template", fail)
    emitted_strings.cache_clear()


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
def test_no_command_reads_a_template_of_others_itself(
    place, lay_out, read_by_children_alone, tokmill
):
    arguments = lay_out(place, NEVER_TAKEN)
    for command in (
        ["plan", *arguments, "--write"], ["run-part", "out", "--index", "0", "--of", "1"],
        ["finish", "out"], ["inspect", "out"],
    ):  # fmt: skip
        outcome = tokmill(*command)
        assert outcome.code == 0, outcome.err
        emitted_strings.cache_clear()


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
@pytest.mark.parametrize("command", ["sft", "plan"])
def test_a_template_that_takes_too_much_is_one_line_wherever_it_comes_from(
    place, command, lay_out, tokmill, tmp_path
):
    outcome = tokmill(command, *lay_out(place, AT_ONCE))
    assert outcome.code == 7
    assert outcome.error == (
        "the chat template took more than 128 MiB of memory for a chat of a few words: use another "
        "--template"
    )
    assert not [*(tmp_path / "out").glob("*.bin")]


@pytest.mark.parametrize("command", ["run-part", "finish"])
def test_a_template_in_a_plan_is_bounded_too(command, lay_out, tokmill, tmp_path):
    from tokmill.dataset.checksum import canonical_json
    from tokmill.dataset.plan_file import plan_fingerprint
    from tokmill.place import open_place
    from tokmill.run.begin import read_planned

    assert tokmill("plan", *lay_out(in_config, BODY), "--write").code == 0
    assert tokmill("run-part", "out", "--index", "0", "--of", "1").code == 0
    path = tmp_path / "out" / "plan.json"
    plan = json.loads(path.read_bytes())
    plan["task"]["template"] = AT_ONCE
    path.chmod(0o644)
    path.write_bytes(canonical_json(plan | {"fingerprint": plan_fingerprint(plan)}))
    (record,) = (tmp_path / "out" / "parts").glob("*.json")
    if command == "run-part":
        record.unlink()
    else:
        made = read_planned(open_place("out"))
        entry = json.loads(record.read_bytes())
        record.chmod(0o644)
        fingerprint = made.parts[0].fingerprint(made.spec)
        record.write_bytes(canonical_json(entry | {"fingerprint": fingerprint}))
    steps = {"run-part": ["--index", "0", "--of", "1"], "finish": []}
    outcome = tokmill(command, "out", *steps[command])
    assert (outcome.code, outcome.error[:44]) == (7, "the chat template took more than 128 MiB of ")
