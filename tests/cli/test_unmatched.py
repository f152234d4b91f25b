"""Settings that name something of the data and match nothing: a warning that `-q` keeps."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import SAMPLES, write_lines

CHAT = {
    "conversations": [{"from": "agent", "value": "hello"}, {"from": "user", "value": "hi"}],
    "reasoning": "x",
}
CHAT["conversations"].reverse()

CASES = [
    (("--ignore-keys", "reasonning"), "no 'reasonning' in the first records: did you mean reaso"),
    (("--ignore-keys", "zzzz"), "--ignore-keys: no 'zzzz' in the first records"),
    (("--role-names", "agnet=assistant,agent=assistant"), "no 'agnet' in the first records: did y"),
    (("--ignore-keys", "reasoning", "--role-names", "agent=assistant"), ""),
]


def warnings(outcome) -> list[str]:
    return [line for line in outcome.err.splitlines() if line.startswith("warning: ")]


@pytest.mark.parametrize(("words", "said"), CASES)
def test_keys_and_roles_of_chats_are_compared_with_the_first_records(
    tokmill, sft, tmp_path, words, said
):
    path = write_lines(tmp_path / "in.jsonl", [CHAT] * 5)
    words = ("--max-reject-fraction", "1", "--role-names", "agent=assistant", *words)
    named = ("-t", SAMPLES / "tokenizer", "--engine", "reference", "--recipe", "sft")
    for outcome in (tokmill("plan", path, *named, *words), sft(path, "-q", *words)):
        found = warnings(outcome)
        assert len(found) == (1 if said else 0), outcome.err
        assert said in "".join(found)


def test_a_kept_field_that_no_record_has_is_a_warning_with_quiet(pretrain, good: Path):
    (line,) = warnings(pretrain(good, "--keep", "ulr", "-q"))
    assert line.startswith("warning: --keep=ulr: the first records have no value there")
