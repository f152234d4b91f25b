"""What bitsandbytes' 8-bit AdamW keeps of a real model, held against ours."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from tokmill.bill.models.load import model_from_config
from tokmill.bill.states.states import rank_states
from tokmill.settings.training import TrainingSettings

REASON = "the oracle is not installed: make oracles"

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch = pytest.importorskip("torch", reason=REASON)
    transformers = pytest.importorskip("transformers", reason=REASON)

# d^2 = 4,096 elements is the smallest tensor of 8 bit: norms and biases stay fp32.
CONFIG = {
    "n_layer": 2, "n_embd": 64, "n_head": 4, "vocab_size": 152, "n_positions": 64,
    "bos_token_id": 0, "eos_token_id": 0,
}  # fmt: skip


@pytest.fixture(scope="module")
def bitsandbytes() -> Any:
    """Import the package here: collecting tests would wait 5 seconds for it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("bitsandbytes", reason=REASON)


def kept_bytes(bitsandbytes: Any, *, tables_in_fp32: bool) -> int:
    """Return the bytes of the states; what codes stand for is shared by all, and left out."""
    manager = bitsandbytes.optim.GlobalOptimManager.get_instance()
    manager.initialize()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = transformers.AutoConfig.for_model("gpt2", **CONFIG)
        model = transformers.AutoModelForCausalLM.from_config(config)
    if tables_in_fp32:  # as Hugging Face's Trainer asks for
        for module in model.modules():
            if isinstance(module, torch.nn.Embedding):
                manager.register_module_override(module, "weight", {"optim_bits": 32})
    optimizer = bitsandbytes.optim.AdamW8bit(model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 1e-3)
    optimizer.step()
    states: list[dict[str, Any]] = list(optimizer.state.values())
    return sum(
        value.nbytes
        for state in states
        for name, value in state.items()
        if torch.is_tensor(value) and not name.startswith("qmap")
    )


def test_states_of_8_bit_adamw_are_bitsandbytes_own_with_and_without_trainers_exception(
    bitsandbytes,
):
    model = model_from_config({"model_type": "gpt2", **CONFIG})
    lines = rank_states(model, TrainingSettings(precision="fp32", optimizer="adamw-8bit")).optimizer
    assert sum(line.n_bytes for line in lines) == kept_bytes(bitsandbytes, tables_in_fp32=True)
    assert sum(line.low_bytes for line in lines) == kept_bytes(bitsandbytes, tables_in_fp32=False)
