import pytest

from tokmill.bill.settings_files.section import Section, read_section
from tokmill.errors import UsageError


def section_of(tmp_path, text, name="a.yml"):
    (tmp_path / name).write_text(text, encoding="utf-8")
    return read_section(tmp_path / name)


@pytest.mark.parametrize(
    ("text", "whole"),
    [("8", 8), ("'8'", 8), ("8.0", 8), ("1e3", 1000), ("5.0e+8", 500_000_000), ("-1", -1)],
)
def test_a_whole_number_may_be_written_in_many_ways(tmp_path, text, whole):
    found = section_of(tmp_path, f"n: {text}").whole("n")
    assert (found, type(found)) == (whole, int)


@pytest.mark.parametrize("text", ["null", "", "auto", "''", "~"])
def test_what_says_nothing_is_none(tmp_path, text):
    section = section_of(tmp_path, f"n: {text}")
    assert section.whole("n") is None
    assert section.flag("n") is None
    assert section.word("n") is None
    assert section.words("n") == ()
    assert section.section("n") is None
    assert section.is_auto("n") == (text == "auto")


@pytest.mark.parametrize(
    ("text", "flag"),
    [("yes", True), ("no", False), ("on", True), ("True", True), ("'false'", False), ("0", False)],
)
def test_a_flag_may_be_written_in_many_ways(tmp_path, text, flag):
    assert section_of(tmp_path, f"x: {text}").flag("x") is flag


def test_a_bare_no_of_yaml_is_still_a_choice(tmp_path):
    section = section_of(tmp_path, "a: no\nb: 'NO'\nc: yes\nd: Steps")
    assert [section.choice(key) for key in "abcd"] == ["no", "no", "yes", "steps"]


def test_words_are_a_list_or_one_text(tmp_path):
    section = section_of(tmp_path, "a: [x, y]\nb: x, y\nc: x y")
    assert [section.words(key) for key in "abc"] == [("x", "y")] * 3


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        (Section.whole, "1.5", "expected a whole number, found 1.5"),
        (Section.whole, "eight", 'expected a number, found "eight"'),
        (Section.whole, "yes", "expected a number, found true"),
        (Section.whole, "[1]", "expected a number, found a list"),
        (Section.number, ".nan", "expected a number, found NaN"),
        (Section.flag, "maybe", 'expected true or false, found "maybe"'),
        (Section.flag, "2", "expected true or false, found 2"),
        (Section.word, "3", "expected text, found 3"),
        (Section.words, "[1, 2]", "expected a list of texts, found a list"),
        (Section.words, "{a: 1}", "expected a list of texts, found a table"),
        (Section.section, "3", "expected an object, found 3"),
        (Section.word, "2026-11-01", "expected text, found a value of type date"),
    ],
)
def test_another_type_is_one_line_with_file_key_and_both_types(tmp_path, kind, text, message):
    section = section_of(tmp_path, f"outer:\n  x: {text}").section("outer")
    with pytest.raises(UsageError) as caught:
        kind(section, "x")
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
        section_of(tmp_path, text, name)
    assert str(caught.value).startswith(f"{tmp_path / name}: {message}")
    assert "\n" not in str(caught.value)


def test_a_table_that_yaml_merges_may_name_a_key_again(tmp_path):
    section = section_of(tmp_path, "base: &b {x: 1, y: 2}\nmine:\n  <<: *b\n  x: 3")
    assert section.section("mine").whole("x") == 3
    assert section.section("mine").whole("y") == 2


def test_a_file_that_is_missing_or_no_text_is_one_line(tmp_path):
    (tmp_path / "training_args.bin").write_bytes(b"\x80\x04\x95\xff")
    with pytest.raises(UsageError, match=r"gone\.json: no such settings file$"):
        read_section(tmp_path / "gone.json")
    with pytest.raises(UsageError, match=r"cannot be read: Is a directory$"):
        read_section(tmp_path)
    with pytest.raises(UsageError, match=r"expected JSON or YAML in UTF-8, found other bytes$"):
        read_section(tmp_path / "training_args.bin")


def test_a_byte_order_mark_is_no_part_of_the_first_key(tmp_path):
    (tmp_path / "a.json").write_bytes(b'\xef\xbb\xbf{"a": 1}')
    assert read_section(tmp_path / "a.json").whole("a") == 1


def test_left_are_keys_that_were_not_read_and_ask_for_something(tmp_path):
    section = Section(
        tmp_path / "b.yml",
        {
            "asked": 1, "off": False, "empty": [], "minus": -1, "nothing": None, "zero": 0,
            "auto": "auto", "no": "no", "turned_on": True, "unknown": "x", "table": {"a": 1},
        },
    )  # fmt: skip
    section.get("asked")
    assert list(section.left()) == ["turned_on", "unknown", "table"]


def test_a_key_that_was_only_looked_for_is_not_left(tmp_path):
    section = Section(tmp_path, {"a": 1, "b": "auto", "c": 3})
    assert (section.has("a"), section.is_auto("b")) == (True, True)
    assert list(section.left()) == ["c"]


def test_keys_may_have_a_prefix_and_are_named_with_it(tmp_path):
    section = Section(tmp_path, {"t": {"fsdp_x": 1, "y": 2, "fsdp_z": 3}}).section("t", "fsdp_")
    assert (section.whole("x"), section.whole("y")) == (1, 2)
    assert list(section.left()) == ["t.fsdp_z"]
