"""Small things that a newcomer reads: plurals, usage, names of settings and of packages."""

from __future__ import annotations

import json
import sys

import pytest

from tokmill.errors import UsageError
from tokmill.stores.opening import open_store
from tokmill.words import epochs


@pytest.mark.parametrize(("n", "said"), [(1, "1 epoch"), (1.0, "1 epoch"), (0.25, "0.25 epochs")])
def test_one_epoch_is_singular(n, said):
    assert epochs(n) == said


@pytest.mark.parametrize("verb", ["pretrain", "sft", "plan", "mix", "memory"])
def test_a_command_without_any_word_prints_its_usage(tokmill, verb):
    outcome = tokmill(verb)
    assert outcome.code == 2
    assert outcome.err.startswith(f"Usage: tokmill {verb} ")
    assert outcome.error


def test_a_variable_of_no_setting_is_an_error_with_the_nearest(pretrain, good, monkeypatch):
    monkeypatch.setenv("TOKMILL_VAL_FRACTON", "0.5")
    outcome = pretrain(good)
    assert outcome.code == 2
    assert outcome.error == (
        "TOKMILL_VAL_FRACTON: no setting has this environment variable: did you mean "
        "TOKMILL_VAL_FRACTION?"
    )
    monkeypatch.delenv("TOKMILL_VAL_FRACTON")
    monkeypatch.setenv("TOKMILL_ZZZ", "")
    assert "tokmill pretrain --help lists the settings" in pretrain(good).error


def test_a_missing_package_is_named_by_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    with pytest.raises(UsageError, match=r"pip install 'tokmill\[s3\]'"):
        open_store("s3://nowhere/that/no/test/has/used")


def test_plan_of_long_records_that_reads_all_of_a_file_has_no_band(
    tokmill, tokenizer_dir, tmp_path
):
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps({"text": "hello " * 250_000}) + "\n" for _ in range(4)))
    outcome = tokmill("plan", path, "-t", tokenizer_dir, "--engine", "reference")
    assert "read completely" in outcome.out
    (line,) = [line for line in outcome.out.splitlines() if line.startswith("documents")]
    assert line.split() == ["documents", "4"]
