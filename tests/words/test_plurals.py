"""No message says `1 files`: a count and its noun are written by the functions of `words`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tokmill.words import amount, counted, epochs, plural

SOURCE = Path(__file__).parents[2] / "src" / "tokmill"

THINGS = """
attempts batches blocks bytes characters chats columns commands datasets documents drops
entries epochs fields files GPUs groups heads ids keys layers lines messages nodes objects
parameters parts pieces processes processors prompts records rejects replies requests rows
samples sections sequences shards slices sources splits stages steps strings tasks texts
threads tokens turns values weights windows workers
"""
BEFORE = "more other unknown extra packed prompt generation assistant wanted sampled input cut"
NOUN = re.compile(
    rf" (?:(?:{'|'.join(BEFORE.split())}) )?(?:{'|'.join(THINGS.split())})\b(?! (?:a|per) )"
)

MANY = {
    # A value that is never 1, or that is no count, by module; what it is.
    "bill/inputs.py": "stages, tokens and GPUs that contradict each other: two or more",
    "bill/deepspeed.py": "the GPUs that are left of several",
    "bill/states/contradictions.py": "stages, chunks and groups that contradict: two or more",
    "bill/models/shapeless.py": "more layers than can be made",
    "bill/text/summary.py": "processes on one machine are named from two on",
    "trainers/trainer.py": "a vocabulary of more than 65,536 ids",
    "api/doctor.py": "a vocabulary",
    "bill/serving.py": "a formula",
    "engines/comparison.py": "characters and sequences of a fixed set",
    "loader/loader.py": "lengths that differ: the larger is two or more",
    "loader/sequence.py": "an array, as it was given",
    "mixing/inputs.py": "a vocabulary; tokens of a split beside those of the manifest",
    "inspect/summary.py": "a vocabulary, bytes of memory, tokens rounded",
    "recipes/memory_bounds.py": "a text that fills the memory",
    "recipes/sft_setup.py": "rows that hold no sample",
    "sources/row_reader.py": "columns of one name: two or more",
    "sources/streams.py": "over 1 GiB",
    "trainers/datatrove.py": "a constant and one",
    "trainers/megatron.py": "a vocabulary, and tokens of a mix",
    "trainers/megatron_bridge.py": "a length that is no multiple of an alignment",
    "trainers/nanogpt.py": "more tokens than a file can have",
    "sources/token_layouts.py": "bytes that are no whole number of ids",
}
"""Modules whose other counts were looked at, one by one."""


def counts_without_plural() -> Iterator[str]:
    """Yield the values of f-strings that stand before a plural, but constants."""
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            values = node.values if isinstance(node, ast.JoinedStr) else []
            for value, after in pairwise(values):
                is_text = isinstance(value, ast.FormattedValue) and isinstance(after, ast.Constant)
                if is_text and NOUN.match(str(after.value)) and not is_constant(value.value):
                    name = path.relative_to(SOURCE).as_posix()
                    yield f"{name}:{node.lineno}: {ast.unparse(value.value)}|{after.value}"


def is_constant(node: ast.expr) -> bool:
    """Return whether a value is a constant of a module, which is no 1."""
    return isinstance(node, ast.Name) and node.id.isupper()


def test_a_count_before_a_noun_is_written_by_one_function():
    found = list(counts_without_plural())
    assert [line for line in found if line.partition(":")[0] not in MANY] == []
    assert {line.partition(":")[0] for line in found} == MANY.keys()


@pytest.mark.parametrize("n", [0, 1, 2, 1234, 5 * 10**9])
def test_only_one_thing_has_no_s(n):
    said = [plural(n, "file"), counted(n, "cut files"), amount(n, "file"), epochs(n)]
    assert [text.endswith("s") for text in said] == [n != 1] * 4
