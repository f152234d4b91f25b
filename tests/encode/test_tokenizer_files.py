from __future__ import annotations

import pytest
from huggingface_hub import constants

from tokmill.encode.tokenizer_files import find_tokenizer_file, read_file
from tokmill.errors import StorageError, TokenizerError, UsageError


def write(folder, *names):
    for name in names:
        (folder / name).write_text("x")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An offline Hub cache that holds org/name with a tokenizer.json."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    repository, commit = tmp_path / "cache" / "models--org--name", "a" * 40
    snapshot = repository / "snapshots" / commit
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    write(snapshot, "tokenizer.json", "tokenizer_config.json")
    monkeypatch.chdir(tmp_path)
    return snapshot


def test_a_file_is_itself(tmp_path):
    write(tmp_path, "any.name")
    assert find_tokenizer_file(str(tmp_path / "any.name")) == tmp_path / "any.name"


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["tokenizer.json", "tokenizer.model", "a.tiktoken"], "tokenizer.json"),
        (["tokenizer.model", "a.model", "a.tiktoken"], "tokenizer.model"),
        (["spiece.model", "a.tiktoken"], "spiece.model"),
        (["a.tiktoken", "tokenizer_config.json"], "a.tiktoken"),
    ],
)
def test_a_directory_prefers_json_then_sentencepiece_then_tiktoken(tmp_path, names, found):
    write(tmp_path, *names)
    assert find_tokenizer_file(str(tmp_path)) == tmp_path / found


def test_a_directory_with_two_of_a_kind_asks_for_one(tmp_path):
    write(tmp_path, "b.model", "a.model")
    with pytest.raises(TokenizerError, match=r"several tokenizers lie here \(a.model, b.model\)"):
        find_tokenizer_file(str(tmp_path))


def test_a_directory_without_a_tokenizer_says_what_was_looked_for(tmp_path):
    with pytest.raises(TokenizerError) as caught:
        find_tokenizer_file(str(tmp_path))
    assert str(caught.value) == (
        f"{tmp_path}: no tokenizer here; looked for "
        "tokenizer.json, tokenizer.model, *.model, *.tiktoken"
    )


@pytest.mark.parametrize(
    "path",
    ["gone", "./org/name", "/gone/x", "a/b/c", "data/tokenizer.json", "data/x.model", "~x/y"],
)
def test_a_missing_path_that_is_no_hub_name_is_a_usage_error(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="no such tokenizer file or directory"):
        find_tokenizer_file(path)


def test_no_path_at_all_is_a_usage_error():
    with pytest.raises(UsageError, match="set --tokenizer"):
        find_tokenizer_file("")


def test_a_hub_name_is_found_in_the_cache_offline(cache):
    assert find_tokenizer_file("org/name") == cache / "tokenizer.json"


def test_a_local_directory_wins_over_a_hub_name(cache, tmp_path):
    (tmp_path / "org" / "name").mkdir(parents=True)
    write(tmp_path / "org" / "name", "tokenizer.model")
    assert find_tokenizer_file("org/name").name == "tokenizer.model"


def test_a_hub_name_that_is_not_to_be_had_is_one_line(cache):
    with pytest.raises(TokenizerError) as caught:
        find_tokenizer_file("org/other")
    message = str(caught.value)
    assert message.startswith("org/other: no such file or directory, and the Hugging Face Hub gave")
    assert "\n" not in message


def test_a_file_that_cannot_be_read_is_a_storage_error(tmp_path):
    with pytest.raises(StorageError, match="cannot be read"):
        read_file(tmp_path)


def test_a_path_that_cannot_be_looked_at_is_a_storage_error():
    with pytest.raises(StorageError, match="cannot be read"):
        find_tokenizer_file("x" * 5000)
