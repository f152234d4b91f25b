"""Every public name is on the page of the Python interface, and its examples run."""

from __future__ import annotations

import importlib
import inspect
import textwrap

from bench.pages import MODULES, api_page, public
from tests.docs.conftest import Installed
from tests.docs.pages import blocks_of

NAMES = [(module, name) for module in MODULES for name in public(importlib.import_module(module))]


def test_every_public_name_is_described() -> None:
    page = api_page()
    for module, name in NAMES:
        value = getattr(importlib.import_module(module), name)
        assert f"### `{module}.{name}`\n" in page
        assert isinstance(value, str) or inspect.getdoc(value), name


def test_every_example_runs_with_the_installed_package(installed: Installed) -> None:
    examples = [block.text for block in blocks_of(api_page()) if block.language == "pycon"]
    assert len(examples) > 5
    programs = [
        "import tokmill",
        'tokmill.pretrain("corpus/*.jsonl", tokenizer="gpt2/", output="out")',
        'tokmill.open("out").export("megatron", "old")',
        'import os; os.environ["SLURM_ARRAY_TASK_ID"] = "0"',
    ]
    for example in examples:
        lines = textwrap.dedent(example).splitlines()
        program = "\n".join(line[4:] for line in lines if line.startswith((">>>", "...")))
        program = program.replace('"out"', '"chats"') if "sft(" in program else program
        programs.append(program.replace('packs("sft"', 'packs("chats"'))
    installed.python("\n".join(programs))
