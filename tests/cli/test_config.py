"""`tokmill config`: a settings file with all that it means, its errors, and the schema."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tokmill.mixing.settings import table_of_mix
from tokmill.settings.json_schema import toml_schema

CONFIGS = sorted((ROOT / "configs").glob("*.toml"))
FILE = """
[input]
keep = ["url"]
[tokenizer]
path = "tokenizer"
[output]
val_fraction = 0.5
[[source]]
name = "a\\n\\u202e"
paths = ["a.jsonl"]
fields = {text = "body"}
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = Path("run.toml")
    path.write_text(FILE)
    return path


def test_what_is_printed_is_toml_with_every_setting_and_its_origin(tokmill, file, monkeypatch):
    monkeypatch.setenv("TOKMILL_WORKERS", "3")
    monkeypatch.setenv("TOKMILL_VAL_FRACTION", "0.25")
    done = tokmill("config", "check", str(file))
    assert (done.code, done.err) == (0, "")
    shown = tomllib.loads(done.out)
    assert shown["output"]["val_fraction"] == 0.25
    assert shown["run"]["workers"] == 3
    assert shown["output"]["dtype"] == "auto"
    assert shown["source"] == [{"name": "a\n\u202e", "paths": ["a.jsonl"], "fields": ["text=body"]}]
    origin = {line.split(" =")[0]: line.partition("  # ")[2] for line in done.out.splitlines()}
    assert origin["val_fraction"] == "TOKMILL_VAL_FRACTION"
    assert origin["workers"] == "TOKMILL_WORKERS"
    assert origin["keep"] == "run.toml"
    assert origin["dtype"] == ""
    assert "training" not in shown


def test_a_file_of_what_is_printed_means_the_same(tokmill, tmp_path, file, monkeypatch):
    for path in (file, *CONFIGS):
        before = tokmill("config", "check", str(path), "--json")
        copy = tmp_path / "copy.toml"
        copy.write_text(tokmill("config", "check", str(path)).out)
        after = tokmill("config", "check", "copy.toml", "--json")
        assert json.loads(after.out)["settings"] == json.loads(before.out)["settings"]


def test_a_file_of_a_mix_is_checked_as_such(tokmill, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mix.toml").write_text('[mix]\ninputs = {a = 0.5, b = "2x"}\noutput = "o"\ndedup = true\n')
    done = json.loads(tokmill("config", "check", "mix.toml", "--json").out)
    assert done["command"] == "mix"
    assert done["settings"]["mix"]["inputs"] == ["a=0.5", "b=2x"]
    assert done["settings"]["mix"]["dedup"] == "drop"
    assert done["given"]["mix.dedup"] == "mix.toml"


def test_a_file_of_a_bill_has_the_settings_of_the_bill_alone(tokmill, file):
    file.write_text("[model]\nname = 'gpt2'\n[training]\ngpu = 'H100'\n")
    done = tokmill("config", "check", str(file))
    assert done.out.startswith("# tokmill memory --config run.toml\n")
    assert tomllib.loads(done.out) == {"model": {"name": "gpt2"}, "training": {"gpu": "H100"}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[output]\nval_fraction = 2\n", "run.toml: output.val_fraction: expected between 0.0 and"),
        ("[outputs]\n", "run.toml: unknown section [outputs]; did you mean output?"),
        ("[output]\ndri = 'o'\n", "run.toml: output.dri: unknown key; did you mean dir?"),
        ("x = \n", "run.toml: not valid TOML"),
        ("mix = 5\n", "run.toml: expected a table [mix], found 5"),
        ("[sft]\n[render]\nstrip_end = 'x'\n", "[render] is for tokmill pretrain"),
        ("[output]\npacking = 1\n", "expected rows of at least 2 tokens"),
        ("[model]\nfamily = 'llama'\nlayers = 2\n", "model"),
        ("[limits]\nmin_tokens = 5\nmax_tokens = 4\n", "5 is more than"),
    ],
)  # fmt: skip
def test_an_error_is_one_line_and_exit_code_2(tokmill, file, text, message):
    file.write_text(text)
    done = tokmill("config", "check", str(file))
    assert (done.code, done.out) == (2, "")
    assert len(done.err.splitlines()) == 1
    assert message in done.err


def test_a_missing_file_and_a_wrong_variable_are_errors(tokmill, file, monkeypatch):
    assert tokmill("config", "check", "none.toml").err.endswith("no such configuration file\n")
    monkeypatch.setenv("TOKMILL_WORKERS", "many")
    done = tokmill("config", "check", str(file))
    assert (done.code, done.err[:21]) == (2, "error: TOKMILL_WORKER")


def test_the_schema_is_printed_as_json(tokmill):
    assert json.loads(tokmill("config", "schema").out) == toml_schema({"mix": table_of_mix()})
