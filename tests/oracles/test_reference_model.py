"""The forward pass of DPO's reference model, measured beside that of the trained model."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from tokmill.bill.models.load import model_from_config
from tokmill.bill.training_bill import training_bill
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
SEQUENCES, LENGTH = 2, 256


def log_probabilities(model: Any, ids: Any) -> Any:
    """Return the sum of the log-probabilities of each sequence, as DPO compares them."""
    logits = model(ids).logits[:, :-1].float()
    return torch.gather(logits.log_softmax(-1), 2, ids[:, 1:, None]).squeeze(-1).sum(-1)


def peak(*, reference: bool) -> int:
    """Return the peak of a forward pass in fp32, with both models in memory."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = transformers.AutoConfig.for_model("gpt2", **CONFIG)
        trained, second = (
            transformers.AutoModelForCausalLM.from_config(config) for _ in ("trained", "second")
        )
        ids = torch.zeros(SEQUENCES, LENGTH, dtype=torch.long)
        tracker = tracking.MemTracker()
        tracker.track_external(trained, second)
        with tracker:
            kept = [log_probabilities(trained, ids)]
            if reference:
                with torch.no_grad():
                    kept.append(log_probabilities(second, ids))
    return int(tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"])


def test_the_reference_models_forward_takes_what_the_bill_says() -> None:
    torch.set_num_threads(1)
    model = model_from_config({"model_type": "gpt2", **CONFIG})
    how = {"precision": "fp32", "micro_batch": SEQUENCES, "sequence": LENGTH}
    bill = training_bill(model, TrainingSettings(reference_model=True, **how))  # type: ignore[arg-type]
    moment = next(one for one in bill.moments if "reference" in one.title)
    line = next(one for one in moment.lines if one.name.startswith("reference model:"))
    taken = peak(reference=True) - peak(reference=False)
    # The last token of a sequence is no target, and its logits are left out.
    assert taken == line.n_bytes * (LENGTH - 1) // LENGTH
