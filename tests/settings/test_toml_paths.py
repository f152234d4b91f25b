"""Paths in a TOML file are relative to its folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import tokmill as package
from tests.cli.conftest import write_lines
from tokmill.errors import UsageError
from tokmill.settings.toml_paths import from_folder

FILE = Path("conf/run.toml")


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder with configurations in `conf`, and data beside it."""
    for name in ("conf", "data", "elsewhere"):
        (tmp_path / name).mkdir()
    (tmp_path / "data/a.jsonl").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


CASES = {
    "beside the file": ("a.jsonl", "conf/a.jsonl"),
    "a pattern": ("*.jsonl", "conf/*.jsonl"),
    "above": ("../data/a.jsonl", "data/a.jsonl"),
    "a list": (["x", "../data"], ["conf/x", "data"]),
    "a table": ({"../data": 0.5}, {"data": 0.5}),
    "absolute": ("/x/y", "/x/y"),
    "a store": ("s3://bucket/x", "s3://bucket/x"),
    "the Hub": ("hf:roneneldan/TinyStories", "hf:roneneldan/TinyStories"),
    "standard input": ("-", "-"),
    "none": ("", ""),
    "a number": (7, 7),
}


@pytest.mark.parametrize(("value", "expected"), CASES.values(), ids=CASES)
def test_a_path_is_that_of_the_folder_of_the_file(project, value, expected):
    assert from_folder(value, FILE) == expected


@pytest.mark.parametrize("value", ["gpt2", "Qwen/Qwen2.5-0.5B", "chatml"])
def test_what_may_be_a_name_is_one_if_nothing_stands_there(project, value):
    assert from_folder(value, FILE, may_be_name=True) == value
    (project / "conf" / value).mkdir(parents=True)
    assert from_folder(value, FILE, may_be_name=True) == f"conf/{value}"


def test_a_folder_that_is_a_link_keeps_its_dots(project):
    (project / "deep/er").mkdir(parents=True)
    (project / "other").symlink_to(project / "deep/er")
    assert from_folder("../data/a", Path("other/run.toml")) == "other/../data/a"


def test_a_path_of_the_current_directory_is_an_error_that_says_what_to_write(project):
    with pytest.raises(UsageError) as caught:
        from_folder("data/a.jsonl", FILE)
    assert str(caught.value).endswith(": write ../data/a.jsonl")
    assert from_folder("../data/a.jsonl", FILE) == "data/a.jsonl"


TOML = """
input.paths = ["a.jsonl"]
tokenizer.path = "../tok"
output.dir = "../made/%s"
"""


def test_a_run_and_a_mix_of_files_in_a_folder_work_from_anywhere(
    tmp_path, tokenizer_dir, monkeypatch
):
    (tmp_path / "conf").mkdir()
    (tmp_path / "tok").symlink_to(tokenizer_dir)
    write_lines(tmp_path / "conf/a.jsonl", [{"text": "hello"}] * 3)
    source = '[[source]]\npaths = "a.jsonl"\nname = "x"\n'
    (tmp_path / "conf/run.toml").write_text(TOML % "one")
    (tmp_path / "conf/named.toml").write_text(TOML.replace("input", "#") % "two" + source)
    mix = '[mix]\ninputs = ["../made/one=1x", "../made/two"]\noutput = "../made/both"\n'
    (tmp_path / "conf/mix.toml").write_text(mix)
    monkeypatch.chdir("/")
    relative = Path(os.path.relpath(tmp_path, "/"))
    for name in ("run", "named"):
        package.pretrain(config=relative / f"conf/{name}.toml", progress=False)
    mixed = package.mix(config=relative / "conf/mix.toml", progress=False)
    assert mixed.directory.resolve() == (tmp_path / "made/both").resolve()
    assert mixed.text(0) == "hello<eos>"
