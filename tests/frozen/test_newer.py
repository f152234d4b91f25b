"""A dataset of a later version is refused by every command, and nothing is changed."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import tokmill as api
from tests.frozen.make import frozen_sets, prepare
from tokmill.dataset.checksum import json_chunks
from tokmill.errors import StateError

RUN = "-t inputs/tokenizer -o later"
COMMANDS = (
    "verify later", "audit later", "stats later", "inspect later", "report later",
    "report later --html page.html",
    "pack later --length 16", "export later --to nanogpt -o out", "mix later -o out",
    "mix later --plan -o out", "mix other -o later", "mix other -o later --overwrite",
    "export other --to nanogpt -o later --overwrite", "status later", "finish later",
    "run-part later --index 0 --of 1", f"pretrain inputs/documents.jsonl {RUN}",
    f"pretrain inputs/documents.jsonl {RUN} --overwrite", f"sft inputs/chats.jsonl {RUN}",
    f"sft inputs/chats.jsonl {RUN} --overwrite",
    f"plan inputs/documents.jsonl {RUN} --write",
    f"import inputs/nanogpt --from nanogpt {RUN}",
    f"import inputs/nanogpt --from nanogpt {RUN} --overwrite",
)  # fmt: skip
READERS: dict[str, Callable[[str], object]] = {
    "open": api.open,
    "verify": api.verify,
    "stats": api.stats,
    "status": api.status,
    "loader.windows": lambda path: api.loader.windows(path, 8, shift=True),
    "loader.packs": lambda path: api.loader.packs(path, shift=True),
    "Loader": lambda path: api.loader.Loader(api.loader.windows(path, 8, shift=True), 1, seed=1),
}
NAMES = ("manifest.json", "plan.json")


@pytest.fixture(autouse=True)
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the datasets `other` and `later`, of which `later` is to change."""
    newest = frozen_sets()[-1]
    prepare(tmp_path, newest)
    for name in ("other", "later"):
        shutil.copytree(newest.datasets / "documents", tmp_path / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def make_later(name: str) -> None:
    """Give a file of `later` the next version; the keys of a manifest are unknown ones, too."""
    path = Path("later", name)
    data = json.loads(path.read_bytes())
    path.unlink()
    if name == "manifest.json":
        data = {f"new_{key}": value for key, value in data.items()} | {"sha256": "0"}
    else:
        Path("later", "manifest.json").unlink()
    path.write_bytes(b"".join(json_chunks({**data, "format_version": 2})))


def contents() -> dict[str, bytes]:
    files = [path for path in Path("later").rglob("*") if path.is_file() and path.name != ".lock"]
    return {str(path): path.read_bytes() for path in files}


@pytest.mark.parametrize("name", NAMES)
def test_every_command_refuses_a_later_version_and_changes_nothing(
    name: str, tokmill: Callable
) -> None:
    make_later(name)
    before = contents()
    for command in COMMANDS:
        done = tokmill(*command.split())
        told = done.err.splitlines()[-1]
        assert done.code == 6, (command, told)
        assert re.search(r"later\S* ?.*(format version 2 is newer|not finished)", told), (
            command,
            told,
        )
        assert contents() == before, command
        assert not Path("out").exists(), command


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_readers_in_python_refuse_a_later_version(read: Callable[[str], object]) -> None:
    make_later("manifest.json")
    with pytest.raises(StateError, match="format version 2 is newer than version 1, which this"):
        read("later")


def test_a_record_of_a_part_of_a_later_version_is_not_called_damaged() -> None:
    path = Path("later", "parts", "0000000.json")
    path.unlink()
    path.write_text('{"format_version":2,"shards_of_part":[]}\n')
    Path("later", "manifest.json").unlink()
    with pytest.raises(StateError, match="format version 2 is newer than version 1"):
        api.status("later")
