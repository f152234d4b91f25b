from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
from huggingface_hub import constants

from tokmill.errors import StorageError, TokenizerError, UsageError
from tokmill.tokenizer.files import (
    Companions,
    advice_instead,
    find_tokenizer_file,
    read_companions,
    read_file,
)


class RepositoryNotFoundError(OSError):
    """As the Hub's client has it."""


class GatedRepoError(RepositoryNotFoundError):
    """As the Hub's client has it."""


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


def test_a_path_of_a_file_is_that_file(tmp_path):
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
    with pytest.raises(
        TokenizerError, match=r"several tokenizers here \(a.model, b.model\): name one"
    ):
        find_tokenizer_file(str(tmp_path))


def test_a_directory_without_a_tokenizer_names_the_files_searched(tmp_path):
    with pytest.raises(TokenizerError) as caught:
        find_tokenizer_file(str(tmp_path))
    assert str(caught.value) == (
        f"{tmp_path}: no tokenizer here; looked for "
        "tokenizer.json, tokenizer.model, *.model, *.tiktoken, vocab.json, merges.txt, vocab.txt"
    )


@pytest.mark.parametrize(
    "path",
    ["./gone", "gone/", "./org/name", "/gone/x", "a/b/c", "gpt2.json", "data/x.model", "~x/y"],
)
def test_a_missing_path_that_cannot_be_a_hub_name_is_a_usage_error(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as caught:
        find_tokenizer_file(path)
    assert str(caught.value) == (
        f"{path}: no such tokenizer file or directory, and not a name on the Hugging Face Hub, "
        "such as gpt2 or Qwen/Qwen2.5-0.5B"
    )


def test_no_path_at_all_is_a_usage_error():
    with pytest.raises(UsageError, match="set --tokenizer"):
        find_tokenizer_file("")


def test_a_hub_name_is_found_in_the_cache_offline(cache):
    assert find_tokenizer_file("org/name") == cache / "tokenizer.json"


@pytest.mark.parametrize("name", ["org/other", "gpt2"])
def test_an_unavailable_hub_name_is_one_line_about_path_and_hub(cache, name):
    with pytest.raises(TokenizerError) as caught:
        find_tokenizer_file(name)
    assert str(caught.value) == (
        f"{name}: no such file or directory here, and the Hugging Face Hub cannot be reached, or "
        "HF_HUB_OFFLINE is set, and its cache has no such model"
    )


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A Hub of the one model gpt2, without an organisation; says what it was asked for."""
    monkeypatch.chdir(tmp_path)
    snapshot, asked = tmp_path / "snapshot", []
    snapshot.mkdir()
    write(snapshot, "tokenizer.json")

    def download(name, *, allow_patterns):
        asked.append(name)
        if name == "gpt2":
            return str(snapshot)
        kinds = {"secret": GatedRepoError, "broken": OSError}
        raise kinds.get(name, RepositoryNotFoundError)("401 Client Error.\n\nA paragraph.")

    module = ModuleType("huggingface_hub")
    module.snapshot_download = download
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)
    return asked


def test_a_hub_name_needs_no_organisation(hub, tmp_path):
    assert find_tokenizer_file("gpt2") == tmp_path / "snapshot" / "tokenizer.json"
    assert hub == ["gpt2"]


def test_a_hub_model_without_a_tokenizer_json_is_fetched_with_the_files_it_has(hub, tmp_path):
    (tmp_path / "snapshot" / "tokenizer.json").unlink()
    write(tmp_path / "snapshot", "vocab.json", "merges.txt")
    assert find_tokenizer_file("gpt2") == tmp_path / "snapshot"
    assert hub == ["gpt2", "gpt2"]


@pytest.mark.parametrize("name", ["gpt2", "gpt2/", "./gpt2"])
def test_a_local_path_wins_over_a_hub_name_and_the_hub_is_not_asked(hub, tmp_path, name):
    (tmp_path / "gpt2").mkdir()
    write(tmp_path / "gpt2", "tokenizer.model")
    assert find_tokenizer_file(name).parent == Path("gpt2")
    assert hub == []


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("typo/gpt2", "and the Hugging Face Hub has no public model of this name"),
        ("secret", "requires its licence to be accepted: accept it there, then log in"),
        ("broken", "and the Hugging Face Hub refused: 401 Client Error"),
    ],
)
def test_a_refusal_of_the_hub_is_one_line(hub, name, said):
    with pytest.raises(TokenizerError) as caught:
        find_tokenizer_file(name)
    assert str(caught.value).startswith(f"{name}: no such file or directory here, and ")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["./tokenizrs", "tokenizrs"])
def test_a_misspelt_path_gets_a_suggestion(hub, tmp_path, name):
    (tmp_path / "tokenizers").mkdir()
    with pytest.raises((TokenizerError, UsageError), match=r"did you mean tokenizers\?$"):
        find_tokenizer_file(name)


def test_without_the_hub_s_client_a_hub_name_is_one_clear_line(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(TokenizerError) as caught:
        find_tokenizer_file("gpt2")
    assert str(caught.value) == (
        "gpt2: no such file or directory here; to look for it on the Hugging Face Hub, install "
        "tokmill[hub]"
    )


def test_a_file_that_cannot_be_read_is_a_storage_error(tmp_path):
    with pytest.raises(StorageError, match="cannot be read"):
        read_file(tmp_path)


def test_a_path_that_cannot_be_read_is_a_storage_error():
    with pytest.raises(StorageError, match="cannot be read"):
        find_tokenizer_file("x" * 5000)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["gpt2/tokenizer.json", "spm/tokenizer.model"], "name one of its directories: gpt2, spm"),
        (["config.json"], "put the model's tokenizer.json and tokenizer_config.json there"),
    ],
)
def test_a_directory_without_a_tokenizer_gets_advice(tmp_path, names, said):
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write(tmp_path, name)
    with pytest.raises(TokenizerError) as caught:
        find_tokenizer_file(str(tmp_path))
    assert f"vocab.txt; {said}" in str(caught.value)


def test_a_directory_of_files_that_transformers_reads_is_returned_itself(tmp_path):
    write(tmp_path, "vocab.json", "merges.txt")
    assert find_tokenizer_file(str(tmp_path)) == tmp_path


@pytest.mark.parametrize(
    ("file", "values"),
    [
        ("tokenizer_config.json", {"tokenizer_class": "XLMRobertaTokenizerFast"}),
        ("config.json", {"model_type": "m2m_100"}),
    ],
)
def test_a_sentencepiece_model_whose_class_moves_its_ids_is_refused(tmp_path, file, values):
    """XLM-R's class begins fairseq's ids one later than the model's, and has others in front."""
    write(tmp_path, "sentencepiece.bpe.model")
    (tmp_path / file).write_text(json.dumps(values))
    with pytest.raises(TokenizerError, match=r"gives other ids than sentencepiece\.bpe\.model"):
        find_tokenizer_file(str(tmp_path))
    model = tmp_path / "sentencepiece.bpe.model"
    assert find_tokenizer_file(str(model)) == model
    write(tmp_path, "tokenizer.json")
    assert find_tokenizer_file(str(tmp_path)) == tmp_path / "tokenizer.json"


def test_a_file_that_is_no_tokenizer_gets_a_suggestion(tmp_path):
    write(tmp_path, "merges.txt", "model.safetensors", "x.json")
    assert advice_instead(tmp_path / "merges.txt").startswith("; name its directory, ")
    assert advice_instead(tmp_path / "model.safetensors") == (
        "; expected a tokenizer.json, a SentencePiece .model or a tiktoken rank file"
    )
    assert advice_instead(tmp_path / "x.json") == ""
    write(tmp_path, "tokenizer.json")
    for name in ("merges.txt", "tokenizer_config.json"):
        assert advice_instead(tmp_path / name) == f"; did you mean {tmp_path / 'tokenizer.json'}?"


def refusal(call):
    with pytest.raises(TokenizerError) as caught:
        call()
    return str(caught.value)


def write_config(folder, name="tokenizer_config.json", **values):
    (folder / name).write_text(json.dumps(values))


def test_eos_comes_from_tokenizer_config(tmp_path):
    write_config(tmp_path, eos_token="</s>")
    write_config(tmp_path, "special_tokens_map.json", eos_token="<|endoftext|>")
    read = read_companions(tmp_path)
    assert (read.named["eos_token"], read.eos_source) == ("</s>", "tokenizer_config.json")


def test_eos_may_be_an_object_with_content(tmp_path):
    write_config(tmp_path, eos_token={"__type": "AddedToken", "content": "</s>"})
    assert read_companions(tmp_path).named == {"eos_token": "</s>"}


def test_eos_comes_from_special_tokens_map_if_the_config_has_none(tmp_path):
    write_config(tmp_path, eos_token=None)
    write_config(tmp_path, "special_tokens_map.json", eos_token="</s>")
    read = read_companions(tmp_path)
    assert (read.named["eos_token"], read.eos_source) == ("</s>", "special_tokens_map.json")


def test_without_companion_files_nothing_is_known(tmp_path):
    read = read_companions(tmp_path)
    assert read == Companions()
    assert read.chat_template is None


def test_a_chat_template_is_a_string_a_list_or_a_file(tmp_path):
    write_config(tmp_path, chat_template="one")
    assert read_companions(tmp_path).chat_template == "one"
    named = [{"name": "tool", "template": "two"}, {"name": "default", "template": "three"}]
    write_config(tmp_path, chat_template=named)
    assert read_companions(tmp_path).chat_templates == {"tool": "two", "default": "three"}
    assert read_companions(tmp_path).chat_template == "three"
    (tmp_path / "chat_template.jinja").write_text("four")
    assert read_companions(tmp_path).chat_template == "four"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not valid JSON"),
        ("[]", "expected an object, found list"),
        ('{"chat_template": 3}', "expected a string or a list of name and template, found int"),
        ('{"chat_template": [1]}', "expected a string or a list of name and template, found list"),
    ],
)
def test_a_broken_companion_is_named(tmp_path, content, message):
    (tmp_path / "tokenizer_config.json").write_text(content)
    found = refusal(lambda: read_companions(tmp_path))
    assert found.startswith(str(tmp_path / "tokenizer_config.json"))
    assert message in found


@pytest.mark.parametrize(
    ("name", "n_bytes", "most"),
    [("tokenizer_config.json", 33 << 20, "32 MiB"), ("chat_template.jinja", 5 << 20, "4 MiB")],
)
def test_a_companion_that_is_too_large_is_not_read(tmp_path, name, n_bytes, most):
    with (tmp_path / name).open("wb") as file:
        file.truncate(n_bytes)
    found = refusal(lambda: read_companions(tmp_path))
    assert found == f"{tmp_path / name}: expected at most {most}"
