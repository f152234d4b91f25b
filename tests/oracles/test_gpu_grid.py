"""The process that measures a case on a GPU does its steps, here on a CPU and with tiny models."""

from dataclasses import replace

import pytest

from bench.bill_cases import MODELS
from bench.gpu_grid import grid, needs
from tokmill.bill.models.load import model_from_config

torch = pytest.importorskip("torch", reason="torch is not installed: make oracles")
pytest.importorskip("transformers", reason="transformers is not installed: make oracles")

TINY = {
    "gpt2": {"n_layer": 2, "n_embd": 32, "n_head": 2, "vocab_size": 101, "n_positions": 64},
    "llama": {
        "num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4,
        "num_key_value_heads": 2, "intermediate_size": 48, "vocab_size": 101,
    },
}  # fmt: skip


def kinds():
    """Return one case of each kind: family, and settings without batch and length."""
    found = {}
    for case in grid():
        small = {"batch": 2, "context": 24} if case.serves else {"micro_batch": 2, "sequence": 16}
        one = replace(case, settings=case.settings | small)
        family = MODELS[case.model]["model_type"]
        found.setdefault((family, tuple(one.settings.items())), one)
    return list(found.values())


@pytest.mark.filterwarnings("ignore:.*will be removed in v6:FutureWarning")  # peft's calls
@pytest.mark.parametrize("case", kinds(), ids=lambda case: case.name)
def test_a_case_of_each_kind_runs(case):
    from bench.gpu_grid import measure

    if missing := needs(case):
        pytest.skip(f"not installed: {', '.join(missing)}")
    config = MODELS[case.model] | TINY[MODELS[case.model]["model_type"]]
    found = measure(case, "cpu", config)
    counted = model_from_config(config, "").parameters
    trained = "adapter" in case.settings
    assert found["parameters"] > counted if trained else found["parameters"] == counted
    assert found["allocated"] == 0
