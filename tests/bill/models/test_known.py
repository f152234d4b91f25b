"""Models by name: the built-in ones with their published counts, a file, a directory, the Hub."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tokmill.bill.models.known import (
    MOST_BYTES,
    known_config,
    known_models,
    named_config,
    near_models,
)
from tokmill.bill.models.load import load_model
from tokmill.errors import StorageError, UsageError
from tokmill.settings.training import ModelSettings

PARAMETERS: dict[str, int] = json.loads(Path(__file__).with_name("published.json").read_bytes())
"""Published with the models or counted from their files."""

# Published in round numbers: the text model of gemma-3 as embedding + rest in its report.
ROUNDED = {
    "gemma-3-12b": (1_012_000_000 + 10_759_000_000, 6_000_000),
    "gemma-3-27b": (1_416_000_000 + 25_600_000_000, 8_000_000),
    "gemma-3-4b": (675_000_000 + 3_209_000_000, 4_000_000),
    "minimind-3": (64_000_000, 500_000),
    "minimind-3-moe": (198_000_000, 500_000),
    "minimind2": (104_000_000, 500_000),
    "minimind2-moe": (145_000_000, 500_000),
    "minimind2-small": (26_000_000, 500_000),
    "opt-66b": (66_000_000_000, 500_000_000),
    "qwen2-57b-a14b": (57_410_000_000, 5_000_000),
}
ACTIVE = {
    "mixtral-8x7b": 12_879_925_248,
    "qwen3-30b-a3b": 3_353_032_704,
    "gpt-oss-20b": 4_187_440_704,
    "deepseek-v3": 37_552_282_624,
    "gpt2": 124_439_808,
}


def test_every_built_in_model_has_a_published_count() -> None:
    assert set(known_models()) == set(PARAMETERS) | set(ROUNDED)
    assert list(known_models()) == sorted(known_models())


def test_parameters_are_those_published() -> None:
    found = {name: load_model(ModelSettings(name=name)).parameters for name in PARAMETERS}
    assert found == PARAMETERS


@pytest.mark.parametrize("name", ROUNDED)
def test_parameters_are_those_published_in_round_numbers(name: str) -> None:
    expected, tolerance = ROUNDED[name]
    assert abs(load_model(ModelSettings(name=name)).parameters - expected) <= tolerance


@pytest.mark.parametrize("name", ACTIVE)
def test_active_parameters_leave_out_experts_that_a_token_does_not_choose(name: str) -> None:
    assert load_model(ModelSettings(name=name)).active_parameters == ACTIVE[name]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("GPT2", "gpt2"),
        ("openai-community/gpt2-xl", "gpt2-xl"),
        ("gpt2_xl", "gpt2-xl"),
        ("meta-llama/Meta-Llama-3-8B", "llama-3-8b"),
        ("meta-llama/Meta-Llama-3-8B-Instruct", "llama-3-8b"),
        ("meta-llama/Llama-2-7b-chat-hf", "llama-2-7b"),
        ("google/gemma-3-1b-pt", "gemma-3-1b"),
        ("mistralai/Mixtral-8x7B-v0.1", "mixtral-8x7b"),
        ("bigscience/bloom", "bloom-176b"),
        ("google/t5-v1_1-base", "flan-t5-base"),
        ("HuggingFaceTB/SmolLM3-3B-Base", "smollm3-3b"),
        ("allenai/Olmo-3-1025-7B", "olmo-3-7b"),
        ("stabilityai/stablelm-2-1_6b", "stablelm-2-1.6b"),
        ("llama-3-9b", None),
        ("anyone/gpt2", None),
        ("meta-llama/gpt2", None),
        ("", None),
    ],
)
def test_case_separators_and_endings_do_not_matter_but_the_organisation_does(
    name: str, meant: str | None
) -> None:
    found = known_config(name)
    assert (found[0] if found else None) == meant


def test_near_names_are_offered() -> None:
    assert near_models("lama3 8b")[0] == "llama-3-8b"
    assert len(near_models("?")) == 3


def test_a_file_and_its_directory_are_the_same_model(tmp_path: Path) -> None:
    directory = tmp_path / "my-model"
    directory.mkdir()
    path = directory / "config.json"
    path.write_text('{"model_type": "llama"}')

    expected = ({"model_type": "llama"}, "my-model", str(path))
    assert named_config(str(path)) == expected
    assert named_config(str(directory)) == expected


def test_a_directory_without_a_configuration_does_not_hide_a_built_in_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gpt2").mkdir()
    (tmp_path / "other").mkdir()

    assert named_config("gpt2")[2] == "model gpt2"
    with pytest.raises(UsageError, match=r"^other/config.json: no such file; give a config.json"):
        named_config("other")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "not JSON"),
        (b"[1]", "expected a JSON object, found list"),
        (b"\xff\xfe{}", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b" " * (MOST_BYTES + 1), "expected a config.json, found a file over"),
    ],
)
def test_a_file_that_is_no_configuration_is_refused(
    tmp_path: Path, content: bytes, message: str
) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)

    with pytest.raises(UsageError, match=message):
        named_config(str(path))


@pytest.mark.parametrize("name", ["/no/such/thing", "./x", "../x", "my.json", "a/b.json"])
def test_a_path_that_is_not_there_is_not_looked_for_on_the_hub(name: str) -> None:
    with pytest.raises(UsageError, match=r": no such file; give a config.json or its directory$"):
        named_config(name)


def test_a_name_that_the_file_system_refuses_is_one_line() -> None:
    with pytest.raises(StorageError) as error:
        named_config("x" * 5000)
    assert len(str(error.value)) < 200


def test_a_name_without_an_organisation_is_a_slip_and_offers_near_names() -> None:
    with pytest.raises(UsageError, match=r"near: llama-3-8b, .*the Hub is organisation/model$"):
        named_config("lama-3-8b")


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The Hub's cache, empty, without a network."""
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return tmp_path


def test_a_model_of_the_hub_is_read_from_its_cache(hub_cache: Path) -> None:
    repository = hub_cache / "models--org--some-model"
    snapshot = repository / "snapshots" / "a1"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text('{"model_type": "gpt2"}')
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("a1")

    found = named_config("org/some-model")

    assert found == ({"model_type": "gpt2"}, "org/some-model", "model org/some-model")


@pytest.mark.usefixtures("hub_cache")
def test_a_model_that_the_hub_does_not_give_is_one_line_with_near_names() -> None:
    with pytest.raises(UsageError, match=r"^model org/gpt-3: .*near: .*; the Hub: ") as error:
        named_config("org/gpt-3")
    assert "\n" not in str(error.value)


def test_a_network_that_does_not_answer_is_asked_once(tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub")
    variables = {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(tmp_path), "NO_PROXY": "*"}
    words = [sys.executable, "-m", "tokmill", "memory", "--model", "org/none"]
    environment = {**os.environ, **variables, "HF_HUB_OFFLINE": ""}
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1, done.stderr  # no line for each retry
    assert any(word in done.stderr for word in ("refused", "Max retries exceeded"))
