"""Notes on the inputs of a bill."""

from __future__ import annotations

from typing import Any

import pytest

from tokmill.bill.gpus import find_gpu
from tokmill.bill.inputs import model_notes, stored_notes, training_notes
from tokmill.bill.models.load import load_model, model_from_config
from tokmill.settings.model import ModelSettings
from tokmill.settings.training import TrainingSettings


def notes(gpu: str = "", **settings: Any) -> list[str]:
    return list(training_notes(TrainingSettings(**settings), find_gpu(gpu) if gpu else None))


def test_a_pipeline_with_one_micro_batch_is_serial() -> None:
    assert notes(gpus=4, pipeline_parallel=4) == [
        "pipeline_parallel: with 1 micro batch the 4 stages work one after the other; "
        "set accumulation to 4 or more"
    ]
    assert notes(gpus=4, pipeline_parallel=4, accumulation=2) == []


@pytest.mark.parametrize("gpu", ["V100", "T4", "2080 Ti"])
def test_a_gpu_without_bf16_is_named_with_what_to_use(gpu: str) -> None:
    (note,) = notes(gpu)
    assert note.endswith("has no bf16; use fp16 (the memory is the same)")
    (pure,) = notes(gpu, precision="pure-16")
    assert "use --precision=amp with fp16, or fp32" in pure
    assert notes(gpu, precision="fp32") == notes("A100-80") == notes("24GiB") == []


def test_lengths_over_the_positions_and_ids_over_the_embedding_are_named() -> None:
    model = load_model(ModelSettings(name="gpt2"))
    assert list(model_notes(model, sequence=1024, context=1024, ids=50_257)) == []
    long, ids = model_notes(model, sequence=2048, context=0, ids=50_258)
    assert long == "sequence: 2,048 tokens are more than the model's 1,024 positions"
    assert ids.startswith("vocabulary: the dataset's tokenizer has 50,258 ids, the model's")


@pytest.mark.parametrize(
    ("quantization", "adapter", "said"),
    [
        ({"quant_method": "awq"}, "none", "weights: AWQ, 4 bit, groups of 128 (quantization_conf"),
        ({"quant_method": "awq"}, "lora", ""),
        ({"quant_method": "fp8"}, "none", ""),
        (None, "none", ""),
    ],
)
def test_integers_of_files_cannot_be_trained(
    quantization: dict[str, str] | None, adapter: str, said: str
) -> None:
    config = {"model_type": "gpt2", "n_layer": 1, "n_embd": 64, "n_head": 2}
    model = model_from_config({**config, "quantization_config": quantization})
    found = list(stored_notes(model, TrainingSettings(adapter=adapter)))
    assert len(found) == bool(said)
    assert all(note.startswith(said) and "billed as amp" in note for note in found)
