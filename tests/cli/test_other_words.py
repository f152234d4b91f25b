"""Options as other programs name them: the message says which option is meant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
import pytest

from tokmill.cli.memory import command
from tokmill.cli.other_words import _MEANT


@pytest.mark.parametrize(
    ("words", "instead"),
    [
        (("--zero", "3"), "No such option '--zero': use --sharding zero-3"),
        (("--bf16",), "No such option '--bf16': use --precision"),
        (("--batch-size", "8"), "No such option '--batch-size': use --micro-batch"),
        (("--seq_len", "4096"), "No such option '--seq_len': use --sequence"),
        (("--load-in-4bit",), "use --weight-type (inference) or --adapter qlora (training)"),
        (("--qlora",), "No such option '--qlora': use --adapter qlora"),
        (("gpt2",), "Got unexpected extra argument (gpt2): use --model NAME"),
    ],
)
def test_a_common_name_of_another_program_leads_to_the_option(
    tokmill: Callable[..., Any], words: tuple[str, ...], instead: str
) -> None:
    outcome = tokmill("memory", *words)
    assert outcome.code == 2
    assert outcome.error.endswith(instead)


def test_what_a_command_lacks_is_not_offered(tokmill: Callable[..., Any]) -> None:
    assert "micro-batch" not in tokmill("verify", "out", "--batch-size", "8").error


def test_every_offered_option_exists_and_every_other_name_does_not() -> None:
    options = {option for parameter in command.params for option in parameter.opts}
    offered = [word for words in _MEANT for word in words.split() if word.startswith("--")]
    assert set(offered) <= options
    names = [name for names in _MEANT.values() for name in names.split()]
    assert len(names) == len(set(names))
    assert not {f"--{name}" for name in names} & options
    assert isinstance(command, click.Command)
