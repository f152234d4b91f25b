"""The command line, run in this process."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tokmill.cli.main import main

SAMPLES = Path(__file__).parents[2] / "data_samples"
GOOD = [{"title": f"t{i}", "summary": "hello world", "sections": []} for i in range(40)]


def write_lines(path: Path, rows: Sequence[dict[str, Any] | bytes]) -> Path:
    """Write JSON Lines; bytes are a line as they are."""
    lines = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


def manifest(directory: Path) -> dict[str, Any]:
    """Return the manifest of a dataset."""
    found: dict[str, Any] = json.loads((directory / "manifest.json").read_bytes())
    return found


@pytest.fixture
def good(tmp_path: Path) -> Path:
    """Records that `pretrain` reads."""
    return write_lines(tmp_path / "good.jsonl", GOOD)


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The one line that says what is wrong."""
        assert "Traceback" not in self.err
        lines = [line for line in self.err.splitlines() if line.startswith("error: ")]
        assert len(lines) == 1, self.err
        assert self.err.endswith(f"{lines[0]}\n"), "the error is the last line, and one line"
        return lines[0].removeprefix("error: ")


@pytest.fixture
def tokmill(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Outcome]:
    """Run the command line in this process; its exit code is what a shell would see."""
    monkeypatch.setenv("RAYON_NUM_THREADS", "1")
    monkeypatch.setenv("NO_COLOR", "")
    handled = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)

    def run(*arguments: str | Path) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["tokmill", *map(str, arguments)])
        capsys.readouterr()
        before = [signal.getsignal(number) for number in handled], sys.unraisablehook
        try:
            with pytest.raises(SystemExit) as stopped:
                main()
        finally:
            for number, handler in zip(handled, before[0], strict=True):
                signal.signal(number, handler)
            sys.unraisablehook = before[1]
        captured = capsys.readouterr()
        assert isinstance(stopped.value.code, int)
        return Outcome(stopped.value.code, captured.out, captured.err)

    return run


@pytest.fixture
def pretrain(
    tokmill: Callable[..., Outcome], tokenizer_dir: Path, tmp_path: Path
) -> Callable[..., Outcome]:
    """Run `pretrain` into `tmp_path/out` with the tiny tokenizer and the reference engine."""

    def run(*arguments: str | Path) -> Outcome:
        return tokmill(
            *("pretrain", "-o", tmp_path / "out", "-t", tokenizer_dir),
            *("--engine", "reference", "--threads", "1", *arguments),
        )

    return run


@pytest.fixture
def sft(tokmill: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    """Run `sft` into `tmp_path/out` with the tokenizer of the samples and the reference engine."""

    def run(*arguments: str | Path) -> Any:
        return tokmill(
            *("sft", "-o", tmp_path / "out", "-t", SAMPLES / "tokenizer"),
            *("--engine", "reference", "--threads", "1", *arguments),
        )

    return run


@pytest.fixture
def totals(
    sft: Callable[..., Any], tokmill: Callable[..., Any], tmp_path: Path
) -> Callable[..., dict[str, Any]]:
    """Make a dataset, verify it, check that nothing is lost, and give its totals."""

    def run(*arguments: str | Path) -> dict[str, Any]:
        outcome = sft(*arguments, "--max-reject-fraction", "1")
        assert outcome.code == 0, outcome.err
        assert tokmill("verify", tmp_path / "out").code == 0
        found: dict[str, Any] = manifest(tmp_path / "out")["totals"]
        lost = sum(found["drops"].values()) + sum(found["rejects"].values())
        assert found["records"] == found["documents"] - found.get("extra", 0) + lost
        return found

    return run
