"""What a container lacks: a home directory, a place for temporary files, a writable cache."""

from __future__ import annotations

import os
import pwd
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.cli.conftest import SAMPLES
from tests.docs.pages import ROOT, blocks
from tokmill.cli.main import EXIT_CODES
from tokmill.cli.screen import LOG_VARIABLE

DOCKERFILE = ROOT / "configs" / "Dockerfile"
LINES = [line for line in DOCKERFILE.read_text().splitlines() if not line.startswith("#")]
PAGE = "docs/containers.md"
DEADLINE_S = 900


def fail(*_: object) -> NoReturn:
    raise KeyError("no such user")


@pytest.fixture
def homeless(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user that is a number alone."""
    for name in ("HOME", "XDG_CACHE_HOME", "TOKMILL_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", fail)


@pytest.mark.usefixtures("homeless")
def test_a_user_without_a_home_directory_can_work(pretrain, sft, tokmill, good, tmp_path):
    assert pretrain(good).code == 0
    assert tokmill("verify", tmp_path / "out").code == 0
    assert sft(SAMPLES / "sft" / "alpaca.jsonl", "--overwrite").code == 0
    assert tokmill("doctor", tmp_path).code == 0


@pytest.mark.parametrize("variable", ["TOKMILL_CACHE_DIR", "XDG_CACHE_HOME"])
def test_a_cache_that_cannot_be_written_is_no_error(pretrain, good, monkeypatch, variable):
    monkeypatch.delenv("TOKMILL_CACHE_DIR", raising=False)
    monkeypatch.setenv(variable, "/proc/none")
    assert pretrain(good).code == 0


def test_no_place_for_temporary_files_is_one_line(sft, pretrain, tokmill, monkeypatch, tmp_path):
    def refuse() -> NoReturn:
        raise FileNotFoundError(2, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr(tempfile, "_get_default_tempdir", refuse)
    monkeypatch.setattr(tempfile, "tempdir", None)
    done = sft(SAMPLES / "sft" / "chats.jsonl")
    assert done.code == 5
    assert done.error == "no directory for temporary files can be written: name one in TMPDIR"


def test_the_page_shows_the_dockerfile() -> None:
    shown = next(block.text for block in blocks(PAGE) if block.language == "dockerfile")
    assert shown == DOCKERFILE.read_text()
    assert len(LINES) <= 10


def test_the_page_lists_every_exit_code() -> None:
    listed = (ROOT / PAGE).read_text().split("## Exit codes")[1]
    codes = {
        code for row in re.findall(r"^\| ([\d, ]+) \|", listed, re.M) for code in row.split(", ")
    }
    assert codes == set(re.findall(r"^  (\d+) ", EXIT_CODES, re.M))


def test_the_files_that_the_dockerfile_copies_are_enough_for_an_installation(tmp_path) -> None:
    pytest.importorskip("hatchling", reason="needs the extra dev")
    for line in LINES:
        if line.startswith("COPY "):
            *names, target = line.split()[1:]
            for name in names:
                copy_as_docker(ROOT / name, tmp_path / target.lstrip("/"), target.endswith("/"))
    build = "import hatchling.build as b, sys; b.build_wheel(sys.argv[1])"
    command = [sys.executable, "-c", build, tmp_path]
    subprocess.run(command, cwd=tmp_path / "build", check=True, timeout=60)
    assert len(list(tmp_path.glob("tokmill-*.whl"))) == 1


def copy_as_docker(source: Path, target: Path, into: bool) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        target = target / source.name if into else target
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)


def test_the_dockerfile_names_what_there_is() -> None:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    text = "\n".join(LINES)
    extras = re.findall(r"/build\[(\w+)\]", text)
    assert set(extras) <= set(project["optional-dependencies"])
    assert LINES[-1] == f'ENTRYPOINT ["{next(iter(project["scripts"]))}"]'
    variables = dict(
        pair.split("=") for pair in shlex.split(re.findall(r"^ENV (.*)$", text, re.M)[0])
    )
    assert {name for name in variables if name.startswith("TOKMILL_")} <= {
        "TOKMILL_CACHE_DIR",
        LOG_VARIABLE,
    }
    minor = re.findall(r"^FROM python:3\.(\d+)", text)[0]
    assert int(minor) >= int(project["requires-python"].rpartition(".")[2])


READ_ONLY = """
mount --make-rprivate / && mount -t tmpfs tmpfs "$1" && mount -o remount,ro,bind / || exit 99
cd "$1" && ! touch "$2/written" && shift 2 && exec "$@"
"""
"""Gives a process a root that cannot be written, and one directory that can."""
NO_NAMESPACE = 99


def test_a_run_works_with_a_read_only_root(tmp_path) -> None:
    isolated = ["unshare", "--map-root-user", "--mount"]
    if (
        shutil.which("unshare") is None
        or subprocess.run([*isolated, "true"], check=False).returncode
    ):
        pytest.skip("this system grants no namespace of mounts")
    words = ["pretrain", SAMPLES / "records.jsonl", "-t", SAMPLES / "tokenizer", "-o", "out"]
    command = [sys.executable, "-m", "tokmill", *words]
    done = subprocess.run(
        [*isolated, "sh", "-c", READ_ONLY, "sh", tmp_path, ROOT, *command],
        env={**os.environ, "HOME": str(ROOT), "TOKMILL_CACHE_DIR": "", "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if done.returncode == NO_NAMESPACE:
        pytest.skip("this system grants no mounts")
    assert done.returncode == 0, done.stderr
    assert "180 documents" in done.stdout


def has_docker() -> bool:
    """Return whether docker answers here and may fetch what the file begins with."""
    if shutil.which("docker") is None:
        return False
    image = LINES[0].split()[1]
    asked = ["docker", "image", "inspect", image]
    return subprocess.run(asked, capture_output=True, timeout=60, check=False).returncode == 0


@pytest.mark.slow(reason="builds an image")
@pytest.mark.skipif(not has_docker(), reason="needs docker with the image of Python")
def test_the_image_is_built_and_works_with_a_read_only_root(tmp_path) -> None:
    build = ["docker", "build", "-q", "-f", str(DOCKERFILE), str(ROOT)]
    built = subprocess.run(build, capture_output=True, text=True, timeout=DEADLINE_S, check=True)
    shutil.copytree(SAMPLES, tmp_path / "data_samples")
    tmp_path.chmod(0o777)
    words = ["pretrain", "data_samples/records.jsonl", "-t", "data_samples/tokenizer", "-o", "out"]
    options = ["--rm", "--read-only", "--tmpfs", "/tmp", "--network", "none", "--user", "54321"]
    run = ["docker", "run", *options, "-v", f"{tmp_path}:/data", built.stdout.strip(), *words]
    done = subprocess.run(run, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stderr
    assert '"event": "result"' in done.stderr
