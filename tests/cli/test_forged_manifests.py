"""No forged manifest is a traceback, whatever reads it; and nothing outside is opened."""

from __future__ import annotations

import copy
import json
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tokmill.cli.main import cli
from tokmill.dataset.checksum import canonical_json, json_chunks, manifest_sha256
from tokmill.errors import TokmillError
from tokmill.run.finish import run
from tokmill.settings.sft import SftSettings

N_EDITS = 20
"""For each command and kind of dataset: thousands were tried when this was written."""

HOSTILE: list[Any] = [
    None, True, -1, 0, 1, 2, 10**15, 2**63, 10**300, 1.5, -0.5, 1e308, "", " ", "x", "../x",
    "/etc/passwd", "\x1b]0;x\x07", "\ud800", "a" * 999, [], [[]], [0], {}, {"id": 0}, {"": {}},
    [{}], "train", "train-0000000-0000", json.loads("[" * 300 + "]" * 300),
]  # fmt: skip


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every container and key inside a value."""
    keys = value.keys() if isinstance(value, dict) else range(len(value))
    for key in keys:
        yield value, key
        if isinstance(value[key], dict | list):
            yield from places(value[key])


def forge(manifest: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """Return a manifest with one to three random edits, and sometimes a sum that fits it."""
    forged = copy.deepcopy(manifest)
    for _ in range(chance.randint(1, 3)):
        container, key = chance.choice(list(places(forged)))
        edit = chance.random()
        if edit < 0.2:
            del container[key]
        elif edit < 0.3 and isinstance(container, list):
            container.append(copy.deepcopy(container[key]))
        else:
            container[key] = copy.deepcopy(chance.choice(HOSTILE))
        if not forged:
            break
    if chance.random() < 0.8:
        forged["sha256"] = manifest_sha256(forged)
    return forged


@pytest.fixture(scope="module", params=["pretrain", "sft"])
def dataset(request, tmp_path_factory, configure, silent, write_rows) -> Path:
    directory = tmp_path_factory.mktemp("forged")
    settings: dict[str, Any] = {
        "val_fraction": 0.3, "max_reject_fraction": 1.0, "on_unread": "skip"
    }  # fmt: skip
    rows: list[Any] = [{"text": f"hello {i}"} for i in range(40)]
    if request.param == "sft":
        settings["sft"] = SftSettings(template="plain", packing=64, packed_rows=True)
        settings["max_tokens"] = 64
        turns = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "yes"}]
        rows = [{"messages": turns, "n": i} for i in range(40)]
    source = write_rows(directory / "in.jsonl", [*rows, b"{bad"])
    broken = directory / "broken.json"
    broken.write_text('{"no": array}')
    run(configure(directory / "out", source, broken, **settings), silent)
    os.mkfifo(directory / "x")  # opened by a name that leads outside, it would not return
    return directory / "out"


COMMANDS = [["verify"], ["inspect"], ["inspect", "--row", "0"], ["report"], ["report", "--json"]]


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_a_forged_manifest_is_a_message_and_no_traceback(dataset, arguments):
    path = dataset / "manifest.json"
    data = path.read_bytes()
    chance = random.Random(f"{arguments} {dataset.name}")
    path.chmod(0o644)
    try:
        for number in range(N_EDITS):
            forged = forge(json.loads(data), chance)
            path.write_bytes(b"".join(json_chunks(forged)))
            done = CliRunner().invoke(
                cli, [arguments[0], str(dataset), *arguments[1:]], standalone_mode=False
            )
            error = done.exception
            if error is not None and not isinstance(error, TokmillError):
                raise AssertionError(f"edit {number}: {forged}") from error
    finally:
        path.write_bytes(data)


WRONG = {
    "keep": lambda one: one.update(keep=["other"]),
    "keep twice": lambda one: one.update(keep=["url", "url"]),
    "sources": lambda one: one["sources"][0].update(path=5),
    "slices": lambda one: one["sources"][0].update(slices=[{"records": "x", "bytes": 1}]),
    "slices that are not there": lambda one: one["shards"][-1].update(first_slice=99),
    "tokenizer.probe": lambda one: one["tokenizer"].update(probe={"text": "a", "ids": "b"}),
    "mix": lambda one: one.update(mix={"sources": [{"name": 1}]}),
    "files": lambda one: one["files"].pop(next(_numbers(one, ".bin"))),
    "files twice": lambda one: one["files"].append(one["files"][1]),
    "a size": lambda one: one["files"][next(_numbers(one, ".idx"))].update(bytes=5),
    "totals.documents": lambda one: one["totals"].update(documents=1),
    "totals.tokens": lambda one: one["totals"].update(tokens=1),
    "noticed": lambda one: one.update(noticed={"a": [[1]]}),
    "run": lambda one: one["run"].update(stage_s={"read": "long"}),
    "a setting": lambda one: one["config"]["output"].update(packing="x"),
    "a key with an escape": lambda one: one["totals"]["drops"].update({"\x1b[31m": -1}),
    "nesting": lambda one: one.update(readings=json.loads("[" * 400 + "]" * 400)),
}
READERS = [
    ["stats", "OUT"],
    ["report", "OUT"],
    ["export", "OUT", "--to", "nanogpt", "--output", "NEW"],
    ["mix", "OUT", "-o", "NEW", "--shuffle", "1"],
    ["pack", "OUT", "--length", "16"],
]


def _numbers(manifest: dict[str, Any], ending: str) -> Iterator[int]:
    names = enumerate(entry["name"] for entry in manifest["files"])
    return (number for number, name in names if name.endswith(ending))


def written(path: Path, manifest: dict[str, Any]) -> None:
    """Write a manifest whose own sum is right."""
    manifest["sha256"] = manifest_sha256(manifest)
    path.chmod(0o644)
    path.write_bytes(b"".join(json_chunks(manifest)))


@pytest.fixture(scope="module")
def kept(tmp_path_factory, configure, silent, write_rows) -> Path:
    folder = tmp_path_factory.mktemp("kept")
    source = write_rows(
        folder / "in.jsonl", [{"text": f"hello {i}", "url": "u"} for i in range(40)]
    )
    run(configure(folder / "out", source, keep=("url",), part_bytes=400), silent)
    return folder / "out"


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_value_with_a_right_sum_is_one_line_in_every_command(
    kept, tmp_path, wrong, tokmill
):
    shutil.copytree(kept, tmp_path / "out")
    path = tmp_path / "out" / "manifest.json"
    manifest = json.loads(path.read_bytes())
    WRONG[wrong](manifest)
    written(path, manifest)
    for command in READERS:
        names = {"OUT": str(path.parent), "NEW": str(tmp_path / "new")}
        outcome = tokmill(*(names.get(word, word) for word in command))
        is_found_later = wrong in ("keep",) and command[0] in ("stats", "report", "pack", "export")
        assert outcome.code == (0 if is_found_later else 1), (command, outcome.err)
        if outcome.code:
            line = outcome.error
            assert "manifest.json: damaged manifest: " in line or ".meta: expected columns" in line
            assert line.isprintable()
        shutil.rmtree(tmp_path / "new", ignore_errors=True)


def test_a_record_of_a_part_that_names_other_files_removes_none(kept, tmp_path, tokmill, configure):
    out = tmp_path / "out"
    shutil.copytree(kept, out)
    (out / "manifest.json").unlink()
    (tmp_path / "victim").write_text("mine")
    record = min((out / "parts").iterdir())
    data = json.loads(record.read_bytes())
    for name in ("../victim", "plan.json", "parts/0000001.json", "train-0000001-0000.bin"):
        forged = copy.deepcopy(data)
        forged["shards"][0]["files"][1]["name"] = name
        record.chmod(0o644)
        record.write_bytes(canonical_json(forged))
        before = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*"))
        for command in (("finish", out), ("run-part", out, "--index", "0", "--of", "1")):
            outcome = tokmill(*command)
            assert outcome.code == 6
            assert "damaged record of a part" in outcome.error
        assert sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*")) == before


@pytest.mark.parametrize("bit", [0, 3, 62])
def test_a_flipped_bit_in_the_index_of_packs_is_one_line(tmp_path, kept, tokmill, bit):
    out = tmp_path / "out"
    shutil.copytree(kept, out)
    assert tokmill("pack", out, "--length", "16").code == 0
    (path,) = out.glob("packs-*-rows.bin")
    data = bytearray(path.read_bytes())
    data[8 + bit // 8] ^= 1 << bit % 8
    path.chmod(0o644)
    path.write_bytes(data)
    for trainer in ("trl", "datasets", "axolotl"):
        outcome = tokmill("export", out, "--to", trainer, "--output", tmp_path / trainer)
        assert outcome.code == 1, outcome.err
        assert "pack" in outcome.error
