"""A mix that was stopped goes on with the same command, and writes the same bytes."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

import tokmill
from tests.fixtures.datasets import TOKENIZER


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "texts.jsonl"
    rows = (json.dumps({"text": f"text {n} " * 40}) + "\n" for n in range(20_000))
    path.write_text("".join(rows), encoding="utf-8")
    return tokmill.pretrain(
        path, tokenizer=TOKENIZER, output=tmp_path / "texts", progress=False, part_bytes="500KB"
    ).directory


@pytest.mark.parametrize("name", ["done-run-*", "done-part-*", "hashes-*"])
@pytest.mark.parametrize("stop", [signal.SIGKILL, signal.SIGINT])
def test_a_stopped_mix_goes_on(texts, tmp_path, start, name, stop) -> None:
    options = ["--shuffle", "3", "--dedup", "--file-tokens", "300k"]
    arguments = ["mix", f"{texts}=3x", *options, "--workers", "2", "-q"]
    output = tmp_path / "stopped"
    command = start(*arguments, "-o", output)
    temporary = output / ".mix"
    status = command.stop_when(lambda: any(temporary.glob(name)), stop)
    assert status == (-signal.SIGKILL if stop is signal.SIGKILL else 130)
    assert not (output / "manifest.json").exists()
    if stop is signal.SIGINT:
        assert "the same command continues" in command.errors()
    kept = {path: path.stat().st_mtime_ns for path in temporary.glob("done-*.json")}
    settings = {"shuffle": 3, "dedup": True, "file_tokens": "300k", "progress": False}
    again = tokmill.mix({texts: "3x"}, output=output, workers=1, **settings)
    again.verify()
    whole = tokmill.mix({texts: "3x"}, output=tmp_path / "whole", workers=1, **settings)
    assert [s.name for s in again.shards] == [s.name for s in whole.shards]
    for path in whole.directory.glob("*.bin"):
        assert (output / path.name).read_bytes() == path.read_bytes()
    assert again.manifest["totals"] == whole.manifest["totals"]
    assert kept or name == "hashes-*"
    assert not temporary.exists()
