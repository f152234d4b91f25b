"""Every command and program of the README runs with the installed wheel and prints what it says."""

from __future__ import annotations

import re
from collections.abc import Callable

from tests.docs.conftest import Installed
from tests.docs.pages import blocks, read

PAGE = "README.md"
MAKE = ("make pretrain-bin", "make test")
"""`make test` runs these tests."""
INSTALL = "python3 -m venv .venv && . .venv/bin/activate && pip install ."
"""The fixture of these tests makes and installs a wheel, as pip does."""


def quoted(first: str) -> list[str]:
    """Return the lines of the block of output that begins with a word."""
    found = [block.text for block in blocks(PAGE) if block.text.startswith(first)]
    assert len(found) == 1
    return found[0].rstrip().splitlines()


def stable(line: str) -> str:
    """Return a line of output without the figures of the machine, and up to an ellipsis.

    The size of the output is among them: its manifest holds every setting there is.
    """
    line = line.split("…")[0].rstrip()
    if line.startswith(("time", "output", "disk", "host RAM")):
        return re.sub(r"[\d.,]+ ?(?:[kMG]i?B|ms|s)?\b", "#", line)
    return re.sub(r"tokenizers [\d.]+", "tokenizers #", line)


def test_the_page_is_short() -> None:
    assert len(read(PAGE).splitlines()) < 200


def test_the_first_command_ends_with_the_output_that_is_quoted(
    installed: Installed, recipe: Callable[[str], str]
) -> None:
    command = recipe("pretrain-bin")
    assert command == "tokmill pretrain --config configs/pretrain.toml"
    printed = [stable(line) for line in installed.shell(command).splitlines()]
    for line in filter(None, quoted("records ")):
        want = stable(line)
        assert any(one.startswith(want) for one in printed), (want, printed)


def test_chats_become_samples_with_one_command(
    installed: Installed, recipe: Callable[[str], str]
) -> None:
    assert "trained" in installed.shell(recipe("sft-bin"))


def test_the_commands_for_a_corpus_run_one_after_the_other(installed: Installed) -> None:
    commands = [command for block in blocks(PAGE) for command in block.commands()]
    for command in commands:
        if command.startswith("tokmill"):
            installed.shell(command)
    assert [one for one in commands if not one.startswith("tokmill")] == [*MAKE, INSTALL]
    assert installed.shell("tokmill report out --model qwen2.5-0.5b --gpu 4090")
    assert (installed.desk / "page.html").read_bytes().startswith(b"<!doctype html>")


def test_no_program_writes_where_a_command_has_written() -> None:
    page = read(PAGE)
    by_command = set(re.findall(r"--output (\S+)", page))
    by_program = set(re.findall(r'output="([^"]+)"', page))
    assert by_command
    assert by_program
    assert by_command & by_program == set()


def test_the_bill_is_the_one_that_is_quoted(installed: Installed) -> None:
    command = next(c for b in blocks(PAGE) for c in b.commands() if "memory" in c)
    printed = installed.shell(command).splitlines()
    for want, line in zip(quoted("verdict ")[:-1], printed, strict=False):
        assert line.startswith(want.rstrip("…")), (want, line)


def test_the_programs_run_with_the_installed_package(installed: Installed) -> None:
    programs = [block.text for block in blocks(PAGE) if block.language == "python"]
    assert programs
    labels_are_the_next_tokens = "assert (labels[:, :-1] == ids[:, 1:]).all()"
    installed.python("\n".join([*programs, labels_are_the_next_tokens]))
    where = installed.python("import tokmill; print(tokmill.__file__)")
    assert where.startswith(str(installed.site))
