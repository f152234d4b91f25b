"""Measure what loading a dataset takes in a child process, and compare it with the bill."""

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
from dataclasses import dataclass, replace
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from tokmill.bill.dataset_size import dataset_size
from tokmill.bill.host_ram.host import host_bill
from tokmill.bill.measuring.child import MARKS, MODULE, Run
from tokmill.bill.measuring.process_tree import MEASURING, Sampler, Usage
from tokmill.errors import UsageError, WorkerError
from tokmill.words.plural import plural

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import numpy.typing as npt

    from tokmill.bill.dataset_size import DatasetSize
    from tokmill.bill.formula import Bill
    from tokmill.bill.host_ram.machine import Machine
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


ALLOWED_SHARE = 0.05
ALLOWED_BYTES = 32 << 20
"""A prediction holds within this share of what was measured and these bytes."""
MOST_OF_AVAILABLE = 0.8
"""Strategies predicted to take more of the free memory are not run: other programs could die."""

_CACHED_INTEGERS = 257
"""Python's integers below this exist once."""
_SAMPLED_TOKENS = 1 << 14
_SAMPLED_PLACES = 64


@dataclass(frozen=True, slots=True)
class Comparison:
    """One strategy, predicted and measured; `measured` is None where `skipped` says why."""

    training: TrainingSettings
    masked: bool
    predicted: Bill
    measured: Measured | None
    skipped: str = ""

    @property
    def difference(self) -> int:
        """Bytes that were predicted too much; negative: too few."""
        return self.predicted.n_bytes - self.measured.peak.committed if self.measured else 0

    @property
    def holds(self) -> bool:
        """Return whether prediction and measurement agree within what is allowed."""
        if self.measured is None:
            return False
        allowed = ALLOWED_SHARE * self.measured.peak.committed + ALLOWED_BYTES
        return abs(self.difference) <= allowed


def compare_loading(
    directory: Path,
    manifest: Mapping[str, Any],
    training: TrainingSettings,
    machine: Machine,
    *,
    torch: bool,
    masked: bool,
) -> Comparison:
    """Predict and measure one strategy in one process with its workers, without a model.

    Args:
        directory: the dataset.
        manifest: of that dataset.
        training: strategy, workers and batches.
        machine: with what a process takes that has only imported its packages; predictions above
            what is available there are not run.
        torch: whether torch's DataLoader is measured.
        masked: whether masks are loaded.
    """
    run = run_of(directory, manifest, training, torch=torch, masked=masked)
    predicted = predict(run, training, dataset_size(manifest), machine)
    if predicted.n_bytes > MOST_OF_AVAILABLE * machine.available_bytes:
        why = "too little memory is free to measure it"
        return Comparison(training, run.masked, predicted, None, why)
    return Comparison(training, run.masked, predicted, measure(run))


def predict(run: Run, training: TrainingSettings, size: DatasetSize, machine: Machine) -> Bill:
    """Return the bill of the moment at which a measured run takes most."""
    alone = replace(training, gpus=1, sequence=run.sequence, pin_memory=False, offload="none")
    small = small_ids(run) if training.loading == "lists" else 0.0
    loaded = replace(size, mask=run.masked, weights=False, small_ids=small)
    return host_bill(None, alone, loaded, machine).peak


def small_ids(run: Run) -> float:
    """Return the share of ids below 257, which Python stores once, from a spread sample."""
    found = [_small(np.memmap(path, run.dtype, "r")) for path in run.paths]
    return float(np.mean(found))


def _small(ids: npt.NDArray[Any]) -> float:
    places = np.linspace(0, max(len(ids) - _SAMPLED_TOKENS, 0), _SAMPLED_PLACES, dtype=np.int64)
    shares = [np.mean(ids[place : place + _SAMPLED_TOKENS] < _CACHED_INTEGERS) for place in places]
    return float(np.mean(shares))
