"""What `--overwrite` removes is a dataset or an export of tokmill: with a file of others, nothing.

Every command that writes a directory, over every kind of directory, with every kind of member.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import tokmill
from tokmill.cli.main import cli
from tokmill.dataset.checksum import json_chunks, manifest_sha256
from tokmill.errors import TokmillError

ROWS = [{"text": f"some words {i}"} for i in range(30)]

WRITERS = {
    "pretrain": "pretrain {texts} -t {t} -o {o} -q --engine reference --threads 1",
    "sft": "sft {chats} -t {t} -o {o} -q --template plain --engine reference --threads 1",
    "plan": "plan {texts} -t {t} -o {o} --write --engine reference",
    "mix": "mix {other} -o {o} --workers 1 -q",
    "shuffle": "mix {other} -o {o} --workers 1 --shuffle 1 -q",
    "import": "import --from megatron {other} -t {t} -o {o}",
    "export": "export {other} --to nanogpt -o {o}",
    "datasets": "export {other} --to datasets -o {o}",
}

HELD = ["run", "stopped", "import", "mix", "stopped mix", "packs", "export", "damaged"]


def invoke(command: str, **names: Path) -> str:
    """Run a command; return its one line of error, or ''."""
    words = command.format(**names).split()
    done = CliRunner().invoke(cli, words, standalone_mode=False)
    if done.exception is None:
        return ""
    if not isinstance(done.exception, TokmillError):
        raise AssertionError(words) from done.exception
    assert "\n" not in str(done.exception)
    return str(done.exception)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory, tokenizer_dir: Path) -> dict[str, Path]:
    """A corpus, chats, a tokenizer, and a dataset to mix, import and export."""
    folder = tmp_path_factory.mktemp("inputs")
    (folder / "texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    turns = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "yes"}]
    (folder / "chats.jsonl").write_text(f"{json.dumps({'messages': turns})}\n" * 20)
    names = {"texts": folder / "texts.jsonl", "chats": folder / "chats.jsonl", "t": tokenizer_dir}
    assert invoke(WRITERS["pretrain"], **names, o=folder / "other") == ""
    return {**names, "other": folder / "other"}


@pytest.fixture(scope="module")
def held(inputs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A directory of each kind that tokmill writes."""
    folder = tmp_path_factory.mktemp("held")
    made = {kind: folder / kind.replace(" ", "-") for kind in HELD}
    for kind in ("run", "stopped", "packs", "damaged"):
        assert invoke(WRITERS["pretrain"], **inputs, o=made[kind]) == ""
    (made["stopped"] / "manifest.json").unlink()
    tokmill.pack(made["packs"], 64)
    manifest = made["damaged"] / "manifest.json"
    data = manifest.read_bytes()
    manifest.unlink()
    manifest.write_bytes(data[:-9])
    for kind, writer in {"import": "import", "mix": "mix", "export": "datasets"}.items():
        assert invoke(WRITERS[writer], **inputs, o=made[kind]) == ""
    shutil.copytree(made["mix"], made["stopped mix"])
    (made["stopped mix"] / "manifest.json").unlink()
    (made["stopped mix"] / ".mix").mkdir()
    request = {"boot": "", "fingerprint": "", "parts": 1}
    (made["stopped mix"] / ".mix" / "request.json").write_text(json.dumps(request))
    (made["stopped mix"] / ".mix" / "run-0").touch()
    return made


def copied(directory: Path, output: Path) -> Path:
    shutil.copytree(directory, output)
    return output


def state(directory: Path) -> dict[str, Any]:
    """Return what stands in a directory, with times but those of the lock."""
    return {
        path.relative_to(directory).as_posix(): path.lstat().st_mtime_ns
        for path in directory.rglob("*")
        if path.name != ".lock" and (path.is_symlink() or not path.is_dir())
    } | {path.relative_to(directory).as_posix(): 0 for path in directory.rglob("*/")}


@pytest.mark.parametrize("writer", WRITERS)
def test_whatever_tokmill_made_is_replaced(
    inputs: dict[str, Path], held: dict[str, Path], tmp_path: Path, writer: str
) -> None:
    new = tmp_path / "new"
    assert invoke(WRITERS[writer], **inputs, o=new) == ""
    wanted = {name for name in state(new) if name not in ("parts", "rejects")}
    for kind in HELD:
        output = copied(held[kind], tmp_path / kind.replace(" ", "-"))
        assert invoke(f"{WRITERS[writer]} --overwrite", **inputs, o=output) == "", kind
        assert {name for name in state(output) if name not in ("parts", "rejects")} == wanted, kind
    assert {path.name for path in tmp_path.iterdir()} == {
        "new", *(kind.replace(" ", "-") for kind in HELD)
    }  # fmt: skip


def folder_with_a_file(path: Path) -> None:
    path.mkdir()
    (path / "inside").write_text("years of work")


def link(path: Path) -> None:
    path.symlink_to("/etc/passwd")


def listen(path: Path) -> None:
    before = Path.cwd()
    os.chdir(path.parent)  # the path of a socket has at most 107 bytes
    try:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(path.name)
    finally:
        os.chdir(before)


MEMBERS: list[tuple[str, Callable[[Path], Any]]] = [
    ("notes.txt", Path.touch),
    (".notes", Path.touch),
    ("train-9999999-0000.bin", Path.touch),
    ("train-0000000-0000.bin.orig", Path.touch),
    ("packed.txt", Path.touch),
    ("empty", Path.mkdir),
    ("full", folder_with_a_file),
    (".hidden", folder_with_a_file),
    ("link", link),
    ("train-0000000-0001.bin", link),
    ("train-0000000-0002.idx", Path.mkdir),
    ("pipe", os.mkfifo),
    ("parts/0009999.json", Path.touch),
    ("parts/notes.txt", Path.touch),
    ("parts/.notes", Path.touch),
    ("parts/empty", Path.mkdir),
    ("rejects/link", link),
    ("rejects/socket", listen),
    (".mix", link),
    (".manifest.json.1-0123abcd.tmp", link),
]


