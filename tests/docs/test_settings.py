"""The tables of settings on the site and the help say the same defaults."""

from __future__ import annotations

import pytest

from bench.pages import settings_tables
from tokmill.cli.main import load_command


@pytest.mark.parametrize(
    ("option", "default"),
    [
        ("--workers", "0"), ("--val-fraction", "0.0"), ("--min-tokens", "0"), ("--engine", "auto"),
        ("--part-bytes", "0"), ("--max-record-bytes", "64 MiB"),
        ("--max-reject-fraction", "0.01"),
    ],
)  # fmt: skip
def test_the_help_and_the_page_say_the_same_default(option, default):
    command = load_command("pretrain")
    helps = {name: p.help for p in command.params for name in p.opts if hasattr(p, "help")}
    assert helps[option].endswith(f"  [default: {default}]")
    assert f"| `{option}` | {default} | " in settings_tables()


def test_the_help_says_that_few_rejects_never_stop_a_run():
    command = load_command("pretrain")
    helps = [p.help for p in command.params if "--max-reject-fraction" in p.opts]
    assert "up to 10 rejects never stop" in helps[0]
