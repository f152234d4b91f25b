"""Settings files that are damaged on purpose, or are no settings files."""

import json
from pathlib import Path

import pytest

from tokmill.bill.settings_files.parse import MOST_BYTES, parse_file, shown_value
from tokmill.bill.settings_files.settings_file import SettingsFile
from tokmill.errors import UsageError


def test_a_large_file_is_refused_by_its_size(tmp_path: Path) -> None:
    (tmp_path / "large.json").write_bytes(b" " * (MOST_BYTES + 1))
    with pytest.raises(UsageError, match=r"expected a settings file, found more than 4 MiB$"):
        parse_file(tmp_path / "large.json")


def test_a_file_without_an_end_is_refused() -> None:
    with pytest.raises(UsageError, match=r"^/dev/zero: expected a regular file, found"):
        parse_file(Path("/dev/zero"))


def test_many_keys_are_read_in_linear_time(tmp_path: Path) -> None:
    keys = {f"k{i}": i for i in range(100_000)}
    (tmp_path / "many.json").write_text(json.dumps(keys))
    assert parse_file(tmp_path / "many.json") == keys


def test_an_alias_of_yaml_inside_itself_has_an_end(tmp_path: Path) -> None:
    (tmp_path / "a.yml").write_text("a: &a\n  b: *a\nc: &c\n  d: *c\n  e: 1\n")
    file = SettingsFile(tmp_path / "a.yml", parse_file(tmp_path / "a.yml"))
    assert file.left() == ["c"]


def test_aliases_of_aliases_of_yaml_are_looked_at_once(tmp_path: Path) -> None:
    lines = ["a0: &a0 {x: null}"]
    lines += [f"a{i}: &a{i} {{x: *a{i - 1}, y: *a{i - 1}}}" for i in range(1, 60)]
    (tmp_path / "a.yml").write_text("\n".join(lines))
    assert SettingsFile(tmp_path, parse_file(tmp_path / "a.yml")).left() == []


def test_a_long_value_is_cut_in_messages() -> None:
    assert shown_value("x" * 500) == '"' + "x" * 79 + "…"


@pytest.mark.parametrize("name", ["a\0b", "\ud800"])
def test_a_name_that_no_file_can_have_is_a_missing_file(name: str) -> None:
    with pytest.raises(UsageError, match=r"no such settings file$"):
        parse_file(Path(name))
