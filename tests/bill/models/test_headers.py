"""Models counted by headers of files or by a number: exact states, the rest is unknown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tokmill.bill.models.known import Entry, read_entries
from tokmill.bill.models.load import load_model
from tokmill.bill.models.model import Model
from tokmill.bill.models.shapeless import stored_model
from tokmill.bill.serving import inference_bill, weight_line
from tokmill.bill.states.states import rank_states
from tokmill.bill.training_bill import training_bill
from tokmill.errors import UsageError
from tokmill.settings.training import InferenceSettings, ModelSettings, TrainingSettings

Tensors = dict[str, tuple[str, list[int]]]
BITS = {"F32": 32, "BF16": 16, "F16": 16, "F8_E4M3": 8, "I32": 32, "I64": 64, "U8": 8}


def header_of(tensors: Tensors) -> tuple[dict[str, Any], int]:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, (dtype, shape) in tensors.items():
        size = BITS[dtype] // 8
        for length in shape:
            size *= length
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    return header, at


def write(path: Path, tensors: Tensors) -> Path:
    """Write a safetensors file by hand."""
    header, size = header_of(tensors)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(size))
    return path


def write_raw(path: Path, header: object, *, data: int = 0, length: int | None = None) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    n = len(text) if length is None else length
    path.write_bytes(n.to_bytes(8, "little") + text + bytes(data))
    return path


def test_a_file_of_the_safetensors_library_is_read(tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    save_file = pytest.importorskip("safetensors.numpy").save_file
    save_file({"w": numpy.zeros((2, 3), "float32")}, tmp_path / "model.safetensors")
    assert read_entries(tmp_path) == [Entry("w", "F32", (2, 3), 24)]


def test_types_smaller_than_a_byte_and_without_a_number_are_read(tmp_path: Path) -> None:
    packed = {"dtype": "F4", "shape": [4], "data_offsets": [0, 2]}
    mask = {"dtype": "BOOL", "shape": [3], "data_offsets": [2, 5]}
    found = read_entries(write_raw(tmp_path / "x.safetensors", {"w": packed, "m": mask}, data=5))
    assert [entry.n_bytes for entry in found] == [2, 3]


def test_the_tensors_themselves_are_not_read(tmp_path: Path) -> None:
    header, _ = header_of({"w": ("BF16", [1 << 20, 1 << 20])})
    path = write_raw(tmp_path / "x.safetensors", header)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size + (1 << 41))  # sparse: 2 TiB
    assert read_entries(path)[0].n_bytes == 1 << 41


def test_a_directory_is_the_files_of_its_index(tmp_path: Path) -> None:
    first, second = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
    write(tmp_path / first, {"a.weight": ("BF16", [2])})
    write(tmp_path / second, {"b.weight": ("F32", [3])})
    write(tmp_path / "adapter_model.safetensors", {"other": ("F32", [9])})
    weight_map = {"a.weight": first, "b.weight": second}
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 16}, "weight_map": weight_map}))
    assert [entry.name for entry in read_entries(tmp_path)] == ["a.weight", "b.weight"]

    (tmp_path / second).unlink()
    with pytest.raises(UsageError, match=rf"{second}: no such file, but model.safetensors.index"):
        read_entries(tmp_path)


def test_one_file_wins_over_others_and_without_it_all_are_read(tmp_path: Path) -> None:
    write(tmp_path / "consolidated.safetensors", {"a": ("BF16", [2])})
    write(tmp_path / "b.safetensors", {"b": ("BF16", [2])})
    assert [entry.name for entry in read_entries(tmp_path)] == ["b", "a"]
    write(tmp_path / "model.safetensors", {"c": ("BF16", [2])})
    assert [entry.name for entry in read_entries(tmp_path)] == ["c"]
    assert read_entries(tmp_path / "b.safetensors")[0].name == "b"


@pytest.mark.parametrize(
    "index", [b"{", b"[]", b'{"weight_map": 3}', b"[" * 100_000, b"\xff" * 1000]
)
def test_a_damaged_index_is_one_line(tmp_path: Path, index: bytes) -> None:
    (tmp_path / "model.safetensors.index.json").write_bytes(index)
    with pytest.raises(UsageError, match="expected an object with a weight_map") as error:
        read_entries(tmp_path)
    assert len(str(error.value)) < len(str(tmp_path)) + 200


GOOD = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    ("header", "data", "length"),
    [
        (b"", 0, None),
        (b"{}", 0, 1 << 40),
        (b"{", 0, None),
        (b"\xff\xfe", 0, None),
        (b"[" * 100_000, 0, None),
        ({"w": 3}, 0, None),
        ({"w": {**GOOD, "shape": [-1]}}, 8, None),
        ({"w": {**GOOD, "shape": 2}}, 8, None),
        ({"w": {**GOOD, "data_offsets": [8, 0]}}, 8, None),
        ({"w": {**GOOD, "data_offsets": [0, 9]}}, 8, None),
        ({"w": {"dtype": "F32", "shape": [2]}}, 8, None),
        ({"w": {**GOOD, "dtype": "F64"}}, 8, None),
        ({"w": {**GOOD, "shape": [10**30]}}, 8, None),
    ],
)
def test_a_damaged_file_is_one_line(
    tmp_path: Path, header: object, data: int, length: int | None
) -> None:
    path = write_raw(tmp_path / "x.safetensors", header, data=data, length=length)
    with pytest.raises(UsageError, match=r"x.safetensors: damaged, or no safetensors") as error:
        read_entries(path)
    assert "\n" not in str(error.value)


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


def write_one(path: Path, name: str, shape: list[int]) -> None:
    size = 2 * shape[0] * shape[1]
    text = json.dumps({name: {"dtype": "BF16", "shape": shape, "data_offsets": [0, size]}})
    path.write_bytes(len(text).to_bytes(8, "little") + text.encode() + bytes(size))


def test_a_directory_of_an_unknown_architecture_is_counted_by_its_headers(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "mamba9"}')
    with pytest.raises(UsageError, match="cannot count the parameters of mamba9"):
        load_model(ModelSettings(name=str(tmp_path)))
    write_one(tmp_path / "model.safetensors", "w.weight", [3, 5])
    model = load_model(ModelSettings(name=str(tmp_path)))
    assert (model.parameters, model.family, model.name) == (15, "mamba9", tmp_path.name)
    assert load_model(ModelSettings(name=str(tmp_path / "config.json"))).parameters == 15
    with pytest.raises(UsageError, match="is unknown, so numbers cannot change it"):
        load_model(ModelSettings(name=str(tmp_path), layers=2))


def test_a_directory_without_a_configuration_and_a_file_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    write_one(path, "w.weight", [3, 5])
    by_directory, by_file = (load_model(ModelSettings(name=str(p))) for p in (tmp_path, path))
    assert by_directory.tensors == by_file.tensors
    assert (by_directory.name, by_file.name) == (tmp_path.name, "weights")


def test_a_known_architecture_is_not_counted_by_headers(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "gpt2", "n_embd": 12, "n_layer": 1}')
    write_one(tmp_path / "model.safetensors", "w.weight", [3, 5])
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
