"""A pipe, a socket or a directory in place of a file of a dataset is a line, never a wait."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import tokmill
from tokmill.bill.on_disk import read_dataset
from tokmill.cli.main import cli
from tokmill.errors import TokmillError
from tokmill.run.finish import run
from tokmill.settings.sft import SftSettings

DEADLINE_S = 20
"""A command takes a second at most."""


class NoEnd(BaseException):
    """A command waits."""


@contextmanager
def deadline() -> Iterator[None]:
    """Raise `NoEnd` in a command that waits for a file to open."""

    def stop(number: int, frame: object) -> None:
        raise NoEnd

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, DEADLINE_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def ended(*arguments: str | Path) -> int:
    """Run a command in this process; return 0, or the code of its one line."""
    with deadline():
        done = CliRunner().invoke(cli, list(map(str, arguments)), standalone_mode=False)
    if done.exception is None:
        return 0
    if not isinstance(done.exception, TokmillError):
        raise AssertionError(arguments) from done.exception
    assert "\n" not in str(done.exception)
    return done.exception.exit_code


def directory_at(path: Path) -> None:
    path.mkdir()


def socket_at(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        before = Path.cwd()
        os.chdir(path.parent)  # the path of a socket has at most 107 bytes
        try:
            listening.bind(path.name)
        finally:
            os.chdir(before)


MAKERS: dict[str, Callable[[Path], None]] = {
    "pipe": os.mkfifo, "socket": socket_at, "directory": directory_at
}  # fmt: skip


def kinds(directory: Path) -> list[str]:
    """Return one file of each kind: those that differ in numbers alone are of one."""
    names = sorted(p.relative_to(directory).as_posix() for p in directory.rglob("*") if p.is_file())
    return sorted({re.sub(r"\d+", "0", name): name for name in names}.values())


@pytest.fixture(scope="module")
def datasets(tmp_path_factory, configure, silent, write_rows) -> dict[str, Path]:
    """Documents with kept fields, a reject and packs; chats with masks, weights and packed rows."""
    folder = tmp_path_factory.mktemp("datasets")
    rows = [{"text": f"hello {i}", "n": str(i)} for i in range(40)]
    texts = write_rows(folder / "in.jsonl", [*rows, b"{bad"])
    documents = configure(
        folder / "documents", texts, val_fraction=0.3, max_reject_fraction=1.0, packing=64,
        keep=("n",),
    )  # fmt: skip
    turns = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "yes"}]
    said = write_rows(folder / "said.jsonl", [{"messages": turns, "n": i} for i in range(40)])
    sft = SftSettings(template="plain", packing=64, packed_rows=True, weights="file")
    chats = configure(folder / "chats", said, val_fraction=0.3, max_tokens=64, sft=sft)
    for config in (documents, chats):
        run(config, silent)
    return {"documents": folder / "documents", "chats": folder / "chats"}


COMMANDS = [
    ("documents chats", "verify {d}"),
    ("documents chats", "inspect {d} --row 0"),
    ("documents", "inspect {d} --html {o}.html"),
    ("chats", "report {d} --html {o}.html"),
    ("documents chats", "stats {d}"),
    ("documents", "pack {d} --length 100"),
    ("documents chats", "mix {d} -o {o} --workers 1"),
    ("documents chats", "mix {d} -o {o} --workers 1 --shuffle 1 --dedup"),
    ("documents", "export {d} --to megatron -o {o}"),
    ("documents", "export {d} --to nanogpt -o {o}"),
    ("documents chats", "export {d} --to datasets -o {o}"),
    ("chats", "export {d} --to trl -o {o} --drop-weights"),
    ("chats", "import --from megatron {d} -t {t} -o {o}"),
    ("documents", "status {d}"),
    ("documents chats", "run-part {d} --index 0 --of 1"),
    ("documents chats", "finish {d}"),
]


@pytest.mark.parametrize(("of", "command"), COMMANDS)
def test_what_is_no_file_in_a_dataset_is_a_line_in_each_command(
    datasets: dict[str, Path], tokenizer_dir: Path, tmp_path: Path, of: str, command: str
) -> None:
    for kind in of.split():
        for number, name in enumerate(kinds(datasets[kind])):
            what, make = list(MAKERS.items())[number % 3 if command == "verify {d}" else 0]
            copy, output = tmp_path / f"{kind}-{number}", tmp_path / f"{kind}-{number}-out"
            shutil.copytree(datasets[kind], copy, copy_function=os.link)
            (copy / name).unlink()
            make(copy / name)
            code = ended(*command.format(d=copy, o=output, t=tokenizer_dir).split())
            if command.startswith("verify") and name != ".lock":
                assert code != 0, (what, name)


def read_by_a_program(directory: Path) -> Iterator[Callable[[], Any]]:
    """Yield what a program does with a dataset."""
    yield lambda: next(iter(tokmill.loader.documents(directory)))
    yield lambda: tokmill.loader.windows(directory, 8, shift=True)[0]
    yield lambda: tokmill.loader.packs(directory, shift=False)[0]
    yield lambda: tokmill.open(directory).bill(model="llama-3-8b")
    yield lambda: read_dataset(directory)  # of `tokmill.bill`
    yield lambda: tokmill.open(directory)[0]
    yield lambda: tokmill.open(directory).origin(0)
    yield lambda: tokmill.open(directory).mask(0)


@pytest.mark.parametrize("kind", ["documents", "chats"])
def test_what_is_no_file_in_a_dataset_is_a_line_for_a_program(
    datasets: dict[str, Path], tmp_path: Path, kind: str
) -> None:
    for number, name in enumerate(kinds(datasets[kind])):
        copy = tmp_path / str(number)
        shutil.copytree(datasets[kind], copy, copy_function=os.link)
        (copy / name).unlink()
        os.mkfifo(copy / name)
        for read in read_by_a_program(copy):
            with deadline(), suppress(TokmillError):
                read()
