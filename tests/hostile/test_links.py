"""Links that somebody plants in an output are named, and nothing is written or removed behind them.

Planted where a run is about to write: at each kind of its names, in a new output and in one that
a stopped run left.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tests.conftest import Listener
from tokmill.errors import StateError, StorageError
from tokmill.run.finish import run
from tokmill.settings.schema import Config
from tokmill.settings.sft import SftSettings

SAMPLES = Path(__file__).parents[2] / "data_samples"
Make = Callable[[Path], Config]


def _state(directory: Path) -> dict[str, tuple[int, int, bytes]]:
    """Return inode, time and bytes of each file."""
    return {
        str(path.relative_to(directory)): (
            path.lstat().st_ino,
            path.lstat().st_mtime_ns,
            bytes(path.readlink()) if path.is_symlink() else path.read_bytes(),
        )
        for path in directory.rglob("*")
        if path.is_symlink() or path.is_file()
    }


def _names(directory: Path) -> list[str]:
    return sorted(_state(directory))


def _kinds(names: Iterable[str]) -> list[str]:
    """Return one name, the last, of those that differ in numbers alone."""
    return list({re.sub(r"\d+", "0", name): name for name in sorted(names)}.values())


@pytest.fixture(scope="module", params=["pretrain", "sft"])
def make(request: pytest.FixtureRequest, configure: Callable[..., Config]) -> Make:
    """The settings of a run of a few parts with rejects; SFT has masks and packs besides."""
    sft = SftSettings(template="chatml", schema="mixed", packing=2000)
    several = {"part_bytes": 4000, "shard_tokens": 2000, "max_reject_fraction": 1.0}
    if request.param == "sft":
        paths = [SAMPLES / "sft" / name for name in ("alpaca.jsonl", "broken.jsonl")]
        named = {"path": str(SAMPLES / "tokenizer"), "max_tokens": 2000, "sft": sft}
    else:
        paths, named = [SAMPLES / "records.jsonl"], {}
    return lambda out: configure(out, *paths, **several, **named)


@pytest.fixture(scope="module")
def whole(make: Make, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset that is complete."""
    out = tmp_path_factory.mktemp("whole") / "out"
    run(make(out), Listener())
    return out


@pytest.mark.parametrize("kind", ["file", "directory", "nothing"])
def test_a_link_in_a_new_output_is_refused_at_each_name(make, whole, tmp_path, listener, kind):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    target = elsewhere / "target"
    if kind == "file":
        target.write_bytes(b"years of work")
    elif kind == "directory":
        target.mkdir()
    names = ["parts", "rejects", *_kinds(_names(whole))]
    for number, name in enumerate(names if kind == "file" else names[:3]):
        out = tmp_path / f"out-{number}"
        (out / name).parent.mkdir(parents=True)
        (out / name).symlink_to(target)
        before = _state(elsewhere), _state(out)
        with pytest.raises((StateError, StorageError), match=str(out)):
            run(make(out), listener)
        assert (_state(elsewhere), _state(out)) == before, name


@pytest.fixture
def stopped(whole: Path, tmp_path: Path) -> Path:
    """The output of a run that was stopped after some of its parts: `whole` without the rest."""
    out = tmp_path / "out"
    shutil.copytree(whole, out)
    last = max(path.name for path in (out / "parts").iterdir()).removesuffix(".json")
    for name in _names(out):
        if last in name or name.startswith(("packs-", "manifest")):
            (out / name).unlink()
    return out


def test_a_file_replaced_by_a_link_is_refused_in_a_stopped_output(
    make, stopped, tmp_path, listener
):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name in _kinds(_names(stopped)):
        (stopped / name).rename(elsewhere / "moved")
        (stopped / name).symlink_to(elsewhere / "moved")
        before = _state(elsewhere), _state(stopped)
        with pytest.raises((StateError, StorageError), match=str(stopped)):
            run(make(stopped), listener)
        assert (_state(elsewhere), _state(stopped)) == before, name
        (elsewhere / "moved").rename(stopped / name)


def test_a_link_where_a_stopped_run_goes_on_is_refused_at_each_name(
    make, whole, stopped, tmp_path, listener
):
    target = tmp_path / "target"
    target.write_bytes(b"years of work")
    left = _kinds(set(_names(whole)) - set(_names(stopped)))
    assert len(left) > 3
    for name in left:
        (stopped / name).symlink_to(target)
        with pytest.raises((StateError, StorageError), match=str(stopped)):
            run(make(stopped), listener)
        assert (target.read_bytes(), (stopped / name).is_symlink()) == (b"years of work", True)
        (stopped / name).unlink()
    assert (
        run(make(stopped), listener).plain["files"]
        == json.loads((whole / "manifest.json").read_bytes())["files"]
    )
