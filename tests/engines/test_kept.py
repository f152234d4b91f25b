from __future__ import annotations

import json

import pytest

from tokmill.cache import cache_path, keep, kept


@pytest.fixture(autouse=True)
def _directory(tmp_path, monkeypatch):
    monkeypatch.setenv("TOKMILL_CACHE_DIR", str(tmp_path / "cache"))


def test_the_newest_result_is_kept_under_its_key():
    keep("a", {"n": 1})
    keep("b", {"n": 2})
    keep("a", {"n": 3})
    assert [kept(key) for key in ("a", "b", "c")] == [{"n": 3}, {"n": 2}, None]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"a": 1}', '{"a": {"result": {}}}', "\udcff"])
def test_a_damaged_file_is_ignored_and_replaced(content):
    cache_path().parent.mkdir(parents=True)
    cache_path().write_bytes(content.encode("utf-8", "surrogateescape"))
    assert kept("a") is None
    keep("a", {"n": 1})
    assert kept("a") == {"n": 1}


def test_a_result_that_was_changed_or_moved_to_another_key_is_ignored():
    keep("a", {"differs": [2191]})
    entries = json.loads(cache_path().read_bytes())
    entries["b"] = entries["a"]
    cache_path().chmod(0o644)
    cache_path().write_text(
        json.dumps(entries).replace(
            '"a": {"result": {"differs": [2191]', '"a": {"result": {"differs": [2192]'
        )
    )
    assert kept("a") is None
    assert kept("b") is None


def test_the_oldest_of_two_hundred_results_is_dropped():
    for i in range(201):
        keep(str(i), {"n": i})
    assert kept("0") is None
    assert kept("1") == {"n": 1}


def test_a_directory_that_cannot_be_made_changes_nothing(tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("TOKMILL_CACHE_DIR", str(tmp_path / "file"))
    keep("a", {"n": 1})
    assert kept("a") is None


def test_without_a_variable_the_users_cache_directory_is_used(tmp_path, monkeypatch):
    monkeypatch.delenv("TOKMILL_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_path() == tmp_path / "tokmill" / "engines.json"
