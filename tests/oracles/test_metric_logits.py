"""Logits in host RAM after transformers' evaluation loop: predicted against numpy's own count."""

from __future__ import annotations

import tracemalloc

import pytest

from tokmill.bill.activations.loss import metrics_host_line
from tokmill.settings.training import TrainingSettings

torch = pytest.importorskip("torch")
trainer_pt_utils = pytest.importorskip("transformers.trainer_pt_utils")

BATCH, SEQUENCE, VOCABULARY, BATCHES = 2, 64, 5000, 6


def peak_of_the_loop(moves: int) -> int:
    """Return the peak of numpy arrays while a container takes batches as the loop gives them."""
    container = trainer_pt_utils.EvalLoopContainer()
    tracemalloc.start()
    for step in range(BATCHES):
        container.add(torch.zeros(BATCH, SEQUENCE, VOCABULARY))
        if moves and (step + 1) % moves == 0:
            # On a GPU this copies; here numpy would take the tensor's own memory.
            container.tensors = Copied(container.tensors)
            container.to_cpu_and_numpy()
    if container.tensors is not None:
        container.tensors = Copied(container.tensors)
    container.get_arrays()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


class Copied:
    """A tensor whose way to the CPU is a copy, in memory that numpy counts."""

    def __init__(self, tensor: object) -> None:
        self.tensor, self.dtype = tensor, torch.float32

    def cpu(self) -> Copied:
        return self

    def numpy(self) -> object:
        return self.tensor.numpy().copy()  # type: ignore[attr-defined]


@pytest.mark.parametrize("moves", [0, 1, 2, 4, 6])
def test_the_last_concatenation_takes_twice_the_logits(moves: int) -> None:
    training = TrainingSettings(
        precision="fp32", metric_batches=BATCHES, eval_accumulation=moves,
        micro_batch=BATCH, sequence=SEQUENCE,
    )  # fmt: skip
    line = metrics_host_line(training, {"n": BATCH * SEQUENCE, "V": VOCABULARY, "R": 1})
    peak = min(peak_of_the_loop(moves) for _ in range(2))  # the first may import something
    assert peak == pytest.approx(line.n_bytes, rel=0.01)
