"""A command whose message has advice, and what somebody who follows it types next."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

SAMPLES = Path(__file__).parents[3] / "data_samples"
STORY = "The river bends twice before it meets the sea, and the old ferry still crosses at noon. "


class Step(NamedTuple):
    """A piece of advice. `said`: as it stands in the message; `typed`: '' if it is typed as said.

    An option is added to the command, a command of tokmill replaces it. A command of the shell is
    typed before the first one is repeated, with NEW_FILE in place of the input.
    """

    said: str
    typed: str = ""


class Case(NamedTuple):
    """A command, the files that it meets, and every piece of advice that it prints.

    TOK and CHAT in the command: a small tokenizer, and the one of the samples. Each step is tried
    in a new folder. `before`: commands that are run first.
    """

    name: str
    files: Mapping[str, str | bytes]
    command: str
    steps: tuple[Step, ...]
    before: tuple[str, ...] = ()


def lines(*rows: Any, n: int = 1) -> str:
    """Return JSON Lines, repeated `n` times."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows) * n


def chat(*turns: tuple[str, str], role: str = "role", content: str = "content") -> dict[str, Any]:
    """Return a record with messages."""
    return {"messages": [{role: name, content: text} for name, text in turns]}


PRETRAIN = "tokmill pretrain IN -t TOK -o out"
SFT = "tokmill sft IN -t CHAT -o out"
TEXTS = lines(*({"text": f"{STORY}{i}"} for i in range(20)))
CHATS = lines(chat(("user", "Who is there?"), ("assistant", "A ferry.")), n=20)


def pretrain(
    name: str,
    files: Mapping[str, str | bytes],
    *steps: str | Step,
    more: str = "",
    before: tuple[str, ...] = (),
) -> Case:
    return _case(name, files, PRETRAIN + more, steps, before)


def plan(name: str, files: Mapping[str, str | bytes], *steps: str | Step, more: str = "") -> Case:
    return _case(name, files, "tokmill plan IN -t TOK" + more, steps)


def sft(
    name: str,
    files: Mapping[str, str | bytes],
    *steps: str | Step,
    more: str = "",
    before: tuple[str, ...] = (),
) -> Case:
    return _case(name, files, SFT + more, steps, before)


def _case(
    name: str,
    files: Mapping[str, str | bytes],
    command: str,
    steps: tuple[str | Step, ...],
    before: tuple[str, ...] = (),
) -> Case:
    command = command.replace("IN", next(iter(files), "nothing"), 1)
    made = tuple(step if isinstance(step, Step) else Step(step) for step in steps)
    return Case(name, files, command, made, before)
