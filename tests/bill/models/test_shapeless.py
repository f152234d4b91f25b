"""Models without a shape: exact states of a count or of tensors, and no promise about the rest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tokmill.bill.models.headers import Entry
from tokmill.bill.models.load import load_model
from tokmill.bill.models.model import Model
from tokmill.bill.models.shapeless import stored_model
from tokmill.bill.serving import inference_bill, weight_line
from tokmill.bill.states.states import rank_states
from tokmill.bill.training_bill import training_bill
from tokmill.errors import UsageError
from tokmill.settings.inference import InferenceSettings
from tokmill.settings.model import ModelSettings
from tokmill.settings.training import TrainingSettings

BILLION = 10**9


def counted(parameters: float) -> Model:
    return load_model(ModelSettings(parameters=round(parameters)))


def states(model: Model, **settings: Any) -> float:
    """Return weights, gradients and optimizer states of a GPU, in GB."""
    return rank_states(model, TrainingSettings(**settings)).n_bytes / BILLION


# ZeRO (Rajbhandari et al. 2020), table 1, in GB: stages 1, 2 and 3 by the number of GPUs.


@pytest.mark.parametrize(("kind", "bits"), [("q4_0", 4.5), ("q8_0", 8.5), ("mxfp4", 4.25)])
def test_a_count_has_the_usual_type_of_a_gguf_file(kind: str, bits: float) -> None:
    found = weight_line(counted(8e9), InferenceSettings(weight_type=kind))
    assert found.n_bytes == bits * 1e9


def test_unknown_parts_are_named_and_not_in_the_total() -> None:
    peak = training_bill(counted(1e9), TrainingSettings()).peak
    assert peak.missing == "activations and logits"
    assert any("layers and widths are not known" in each for each in peak.leaves_out)
    assert not any("activations" in line.name for line in peak.lines)
    served = inference_bill(counted(1e9), InferenceSettings(), context=10)
    assert served.missing == "KV cache and activations"
    assert served.lines[0].name == "weights"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"adapter": "lora"}, "adapter: lora needs the shapes of matrices"),
        ({"pipeline_parallel": 2, "gpus": 2}, "pipeline_parallel: stages need the model's layers"),
        ({"expert_parallel": 2, "gpus": 2}, "expert_parallel: the model has no experts"),
        ({"optimizer": "adafactor"}, "optimizer: adafactor needs the shapes of matrices"),
        ({"optimizer_step": "for-loop"}, "optimizer_step: for-loop needs the size of the largest"),
    ],
)
def test_settings_that_need_a_shape_are_refused(settings: dict[str, Any], expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        training_bill(counted(1e9), TrainingSettings(**settings))


@pytest.mark.parametrize("more", [{"name": "gpt2"}, {"family": "llama"}, {"layers": 3}])
def test_a_count_and_a_shape_contradict_each_other(more: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="parameters: a number of parameters is a model by itself"):
        load_model(ModelSettings(parameters=10, **more))


ENTRIES = [
    Entry("model.embed_tokens.weight", "BF16", (100, 8), 1600),
    *(Entry(f"model.layers.{i}.mixer.in.weight", "BF16", (16, 8), 256) for i in range(3)),
    *(Entry(f"model.layers.{i}.norm.weight", "F32", (8,), 32) for i in range(3)),
    Entry("lm_head.weight", "BF16", (100, 8), 1600),
]


def test_states_of_tensors_are_exact_under_every_sharding() -> None:
    model = stored_model("m", "mamba9", ENTRIES)
    assert states(model, precision="mixed-16") * BILLION == 16 * 2008
    sharded = rank_states(model, TrainingSettings(precision="mixed-16", sharding="fsdp", gpus=8))
    assert sharded.n_bytes == 2 * 2008
    assert sharded.gathered is not None
    assert sharded.gathered.symbols["unit"] == 2 * 136


def write(path: Path, name: str, shape: list[int]) -> None:
    size = 2 * shape[0] * shape[1]
    text = json.dumps({name: {"dtype": "BF16", "shape": shape, "data_offsets": [0, size]}})
    path.write_bytes(len(text).to_bytes(8, "little") + text.encode() + bytes(size))


def test_a_directory_of_an_unknown_architecture_is_counted_by_its_headers(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "mamba9"}')
    with pytest.raises(UsageError, match="cannot count the parameters of mamba9"):
        load_model(ModelSettings(name=str(tmp_path)))
    write(tmp_path / "model.safetensors", "w.weight", [3, 5])
    model = load_model(ModelSettings(name=str(tmp_path)))
    assert (model.parameters, model.family, model.name) == (15, "mamba9", tmp_path.name)
    assert load_model(ModelSettings(name=str(tmp_path / "config.json"))).parameters == 15
    with pytest.raises(UsageError, match="is unknown, so numbers cannot change it"):
        load_model(ModelSettings(name=str(tmp_path), layers=2))


def test_a_directory_without_a_configuration_and_a_file_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    write(path, "w.weight", [3, 5])
    by_directory, by_file = (load_model(ModelSettings(name=str(p))) for p in (tmp_path, path))
    assert by_directory.tensors == by_file.tensors
    assert (by_directory.name, by_file.name) == (tmp_path.name, "weights")


def test_a_known_architecture_is_not_counted_by_headers(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "gpt2", "n_embd": 12, "n_layer": 1}')
    write(tmp_path / "model.safetensors", "w.weight", [3, 5])
    assert load_model(ModelSettings(name=str(tmp_path))).has_shape


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The Hub's library, with an empty cache and without a network."""
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    repository = tmp_path / "models--org--new"
    (repository / "snapshots" / "a1").mkdir(parents=True)
    (repository / "snapshots" / "a1" / "config.json").write_text('{"model_type": "mamba9"}')
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("a1")
    pytest.importorskip("huggingface_hub.utils")
    return pytest.importorskip("huggingface_hub")


def test_an_unknown_architecture_on_the_hub_is_counted_by_headers(
    hub: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = hub.utils.TensorInfo(dtype="BF16", shape=[2, 3], data_offsets=(4, 16))
    file = hub.utils.SafetensorsFileMetadata(metadata={}, tensors={"w.weight": info})
    found = hub.utils.SafetensorsRepoMetadata(
        metadata=None, sharded=False, weight_map={}, files_metadata={"model.safetensors": file}
    )
    monkeypatch.setattr(hub, "get_safetensors_metadata", lambda name: found)
    model = load_model(ModelSettings(name="org/new"))
    assert (model.name, model.family, model.parameters) == ("org/new", "mamba9", 6)


def test_an_unknown_architecture_without_the_hub_is_one_line(hub: Any) -> None:
    expected = "cannot count the parameters of mamba9: .*: its files cannot be read; the Hub: "
    with pytest.raises(UsageError, match=expected) as error:
        load_model(ModelSettings(name="org/new"))
    assert "\n" not in str(error.value)
