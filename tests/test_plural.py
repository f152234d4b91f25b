from __future__ import annotations

import re
from pathlib import Path

import pytest

import tokmill
from tokmill.plural import plural

THINGS = (
    "documents|drops|files|ids|parts|problems|records|rejects|rows|samples|shards|sources|"
    "texts|tokens|turns|messages"
)
BY_HAND = re.compile(rf"\{{(len\([^{{}}]*\)|[\w.]*\bn_\w+)(:,)?\}} ({THINGS})\b")


@pytest.mark.parametrize(("n", "text"), [(0, "0 files"), (1, "1 file"), (1234, "1,234 files")])
def test_one_thing_has_no_s(n: int, text: str) -> None:
    assert plural(n, "file") == text


def test_no_message_puts_an_s_behind_a_count_by_hand() -> None:
    paths = sorted(Path(tokmill.__file__).parent.rglob("*.py"))
    assert [p.name for p in paths if BY_HAND.search(p.read_text())] == []
