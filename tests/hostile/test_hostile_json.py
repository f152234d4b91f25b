"""JSON and TOML that are nested too deeply, or hold numbers of too many digits, are one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tokmill.cache import cache_path, kept
from tokmill.dataset.part_record import parse_record
from tokmill.dataset.writer import read_rejects
from tokmill.errors import TokmillError, UsageError
from tokmill.settings.load import read_toml
from tokmill.sources.files import _read_json

DEEP = "[" * 100_000 + "]" * 100_000
HUGE = "9" * 100_000
BAD = (DEEP, HUGE, '{"a":' * 100_000 + "1" + "}" * 100_000)


@pytest.mark.parametrize("value", BAD)
def test_settings_are_refused_in_one_line(tmp_path: Path, value: str):
    (tmp_path / "s.toml").write_text(f"a = {value}\n")
    with pytest.raises(UsageError, match=r"s\.toml: not valid TOML: ") as error:
        read_toml(tmp_path / "s.toml")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("value", BAD)
def test_files_of_a_dataset_are_refused_in_one_line(tmp_path: Path, value: str):
    path = tmp_path / "state.json"
    path.write_text(value)
    for read in (_read_json, lambda path: parse_record(path.read_bytes(), path, 0, 1)):
        with pytest.raises(TokmillError) as error:
            read(path)
        assert str(error.value).startswith(f"{path}: ")


@pytest.mark.parametrize("value", BAD)
def test_notes_that_are_not_needed_are_passed_over(tmp_path: Path, monkeypatch, value: str):
    monkeypatch.setenv("TOKMILL_CACHE_DIR", str(tmp_path))
    cache_path().write_text(value)
    (tmp_path / "rejects.jsonl").write_text(value)
    assert kept("a") is None
    assert list(read_rejects([tmp_path / "rejects.jsonl"])) == []
