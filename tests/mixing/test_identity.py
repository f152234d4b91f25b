"""A mix is of the tokens of its inputs: packed, repaired or made again, they are the same."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tokmill
from tests.fixtures.datasets import TOKENIZER
from tokmill.errors import StateError, VerifyError
from tokmill.mixing import tasks

ROWS = [{"text": f"text {n} " * 5, "url": str(n)} for n in range(40)]
MIXES: list[dict[str, Any]] = [{"shuffle": 7}, {}, {"dedup": "mark"}, {"min_tokens": 2}]


@pytest.fixture
def make(tmp_path: Path, write_rows) -> Callable[..., Path]:
    """Make the dataset `a` of several parts; settings and rows may be others."""

    def make(rows: Any = ROWS, name: str = "a", **settings: Any) -> Path:
        source = tmp_path / "in.jsonl"
        if rows is not ROWS or not source.exists():  # a run that is repaired needs an old input
            write_rows(source, rows)
        given = {"tokenizer": TOKENIZER, "part_bytes": 1000, "engine": "reference", "threads": 1}
        tokmill.pretrain(source, output=tmp_path / name, progress=False, **given | settings)
        return tmp_path / name

    return make


def packed(_: Callable[..., Path], directory: Path) -> None:
    tokmill.pack(directory, 8)


def repaired(make: Callable[..., Path], directory: Path) -> None:
    (directory / "train-0000001-0000.idx").unlink()
    make()


def remade(make: Callable[..., Path], directory: Path) -> None:
    shutil.rmtree(directory)
    make()


def made_elsewhere(make: Callable[..., Path], directory: Path) -> None:
    shutil.rmtree(directory)
    make(name="b").rename(directory)


@pytest.mark.parametrize("settings", MIXES)
def test_a_finished_mix_stays_finished(make, tmp_path: Path, settings: dict[str, Any]) -> None:
    directory = make()
    first = tokmill.mix([directory], output=tmp_path / "mix", progress=False, **settings)
    for change in (packed, repaired, remade, made_elsewhere):
        change(make, directory)
        again = tokmill.mix([directory], output=tmp_path / "mix", progress=False, **settings)
        assert again.manifest == first.manifest, change.__name__


@pytest.mark.parametrize(
    "change",
    [
        {"rows": [*ROWS[:-1], {"text": "another"}]},
        {"rows": [{}, *ROWS]},  # the same tokens, of records with other numbers
        {"keep": ["url"]},
        {"part_bytes": 700},
        {"checksum": "sha256"},
    ],
)
def test_a_mix_of_other_tokens_origins_or_fields_is_another(make, tmp_path, change) -> None:
    directory = make()
    tokmill.mix([directory], output=tmp_path / "mix", progress=False, shuffle=7)
    make(overwrite=True, max_reject_fraction=1.0, **change)
    with pytest.raises(StateError, match="holds a mix of other inputs or settings"):
        tokmill.mix([directory], output=tmp_path / "mix", progress=False, shuffle=7)


def test_a_stopped_mix_ends_after_its_input_was_made_again(make, tmp_path, monkeypatch) -> None:
    directory, done = make(), tasks.Worker.do
    settings: dict[str, Any] = {"shuffle": 7, "workers": 1, "progress": False}
    whole = tokmill.mix([directory], output=tmp_path / "whole", **settings)

    def stopped(worker: tasks.Worker, name: str, number: int) -> tasks.Outcome:
        if name == "part":
            raise KeyboardInterrupt
        return done(worker, name, number)

    with monkeypatch.context() as patch:
        patch.setattr(tasks.Worker, "do", stopped)
        with pytest.raises(KeyboardInterrupt):
            tokmill.mix([directory], output=tmp_path / "mix", **settings)
    remade(make, directory)
    again = tokmill.mix([directory], output=tmp_path / "mix", **settings)
    assert again.identity == whole.identity


def test_a_mix_and_an_export_name_the_identity_of_what_they_were_made_of(make, tmp_path) -> None:
    directory = make()
    dataset = tokmill.open(directory)
    mixed = tokmill.mix([directory], output=tmp_path / "mix", progress=False, shuffle=7)
    assert mixed.manifest["mix"]["inputs"][0]["identity"] == dataset.identity
    dataset.export("nanogpt", tmp_path / "exported")
    record = json.loads((tmp_path / "exported/tokmill-export.json").read_text())
    assert record["dataset"] == {"directory": str(directory), "identity": dataset.identity}


@pytest.mark.parametrize("settings", MIXES)
def test_inputs_with_sums_of_two_algorithms_give_a_mix_with_one(
    make, tmp_path: Path, settings: dict[str, Any]
) -> None:
    rows = [*ROWS, {"text": 3}]
    inputs = [
        make(rows[i:], f"in-{checksum}", checksum=checksum, max_reject_fraction=1.0)
        for i, checksum in enumerate(("blake3", "sha256"))
    ]
    mixed = tokmill.mix(inputs, output=tmp_path / "mix", progress=False, **settings)
    assert [file["name"] for file in mixed.manifest["files"] if "blake3" not in file] == []
    assert len(list(mixed.directory.glob("rejects/*.jsonl"))) == 2
    again = tokmill.mix([mixed.directory], output=tmp_path / "again", progress=False, shuffle=1)
    assert mixed.verify().problems == again.verify().problems == ()


def test_a_damaged_file_of_rejects_gets_no_new_sum(make, tmp_path: Path) -> None:
    inputs = [
        make([*ROWS, {"text": 3}], f"in-{checksum}", checksum=checksum, max_reject_fraction=1.0)
        for checksum in ("blake3", "sha256")
    ]
    (path,) = inputs[1].glob("rejects/*.jsonl")
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data.replace(b"3", b"4"))
    with pytest.raises(VerifyError, match=f"{path.name}.*damaged"):
        tokmill.mix(inputs, output=tmp_path / "mix", progress=False)
