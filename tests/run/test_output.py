from __future__ import annotations

import os
from pathlib import Path

import pytest

from tokmill.dataset.checksum import json_chunks
from tokmill.dataset.contents import remove_contents, remove_leftovers
from tokmill.dataset.plan_file import PLAN_FORMAT, plan_fingerprint
from tokmill.errors import StateError
from tokmill.place import open_place
from tokmill.run.finish import run

DATASET = [
    "plan.json",
    "tokenizer.zst",
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
    plan: dict[str, object] = dict.fromkeys(("tokenizer_identity", "tokmill_version"), "0")
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
    remove_contents(open_place(str(directory)))


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
    "parts/precious.txt",
    "parts/0000001.json",
    "train-0000001-0000.bin",
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
        f"{directory}: holds more than a dataset ({named}): nothing was changed; "
        "move that away, or name another output"
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


def test_clear_refuses_a_directory_without_any_list_of_its_files(directory):
    (directory / "plan.json").unlink()
    (directory / "manifest.json").unlink()
    said = refusal(directory)
    assert "holds files, but no dataset or export of tokmill (packed-train-0000.bin and" in said


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


def test_clear_removes_what_killed_processes_of_tokmill_left(directory):
    left = ["parts/.task-0-of-2.json", "packs-val-64-drop-rows.bin"]
    for name in [*TEMPORARY, *left]:
        (directory / name).write_bytes(b"x")
    clear_owned(directory)
    assert names(directory) == {".lock"}


@pytest.mark.parametrize("name", [*HIDDEN, "parts/.task-mine.json", ".mix/notes.txt"])
def test_nothing_is_removed_beside_a_hidden_file_of_others(directory, name):
    (directory / name).parent.mkdir(exist_ok=True)
    (directory / name).write_bytes(b"years of work")
    assert f"holds more than a dataset ({name})" in refusal(directory)


# At the door


def test_a_directory_with_a_foreign_plan_is_not_emptied(out, make_config, listener):
    (out / "parts").mkdir(parents=True)
    (out / "plan.json").write_text('{"steps": ["buy milk"]}')
    (out / "parts" / "precious.txt").write_text("years of work")
    with pytest.raises(StateError, match=r"plan\.json: not written by tokmill"):
        run(make_config(), listener, overwrite=True)
    assert (out / "parts" / "precious.txt").read_text() == "years of work"
    assert (out / "plan.json").read_text() == '{"steps": ["buy milk"]}'


@pytest.mark.parametrize(
    ("name", "overwrite"),
    [("thesis.tex", True), ("parts/precious.txt", False), ("rejects/mine", True)],
)
def test_a_run_continues_only_among_its_own_files(
    out, make_config, listener, begun, name, overwrite
):
    (out / name).write_text("years of work")
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()}
    with pytest.raises(StateError, match=rf"holds more than a dataset \({name}\): nothing was"):
        run(make_config(), listener, overwrite=overwrite)
    assert {p: p.stat().st_mtime_ns for p in out.rglob("*") if p.is_file()} == before


def test_a_resume_does_not_replace_a_foreign_file_with_the_name_of_a_shard(
    out, make_config, listener, begun
):
    last = max(out.glob("train-*.bin"))
    (out / "parts" / f"{last.name[6:13]}.json").unlink(missing_ok=True)
    last.unlink()
    last.write_bytes(b"years of work")
    with pytest.raises(StateError) as caught:
        run(make_config(), listener)
    assert str(caught.value).startswith(
        f"{last}: this run did not write that file: move it away and run the same command again"
    )
    assert last.read_bytes() == b"years of work"
    last.unlink()
    assert run(make_config(), listener).plain["files"] == begun["files"]


@pytest.mark.parametrize(
    ("name", "overwrite"),
    [("thesis.tex", True), ("plan.json", False), ("train-0000000-0000.bin", True)],
)
def test_a_foreign_directory_gets_no_lock(out, make_config, listener, name, overwrite):
    out.mkdir()
    (out / name).write_text("years of work")
    with pytest.raises(StateError):
        run(make_config(), listener, overwrite=overwrite)
    assert [path.name for path in out.iterdir()] == [name]


def test_the_output_may_be_a_link_to_a_directory(out, make_config, listener, tmp_path):
    (tmp_path / "large-disk").mkdir()
    out.symlink_to(tmp_path / "large-disk")
    first = run(make_config(), listener).plain
    assert run(make_config(), listener, overwrite=True).plain["files"] == first["files"]
    assert out.is_symlink()


def test_shards_without_records_are_not_removed_for_other_settings(
    out, make_config, listener, begun
):
    for record in (out / "parts").iterdir():
        record.unlink()
    before = sorted(out.rglob("*"))
    with pytest.raises(StateError, match="holds a run of other inputs or settings"):
        run(make_config(min_tokens=3), listener)
    assert sorted(out.rglob("*")) == before
