"""Settings from environment variables: the same text means what it means as an option."""

from __future__ import annotations

import pytest

from tokmill.errors import UsageError
from tokmill.settings.names import variable_values


@pytest.mark.parametrize(
    ("variable", "text", "setting", "value"),
    [
        ("TOKMILL_WORKERS", "4", ("run", "workers"), 4),
        ("TOKMILL_VAL_FRACTION", "0.25", ("output", "val_fraction"), 0.25),
        ("TOKMILL_PART_BYTES", "4MiB", ("output", "part_bytes"), "4MiB"),
        ("TOKMILL_PACKED_ROWS", "yes", ("sft", "packed_rows"), True),
        ("TOKMILL_PACKED_ROWS", "False", ("sft", "packed_rows"), False),
        ("TOKMILL_ROLES", "assistant, tool", ("sft", "roles"), ["assistant", "tool"]),
        ("TOKMILL_TEXT_SEPARATOR", r"\n\n\\", ("input", "text_separator"), "\n\n\\"),
        ("TOKMILL_TITLE_FIELD", r"\n", ("render", "title_field"), r"\n"),
        ("TOKMILL_TOKENIZER", "gpt2/", ("tokenizer", "path"), "gpt2/"),
        ("TOKMILL_SFT_TEMPLATE", "chatml", ("sft", "template"), "chatml"),
    ],
)
def test_a_variable_is_read_by_the_type_of_its_setting(monkeypatch, variable, text, setting, value):
    monkeypatch.setenv(variable, text)
    section, name = setting
    assert variable_values([setting]) == {section: {name: value}}


def test_an_empty_variable_and_one_of_another_setting_say_nothing(monkeypatch):
    monkeypatch.setenv("TOKMILL_WORKERS", "")
    monkeypatch.setenv("TOKMILL_THREADS", "2")
    assert variable_values([("run", "workers")]) == {}


@pytest.mark.parametrize(
    ("variable", "setting", "expected"),
    [
        ("TOKMILL_WORKERS", ("run", "workers"), "expected int, found 'x'"),
        ("TOKMILL_VAL_FRACTION", ("output", "val_fraction"), "expected float, found 'x'"),
        ("TOKMILL_PACKED_ROWS", ("sft", "packed_rows"), "expected true or false, found 'x'"),
    ],
)
def test_a_variable_of_another_type_is_named(monkeypatch, variable, setting, expected):
    monkeypatch.setenv(variable, "x")
    with pytest.raises(UsageError) as caught:
        variable_values([setting])
    assert str(caught.value) == f"{variable} ({'.'.join(setting)}): {expected}"
