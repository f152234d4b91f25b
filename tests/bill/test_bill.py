"""The door of the bill: typed results from a model, a dataset or settings."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tokmill
from tokmill import bill
from tokmill.dataset.checksum import manifest_sha256
from tokmill.errors import TokmillError, UsageError, VerifyError

TINY = {"model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 4, "vocab_size": 100}
P = 100 * 64 + 1024 * 64 + 2 * (12 * 64**2 + 13 * 64) + 2 * 64
HEAVY = ("numpy", "torch", "transformers", "pyarrow", "click", "rich", "tokmill.settings.schema")


def lines(found: bill.Bill) -> dict[str, int]:
    assert found.n_bytes == sum(line.n_bytes for line in found.lines)
    return {line.name: line.n_bytes for line in found.lines}


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


def test_every_function_says_what_it_raises_and_every_result_has_plain_values():
    for name in bill.__all__:
        value = getattr(bill, name)
        assert isinstance(value, type) or "Raises:" in (value.__doc__ or ""), name
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        bill.Nothing  # noqa: B018


def test_parameters_are_counted_by_name_path_or_configuration(tmp_path: Path):
    assert bill.count_parameters("gpt2") == 124_439_808
    assert bill.count_parameters(TINY) == P == sum(bill.parameters_by_module(TINY).values())
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    assert bill.count_parameters(str(tmp_path)) == P == bill.count_parameters(tmp_path)


def test_training_has_a_peak_that_is_the_largest_moment():
    found = bill.training(TINY, precision="fp32", optimizer="sgd", micro_batch=2)
    assert isinstance(found, bill.TrainingBill)
    assert lines(found.peak)["weights"] == 4 * P
    assert found.peak.n_bytes == max(moment.n_bytes for moment in found.moments)
    assert found.as_json()["peak"] == found.peak.as_json()


def test_a_model_may_be_numbers():
    numbers = {"family": "llama", "layers": 2, "hidden": 64, "heads": 4, "ffn": 128}
    found = bill.training(**numbers, vocabulary=100, precision="fp32")
    layer = 4 * 64 * 64 + 3 * 64 * 128 + 2 * 64
    assert lines(found.peak)["weights"] == 4 * (2 * 100 * 64 + 2 * layer + 64)


def test_inference_has_weights_and_a_cache_of_all_tokens():
    found = bill.inference(TINY, batch=3, context=512, kv_type="bf16")
    assert isinstance(found, bill.Bill)
    assert lines(found)["weights"] == 2 * P
    assert lines(found)["KV cache"] == 2 * 2 * 64 * 512 * 3 * 2
    assert lines(bill.inference(TINY))["KV cache"] == 2 * 2 * 64 * 1024 * 2


def test_host_ram_is_of_a_model_a_dataset_or_both(dataset: Path):
    model = bill.host(TINY, gpus=2)
    (initial, *_) = [one for one in model.moments if "initialization" in one.title]
    assert lines(initial)["model, created by each process"] == 4 * P * 2
    data = bill.host(dataset=dataset, loading="int64")
    assert 8 * 100 in lines(data.peak).values()
    assert not [one for one in data.moments if "initialization" in one.title]
    both = bill.host(TINY, dataset, loading="int64")
    assert both.peak.n_bytes > max(model.peak.n_bytes // 2, data.peak.n_bytes)
    assert isinstance(both, bill.HostBill)


def test_host_ram_of_a_dataset_that_is_only_a_size():
    found = bill.host(dataset_bytes="100GB", loader_workers=8, host_ram="64GiB")
    assert found.verdict.said == "fits"
    assert found.page_cache.n_bytes == 10**11
    read = bill.host(dataset_bytes="100GB", loading="read", host_ram="64GiB")
    assert read.verdict.said == "does not fit"


def test_disk_is_the_sum_of_the_files(dataset: Path):
    found = bill.disk(dataset)
    assert found.bill.n_bytes == sum(path.stat().st_size for path in dataset.iterdir())
    assert lines(found.bill)["tokens (.bin)"] == 200
    assert found.found is not None
    assert isinstance(found.found, bill.DatasetDisk)
    assert found.as_json()["found"]["tokens"] == 100


def test_disk_of_tokens_that_do_not_exist_yet():
    assert lines(bill.disk(tokens="300B").bill)["tokens (.bin)"] == 600 * 10**9
    with pytest.raises(UsageError, match="no dataset: give its directory, dataset_bytes or token"):
        bill.disk()


def test_the_complete_bill_of_a_model_and_a_dataset_is_what_the_dataset_gives(dataset: Path):
    opened = tokmill.open(dataset)
    how: Any = {"gpu": "T4", "sequence": 32, "host_ram": "1GiB"}
    found = bill.of("gpt2", dataset, **how)
    for other in (bill.of("gpt2", opened, **how), opened.bill("gpt2", **how)):
        assert (other.settings, other.host) == (found.settings, found.host)
        assert other.of_model == found.of_model
    assert found.of_model is not None
    assert found.of_model.training == bill.training("gpt2", dataset, **how)
    assert found.host == bill.host("gpt2", opened, **how)
    assert found.disk is not None
    assert found.disk.bill == bill.disk(opened).bill
    assert json.dumps(found.as_json())


def test_alternatives_are_compared_by_their_values():
    found = bill.compare("gpt2-xl", axes={"gpus": [1, 4]}, sharding="zero-3", gpu="T4")
    assert isinstance(found, bill.Comparison)
    assert [each.values for each in found.alternatives] == [(1,), (4,)]
    assert found.alternatives[1].n_bytes < found.alternatives[0].n_bytes
    assert found.as_json()["alternatives"][1]["values"] == {"gpus": 4}
    assert "checkpointing" in bill.compare(TINY).axes
    with pytest.raises(UsageError, match="compare: no setting 'speed'"):
        bill.compare(TINY, axes={"speed": [1]})


def test_settings_files_of_other_programs_are_read(tmp_path: Path):
    file = tmp_path / "ds.json"
    file.write_text(json.dumps({"train_micro_batch_size_per_gpu": 4, "frobnication": 1}))
    found = bill.of(TINY, deepspeed=file)
    assert found.settings.training.micro_batch == 4
    assert any("frobnication" in key for key in found.settings.not_read)


def test_a_variable_is_a_setting_that_is_not_given(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TOKMILL_SEQUENCE", "1k")
    assert bill.of(TINY).settings.training.sequence == 1024
    assert bill.of(TINY, sequence=512).settings.training.sequence == 512


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda: bill.training(TINY, precision="fp31"), "precision: expected one of auto, fp32"),
        (lambda: bill.training(TINY, batch=1), "batch: no such setting: it belongs to [inference]"),
        (lambda: bill.training(TINY, sequence="32 pages"), "sequence: expected a number of tokens"),
        (lambda: bill.training(), "no model: give"),
        (lambda: bill.inference(TINY, batch=0), "batch: expected between 1"),
        (lambda: bill.count_parameters({"model_type": "gpt9"}), "gpt9"),
        (lambda: bill.count_parameters(5), "model: expected str, found int (5)"),
        (lambda: bill.disk("no/such/place"), "no/such/place: not a tokmill dataset"),
    ],
)
def test_a_mistake_is_a_usage_error_in_words_of_python(call: Any, expected: str):
    with pytest.raises(UsageError) as caught:
        call()
    assert expected in str(caught.value)


def test_a_dataset_that_was_damaged_is_refused(dataset: Path):
    (dataset / "train-0000000-0000.bin").write_bytes(bytes(201))
    with pytest.raises(VerifyError, match=r"0000\.bin: expected 200 B as in the manifest"):
        bill.of(dataset=dataset)
    (dataset / "manifest.json").write_text("{}")
    with pytest.raises(TokmillError, match=r"manifest\.json: damaged manifest"):
        bill.disk(dataset)
