"""A dataset is complete if every file of its manifest is there; else the same command mends it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tokmill.dataset.layout import DATASET_FILE
from tokmill.dataset.reader import read_manifest
from tokmill.dataset.verify import verify
from tokmill.executors.run import run
from tokmill.place import open_place
from tokmill.settings.schema import Config
from tokmill.settings.sft import SftSettings

TURNS = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "yes"}]


@pytest.fixture(scope="module")
def chats(tmp_path_factory, configure, silent, write_rows) -> Config:
    """A finished dataset of packed chats, with a val split and a reject."""
    directory = tmp_path_factory.mktemp("chats")
    source = write_rows(directory / "in.jsonl", [*([{"messages": TURNS}] * 9), b"{bad"])
    other = [*TURNS[:1], {"role": "assistant", "content": "no"}]
    more = write_rows(directory / "more.jsonl", [{"messages": other}] * 9)
    packed = SftSettings(template="plain", packing=64, packed_rows=True)
    config = configure(
        directory / "out", source, more, sft=packed, max_tokens=64, val_fraction=0.5,
        max_reject_fraction=1.0, part_bytes=200,
    )  # fmt: skip
    run(config, silent)
    return config


def kind_of(name: str) -> str:
    """Return a name without its numbers: one file of each kind is tried."""
    return "".join(c for c in name if not c.isdigit())


def one_of_each_kind(directory: Path) -> list[str]:
    names = [entry["name"] for entry in read_manifest(directory)["files"]]
    return list({kind_of(name): name for name in names if name != "plan.json"}.values())


def test_every_file_that_is_missing_or_truncated_is_made_again(chats, listener, files_of):
    out = Path(chats.output.dir)
    before = files_of(out)
    names = one_of_each_kind(out)
    assert len(names) >= 12
    for i, name in enumerate(names):
        data = (out / name).read_bytes()
        (out / name).unlink()
        if i % 2 and not name.startswith("parts/"):
            (out / name).write_bytes(data[:-1])
        manifest = run(chats, listener)
        assert (out / name).read_bytes() == data
        assert f"{out}: {name} was removed or cut: it is made again" in listener.warnings
        assert verify(open_place(str(out)), manifest).problems == ()
    assert files_of(out) == before
    assert all(DATASET_FILE.fullmatch(name) for name in names)


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data[:-9],
        lambda data: b'{\n"config":{}}',
        lambda data: data.replace(b'"dtype":"uint16"', b'"dtype":"uint32"'),
    ],
)
def test_a_manifest_that_was_changed_is_written_again(
    out, make_config, listener, change: Callable[[bytes], bytes]
):
    before = run(make_config(), listener)
    path = out / "manifest.json"
    data = change(path.read_bytes())
    path.unlink()
    path.write_bytes(data)
    again: dict[str, Any] = run(make_config(), listener)
    assert again["files"] == before["files"]
    assert json.loads(path.read_bytes())["sha256"] == again["sha256"]
    assert listener.warnings[-1].endswith(": it is written again")


def test_a_complete_dataset_with_a_foreign_file_is_not_changed(out, make_config, listener):
    manifest = run(make_config(), listener)
    (out / "notes.txt").write_text("mine")
    assert run(make_config(), listener) == manifest
