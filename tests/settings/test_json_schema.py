"""The JSON schema of settings files knows what the reader of such files knows."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tokmill.errors import TokmillError, UsageError
from tokmill.mixing.settings import mix_settings, table_of_mix
from tokmill.settings.json_schema import DRAFT, toml_schema
from tokmill.settings.load import file_values
from tokmill.settings.names import Setting, every_setting

jsonschema = pytest.importorskip("jsonschema", reason="needs the extra dev")

CONFIGS = sorted((Path(__file__).parents[2] / "configs").glob("*.toml"))
SCHEMA = toml_schema({"mix": table_of_mix()})
CHECKER = jsonschema.Draft4Validator(SCHEMA)


def accepts(text: str) -> bool:
    return bool(CHECKER.is_valid(tomllib.loads(text)))


def is_read(tmp_path: Path, text: str) -> bool:
    """Return whether tokmill reads such a file."""
    file = tmp_path / "run.toml"
    file.write_text(text)
    try:
        mix_settings(config=file) if "[mix]" in text else file_values(file)
    except UsageError:
        return False
    return True


def test_it_is_a_schema_of_the_draft_that_it_names() -> None:
    assert SCHEMA["$schema"] == DRAFT
    jsonschema.Draft4Validator.check_schema(SCHEMA)
    assert json.loads(json.dumps(SCHEMA)) == SCHEMA


@pytest.mark.parametrize("file", CONFIGS, ids=lambda file: file.name)
def test_every_file_of_configs_fits(file: Path) -> None:
    assert [error.message for error in CHECKER.iter_errors(tomllib.loads(file.read_text()))] == []


@pytest.mark.parametrize("setting", every_setting(), ids=lambda setting: setting.key)
def test_every_setting_has_its_help_and_a_default_that_fits(setting: Setting) -> None:
    described = SCHEMA["properties"][setting.section]["properties"][setting.name]
    assert described["description"] == setting.metadata["help"]
    if "default" in described:
        jsonschema.validate(described["default"], {**described, "definitions": {}})


FITTING = [
    '[output]\npart_bytes = "64 KiB"\nshard_tokens = 5\n',
    '[sft]\nrole_names = {bot = "assistant", client = ["user"]}\n',
    "[sft]\ntemplate_kwargs = {enable_thinking = false}\n",
    '[render]\nfields = ["text=body"]\n',
    '[[source]]\npaths = "a.jsonl"\nrenderer = "text"\n',
    '[[source]]\nname = "a"\npaths = ["a.jsonl"]\nfields = {text = "body"}\n',
    '[mix]\ninputs = {wiki = 0.4, code = "2x"}\noutput = "o"\ndedup = true\nshuffle = 3\n',
    '[mix]\ninputs = ["wiki"]\noutput = "o"\ntokens = "60B"\ndrop = "list.txt"\n',
    '[training]\ngpu = "H100"\nsequence = "32k"\n',
    "[limits]\nmax_reject_fraction = 1\n",
]
WRONG = [
    "[outputs]\n",
    '[output]\ndirectory = "o"\n',
    "[output]\nval_fraction = 1.5\n",
    '[output]\nval_fraction = "0.1"\n',
    '[output]\npart_bytes = "many"\n',
    '[output]\ndtype = "uint8"\n',
    "[output]\nshard_tokens = -1\n",
    "[run]\nworkers = 1.5\n",
    "[run]\nworkers = true\n",
    "[run]\nworkers = 257\n",
    "[input]\nkeep = 5\n",
    '[input]\npaths = "a.jsonl"\n',
    "[sft]\nrole_names = {bot = 5}\n",
    "[sft]\npacked_rows = 1\n",
    '[[source]]\nname = "a"\n',
    '[[source]]\npaths = ["a.jsonl"]\nworkers = 1\n',
    '[[source]]\npaths = []\n',
    '[mix]\ninputs = ["a"]\noutput = "o"\ndedup = "some"\n',
    '[mix]\ninputs = 5\noutput = "o"\n',
    '[mix]\ninputs = ["a"]\noutput = "o"\nshares = 1\n',
]  # fmt: skip


@pytest.mark.parametrize("text", FITTING)
def test_what_is_read_fits(tmp_path: Path, text: str) -> None:
    assert is_read(tmp_path, text)
    assert accepts(text)


@pytest.mark.parametrize("text", WRONG)
def test_what_is_refused_does_not_fit(tmp_path: Path, text: str) -> None:
    assert not is_read(tmp_path, text)
    assert not accepts(text)


WRONG_VALUES: list[Any] = [True, 3.5, -(10**9), "no such value", ["no", 5], {"a": 5}, {}]


@pytest.mark.parametrize("setting", every_setting(), ids=lambda setting: setting.key)
def test_no_value_fits_that_is_refused_for_its_type(setting: Setting) -> None:
    """Names of tables and texts of amounts are looked up: the schema knows their form alone."""
    from tokmill.settings.load import checked_values

    for value in WRONG_VALUES:
        table = {setting.section: {setting.name: value}}
        try:
            checked_values(setting.section, {setting.name: setting}, {setting.name: value})
        except TokmillError:
            is_text = isinstance(value, str) and ("table" in setting.metadata)
            is_text |= isinstance(value, str) and bool(setting.metadata.get("is_json"))
            assert is_text or not CHECKER.is_valid(table), value
        else:
            assert CHECKER.is_valid(table), value
