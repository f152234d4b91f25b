from __future__ import annotations

import re
from pathlib import Path

import pytest

import tokmill
from tokmill.words.plural import counted, plural

THINGS = (
    "documents|drops|files|ids|parts|problems|records|rejects|rows|samples|shards|sources|"
    "texts|tokens|turns|messages"
)
BY_HAND = re.compile(rf"\{{(len\([^{{}}]*\)|[\w.]*\bn_\w+)(:,)?\}} ({THINGS})\b")


@pytest.mark.parametrize(("n", "text"), [(0, "0 files"), (1, "1 file"), (1234, "1,234 files")])
def test_one_thing_has_no_s(n: int, text: str) -> None:
    assert plural(n, "file") == text


@pytest.mark.parametrize(
    ("n", "things", "text"),
    [
        (2, "cut samples", "2 cut samples"),
        (1, "cut samples", "1 cut sample"),
        (1, "strings of control tokens kept as text", "1 string of control tokens kept as text"),
        (1, "think and tool_call tags kept as text", "1 think and tool_call tag kept as text"),
        (1, "empty replies (only their end)", "1 empty reply (only their end)"),
        (1, "samples that lose white space", "1 sample that loses white space"),
        (1234, "bytes of text", "1,234 bytes of text"),
        (1, "endless templates", "1 endless template"),
    ],
)
def test_a_counter_named_in_the_plural_is_read_in_the_singular_of_one(
    n: int, things: str, text: str
) -> None:
    assert counted(n, things) == text


def test_no_message_puts_an_s_behind_a_count_by_hand() -> None:
    paths = sorted(Path(tokmill.__file__).parent.rglob("*.py"))
    assert [p.name for p in paths if BY_HAND.search(p.read_text())] == []
