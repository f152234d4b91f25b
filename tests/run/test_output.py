from __future__ import annotations

import os
from pathlib import Path

import pytest

from tokmill.dataset.canonical import json_chunks
from tokmill.dataset.plan_file import PLAN_FORMAT, plan_fingerprint
from tokmill.errors import StateError
from tokmill.place import open_place
from tokmill.run.output import holds_only_plan, remove_dataset, remove_leftovers

DATASET = [
    "plan.json",
    "manifest.json",
    "train-0000000-0000.bin",
    "train-0000000-0000.idx",
    "train-0000000-0000.mask",
    "train-0000000-0000.weight",
    "val-0000000-12345.bin",
    "packs-train-rows.bin",
    "packs-train-samples.bin",
    "packed-train-0000.bin",
    "packed-train-0000.idx",
    "packed-train-0000.mask",
    "parts/0000000.json",
    "rejects/0000000.jsonl",
]


def plan_bytes(n_parts: int, **more: object) -> bytes:
    """Return the bytes of a plan of some parts, with its right fingerprint."""
    plan: dict[str, object] = dict.fromkeys(("tokenizer_sha256", "tokmill_version"), "0")
    plan |= {
        "bos_id": None,
        "checksum": "blake3",
        "eos_id": 0,
        "engine": {},
        "files": [],
        "settings": {},
    }
    plan |= {"format": PLAN_FORMAT, "format_version": 1, "parts": [[]] * n_parts, **more}
    return b"".join(json_chunks({**plan, "fingerprint": plan_fingerprint(plan)}))


@pytest.fixture
def directory(tmp_path) -> Path:
    """A directory that holds the files of a dataset of one part."""
    for name in [*DATASET, ".lock"]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "plan.json").write_bytes(plan_bytes(1, template_sha256="0"))
    (tmp_path / "manifest.json").write_bytes(b'{\n"config":{}}')
    return tmp_path


def names(directory: Path) -> set[str]:
    return {p.relative_to(directory).as_posix() for p in directory.rglob("*") if not p.is_dir()}


def clear_owned(directory: Path) -> None:
    place = open_place(str(directory))
    remove_dataset(place, place.entries())


def refusal(directory: Path) -> str:
    """Return why a directory is not cleared; nothing in it may have changed."""
    before = {name: (directory / name).lstat().st_size for name in names(directory)}
    with pytest.raises(StateError) as caught:
        clear_owned(directory)
    assert {name: (directory / name).lstat().st_size for name in names(directory)} == before
    return str(caught.value)


FOREIGN = [
    "thesis.tex",
    "train.bin",
    "train-1.bin",
    "plan.json.bak",
    "parts/precious.txt",
    "parts/0000001.json",
    "rejects/mine.jsonl",
    "rejects/0000001.jsonl",
    "train-0000001-0000.bin",
    "backup/train-0000000-0000.bin",
    "parts/more/0000000.json",
    "train-0000000-0001.bin/inside",
    "train-\u0661234567-0000.bin",
]


@pytest.mark.parametrize("name", FOREIGN)
def test_nothing_is_removed_beside_a_foreign_file(directory, name):
    (directory / name).parent.mkdir(exist_ok=True)
    (directory / name).write_bytes(b"years of work")
    head, _, rest = name.partition("/")
    named = name if head in ("parts", "rejects") and rest.count("/") == 0 else head
    named = "parts/more" if name.startswith("parts/more") else named
    assert refusal(directory) == (
        f"{directory}: holds more than this dataset ({named}): nothing was changed; "
        "move that away, or choose another --output"
    )


def test_files_of_chats_are_not_those_of_pretraining(directory):
    (directory / "plan.json").write_bytes(plan_bytes(1))
    assert "(packed-train-0000.bin and 6 more)" in refusal(directory)


@pytest.mark.parametrize("name", ["parts", "rejects", "manifest.json", "train-0000000-0000.bin"])
def test_removing_a_dataset_follows_no_link(directory, tmp_path_factory, name):
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "moved"
    (directory / name).rename(elsewhere)
    (directory / name).symlink_to(elsewhere)
    assert f"({name})" in refusal(directory)
    assert elsewhere.exists()


