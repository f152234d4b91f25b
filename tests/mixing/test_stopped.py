"""A mix that was stopped goes on with the same command, and writes the same bytes."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tokmill
from tests.fixtures.datasets import TOKENIZER
from tokmill.api.dataset import Dataset
from tokmill.mixing import inputs


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of many parts, so that a mix has many tasks."""
    folder = tmp_path_factory.mktemp("texts")
    path = folder / "texts.jsonl"
    rows = (json.dumps({"text": f"text {n} " * 40}) + "\n" for n in range(6_000))
    path.write_text("".join(rows), encoding="utf-8")
    return tokmill.pretrain(
        path, tokenizer=TOKENIZER, output=folder / "texts", progress=False, part_bytes="150KB"
    ).directory


SETTINGS: dict[str, Any] = {"shuffle": 3, "dedup": True, "shard_tokens": "90k", "progress": False}


@pytest.fixture(scope="module")
def whole(texts: Path, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """The mix that was not stopped."""
    output = tmp_path_factory.mktemp("whole") / "out"
    return tokmill.mix({texts: "3x"}, output=output, workers=1, **SETTINGS)


@pytest.mark.parametrize(
    ("name", "stop"),
    [
        (".mix/done-run-*", signal.SIGKILL),
        ("parts/*.json", signal.SIGINT),
        (".mix/hashes-*", signal.SIGKILL),
    ],
)
def test_a_stopped_mix_goes_on(texts, whole, tmp_path, start, name, stop) -> None:
    options = ["--shuffle", "3", "--dedup", "--shard-tokens", "90k"]
    arguments = ["mix", f"{texts}=3x", *options, "--workers", "2", "-q"]
    output = tmp_path / "stopped"
    command = start(*arguments, "-o", output)
    status = command.stop_when(lambda: any(output.glob(name)), stop)
    assert status == (-signal.SIGKILL if stop is signal.SIGKILL else 130)
    assert not (output / "manifest.json").exists()
    if stop is signal.SIGINT:
        assert "the same command continues" in command.errors()
    kept = times(output / "parts")
    again = tokmill.mix({texts: "3x"}, output=output, workers=1, **SETTINGS)
    again.verify()
    assert [s.name for s in again.shards] == [s.name for s in whole.shards]
    for path in whole.directory.glob("*.bin"):
        assert (output / path.name).read_bytes() == path.read_bytes()
    assert again.manifest["totals"] == whole.manifest["totals"]
    assert again.manifest["run"]["resumed_parts"] == len(kept)
    assert kept.items() <= times(output / "parts").items()
    assert kept or name != "parts/*.json"
    assert not (output / ".mix").exists()


def times(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("[!.]*")}


def test_after_a_crash_of_the_machine_parts_are_kept(texts, whole, tmp_path, start) -> None:
    output, options = tmp_path / "stopped", ["--shuffle", "3", "--dedup", "--shard-tokens", "90k"]
    command = start("mix", f"{texts}=3x", *options, "--workers", "2", "-q", "-o", output)
    request = output / ".mix" / "request.json"
    command.stop_when(lambda: any(output.glob("parts/*.json")), signal.SIGKILL)
    kept = times(output / "parts")
    asked = json.loads(request.read_text())
    request.unlink()
    request.write_text(json.dumps({**asked, "boot": "the boot before"}))
    for path in request.parent.glob("run-*"):
        path.unlink()
        path.write_bytes(b"")  # what was not synced is lost
    again = tokmill.mix({texts: "3x"}, output=output, workers=1, **SETTINGS)
    again.verify()
    assert again.identity == whole.identity
    assert again.manifest["shards"] == whole.manifest["shards"]
    assert kept.items() <= times(output / "parts").items()


def test_a_full_disk_is_said_in_a_line(texts, whole, tmp_path, start) -> None:
    options = ["--shuffle", "3", "--dedup", "--shard-tokens", "90k", "--workers", "2"]
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        command = start("mix", f"{texts}=3x", *options, "-q", "-o", tmp_path / "full")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert command.process.wait(600) == 5
    assert len(command.errors().splitlines()) == 1
    full = tokmill.mix({texts: "3x"}, output=tmp_path / "full", workers=1, **SETTINGS)
    assert full.manifest["totals"] == whole.manifest["totals"]


SEEN: list[int] = []


def stops(ids: np.ndarray, lengths: np.ndarray, origins: Any) -> np.ndarray:
    """Accept all, but stop the mix at the second chunk while the environment says so."""
    SEEN.append(len(lengths))
    if "STOP_THE_MIX" in os.environ and len(SEEN) > 1:
        raise KeyboardInterrupt
    return lengths > 0


def test_what_was_made_of_a_file_that_changed_is_made_again(texts, tmp_path, monkeypatch) -> None:
    """A user who mends an input after a stop does not get what was made of it before."""
    source, output = shutil.copytree(texts, tmp_path / "texts"), tmp_path / "out"
    body = min(source.glob("train-*.bin"))
    sound = body.read_bytes()
    monkeypatch.setattr(inputs, "CHUNK_TOKENS", 20_000)

    def write(data: bytes) -> None:
        body.chmod(0o644)
        body.write_bytes(data)

    def mix() -> Dataset:
        return tokmill.mix(
            source, output=output, where=f"{__name__}:stops", workers=1, shuffle=1, progress=False
        )

    write(bytes([sound[0] ^ 1]) + sound[1:])
    monkeypatch.setenv("STOP_THE_MIX", "1")
    with pytest.raises(KeyboardInterrupt):
        mix()
    assert (output / ".mix" / "done-survey-0.json").exists()
    monkeypatch.delenv("STOP_THE_MIX")
    write(sound)
    made = mix()
    made.verify()
    whole = tokmill.mix(source, output=tmp_path / "whole", shuffle=1, workers=1, progress=False)
    assert made.identity == whole.identity
    write(bytes([sound[0] ^ 1]) + sound[1:])
    with pytest.raises(tokmill.TokmillError, match="not those of the manifest"):
        tokmill.mix(source, output=tmp_path / "two", shuffle=1, workers=2, progress=False)
    assert not (tmp_path / "two" / ".mix").exists()
