"""The peak of a step of DPO, as trl takes the log-probabilities of both models."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from tokmill.bill.models.load import model_from_config
from tokmill.bill.training_bill import allocated_bytes, training_bill
from tokmill.settings.training import TrainingSettings

REASON = "the oracle is not installed: make oracles"

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch = pytest.importorskip("torch", reason=REASON)
    transformers = pytest.importorskip("transformers", reason=REASON)
    tracking = pytest.importorskip("torch.distributed._tools.mem_tracker", reason=REASON)

CONFIG = {
    "n_layer": 2, "n_embd": 64, "n_head": 4, "vocab_size": 5000, "n_positions": 256,
    "bos_token_id": 0, "eos_token_id": 0, "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0,
}  # fmt: skip
LENGTH = 256


def log_probabilities(model: Any, ids: Any, *, autocast: bool) -> Any:
    """Return the sum of the log-probabilities of each sequence, as DPO compares them."""
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        logits = model(ids).logits
    logits = logits.float() if autocast else logits  # as accelerate returns outputs
    # Imported here: collecting tests would wait for it.
    trl = pytest.importorskip("trl.trainer.utils", reason=REASON)
    return trl.selective_log_softmax(logits[:, :-1], ids[:, 1:]).sum(-1)


def peak(precision: str, pairs: int) -> int:
    """Return the peak of the second step, with both models in memory."""
    dtype, autocast = torch.float32, precision == "amp"
    if precision == "pure-16":
        dtype = torch.bfloat16
    config = transformers.AutoConfig.for_model("gpt2", **CONFIG)
    trained, reference = (
        transformers.AutoModelForCausalLM.from_config(config, dtype=dtype) for _ in range(2)
    )
    ids = torch.zeros(2 * pairs, LENGTH, dtype=torch.long)
    optimizer = torch.optim.AdamW(trained.parameters())
    for parameter in trained.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    optimizer.zero_grad()
    tracker = tracking.MemTracker()
    tracker.track_external(trained, reference, optimizer)
    with tracker:
        ratios = log_probabilities(trained, ids, autocast=autocast)
        with torch.no_grad():
            of_reference = log_probabilities(reference, ids, autocast=autocast)
        ratios = ratios - of_reference
        torch.nn.functional.logsigmoid(ratios[:pairs] - ratios[pairs:]).mean().backward()
    return int(tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"])


@pytest.mark.parametrize("precision", ["fp32", "amp", "pure-16"])
@pytest.mark.parametrize("pairs", [1, 2])
def test_a_step_of_dpo_takes_what_the_bill_says(precision: str, pairs: int) -> None:
    torch.set_num_threads(1)
    settings = TrainingSettings(
        precision=precision, micro_batch=2 * pairs, sequence=LENGTH, reference_model=True
    )
    bill = training_bill(model_from_config({"model_type": "gpt2", **CONFIG}), settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        measured = peak(precision, pairs)
    billed = max(allocated_bytes(moment) for moment in bill.moments)
    assert -0.02 < billed / measured - 1 < 0.035
