"""The configuration of a model by its name: a file, a directory, built in, or on the Hub."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tokmill.bill.models.known import MOST_BYTES, named_config
from tokmill.errors import StorageError, UsageError


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


@pytest.mark.usefixtures("hub_cache")
def test_a_copy_of_a_built_in_model_under_another_organisation_is_looked_up() -> None:
    with pytest.raises(UsageError, match=r"^model anyone/gpt2: .*near: gpt2, .*; the Hub: "):
        named_config("anyone/gpt2")


def test_a_network_that_does_not_answer_is_asked_once(tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub")
    variables = {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(tmp_path), "NO_PROXY": "*"}
    words = [sys.executable, "-m", "tokmill", "memory", "--model", "org/none"]
    environment = {**os.environ, **variables, "HF_HUB_OFFLINE": ""}
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1, done.stderr  # no line for each retry
    assert any(word in done.stderr for word in ("refused", "Max retries exceeded"))
