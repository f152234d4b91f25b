from __future__ import annotations

import json

import pytest

from tokmill.encode.cache import cache_path, choice_key, remember, remembered


@pytest.fixture(autouse=True)
def _directory(tmp_path, monkeypatch):
    monkeypatch.setenv("TOKMILL_CACHE_DIR", str(tmp_path / "cache"))


def test_a_choice_is_remembered_under_its_key():
    remember("a", {"name": "gigatoken"})
    remember("b", {"name": "fastokens"})
    assert remembered("a") == {"name": "gigatoken"}
    assert remembered("b") == {"name": "fastokens"}
    assert remembered("c") is None


def test_a_newer_choice_replaces_the_older():
    remember("a", {"name": "gigatoken"})
    remember("a", {"name": "fastokens"})
    assert remembered("a") == {"name": "fastokens"}


@pytest.mark.parametrize("content", ["", "{", "[]", '{"a": 1}', "\udcff"])
def test_a_damaged_file_is_no_memory_and_is_replaced(content):
    cache_path().parent.mkdir(parents=True)
    cache_path().write_bytes(content.encode("utf-8", "surrogateescape"))
    assert remembered("a") is None
    remember("a", {"name": "gigatoken"})
    assert remembered("a") == {"name": "gigatoken"}


def test_the_oldest_choices_go_when_there_are_a_thousand():
    cache_path().parent.mkdir(parents=True)
    cache_path().write_text(json.dumps({str(i): {"name": "x"} for i in range(1000)}))
    remember("new", {"name": "y"})
    assert remembered("0") is None
    assert remembered("1") == {"name": "x"}
    assert remembered("new") == {"name": "y"}


def test_a_directory_that_cannot_be_made_changes_nothing(tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("TOKMILL_CACHE_DIR", str(tmp_path / "file"))
    remember("a", {"name": "gigatoken"})
    assert remembered("a") is None


def test_the_key_holds_the_tokenizer_and_what_else_decides(tokenizer):
    key = choice_key(tokenizer, "auto", "text")
    assert tokenizer.sha256 in key
    assert key != choice_key(tokenizer, "auto", "parse")


def test_without_a_variable_the_users_cache_directory_is_used(tmp_path, monkeypatch):
    monkeypatch.delenv("TOKMILL_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_path() == tmp_path / "tokmill" / "engines.json"
