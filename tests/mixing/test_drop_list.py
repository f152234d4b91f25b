"""Lists of documents to leave out: files, pipes, and what is none of both."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tokmill
from tokmill.api.dataset import Dataset
from tokmill.dataset.checksum import document_hash
from tokmill.errors import UsageError
from tokmill.mixing import drop_list
from tokmill.mixing.inputs import open_inputs
from tokmill.mixing.settings import mix_settings, requests


@pytest.fixture(scope="module")
def texts(make: Callable[..., Dataset]) -> Dataset:
    return make([f"text {n}" for n in range(20)])


def mixed(texts: Dataset, output: Path, *lists: Path | str) -> Dataset:
    return tokmill.mix(
        texts.directory, output=output, drop=[str(path) for path in lists], workers=1,
        progress=False,
    )  # fmt: skip


def lines_of(texts: Dataset, numbers: range, *, as_hashes: bool = False) -> str:
    rows: list[dict[str, Any]] = []
    for number in numbers:
        origin = texts.origin(number)
        digest = document_hash(texts[number].tobytes()).hex()
        of_record = {"source": origin.path, "record": origin.record}
        rows.append({"hash": digest} if as_hashes else of_record)
    return "".join(json.dumps(row) + "\n" for row in rows)


def left(dataset: Dataset) -> list[int]:
    return [dataset.origin(i).record for i in range(len(dataset))]


def test_records_and_hashes_of_several_lists(texts, tmp_path) -> None:
    (tmp_path / "a").write_text(lines_of(texts, range(3)) + "\n" + lines_of(texts, range(3)))
    (tmp_path / "b").write_text(lines_of(texts, range(2, 6), as_hashes=True))
    dataset = mixed(texts, tmp_path / "out", tmp_path / "a", tmp_path / "b")
    assert left(dataset) == list(range(7, 21))


def test_an_empty_list_leaves_nothing_out(texts, tmp_path) -> None:
    (tmp_path / "empty").write_text("\n \n")
    assert len(mixed(texts, tmp_path / "out", tmp_path / "empty")) == len(texts)


@pytest.mark.parametrize("is_late", [False, True])
def test_a_list_may_come_through_a_named_pipe(texts, tmp_path, monkeypatch, is_late) -> None:
    """A program may open the pipe, and write to it after a long time."""
    monkeypatch.setattr(drop_list, "WAIT_S", 0.1)
    path, opened = tmp_path / "pipe", threading.Event()
    os.mkfifo(path)

    def write() -> None:
        with path.open("w") as pipe:
            opened.wait(0.3 if is_late else 0)
            pipe.write(lines_of(texts, range(4)))

    writer = threading.Thread(target=write)
    writer.start()
    dataset = mixed(texts, tmp_path / "out", path)
    writer.join()
    assert left(dataset) == list(range(5, 21))


def test_a_list_may_come_from_standard_input(texts, tmp_path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tokmill", "mix", texts.directory, "-o", tmp_path / "out",
         "--drop", "/dev/stdin", "-q"],
        input=lines_of(texts, range(4)), text=True, check=True,
    )  # fmt: skip
    assert done.returncode == 0
    assert left(tokmill.open(tmp_path / "out")) == list(range(5, 21))


def test_a_pipe_to_which_nobody_writes_ends_with_a_line(texts, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(drop_list, "WAIT_S", 0.05)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="a pipe to which nobody writes"):
        mixed(texts, tmp_path / "out", tmp_path / "pipe")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/dev/zero", "expected lines of at most 1"),
        ("/", "cannot be read: is a directory"),
        ("missing", "cannot be read: no such file"),
        ("missing\0", "expected a path|cannot be read"),
    ],
)
def test_what_is_no_list_is_refused_in_a_line(texts, tmp_path, path, message) -> None:
    with pytest.raises(UsageError, match=message):
        mixed(texts, tmp_path / "out", path)


def test_a_pipe_without_end_is_refused(texts, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(drop_list, "MOST_PIPE_BYTES", 10_000)
    path = tmp_path / "pipe"
    os.mkfifo(path)
    line = lines_of(texts, range(1))
    endless = subprocess.Popen(["yes", line.strip()], stdout=(fd := os.open(path, os.O_RDWR)))
    os.close(fd)
    try:
        with pytest.raises(UsageError, match="through a pipe: write a longer list to a file"):
            mixed(texts, tmp_path / "out", path)
    finally:
        endless.kill()
        endless.wait()


def test_the_plan_refuses_what_the_mix_refuses(texts, tmp_path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tokmill", "mix", texts.directory, "-o", tmp_path / "out",
         "--drop", tmp_path / "missing", "--plan"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "no such file" in done.stderr


def test_a_list_is_kept_once_sorted_in_8_or_16_bytes_an_entry(texts, tmp_path) -> None:
    (tmp_path / "list").write_text(
        lines_of(texts, range(9)) * 2 + lines_of(texts, range(5), as_hashes=True) * 2
    )
    settings = mix_settings([texts.directory], output=tmp_path / "out")
    drop_list.write_drop_lists(
        [str(tmp_path / "list")], open_inputs(requests(settings), settings), tmp_path
    )
    records = np.fromfile(tmp_path / "drop-records", "<i8")
    hashes = np.fromfile(tmp_path / "drop-hashes", "S16")
    assert len(records) == 9
    assert len(hashes) == 5
    assert np.array_equal(records, np.unique(records))
    assert np.array_equal(hashes, np.unique(hashes))
