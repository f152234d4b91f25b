"""No step gives damaged bytes new, right checksums: every step, every kind of file, two moments.

A step refuses what is damaged and leaves nothing complete; or it does not read that file, and
writes what it writes of the sound dataset; or it links the file, and `verify` finds the damage.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tokmill
from tests.fixtures.datasets import TOKENIZER
from tokmill.dataset.checked import CheckedFiles
from tokmill.errors import VerifyError
from tokmill.trainers.export import file_problems, read_record

Step = Callable[[Path, Path], object]


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset with every kind of file that documents for pretraining have."""
    folder = tmp_path_factory.mktemp("texts")
    rows = [{"text": f"text {n % 20} " * (1 + n % 9), "url": f"u/{n}"} for n in range(60)]
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    tokmill.pretrain(
        path, tokenizer=TOKENIZER, output=folder / "made", keep=["url"], part_bytes=700,
        progress=False,
    )  # fmt: skip
    tokmill.mix(folder / "made", output=folder / "out", dedup="mark", progress=False)
    tokmill.pack(folder / "out", length=16)
    return folder / "out"


@pytest.fixture(scope="module")
def chats(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset with every kind of file that chats have."""
    folder = tmp_path_factory.mktemp("chats")
    rows = [
        {
            "messages": [
                {"role": "user", "content": f"question {n}"},
                {"role": "assistant", "content": f"answer {n} " * (1 + n % 9)},
            ],
            "weight": 0.5 + n % 3,
            "url": f"u/{n}",
        }
        for n in range(40)
    ]
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    tokmill.sft(
        path, tokenizer=TOKENIZER, output=folder / "out", keep=["url"], weights="file", packing=256,
        max_tokens=256, packed_rows=True, part_bytes=2000, progress=False,
    )  # fmt: skip
    return folder / "out"


def mixing(**settings: Any) -> Step:
    return lambda source, output: tokmill.mix(
        source, output=output, workers=1, progress=False, **settings
    )


def taking_half(source: Path, output: Path) -> None:
    tokmill.mix({source: "0.5x"}, output=output, progress=False)


def exporting(trainer: str, **options: Any) -> Step:
    return lambda source, output: tokmill.open(source).export(trainer, output, **options)


def importing(source: Path, output: Path) -> None:
    tokmill.import_dataset(
        source, trainer="megatron", output=output, tokenizer=TOKENIZER, progress=False
    )


def packing(source: Path, output: Path) -> None:
    tokmill.pack(source, length=8)


def counting(source: Path, output: Path) -> None:
    tokmill.stats(source)


BODIES = {"bin", "idx", "origin", "meta"}
MASKS = {"mask", "weight"}
TEXT_STEPS: dict[str, tuple[Step, set[str]]] = {
    "shuffle": (mixing(shuffle=1), BODIES),
    "copy": (mixing(shard_tokens=100), BODIES),
    "dedup": (mixing(dedup=True), BODIES),
    "mark": (mixing(dedup="mark"), BODIES),
    "share": (taking_half, BODIES),
    "filter": (mixing(min_tokens=4), BODIES),
    "link": (mixing(), set()),
    "pack": (packing, {"idx"}),
    "stats": (counting, {"bin", "idx"}),
    "import": (importing, {"bin", "idx"}),
    "nanogpt": (exporting("nanogpt", copy=True), {"bin", "idx", "packs"}),
    "llm.c": (exporting("llm.c"), {"bin", "idx", "packs"}),
    "megatron": (exporting("megatron", merge=True), {"bin", "idx", "packs"}),
    "megatron, linked": (exporting("megatron"), {"idx", "packs"}),
    "datasets": (exporting("datasets", unpacked=True), {"bin", "idx", "meta", "packs"}),
    "trl": (exporting("trl"), {"bin", "idx", "packs"}),
    "axolotl": (exporting("axolotl"), {"bin", "idx", "packs"}),
    "litdata": (exporting("litdata", block_tokens=4), {"bin", "idx", "packs"}),
    "olmo-core": (exporting("olmo-core"), {"idx", "packs"}),
    "datatrove": (exporting("datatrove"), {"idx", "packs"}),
    "torchtitan": (exporting("torchtitan", merge=True), {"bin", "idx", "packs"}),
    "megatron-bridge": (exporting("megatron-bridge"), {"bin", "idx", "packs"}),
}
CHAT_STEPS: dict[str, tuple[Step, set[str]]] = {
    "shuffle": (mixing(shuffle=1), BODIES | MASKS),
    "dedup": (mixing(dedup=True, count="trained"), BODIES | MASKS),
    # Packed rows are made again of what is linked.
    "link": (mixing(), {"bin", "idx"} | MASKS),
    "stats": (counting, {"bin", "idx"} | MASKS),
    "trl": (exporting("trl", drop_weights=True), {"bin", "idx", "packs"} | MASKS),
    "datasets": (exporting("datasets"), {"bin", "idx", "packs", "meta"} | MASKS),
    "megatron": (
        exporting("megatron", drop_weights=True, merge=True), {"bin", "idx", "packs"} | MASKS,
    ),
}  # fmt: skip


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) * 2 // 3] ^= 1
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.write(data)


def flip_before(path: Path) -> None:
    """Flip a bit as a damaged disk does: no time tells."""
    status = path.stat()
    flip(path)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def flip_once_summed(path: Path, patch: pytest.MonkeyPatch) -> None:
    """Let the file change at the worst moment: after it was found to be sound."""
    compare, waiting = CheckedFiles._compare, [path]

    def compare_and_flip(self: CheckedFiles, found: Path) -> None:
        compare(self, found)
        if waiting and waiting[0] == found.resolve():
            flip(waiting.pop())

    patch.setattr(CheckedFiles, "_compare", compare_and_flip)


def content(output: Path) -> dict[str, bytes]:
    """Return the files of an output that do not name it."""
    return {
        path.relative_to(output).as_posix(): path.read_bytes()
        for path in sorted(output.rglob("*"))
        if path.suffix in (".bin", ".idx", ".mask", ".weight", ".origin", ".meta", ".npy", ".arrow")
    }


def complete(folder: Path) -> list[Path]:
    """Return what says that something is complete."""
    names = ("manifest.json", "tokmill-export.json")
    return [path for path in folder.rglob("*") if path.name in names]


STEPS = {"texts": TEXT_STEPS, "chats": CHAT_STEPS}
KINDS = {
    "texts": ("bin", "idx", "origin", "meta", "packs", "duplicates"),
    "chats": ("bin", "idx", "mask", "weight", "origin", "meta", "packs", "packed"),
}
READ = [
    (name, step, kind, moment)
    for name, steps in STEPS.items()
    for step, (_, read) in steps.items()
    for kind in KINDS[name]
    if kind in read
    for moment in ("before", "while")
]
NOT_READ = [
    (name, step, kind)
    for name, steps in STEPS.items()
    for step, (_, read) in steps.items()
    for kind in KINDS[name]
    if kind not in read
]


@pytest.fixture
def prepared(tmp_path: Path, request) -> Callable[[str, str], tuple[Path, Path]]:
    """Copy a dataset; return the copy, and its file of a kind."""

    def prepare(name: str, kind: str) -> tuple[Path, Path]:
        directory = shutil.copytree(request.getfixturevalue(name), tmp_path / "damaged")
        (tmp_path / "results").mkdir()
        is_numbered = kind in ("packs", "packed", "duplicates")
        pattern = f"{kind}-*.bin" if is_numbered else f"train-*.{kind}"
        return directory, min(directory.glob(pattern))

    return prepare


@pytest.mark.parametrize(("name", "step", "kind", "moment"), READ)
def test_a_step_refuses_damage_of_what_it_reads(
    name: str, step: str, kind: str, moment: str, prepared, tmp_path, monkeypatch
) -> None:
    directory, path = prepared(name, kind)
    do, _ = STEPS[name][step]
    manifest = (directory / "manifest.json").read_bytes()
    if moment == "before":
        flip_before(path)
    else:
        flip_once_summed(path, monkeypatch)
    with pytest.raises(VerifyError) as found:
        do(directory, tmp_path / "results" / "out")
    message = str(found.value)
    assert "\n" not in message
    if moment == "before":
        assert f"{path}: its" in message
        assert f"see tokmill verify {directory}" in message
    assert complete(tmp_path / "results") == []
    assert (directory / "manifest.json").read_bytes() == manifest


@pytest.mark.parametrize(("name", "step", "kind"), NOT_READ)
def test_damage_of_what_a_step_does_not_read_stays_visible(
    name: str, step: str, kind: str, prepared, tmp_path
) -> None:
    directory, path = prepared(name, kind)
    do, _ = STEPS[name][step]
    output = tmp_path / "results" / "out"
    flip_before(path)
    try:
        do(directory, output)
    except VerifyError:
        assert complete(tmp_path / "results") == []
        return
    if output.exists() and not is_refused(output):
        found = content(output)
        assert found == clean_content(name, step, directory, path, tmp_path)


def is_refused(output: Path) -> bool:
    try:
        tokmill.verify(output)
    except VerifyError:
        return True
    except tokmill.TokmillError:  # the export of a trainer, which `tokmill verify` can check
        return any(file_problems(output, read_record(output)))
    return False


_CLEAN: dict[tuple[str, str], dict[str, bytes]] = {}


def clean_content(
    name: str, step: str, directory: Path, path: Path, tmp_path: Path
) -> dict[str, bytes]:
    """Return what a step writes of the sound dataset, which differs from the copy in a bit."""
    if (name, step) not in _CLEAN:
        flip(path)
        STEPS[name][step][0](directory, tmp_path / "clean" / "out")
        _CLEAN[name, step] = content(tmp_path / "clean" / "out")
    return _CLEAN[name, step]


@pytest.mark.parametrize(
    "command",
    [
        ["mix", "DIR", "-o", "OUT", "--shuffle", "1"],
        ["export", "DIR", "-o", "OUT", "--to", "nanogpt", "--copy"],
        ["pack", "DIR", "--length", "8"],
        ["stats", "DIR"],
    ],
)
def test_a_command_ends_with_code_1_and_a_line(command, prepared, tmp_path) -> None:
    directory, path = prepared("texts", "idx")
    flip_before(path)
    places = {"DIR": str(directory), "OUT": str(tmp_path / "out")}
    arguments = [places.get(word, word) for word in command]
    ended = subprocess.run(
        [sys.executable, "-m", "tokmill", *arguments], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert ended.stderr.count("error: ") == 1
    assert ended.stderr.endswith(f"see tokmill verify {directory}\n")
    assert complete(tmp_path / "out") == []
