"""The page of chats for a newcomer holds with the models' own templates, which TRL has."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.docs.pages import blocks, read
from tests.docs.trained_text import differences, shown
from tests.fixtures.hub_names import make_hub_names

PAGE = "docs/start/chats.md"
TRL = find_spec("trl")


@pytest.mark.skipif(TRL is None, reason="the oracle is not installed: make oracles")
def test_what_the_page_shows_is_written_with_the_models_own_templates(tmp_path: Path) -> None:
    assert TRL is not None
    make_hub_names(tmp_path, read(PAGE), Path(str(TRL.origin)).parent / "chat_templates")
    for block in blocks(PAGE):
        if block.file:
            (tmp_path / block.file).write_text(block.text, encoding="utf-8")
    commands = [c for b in blocks(PAGE) for c in b.commands() if c.startswith("tokmill sft")]
    for command in commands:
        program = [sys.executable, "-m", *command.split(), "--quiet"]
        subprocess.run(program, cwd=tmp_path, check=True)
    assert len(shown(PAGE)) == len(commands) == 3
    assert differences(PAGE, tmp_path) == []
