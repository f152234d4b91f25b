"""The package as users have it: built as a wheel, installed, used outside of the source tree."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

DEADLINE_S = 120
MAKE = """
tokmill pretrain data_samples/records.jsonl -t data_samples/tokenizer --val-fraction 0.02 -o out
tokmill sft data_samples/sft/chats.jsonl -t data_samples/tokenizer --val-fraction 0.02 -o sft \\
  --max-tokens 4096 --packing 4096
"""


@dataclass(frozen=True)
class Installed:
    """An installed wheel, and a directory with a corpus, chats and a tokenizer to use it in."""

    site: Path
    desk: Path

    def run(self, *command: str) -> str:
        """Return what a command prints on both streams; it must succeed."""
        path = os.pathsep.join([str(self.site / "bin"), os.environ["PATH"]])
        done = subprocess.run(
            command,
            cwd=self.desk,
            env=os.environ | {"PYTHONPATH": str(self.site), "PATH": path, "COLUMNS": "200"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.stdout}"
        return done.stdout

    def shell(self, command: str) -> str:
        """Return what a line prints that a user types into a shell."""
        return self.run("bash", "-o", "pipefail", "-c", command)

    def python(self, program: str) -> str:
        """Return what a program prints that imports the installed package."""
        return self.run(sys.executable, "-W", "error", "-c", program)


@pytest.fixture(scope="session")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The installed package, with the datasets that the pages begin with.

    The wheel is built from the tree, and installed without its dependencies, by the first worker of
    pytest-xdist that needs it.
    """
    pytest.importorskip("hatchling", reason="hatchling is not installed: make check installs it")
    base = tmp_path_factory.getbasetemp()
    directory = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "wheel"
    directory.mkdir(exist_ok=True)
    made = Installed(directory / "site", directory / "desk")
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (made.desk / "sft" / "manifest.json").exists():
            build = f"import hatchling.build; hatchling.build.build_wheel({str(directory)!r})"
            subprocess.run([sys.executable, "-c", build], cwd=ROOT, check=True, capture_output=True)
            install = ["pip", "install", "-q", "--no-deps", "--no-index", "--target", made.site]
            command = [sys.executable, "-m", *install, next(directory.glob("*.whl"))]
            subprocess.run(command, check=True, capture_output=True)
            for name in ("data_samples", "configs"):
                shutil.copytree(ROOT / name, made.desk / name)
            made.shell(MAKE)
    return made


@pytest.fixture
def installed(desk: Installed, tmp_path: Path) -> Installed:
    """The installed package, and a directory as the pages assume it."""
    place = tmp_path / "desk"
    samples = shutil.copytree(ROOT / "data_samples", place / "data_samples")
    shutil.copytree(ROOT / "configs", place / "configs")
    lines = (samples / "records.jsonl").read_bytes().split(b"\n")
    (place / "corpus").mkdir()
    (place / "corpus" / "a.jsonl").write_bytes(b"\n".join(lines[:100]))
    (place / "corpus" / "b.jsonl").write_bytes(b"\n".join(lines[100:]))
    shutil.copyfile(samples / "sft" / "chats.jsonl", place / "chats.jsonl")
    for name in ("my_tokenizer", "gpt2", "qwen2.5"):
        shutil.copytree(samples / "tokenizer", place / name)
    return Installed(desk.site, place)


@pytest.fixture(scope="session")
def recipe() -> Callable[[str], str]:
    """Return the last command that a target of the Makefile runs, without the path of .venv."""

    def last(target: str) -> str:
        command = ["make", "--no-print-directory", "-n", target]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()[-1].replace(".venv/bin/", "")

    return last
