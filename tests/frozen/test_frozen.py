"""Datasets that an earlier tokmill wrote are read, mixed, exported and continued as before.

`make frozen` adds new kinds. A change of what is read here is a change for everybody who has such a
dataset: see `make.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.frozen.make import DATASETS, EXPECTED, KINDS, interrupted, prepare
from tests.frozen.reading import DAMAGES, continued, damaged_reading, reading_of
from tokmill.engines.engine import engine_version
from tokmill.errors import StateError
from tokmill.settings.schema import TokenizerSettings
from tokmill.sources.json_lines import parser_entry
from tokmill.tokenizer.tokenizer import load_tokenizer

READ = json.loads(EXPECTED.read_text("utf-8"))
FINISHED = sorted(set(READ) - {"interrupted", "damaged"})
TOKEN_FILES = re.compile(r"(train|val|packs|packed|rejects|duplicates).*|tokenizer\.zst")


@pytest.fixture(autouse=True)
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the frozen datasets and their inputs."""
    prepare(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_kind_is_frozen() -> None:
    frozen = {path.name for path in DATASETS.iterdir()}
    assert set(KINDS) == set(READ) - {"damaged"} == frozen


@pytest.mark.parametrize("name", FINISHED)
def test_a_frozen_dataset_is_read_through_every_door_as_when_it_was_made(name: str) -> None:
    assert reading_of(Path("datasets", name)) == READ[name]


@pytest.mark.parametrize("name", FINISHED)
def test_inspect_shows_the_texts_of_a_frozen_dataset(name: str, tokmill: Callable) -> None:
    shown = tokmill("inspect", f"datasets/{name}", "--sample", "50", "--max-chars", "0")
    plain = re.sub("[«»‹›⏎]|×[0-9.]+", "", shown.out)
    assert (shown.code, [text for text in READ[name]["texts"] if text not in plain]) == (0, [])


@pytest.mark.parametrize("name", FINISHED)
def test_the_same_input_gives_the_files_that_are_frozen(name: str) -> None:
    KINDS[name]("again")
    assert token_files(Path("again")) == token_files(Path("datasets", name))


def token_files(directory: Path) -> dict[str, bytes]:
    """Return the files of a dataset but those that tell how and when it was made."""
    paths = {path.relative_to(directory).as_posix(): path for path in directory.rglob("*")}
    return {
        name: path.read_bytes()
        for name, path in paths.items()
        if path.is_file() and TOKEN_FILES.fullmatch(name)
    }


def test_a_run_that_was_stopped_is_continued(tokmill: Callable) -> None:
    plan = json.loads(Path("datasets/interrupted/plan.json").read_bytes())
    tokenizer = load_tokenizer(TokenizerSettings(path="inputs/tokenizer"))
    here = (engine_version("reference", tokenizer), parser_entry()["version"])
    if here != (plan["engine"]["version"], plan["parser"]["version"]):
        with pytest.raises(StateError, match=r"began with .* installed is"):
            continued("datasets/interrupted")
        return
    kept = token_files(Path("datasets/interrupted"))
    assert len(kept) == 4 * 3 + 1  # of four shards, in four of five parts, and the tokenizer
    assert reading_of(continued("datasets/interrupted")) == READ["interrupted"]
    assert kept.items() < token_files(Path("datasets/interrupted")).items()


def test_what_is_interrupted_today_is_what_is_frozen() -> None:
    interrupted("again")
    assert token_files(Path("again")) == token_files(Path("datasets/interrupted"))


@pytest.mark.parametrize("damage", READ["damaged"])
def test_damage_of_a_frozen_dataset_is_found_with_the_same_message(damage: str) -> None:
    assert damaged_reading(damage) == READ["damaged"][damage]


def test_every_damage_is_noticed() -> None:
    assert list(READ["damaged"]) == list(DAMAGES)
    assert all("failed" in told[0] or "damaged" in told[0] for told in READ["damaged"].values())
