"""Compare the bill of loading a dataset with the memory that a real trainer takes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.bill.dataset_size import dataset_size
from tokmill.bill.host_ram.host import host_bill
from tokmill.bill.measuring.loading import measure, run_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import numpy.typing as npt

    from tokmill.bill.dataset_size import DatasetSize
    from tokmill.bill.formula import Bill
    from tokmill.bill.host_ram.machine import Machine
    from tokmill.bill.measuring.child import Run
    from tokmill.bill.measuring.loading import Measured
    from tokmill.settings.training import TrainingSettings


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
    """One strategy, predicted and measured; `measured` is None where `skipped` says why.

    `size` is the dataset as it was loaded.
    """

    training: TrainingSettings
    size: DatasetSize
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
    training = replace(training, sequence=run.sequence)
    small = small_ids(run) if training.loading == "lists" else 0.0
    size = replace(dataset_size(manifest), mask=run.masked, weights=False, small_ids=small)
    predicted = predict(training, size, machine)
    if predicted.n_bytes > MOST_OF_AVAILABLE * machine.available_bytes:
        why = "too little memory is free to measure it"
        return Comparison(training, size, predicted, None, why)
    return Comparison(training, size, predicted, measure(run))


def predict(training: TrainingSettings, size: DatasetSize, machine: Machine) -> Bill:
    """Return the bill of the moment at which a measured trainer takes most."""
    alone = replace(training, gpus=1, gpus_per_node=0, pin_memory=False, offload="none")
    return host_bill(None, alone, size, machine).peak


def small_ids(run: Run) -> float:
    """Return the share of ids below 257, which Python stores once, from a spread sample."""
    return float(np.mean([_small(np.memmap(path, run.dtype, "r")) for path in run.paths]))


def _small(ids: npt.NDArray[Any]) -> float:
    places = np.linspace(0, max(len(ids) - _SAMPLED_TOKENS, 0), _SAMPLED_PLACES, dtype=np.int64)
    shares = [np.mean(ids[place : place + _SAMPLED_TOKENS] < _CACHED_INTEGERS) for place in places]
    return float(np.mean(shares))
