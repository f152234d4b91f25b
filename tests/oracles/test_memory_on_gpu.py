"""The process that measures a case on a GPU does its steps, here on a CPU and with tiny models."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.memory_grid import MODELS, case_of, stored
from tests.oracles.conftest import import_or_skip
from tokmill.bill.models.load import model_from_config

TINY = {
    "gpt2": {"n_layer": 2, "n_embd": 32, "n_head": 2, "vocab_size": 101, "n_positions": 64},
    "llama": {
        "num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4,
        "num_key_value_heads": 2, "intermediate_size": 48, "vocab_size": 101,
    },
}  # fmt: skip
CASES = {
    case.name: replace(case, settings={**case.settings, "micro_batch": 2, "sequence": 16})
    for case in map(case_of, stored())
    if case.model in ("gpt2", "tinyllama") and "metric_batches" not in case.settings
}


@pytest.mark.filterwarnings("ignore:.*will be removed in v6:FutureWarning")  # peft's calls
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_steps_of_a_case_run(case):
    import_or_skip("torch", "peft")
    from bench.memory_measure import measure_on

    config = MODELS[case.model] | TINY[MODELS[case.model]["model_type"]]
    found = measure_on("cpu", case, config)
    counted = model_from_config(config, "").parameters
    trained = "adapter" in case.settings
    assert found["parameters"] > counted if trained else found["parameters"] == counted
    assert found["allocated"] == 0
