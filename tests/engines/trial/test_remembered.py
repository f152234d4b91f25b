from __future__ import annotations

import dataclasses
import importlib.metadata
import json

import pytest

import tokmill.engines.trial.remembered as remembering
from tokmill.engines.characters import RARE, CharacterSet
from tokmill.engines.choice import ScanResult
from tokmill.engines.trial.remembered import (
    KeptScans,
    cache_path,
    choice_key,
    remember,
    remembered,
    variant_of,
)
from tokmill.tokenizer.control_tokens import with_control_tokens


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
def test_a_damaged_file_is_ignored_and_replaced(content):
    cache_path().parent.mkdir(parents=True)
    cache_path().write_bytes(content.encode("utf-8", "surrogateescape"))
    assert remembered("a") is None
    remember("a", {"name": "gigatoken"})
    assert remembered("a") == {"name": "gigatoken"}


def test_the_oldest_of_a_thousand_choices_is_dropped():
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


def test_the_key_contains_the_variant_and_the_settings(tokenizer):
    key = choice_key(tokenizer, "text", "auto")
    marked = with_control_tokens(tokenizer, ["<tool>"])
    assert marked.sha256 == tokenizer.sha256
    others = [
        choice_key(tokenizer, "parse", "auto"),
        choice_key(tokenizer, "text", "gigatoken"),
        choice_key(marked, "text", "auto"),
    ]
    assert len({key, *others}) == 4
    assert choice_key(tokenizer, "reject", "auto") == key  # what is rejected is never encoded


def test_a_variant_for_continuations_has_another_hash(tokenizer):
    other = dataclasses.replace(tokenizer, rewritten_json=tokenizer.json.replace("a", "b"))
    assert variant_of(other, "text") != variant_of(tokenizer, "text")


def test_the_text_of_a_tokenizer_is_hashed_once(tokenizer, monkeypatch):
    first = variant_of(tokenizer, "text")
    monkeypatch.setattr(remembering.xxhash, "xxh3_128", None)
    assert variant_of(dataclasses.replace(tokenizer, name="other"), "reject") == first


SCAN = ScanResult(CharacterSet(((0x88F, 0x88F), (0x323B0, 0x33479))), "", 100, 10)


def test_a_scan_is_kept_for_its_engine_and_variant(tokenizer):
    KeptScans(tokenizer, "text").keep("gigatoken", SCAN)
    assert KeptScans(tokenizer, "text").find("gigatoken", all_characters=True) == SCAN
    assert KeptScans(tokenizer, "text").find("fastokens", all_characters=True) is None
    assert KeptScans(tokenizer, "parse").find("gigatoken", all_characters=True) is None
    marked = with_control_tokens(tokenizer, ["<tool>"])
    assert KeptScans(marked, "text").find("gigatoken", all_characters=True) is None


def test_a_scan_of_all_characters_is_kept_beside_one_of_common_ones_and_wins(tokenizer):
    kept = KeptScans(tokenizer, "text")
    common = dataclasses.replace(SCAN, uncompared=RARE)
    kept.keep("gigatoken", common)
    assert kept.find("gigatoken", all_characters=False) == common
    assert kept.find("gigatoken", all_characters=True) is None
    kept.keep("gigatoken", SCAN)
    kept.keep("gigatoken", common)
    assert kept.find("gigatoken", all_characters=False) == SCAN
    assert kept.find("gigatoken", all_characters=True) == SCAN


@pytest.mark.parametrize("name", ["gigatoken", "reference"])
def test_a_scan_is_not_valid_for_another_version_of_engine_or_reference(
    tokenizer, monkeypatch, name
):
    KeptScans(tokenizer, "text").keep("gigatoken", SCAN)
    before = importlib.metadata.version
    changed = {name: "99.0"}
    monkeypatch.setattr(
        importlib.metadata, "version", lambda package: changed.get(package, before(package))
    )
    assert KeptScans(tokenizer, "text").find("gigatoken", all_characters=True) is None


@pytest.mark.parametrize(
    "damage",
    [b"", b"{}", b'{"sum": "", "result": {}}', lambda data: data.replace(b"2191", b"2192")],
)
def test_a_damaged_scan_is_ignored(tokenizer, damage):
    KeptScans(tokenizer, "text").keep("gigatoken", SCAN)
    (path,) = (cache_path().parent / "scans").iterdir()
    path.write_bytes(damage(path.read_bytes()) if callable(damage) else damage)
    assert KeptScans(tokenizer, "text").find("gigatoken", all_characters=True) is None


def test_without_a_variable_the_users_cache_directory_is_used(tmp_path, monkeypatch):
    monkeypatch.delenv("TOKMILL_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_path() == tmp_path / "tokmill" / "engines.json"