@pytest.mark.parametrize("writer", WRITERS)
def test_beside_a_file_of_others_nothing_is_removed(
    inputs: dict[str, Path], held: dict[str, Path], tmp_path: Path, writer: str
) -> None:
    for number, (name, make) in enumerate(MEMBERS):
        kind = HELD[number % len(HELD)]
        output = copied(held[kind], tmp_path / str(number))
        if (output / ".mix").exists():
            shutil.rmtree(output / ".mix" if name == ".mix" else output / "nothing", True)
        (output / name).parent.mkdir(exist_ok=True)
        make(output / name)
        before = state(output)
        said = invoke(f"{WRITERS[writer]} --overwrite", **inputs, o=output)
        folder = name.split("/")[0] if kind == "export" else name
        wanted = rf"{output}: holds (more than an?|files, but no) .*\({re.escape(folder)}( and |\))"
        assert re.match(wanted, said), (kind, name, said)
        assert state(output) == before, (kind, name)


@pytest.mark.parametrize("writer", WRITERS)
def test_a_file_that_only_looks_like_one_of_a_complete_dataset_is_of_others(
    inputs: dict[str, Path], held: dict[str, Path], tmp_path: Path, writer: str
) -> None:
    for kind in ("run", "import", "mix", "packs"):
        output = copied(held[kind], tmp_path / kind)
        (output / "train-0000000-0007.bin").write_bytes(b"years of work")
        before = state(output)
        said = invoke(f"{WRITERS[writer]} --overwrite", **inputs, o=output)
        assert "holds more than a dataset (train-0000000-0007.bin)" in said
        assert state(output) == before


@pytest.mark.parametrize("writer", WRITERS)
def test_what_is_no_directory_is_not_replaced(
    inputs: dict[str, Path], tmp_path: Path, writer: str
) -> None:
    output = tmp_path / "out"
    for make in (Path.touch, os.mkfifo):
        make(output)
        assert invoke(f"{WRITERS[writer]} --overwrite", **inputs, o=output).startswith(str(output))
        assert not output.is_dir()
        output.unlink()


@pytest.mark.parametrize("writer", ["mix", "shuffle", "import", "export", "datasets"])
def test_what_is_read_is_not_replaced(
    inputs: dict[str, Path], held: dict[str, Path], tmp_path: Path, writer: str
) -> None:
    output = copied(inputs["other"], tmp_path / "other")
    (tmp_path / "link").symlink_to(output)
    before = state(output)
    for source in (output, tmp_path / "link", output / "parts" / ".."):
        names = {**inputs, "other": source}
        said = invoke(f"{WRITERS[writer]} --overwrite", **names, o=output)
        assert re.search("would be replaced|is inside", said), source
        assert state(output) == before


def test_a_corpus_in_the_output_is_not_replaced(
    inputs: dict[str, Path], held: dict[str, Path], tmp_path: Path
) -> None:
    output = copied(held["export"], tmp_path / "out")
    corpus = Path(shutil.copy(inputs["texts"], output))
    record = json.loads((output / "tokmill-export.json").read_bytes())
    record["files"].append({**record["files"][0], "name": corpus.name})
    (output / "tokmill-export.json").unlink()
    (output / "tokmill-export.json").write_text(json.dumps(record))
    said = invoke(f"{WRITERS['pretrain']} --overwrite", **{**inputs, "texts": corpus}, o=output)
    assert "would be replaced: name another output" in said
    assert corpus.exists()


@pytest.mark.parametrize("writer", ["pretrain", "plan", "mix"])
def test_an_output_may_be_a_link_that_the_user_names(
    inputs: dict[str, Path], held: dict[str, Path], tmp_path: Path, writer: str
) -> None:
    real = copied(held["mix"], tmp_path / "real")
    (tmp_path / "link").symlink_to(real)
    (real / "notes.txt").touch()
    before = state(real)
    said = invoke(f"{WRITERS[writer]} --overwrite", **inputs, o=tmp_path / "link")
    assert "holds more than a dataset (notes.txt)" in said
    assert state(real) == before
    (real / "notes.txt").unlink()
    assert invoke(f"{WRITERS[writer]} --overwrite", **inputs, o=tmp_path / "link") == ""
    assert (tmp_path / "link").is_symlink()
    assert (real / "plan.json").exists()


NAMES = ["../texts.jsonl", "/etc/passwd", "a\0b/c", "\ud800/x", "", ".", "parts/../../x", [], None]


@pytest.mark.parametrize("writer", ["pretrain", "mix", "export"])
@pytest.mark.parametrize("name", NAMES)
def test_what_a_forged_list_names_elsewhere_stays(
    inputs: dict[str, Path], held: dict[str, Path], tmp_path: Path, writer: str, name: Any
) -> None:
    (tmp_path / "x").touch()
    for kind, listing in (("export", "tokmill-export.json"), ("run", "manifest.json")):
        output = copied(held[kind], tmp_path / kind)
        path = output / listing
        listed = json.loads(path.read_bytes())
        listed["files"].append({**listed["files"][0], "name": name})
        path.unlink()
        if "sha256" in listed:
            listed["sha256"] = manifest_sha256(listed)
            path.write_bytes(b"".join(json_chunks(listed)))
        else:
            path.write_text(json.dumps(listed))
        invoke(f"{WRITERS[writer]} --overwrite", **inputs, o=output)
        assert (tmp_path / "x").exists()
        assert inputs["texts"].exists()
