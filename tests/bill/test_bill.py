"""The functions of `tokmill.bill`: plain values in and out."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tokmill import bill, memory
from tokmill.dataset.canonical import manifest_sha256
from tokmill.errors import UsageError

TINY = {"model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 4, "vocab_size": 100}
P = 100 * 64 + 1024 * 64 + 2 * (12 * 64**2 + 13 * 64) + 2 * 64
HEAVY = ("numpy", "torch", "transformers", "pyarrow", "click", "rich", "tokmill.settings.schema")


def lines(found: dict[str, Any]) -> dict[str, int]:
    assert found["bytes"] == sum(line["bytes"] for line in found["lines"])
    return {line["name"]: line["bytes"] for line in found["lines"]}


@pytest.fixture
def dataset(tmp_path: Path, make_manifest: Callable[..., dict[str, Any]]) -> Path:
    """A finished dataset as far as its sizes go: 100 tokens in 4 documents."""
    stem = tmp_path / "train-0000000-0000"
    stem.with_suffix(".bin").write_bytes(bytes(200))
    stem.with_suffix(".idx").write_bytes(bytes(42 + 80))
    (tmp_path / "plan.json").write_bytes(b"{}")
    counts = {"tokens": 100, "documents": 4}
    names = {"plan.json": 2, f"{stem.name}.bin": 200, f"{stem.name}.idx": 122}
    manifest = make_manifest(
        counts,
        length_histogram=[0, 0, 0, 0, 4],
        shards=[{"name": stem.name, "split": "train", **counts}],
        files=[{"name": name, "bytes": n, "blake3": "0" * 64} for name, n in names.items()],
    )
    manifest["sha256"] = manifest_sha256(manifest)
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    return tmp_path


def test_the_package_imports_nothing_heavy():
    program = f"import sys, tokmill.bill; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


def test_every_function_says_what_it_takes_and_raises():
    for name in bill.__all__:
        assert "Raises:" in (getattr(bill, name).__doc__ or ""), name


def test_parameters_are_counted_by_name_path_or_configuration(tmp_path: Path):
    assert bill.count_parameters("gpt2") == 124_439_808
    assert bill.count_parameters(TINY) == P == sum(bill.parameters_by_module(TINY).values())
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    assert bill.count_parameters(str(tmp_path)) == P


def test_training_has_a_peak_that_is_the_largest_moment():
    found = bill.training_memory(TINY, precision="fp32", optimizer="sgd", micro_batch=2)
    assert lines(found["peak"])["weights"] == 4 * P
    assert found["peak"]["bytes"] == max(moment["bytes"] for moment in found["moments"])
    adam = bill.training_memory(TINY, precision="fp32", optimizer="adamw", micro_batch=2)
    assert lines(adam["peak"])["first moment"] == 4 * P
    assert lines(adam["peak"])["second moment"] == 4 * P


def test_inference_has_weights_and_a_cache_of_all_tokens():
    found = lines(bill.inference_memory(TINY, batch=3, context=512, kv_type="bf16"))
    assert found["weights"] == 2 * P
    assert found["KV cache"] == 2 * 2 * 64 * 512 * 3 * 2
    assert lines(bill.inference_memory(TINY))["KV cache"] == 2 * 2 * 64 * 1024 * 2


def test_host_ram_is_of_a_model_a_dataset_or_both(dataset: Path):
    model = bill.host_memory(TINY, gpus=2)
    (initial, *_) = [one for one in model["moments"] if "initialization" in one["title"]]
    assert lines(initial)["model, created by each process"] == 4 * P * 2
    data = bill.host_memory(directory=dataset, loading="int64")
    assert 8 * 100 in lines(data["peak"]).values()
    assert not [one for one in data["moments"] if "initialization" in one["title"]]
    both = bill.host_memory(TINY, dataset, loading="int64")
    assert both["peak"]["bytes"] > max(model["peak"]["bytes"] // 2, data["peak"]["bytes"])


def test_disk_is_the_sum_of_the_files(dataset: Path):
    found = bill.disk_memory(dataset)
    assert found["bytes"] == sum(path.stat().st_size for path in dataset.iterdir())
    assert lines(found)["tokens (.bin)"] == 200


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda: bill.training_memory(TINY, precision="fp31"), "settings: training.precision"),
        (lambda: bill.training_memory(TINY, batch=1), "settings: training.batch: unknown key"),
        (lambda: bill.inference_memory(TINY, batch=0), "inference.batch: expected between 1"),
        (lambda: bill.count_parameters({"model_type": "gpt9"}), "gpt9"),
        (lambda: bill.disk_memory("no/such/place"), "no/such/place: not a tokmill dataset"),
    ],
)
def test_a_mistake_is_a_usage_error(call: Any, expected: str):
    with pytest.raises(UsageError) as caught:
        call()
    assert expected in str(caught.value)


def test_a_model_may_be_a_path_object(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    assert bill.count_parameters(tmp_path) == bill.count_parameters(TINY)
    with pytest.raises(UsageError, match=r"model: expected str, found int \(5\)"):
        bill.count_parameters(5)


def test_the_old_names_warn_and_are_the_same_functions():
    for name in bill.__all__:
        with pytest.warns(
            DeprecationWarning, match=rf"tokmill\.memory\.{name} is now tokmill\.bill"
        ):
            assert getattr(memory, name) is getattr(bill, name)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        memory.nothing  # noqa: B018
