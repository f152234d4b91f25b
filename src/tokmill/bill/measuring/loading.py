"""The memory of loading a dataset, measured in a child process and compared with its bill."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from tokmill.bill.dataset_size import DatasetSize, dataset_size
from tokmill.bill.formula import Bill
from tokmill.bill.host_ram.host import host_bill
from tokmill.bill.host_ram.machine import Machine
from tokmill.bill.measuring.child import MARKS, MODULE, Run
from tokmill.bill.measuring.process_tree import MEASURING, Sampler, Usage
from tokmill.errors import UsageError, WorkerError
from tokmill.settings.training import TrainingSettings
from tokmill.words.plural import plural

SEQUENCE = 2048
"""Tokens of a sequence if neither settings nor packing name a number."""

MOST_TOKENS = 1 << 26
"""Tokens that are read at most, spread over the dataset: more would take no more memory.

Lists are read completely, since workers copy what they read.
"""


ALLOWED_SHARE = 0.05
ALLOWED_BYTES = 32 << 20
"""A prediction holds if its error is at most this share of the measured memory plus these bytes."""
MOST_OF_AVAILABLE = 0.8
"""A strategy that needs a larger share of the free memory is not run: programs could be killed."""

_CACHED_INTEGERS = 257
"""Python stores integers below this once."""
_SAMPLED_TOKENS = 1 << 14
_SAMPLED_PLACES = 64


@dataclass(frozen=True, slots=True)
class Measured:
    """Memory of a trainer with its workers: at each mark, and the peak.

    `looks_per_s`: samples of memory per second.
    """

    at: Mapping[str, Usage]
    peak: Usage
    looks_per_s: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """A strategy, predicted and measured; without a measurement, `skipped` is the reason.

    `size`: the dataset as it was loaded.
    """

    training: TrainingSettings
    size: DatasetSize
    predicted: Bill
    measured: Measured | None
    skipped: str = ""

    @property
    def difference(self) -> int:
        """Predicted minus measured bytes; 0 without a measurement."""
        return self.predicted.n_bytes - self.measured.peak.committed if self.measured else 0

    @property
    def holds(self) -> bool:
        """Whether prediction and measurement agree within the allowed error."""
        if self.measured is None:
            return False
        allowed = ALLOWED_SHARE * self.measured.peak.committed + ALLOWED_BYTES
        return abs(self.difference) <= allowed


def has_torch() -> bool:
    """Return whether torch is installed, so that its DataLoader can be measured."""
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
    """Return the work of a child that loads and reads a dataset.

    Args:
        directory: a finished dataset.
        manifest: the manifest of that dataset.
        training: settings of loading, workers and batches; GPUs are ignored: there is one process.
        torch: use torch's DataLoader, else NumPy and multiprocessing.
        masked: also load the masks, if the dataset has any.

    Raises:
        UsageError: the dataset holds less than a batch.
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
    """Return the memory of a child that does this work, and of its own child processes.

    Raises:
        WorkerError: the child failed.
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
            with suppress(BrokenPipeError):  # it has what a failed write left, and writes it again
                _open(child.stdin).close()


def compare_loading(
    directory: Path,
    manifest: Mapping[str, Any],
    training: TrainingSettings,
    machine: Machine,
    *,
    torch: bool,
    masked: bool,
) -> Comparison:
    """Return the predicted and the measured memory of one trainer with its workers, no model.

    Args:
        directory: a finished dataset.
        manifest: the manifest of that dataset.
        training: strategy, workers and batches.
        machine: its free memory, and the memory of a bare process there.
        torch: use torch's DataLoader, else NumPy and multiprocessing.
        masked: also load the masks.
    """
    run = run_of(directory, manifest, training, torch=torch, masked=masked)
    training = replace(training, sequence=run.sequence)
    small = small_ids(run) if training.loading == "lists" else 0.0
    size = replace(dataset_size(manifest), mask=run.masked, weights=False, small_ids=small)
    predicted = predict(training, size, machine)
    if predicted.n_bytes > MOST_OF_AVAILABLE * machine.available_bytes:
        why = "too little memory is free to measure it"
        return Comparison(training, size, predicted, None, why)
    return Comparison(training, size, predicted, measure(run))


def predict(training: TrainingSettings, size: DatasetSize, machine: Machine) -> Bill:
    """Return the bill of a measured trainer at its peak."""
    alone = replace(training, gpus=1, gpus_per_node=0, pin_memory=False, offload="none")
    return host_bill(None, alone, size, machine).peak


def small_ids(run: Run) -> float:
    """Return the share of ids below 257, which Python stores once, estimated from a sample."""
    return float(np.mean([_small(np.memmap(path, run.dtype, "r")) for path in run.paths]))


def _small(ids: npt.NDArray[Any]) -> float:
    places = np.linspace(0, max(len(ids) - _SAMPLED_TOKENS, 0), _SAMPLED_PLACES, dtype=np.int64)
    shares = [np.mean(ids[place : place + _SAMPLED_TOKENS] < _CACHED_INTEGERS) for place in places]
    return float(np.mean(shares))


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
    """Kill the workers of a child that has ended: they keep its pipe open, from which we read."""
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
            mark = _mark(child)  # now the child waits for an answer
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
        raise WorkerError("the measured trainer has no pipe: this is a bug in tokmill")
    return pipe


def _why(code: int, errors: str) -> str:
    lines = errors.strip().splitlines()
    why = f": {lines[-1]}" if lines else ""
    if code == -9:
        why = ": killed by the system, most likely for lack of memory"
    return f"the measured trainer ended with code {code}{why}"
