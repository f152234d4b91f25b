import pytest

from tokmill.bill.settings_files.parse import parse_file
from tokmill.bill.settings_files.settings_file import SettingsFile
from tokmill.errors import UsageError


def file_of(tmp_path, text, name="a.yml"):
    (tmp_path / name).write_text(text, encoding="utf-8")
    return SettingsFile(tmp_path / name, parse_file(tmp_path / name))


def test_a_bare_no_of_yaml_is_still_a_choice(tmp_path):
    file = file_of(tmp_path, "a: no\nb: 'NO'\nc: yes\nd: Steps")
    assert [file.choice(key) for key in "abcd"] == ["no", "no", "yes", "steps"]


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        (SettingsFile.integer, "1.5", "expected a whole number, found 1.5"),
        (SettingsFile.integer, "eight", 'expected a number, found "eight"'),
        (SettingsFile.integer, "yes", "expected a number, found true"),
        (SettingsFile.integer, "[1]", "expected a number, found a list"),
        (SettingsFile.number, ".nan", "expected a number, found NaN"),
        (SettingsFile.flag, "maybe", 'expected true or false, found "maybe"'),
        (SettingsFile.flag, "2", "expected true or false, found 2"),
        (SettingsFile.word, "3", "expected text, found 3"),
        (SettingsFile.words, "[1, 2]", "expected a list of texts, found a list"),
        (SettingsFile.words, "{a: 1}", "expected a list of texts, found a table"),
        (SettingsFile.table, "3", "expected an object, found 3"),
        (SettingsFile.word, "2026-11-01", "expected text, found a value of type date"),
    ],
)
def test_another_type_is_one_line_with_file_key_and_both_types(tmp_path, kind, text, message):
    file = file_of(tmp_path, f"outer:\n  x: {text}")
    with pytest.raises(UsageError) as caught:
        kind(file, "outer.x")
    assert str(caught.value) == f"{tmp_path / 'a.yml'}: outer.x: {message}"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.json", "{", "not valid JSON: Expecting property name enclosed in double quotes"),
        ("a.json", "[1]", "expected an object with keys, found a list"),
        ("a.json", '{"a": 1, "b": {"c": 1, "c": 2}}', "key 'c' occurs twice"),
        ("a.yml", "a: [", "not valid YAML: while parsing a flow node"),
        ("a.yml", "just text", "expected an object with keys, found a value of type str"),
        ("a.yml", "", "expected an object with keys, found a value of type NoneType"),
        ("a.yml", "a: 1\nb: 2\na: 3", "key 'a' occurs twice"),
        ("a.yml", "1: x", "expected keys that are text, found 1; quote it"),
        ("a.yml", "on: x", "expected keys that are text, found True; quote it"),
        ("a.yml", "a: !!python/object:os.system x", "not valid YAML: could not determine"),
    ],
)
def test_a_bad_file_is_one_line(tmp_path, name, text, message):
    with pytest.raises(UsageError) as caught:
        file_of(tmp_path, text, name)
    assert str(caught.value).startswith(f"{tmp_path / name}: {message}")
    assert "\n" not in str(caught.value)


def test_a_table_that_yaml_merges_may_name_a_key_again(tmp_path):
    file = file_of(tmp_path, "base: &b {x: 1, y: 2}\nmine:\n  <<: *b\n  x: 3")
    assert file.integer("mine.x") == 3
    assert file.integer("mine.y") == 2


def test_a_file_that_is_missing_or_no_text_is_one_line(tmp_path):
    (tmp_path / "training_args.bin").write_bytes(b"\x80\x04\x95\xff")
    with pytest.raises(UsageError, match=r"gone\.json: no such settings file$"):
        parse_file(tmp_path / "gone.json")
    with pytest.raises(UsageError, match=r"cannot be read: Is a directory$"):
        parse_file(tmp_path)
    with pytest.raises(UsageError, match=r"expected JSON or YAML in UTF-8, found other bytes$"):
        parse_file(tmp_path / "training_args.bin")


def test_a_byte_order_mark_is_no_part_of_the_first_key(tmp_path):
    (tmp_path / "a.json").write_bytes(b'\xef\xbb\xbf{"a": 1}')
    assert parse_file(tmp_path / "a.json") == {"a": 1}