def test_a_link_in_place_of_the_plan_is_not_followed(directory, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "plan.json"
    (directory / "plan.json").rename(elsewhere)
    (directory / "plan.json").symlink_to(elsewhere)
    assert refusal(directory) == (
        f"{directory}/plan.json: not a regular file: choose another --output"
    )


def test_a_pipe_in_place_of_the_plan_does_not_block(directory):
    (directory / "plan.json").unlink()
    os.mkfifo(directory / "plan.json")
    assert "not a regular file" in refusal(directory)


@pytest.mark.parametrize("content", [b"", b'{"steps": ["buy milk"]}', b'{"parts": [[]]}'])
def test_a_foreign_plan_does_not_make_a_directory_tokmill_s(directory, content):
    (directory / "plan.json").write_bytes(content)
    (directory / "parts" / "precious.txt").write_bytes(b"years of work")
    message = refusal(directory)
    assert message.startswith(f"{directory}/plan.json: not written by tokmill (")
    assert message.endswith("): nothing was changed; choose another --output")


def test_a_foreign_manifest_is_not_removed(directory):
    (directory / "manifest.json").write_bytes(b'{"version": 3}')
    assert "(manifest.json)" in refusal(directory)


def test_a_damaged_plan_is_removed_with_its_dataset_only(directory):
    (directory / "plan.json").write_bytes(plan_bytes(1)[:40])
    (directory / "mine").touch()
    assert "(mine)" in refusal(directory)
    (directory / "mine").unlink()
    clear_owned(directory)
    assert names(directory) == {".lock"}


def test_clear_refuses_a_directory_without_a_plan(directory):
    (directory / "plan.json").unlink()
    assert "holds a dataset without its plan.json: restore" in refusal(directory)
    (directory / "manifest.json").unlink()
    assert "holds files but no plan of a run (packed-train-0000.bin and" in refusal(directory)


HIDDEN = [
    "parts/.my.checkpoint",
    ".DS_Store",
    ".notes.tmp",
    ".thesis.tex.1-0123abcd.tmp",
    "parts/.x.tmp",
    ".x.checkpoint",
]
TEMPORARY = [
    ".train-0000000-0001.bin.1-0123abcd.tmp",
    ".manifest.json.77-00000000.tmp",
    "parts/.0000000.json.1-0123abcd.tmp",
    "rejects/.0000000.jsonl.1-0123abcd.tmp",
]


def test_leftovers_are_only_tokmill_s_own_temporary_files(directory):
    before = names(directory)
    for name in [*HIDDEN, *TEMPORARY]:
        (directory / name).write_bytes(b"x")
    remove_leftovers(open_place(str(directory)))
    assert names(directory) == before | set(HIDDEN)


def test_clear_leaves_hidden_files_of_others_and_removes_tokmill_s(directory):
    for name in [*HIDDEN, *TEMPORARY, "parts/.task-0-of-2.json"]:
        (directory / name).write_bytes(b"x")
    clear_owned(directory)
    assert names(directory) == {".lock", *HIDDEN}


def test_a_link_with_the_name_of_a_temporary_stays(directory, tmp_path_factory):
    precious = tmp_path_factory.mktemp("elsewhere") / "precious"
    precious.touch()
    (directory / TEMPORARY[0]).symlink_to(precious)
    remove_leftovers(open_place(str(directory)))
    assert (directory / TEMPORARY[0]).is_symlink()


@pytest.mark.parametrize(
    ("name", "is_begun"),
    [(".lock", False), ("train-0000000-0000.bin", True), ("manifest.json", True)],
)
def test_a_directory_with_only_a_plan_holds_no_run(tmp_path, name, is_begun):
    (tmp_path / "parts").mkdir()
    (tmp_path / "plan.json").write_bytes(plan_bytes(1))
    (tmp_path / name).touch()
    assert holds_only_plan(open_place(str(tmp_path)).entries()) is not is_begun
