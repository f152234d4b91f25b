"""The lines that an export prints can be pasted, whatever its folder is called."""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.docs.pages import read
from tokmill.extensions import find
from tokmill.tables import TRAINERS
from tokmill.trainers.export import export
from tokmill.trainers.options import export_options

LANGUAGES = {
    "megatron": {"pretrain": "shell", "sft": "python"},
    "nanotron": {"pretrain": "yaml"},
    "axolotl": {"pretrain": "yaml", "sft": "yaml"},
    "llamafactory": {"pretrain": "yaml", "sft": "yaml"},
    "ms-swift": {"pretrain": "shell", "sft": "shell"},
    "litgpt": {"pretrain": "shell"},
    "llm.c": {"pretrain": "shell"},
    "skyrl": {"sft": "shell"},
    "automodel": {"pretrain": "yaml"},
    "maxtext": {"pretrain": "shell, then yaml"},
}
"""Languages of the lines; of trainers that are not here, Python."""

ODD = 'it\'s a #1 "new": data'
"""The name of a folder with characters that mean something in each language."""


def texts_in(usage: str, language: str) -> Iterator[str]:
    """Yield the texts that a program reads in printed lines; raises if they cannot be read."""
    if language == "python":
        for node in ast.walk(ast.parse(usage)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value
    elif language == "shell":
        yield from shlex.split(usage.replace("\\\n", " "))
    elif language == "yaml":
        yield from _leaves(yaml.safe_load(usage))
    else:
        command, settings = usage.split("\n\n")
        yield from texts_in(command, "shell")
        yield from texts_in(settings, "yaml")


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _leaves(one)
    elif isinstance(value, str):
        yield value


CASES = [
    (name, kind) for name in TRAINERS.rows for kind in sorted(find(TRAINERS, name).value.kinds)
]


@pytest.mark.parametrize("folder", ["plain", ODD])
@pytest.mark.parametrize(("name", "kind"), CASES)
def test_the_lines_name_the_folder_in_their_language(
    name: str, kind: str, folder: str, request, tmp_path
) -> None:
    needs_packs = name in ("megatron-bridge", "nemo")
    of_text = "pieces" if needs_packs else "single"
    dataset = request.getfixturevalue("chats" if kind == "sft" else of_text)
    made = export(dataset.directory, name, tmp_path / folder, export_options({}))
    language = LANGUAGES.get(name, {}).get(kind, "python")
    found = list(texts_in(made.usage, language))
    if name == "skyrl":
        found = [text for word in found for text in json.loads(word.partition("=")[2])]
    assert any(text.startswith(str(tmp_path / folder)) for text in found), found


@pytest.mark.parametrize("name", TRAINERS.rows)
def test_the_page_of_a_trainer_has_lines_to_paste(name: str) -> None:
    table = read("docs/trainers/index.md")
    (page,) = re.findall(rf"^\| \[`{re.escape(name)}`\]\(([\w.-]+)", table, re.MULTILINE)
    text = read(f"docs/trainers/{page}")
    assert re.search(rf"--to {re.escape(name)}\b|`{re.escape(name)}`", text)
    blocks = re.findall(r"^```(\w+)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert {language for language, _ in blocks} & {"yaml", "python", "bash"}
    for language, block in blocks:
        if language == "yaml":
            yaml.safe_load(block)
        elif language == "python":
            ast.parse(block)
