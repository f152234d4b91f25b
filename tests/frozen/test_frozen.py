"""Datasets that an earlier tokmill wrote are read, mixed, exported and continued as before.

`make frozen` adds new kinds. A change of what is read here is a change for everybody who has such a
dataset: see `make.py`.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.frozen.make import KINDS, FrozenSet, frozen_sets, interrupted, page_sum, prepare
from tests.frozen.reading import DAMAGES, continued, damaged_reading, reading_of
from tokmill.engines.engine import engine_version
from tokmill.errors import StateError
from tokmill.settings.schema import TokenizerSettings
from tokmill.sources.json_lines import parser_entry
from tokmill.tokenizer.tokenizer import load_tokenizer

NEWEST = frozen_sets()[-1]
EACH = [(frozen, name) for frozen in frozen_sets() for name in frozen.finished]
EVERY = pytest.mark.parametrize(
    ("frozen", "name"), EACH, ids=[f"{frozen.number}-{name}" for frozen, name in EACH]
)
TOKEN_FILES = re.compile(r"(train|val|packs|packed|rejects|duplicates).*|tokenizer\.zst")


@pytest.fixture
def frozen() -> FrozenSet:
    return NEWEST


@pytest.fixture(autouse=True)
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, frozen: FrozenSet) -> Path:
    """A working directory with the datasets of a set and their inputs."""
    prepare(tmp_path, frozen)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_kind_is_frozen() -> None:
    names = {path.name for path in NEWEST.datasets.iterdir()}
    assert set(KINDS) == set(NEWEST.expected) - {"damaged"} == names


def test_the_newest_set_is_of_the_format_that_the_page_describes() -> None:
    assert NEWEST.about["page"] == page_sum(), (
        f"docs/format.md has changed since set {NEWEST.number} was written. If names, keys or "
        "bytes on disk are others: `make frozen` writes the next set; commit it with the page. If "
        "the page says the same in other words: `python -m tests.frozen.make --wording`"
    )


@EVERY
def test_a_frozen_dataset_is_read_through_every_door_as_when_it_was_made(
    frozen: FrozenSet, name: str
) -> None:
    assert reading_of(Path("datasets", name)) == frozen.expected[name]


@EVERY
def test_inspect_shows_the_texts_of_a_frozen_dataset(
    frozen: FrozenSet, name: str, tokmill: Callable
) -> None:
    shown = tokmill("inspect", f"datasets/{name}", "--sample", "50", "--max-chars", "0")
    plain = re.sub("[«»‹›⏎]|×[0-9.]+", "", shown.out)
    texts = frozen.expected[name]["texts"]
    assert (shown.code, [text for text in texts if text not in plain]) == (0, [])


COMMANDS = (
    "verify {}", "audit {}", "stats {}", "report {}", "status {}", "inspect {} --sample 2",
    "pack {} --length 64",
    "mix {} -o mixed", "mix {}=2x --shuffle 3 -o shuffled", "export {} --to datatrove -o exported",
    "finish {}", "run-part {} --index 0 --of 1",
)  # fmt: skip
REFUSED = {
    "pack": lambda frozen, name: frozen.expected[name]["kind"] == "sft",  # chats are packed by sft
    "finish": lambda _, name: name.startswith("mix"),
    "run-part": lambda _, name: name.startswith("mix"),
    "status": lambda frozen, name: not (frozen.datasets / name / "plan.json").is_file(),
}
"""By command, whether it is not for a dataset: it ends with exit code 2."""


@pytest.mark.parametrize("frozen", frozen_sets(), ids=lambda frozen: str(frozen.number))
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_takes_a_frozen_dataset_of_each_kind(
    frozen: FrozenSet, command: str, tokmill: Callable
) -> None:
    for name in ("documents", "kept", "chats-weights", "imported", "mix-chats", "mix-linked"):
        words = command.format(f"datasets/{name}").split()
        done = tokmill(
            *words, *(["--drop-weights"] if name == "chats-weights" and "export" in words else [])
        )
        is_refused = REFUSED.get(words[0], lambda *_: False)(frozen, name)
        assert done.code == (2 if is_refused else 0), (words, done.err)
        for output in ("mixed", "shuffled", "exported"):
            shutil.rmtree(output, ignore_errors=True)


@pytest.mark.parametrize("name", NEWEST.finished)
def test_the_same_input_gives_the_files_that_are_frozen(name: str) -> None:
    KINDS[name]("again")
    assert token_files(Path("again")) == token_files(Path("datasets", name))


def test_tokens_of_the_same_input_are_equal_in_all_sets() -> None:
    for older in frozen_sets()[:-1]:
        for name in set(older.finished) & set(NEWEST.finished):
            found = token_files(older.datasets / name)
            assert found == token_files(NEWEST.datasets / name), (older.number, name)


def token_files(directory: Path) -> dict[str, bytes]:
    """Return the files of a dataset but those that tell how and when it was made."""
    paths = {path.relative_to(directory).as_posix(): path for path in directory.rglob("*")}
    return {
        name: path.read_bytes()
        for name, path in paths.items()
        if path.is_file() and TOKEN_FILES.fullmatch(name)
    }


@pytest.mark.parametrize("frozen", frozen_sets(), ids=lambda frozen: str(frozen.number))
def test_a_run_that_was_stopped_is_continued(frozen: FrozenSet) -> None:
    plan = json.loads(Path("datasets/interrupted/plan.json").read_bytes())
    tokenizer = load_tokenizer(TokenizerSettings(path="inputs/tokenizer"))
    here = (engine_version("reference", tokenizer), parser_entry()["version"])
    if here != (plan["engine"]["version"], plan["parser"]["version"]):
        with pytest.raises(StateError, match=r"began with .* installed is"):
            continued("datasets/interrupted")
        return
    kept = token_files(Path("datasets/interrupted"))
    assert len(kept) == 4 * 3 + 1  # of four shards, in four of five parts, and the tokenizer
    assert reading_of(continued("datasets/interrupted")) == frozen.expected["interrupted"]
    assert kept.items() < token_files(Path("datasets/interrupted")).items()


def test_what_is_interrupted_today_is_what_is_frozen() -> None:
    interrupted("again")
    assert token_files(Path("again")) == token_files(Path("datasets/interrupted"))


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_of_a_frozen_dataset_is_found_with_the_same_message(damage: str) -> None:
    told = NEWEST.expected["damaged"][damage]
    assert damaged_reading(damage) == told
    assert "failed" in told[0] or "damaged" in told[0]
