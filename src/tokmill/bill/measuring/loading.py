"""Measure the memory that loading a dataset takes in a child process."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

from tokmill.bill.dataset_size import dataset_size
from tokmill.bill.measuring.child import MARKS, MODULE, Run
from tokmill.bill.measuring.process_tree import MEASURING, Sampler, Usage
from tokmill.errors import UsageError, WorkerError
from tokmill.words.plural import plural

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tokmill.settings.training import TrainingSettings


SEQUENCE = 2048
"""Tokens of a sequence where neither settings nor packing say."""

MOST_TOKENS = 1 << 26
"""Read of a dataset, spread over all of it: more would take longer and no more memory. Lists are
read whole: their workers copy what they read."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Memory of a trainer with its workers, in bytes: at each of its marks, and the largest seen.

    `looks_per_s`: samples per second.
    """

    at: Mapping[str, Usage]
    peak: Usage
    looks_per_s: float


def has_torch() -> bool:
    """Return whether torch is installed, so that the trainer can be one of torch."""
    return importlib.util.find_spec("torch") is not None


def measure_interpreter(*, torch: bool) -> int:
    """Return the committed bytes of a trainer that has imported its packages and nothing else."""
    run = Run((), "<u2", False, "memmap", 1, 1, 0, "fork", 1, torch)
    return measure(run).at["started"].committed


def run_of(
    directory: Path,
    manifest: Mapping[str, Any],
    training: TrainingSettings,
    *,
    torch: bool,
    masked: bool,
) -> Run:
    """Return the work of the child: to load a dataset as the settings say, and read from it.

    Args:
        directory: a finished dataset.
        manifest: of that dataset.
        training: `loading`, `loader_workers`, `start_method`, `prefetch`, `micro_batch` and
            `sequence` are followed; there is one process, not one for each GPU.
        torch: the batches come from torch's DataLoader, else from NumPy and multiprocessing.
        masked: the masks are loaded too, if the dataset has any.

    Raises:
        UsageError: it holds less than a batch.
    """
    sequence = training.sequence or dataset_size(manifest).capacity or SEQUENCE
    tokens = sum(shard["tokens"] // sequence for shard in manifest["shards"]) * sequence
    if not manifest["totals"]["tokens"]:
        raise UsageError(f"{directory}: the dataset has no tokens: there is nothing to load")
    if tokens < sequence * training.micro_batch:
        raise UsageError(
            f"{directory}: {plural(tokens, 'token')} in whole sequences of {sequence}, expected a "
            f"batch of {training.micro_batch}: set a smaller --sequence or --micro-batch"
        )
    return Run(
        paths=tuple(str(directory / f"{shard['name']}.bin") for shard in manifest["shards"]),
        dtype={"uint16": "<u2", "uint32": "<u4"}[manifest["dtype"]],
        masked=masked and "mask" in manifest,
        loading=training.loading,
        micro_batch=training.micro_batch,
        sequence=sequence,
        workers=training.loader_workers,
        start_method=training.start_method,
        prefetch=training.prefetch,
        torch=torch,
        most_tokens=0 if training.loading == "lists" else MOST_TOKENS,
    )


def measure(run: Run) -> Measured:
    """Run the child, and sample the memory of it and of all that it starts.

    Raises:
        WorkerError: it failed.
    """
    with tempfile.TemporaryFile() as errors, _started(errors) as child:
        threading.Thread(target=_end_workers, args=(child,), daemon=True).start()
        try:
            return _watched(child, run)
        except (BrokenPipeError, EOFError):
            child.wait()
            errors.seek(0)
            raise WorkerError(_why(child.returncode, errors.read().decode())) from None
        finally:
            _kill_group(child)


def _started(errors: IO[bytes]) -> subprocess.Popen[str]:
    try:
        return subprocess.Popen(
            [sys.executable, "-m", MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )
    except OSError as error:
        raise WorkerError(f"the measured trainer cannot be started: {error.strerror}") from None


def _end_workers(child: subprocess.Popen[str]) -> None:
    """End the workers of a child that has gone: they hold its pipe open, and we read from it."""
    child.wait()
    _kill_group(child)


def _kill_group(child: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)


def _watched(child: subprocess.Popen[str], run: Run) -> Measured:
    at: dict[str, Usage] = {}
    start = time.perf_counter()
    with Sampler(child.pid, MEASURING) as sampler:
        _tell(child, run.as_line())
        while "ended" not in at:
            mark = _mark(child)  # first: from here on the child stands still
            at[mark] = sampler.sample()
            _tell(child, "")
        child.wait()
    return Measured(at, sampler.peak, sampler.looks / (time.perf_counter() - start))


def _tell(child: subprocess.Popen[str], line: str) -> None:
    pipe = _open(child.stdin)
    pipe.write(f"{line}\n")
    pipe.flush()


def _mark(child: subprocess.Popen[str]) -> str:
    mark = _open(child.stdout).readline().strip()
    if mark not in MARKS:
        raise EOFError
    return mark


def _open(pipe: IO[str] | None) -> IO[str]:
    if pipe is None:
        raise WorkerError("the measured trainer has no pipe: this is a fault of tokmill")
    return pipe


def _why(code: int, errors: str) -> str:
    lines = errors.strip().splitlines()
    said = f": {lines[-1]}" if lines else ""
    if code == -9:
        said = ": killed by the system, most likely for lack of memory"
    return f"the measured trainer ended with code {code}{said}"
