"""The numbers of the rules that decide a dataset's text, and what each number changed.

A rule is what tokmill does by default: settings do not say it, so equal settings make other text
under another rule. Plan and manifest hold the numbers. Whoever changes such a default adds a line
here: runs under the rule before do not continue then, and mixes say what differs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

READING, RENDERING, CHATS = "reading", "rendering", "chats"

HISTORY = {
    READING: (
        "as the first version",
        "files of text with JSON records are records; a bad field that is not read loses no record",
    ),
    RENDERING: (
        "one renderer for all files of a source with sections",
        "each file with sections by its own script",
    ),
    CHATS: (
        "as the first version",
        "tool calls in a row are one turn; nulls of tables and weights of prompts are not trained",
    ),
}
"""By rule, what each of its numbers means, from 1 on."""

_WORDS = {
    READING: "how text is read",
    RENDERING: "how records are rendered",
    CHATS: "how chats are rendered",
}

_OF_KIND = {"pretrain": (READING, RENDERING), "sft": (READING, CHATS)}


def rules_of_kind(kind: str) -> dict[str, list[int]]:
    """Return the rules under which this tokmill makes a dataset of a kind, by name.

    A list, as a mix may hold documents of several: see `joined_rules`.
    """
    return {name: [len(HISTORY[name])] for name in _OF_KIND[kind]}


def rules_in(written: Mapping[str, Sequence[int]] | None, kind: str) -> dict[str, list[int]]:
    """Return the rules of a plan or a manifest; where there are none, they are the first ones."""
    if written is None:
        return {name: [1] for name in _OF_KIND[kind]}
    return {name: list(numbers) for name, numbers in written.items()}


def joined_rules(rules: list[dict[str, list[int]]]) -> dict[str, list[int]]:
    """Return the numbers of several datasets together, each once, increasing."""
    names = sorted({name for of_dataset in rules for name in of_dataset})
    return {
        name: sorted({number for of_dataset in rules for number in of_dataset.get(name, ())})
        for name in names
    }


def rule_in_words(name: str, numbers: list[int]) -> str:
    """Return a rule: `how records are rendered: rule 2 (each file by …)`."""
    told = [f"{number} ({_meaning(name, number)})" for number in numbers]
    return f"{_WORDS.get(name, name)}: rule {' and '.join(told)}"


def differing_rule(before: Mapping[str, list[int]], now: Mapping[str, list[int]]) -> str:
    """Return the first rule that differs, in words: `…: rule 1 (…), here rule 2 (…)`; '' if none.

    A rule that one of them does not have decided nothing there.
    """
    for name in [name for name in before if name in now]:
        if before[name] != now[name]:
            here = rule_in_words(name, now[name]).partition(": ")[2]
            return f"{rule_in_words(name, before[name])}, here {here}"
    return ""


def _meaning(name: str, number: int) -> str:
    """Return what a number of a rule means; a later tokmill knows more numbers."""
    meanings = HISTORY.get(name, ())
    return meanings[number - 1] if 0 < number <= len(meanings) else "unknown to this tokmill"
