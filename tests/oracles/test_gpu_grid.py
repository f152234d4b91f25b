"""The process that measures a case on a GPU does its steps, here on a CPU and with tiny models."""

from dataclasses import replace

import pytest

from bench.gpu_cases import SHAPES, Case, grid
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
        family = SHAPES[case.shape]["model_type"]
        training = case.training and replace(case.training, micro_batch=2, sequence=16)
        inference = case.inference and replace(case.inference, batch=2, context=24)
        small = Case(case.name, case.shape, case.held_out, training, inference, case.needs)
        found.setdefault((family, training, inference), small)
    return list(found.values())


@pytest.mark.filterwarnings("ignore:.*will be removed in v6:FutureWarning")  # peft's calls
@pytest.mark.parametrize("case", kinds(), ids=lambda case: case.name)
def test_a_case_of_each_kind_runs(case, tmp_path):
    from bench.gpu_child import measure

    if case.needs:
        pytest.importorskip(case.needs, reason=f"{case.needs} is not installed")
    values = case.as_json()
    config = values["config"] | TINY[values["config"]["model_type"]]
    found = measure(values | {"config": config}, "cpu")
    trained = case.training is not None and case.training.adapter != "none"
    counted = model_from_config(config, "").parameters
    assert found["parameters"] > counted if trained else found["parameters"] == counted
    assert found["allocated"] == 0
