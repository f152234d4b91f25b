"""`verify` finds each kind of damage; `python -m bench.corruptions` tries many more."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from bench import corruptions

ROUNDS_EACH = 3


@pytest.fixture(scope="module")
def desks(tmp_path_factory: pytest.TempPathFactory) -> list[corruptions.Desk]:
    return corruptions.make_desks(tmp_path_factory.mktemp("desks"))


def files(directory: Path) -> dict[str, object]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        if path.is_file() and not path.is_symlink()
        else (path.is_symlink(), path.is_fifo(), path.is_dir())
        for path in directory.rglob("*")
    }


@pytest.mark.parametrize("damage", corruptions.DAMAGES)
def test_every_damage_is_found_and_names_a_file(desks, damage):
    for number in range(ROUNDS_EACH):
        chance = random.Random(f"{damage} {number}")
        desk = desks[number % len(desks)]
        whole = files(desk.work)
        touched = corruptions.DAMAGES[damage](desk, chance)
        assert files(desk.work) != whole
        found, line = corruptions.is_found(desk.work)
        assert found, (number, touched)
        is_other_manifest = touched == ("manifest.json",)  # then the other files are wrong
        assert is_other_manifest or any(name in line for name in [*touched, "manifest.json"]), line
        desk.repair(*touched)
        assert files(desk.work) == whole
        assert corruptions.is_found(desk.work) == (False, "")


def test_the_datasets_have_every_kind_of_file(desks):
    names = " ".join(name for desk in desks for name in desk.names)
    for kind in (
        *(".bin", ".idx", ".mask", ".weight", "packs-train-rows", "packed-train-0000", "val-"),
        *("rejects/", "parts/", "plan.json", "manifest.json"),
    ):
        assert kind in names


def test_the_command_line_ends_with_1_and_names_the_file(desks):
    desk = desks[0]
    touched = corruptions.DAMAGES["flip"](desk, random.Random(3))
    done = subprocess.run(
        [sys.executable, "-m", "tokmill", "verify", desk.work],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    desk.repair(*touched)
    assert done.returncode == 1
    assert touched[0] in done.stdout + done.stderr
