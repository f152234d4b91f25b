"""Datasets that earlier versions wrote: finished ones open, half-finished ones continue."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
VERSIONS = sorted(path.name for path in HERE.iterdir() if (path / "tokenizer").is_dir())
KINDS = ("pretrain", "sft")
AS_BEFORE = {"pretrain": (), "sft": ("--inline-tags", "text")}
"""Settings that earlier versions did not have, with what they did."""
ONCE_IN_A_RUN = ("manifest.json", ".lock")


@pytest.fixture(params=VERSIONS)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of a version's folder, whose inputs have the times that its plans know."""
    found = tmp_path / "folder"
    shutil.copytree(HERE / request.param, found)
    for kind in KINDS:
        for name, _, _, _, mtime_ns, _ in json.loads((found / kind / "plan.json").read_text())[
            "files"
        ]:
            os.utime(found / name, ns=(mtime_ns, mtime_ns))
    return found


@pytest.fixture
def tokmill(folder: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a command in the folder."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "tokmill", *arguments],
            cwd=folder,
            env=os.environ | {"NO_COLOR": "1"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


NOTICED_SINCE = re.compile(rb'"fields":\{[^}]*\},')
"""Counts of part records that earlier versions did not keep."""


def files(directory: Path) -> dict[str, bytes]:
    """Return what a dataset holds, but what differs from run to run or was not noticed before."""
    return {
        path.relative_to(directory).as_posix(): NOTICED_SINCE.sub(b"", path.read_bytes())
        for path in directory.rglob("*")
        if path.is_file() and path.name not in ONCE_IN_A_RUN
    }


def plan_with_version(directory: Path, version: str) -> None:
    """Write another version of the engine into a plan; no byte of a dataset depends on it."""
    path = directory / "plan.json"
    began = json.loads(path.read_bytes())["engine"]["version"]
    path.write_bytes(path.read_bytes().replace(f'"{began}"'.encode(), f'"{version}"'.encode()))


@pytest.mark.parametrize("kind", KINDS)
def test_a_finished_dataset_of_an_earlier_version_verifies_and_inspects(tokmill, kind):
    verified = tokmill("verify", kind)
    assert verified.returncode == 0, verified.stderr
    assert verified.stdout.endswith(": no mismatch\n")
    inspected = tokmill("inspect", kind, "--sample", "2")
    assert inspected.returncode == 0, inspected.stderr
    assert "hello" in inspected.stdout


@pytest.mark.parametrize("kind", KINDS)
def test_a_finished_dataset_of_an_earlier_version_is_complete_or_names_its_engine(
    tokmill, folder, kind
):
    before = files(folder / kind)
    manifest = (folder / kind / "manifest.json").read_bytes()
    done = tokmill(kind, "--config", f"{kind}.toml", "-o", kind, "--quiet", *AS_BEFORE[kind])
    began = json.loads(manifest)["engine"]["version"]
    if began == importlib.metadata.version("tokenizers"):
        assert done.returncode == 0, done.stderr
    else:
        assert done.returncode == 6
        assert f"began with tokenizers {began}, installed is" in done.stderr
    assert files(folder / kind) == before
    assert (folder / kind / "manifest.json").read_bytes() == manifest


@pytest.mark.parametrize("kind", KINDS)
def test_a_half_finished_dataset_of_an_earlier_version_goes_on_to_the_same_bytes(
    tokmill, folder, kind
):
    half = folder / f"{kind}-half"
    plan_with_version(half, importlib.metadata.version("tokenizers"))
    began = files(half)
    done = tokmill(kind, "--config", f"{kind}.toml", "-o", half.name, "--quiet", *AS_BEFORE[kind])
    assert done.returncode == 0, done.stderr
    plan_with_version(folder / kind, importlib.metadata.version("tokenizers"))
    whole = files(folder / kind)
    assert len(began) < len(whole)
    assert files(half) == whole
    verified = tokmill("verify", half.name)
    assert verified.returncode == 0, verified.stdout


@pytest.mark.parametrize("kind", KINDS)
def test_a_half_finished_dataset_of_another_engine_is_refused_in_one_line_naming_it(
    tokmill, folder, kind
):
    half = folder / f"{kind}-half"
    plan_with_version(half, "0.0.1")
    before = files(half)
    refused = tokmill(
        kind, "--config", f"{kind}.toml", "-o", half.name, "--quiet", *AS_BEFORE[kind]
    )
    assert refused.returncode == 6
    assert len(refused.stderr.splitlines()) == 1
    assert "began with tokenizers 0.0.1, installed is" in refused.stderr
    assert files(half) == before


def test_a_setting_that_would_change_a_half_finished_dataset_is_named(tokmill, folder):
    began = files(folder / "sft-half")
    done = tokmill("sft", "--config", "sft.toml", "-o", "sft-half", "--quiet")
    assert done.returncode == 6
    assert "--inline-tags (sft.inline_tags) was 'text', is 'auto'" in done.stderr
    assert files(folder / "sft-half") == began
