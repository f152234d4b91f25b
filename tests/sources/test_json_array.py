from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokmill.sources.json_array import array_lines
from tokmill.sources.streams import BrokenInputError


def rewrite(data, size=1 << 20, *, inside=False):
    chunks = (data[i : i + size] for i in range(0, len(data), size))
    return b"".join(array_lines(chunks, inside=inside))


@pytest.mark.parametrize(
    ("array", "lines"),
    [
        (b"[]", b" \n"),
        (b" [ ] \n", b"   \n"),
        (b'[{"a": 1},{"b": [1, 2]}]', b' {"a": 1}\n{"b": [1, 2]}\n'),
        (b'[\n{"a":\r\n1}\n,\n{}\n]', b'  {"a":  1} \n {} \n'),
        (b'["],[", "\\",\\\\", 1]\n\n', b' "],["\n "\\",\\\\"\n 1\n'),
        (b'[{"a": "b\nc"}, {}]', b' {"a": "b\x01c"}\n {}\n'),
        (b"", b""),
        (b" \n ", b"   "),
    ],
)
def test_elements_become_lines_with_every_byte_in_place(array, lines):
    for size in range(1, len(array) + 2):
        assert rewrite(array, size) == lines


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet='a"\\,[]{}\n é', max_size=8),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.just("k{"), inner, max_size=1),
    max_leaves=3,
)


@given(
    st.lists(st.dictionaries(st.text(alphabet='a"\\', max_size=3), values, max_size=2), max_size=4),
    st.integers(1, 9),
    st.sampled_from([None, 1]),
)
def test_any_array_gives_its_elements_whatever_the_chunks(records, size, indent):
    data = json.dumps(records, indent=indent, ensure_ascii=False).encode()
    found = rewrite(data, size)
    assert [json.loads(line) for line in found.split(b"\n") if line.strip()] == records


def test_reading_can_begin_at_an_element():
    data = b'[{"a": 1}, {"b": "]"}, {"c": 3}]'
    assert rewrite(data[data.index(b'{"b"') :], 3, inside=True) == b'{"b": "]"}\n {"c": 3}\n'


@pytest.mark.parametrize(
    ("array", "reason", "message"),
    [
        (b'{"a": 1}', "malformed JSON", "expected [ at the start of a JSON array, found b'{'"),
        (b'[{"a": 1}', "truncated input", "the JSON array has no closing bracket"),
        (b"[", "truncated input", "the JSON array has no closing bracket"),
        (b'[{"a": 1}]\n x', "malformed JSON", "text behind the closing bracket of the array"),
        (b'[{"a": 1}},{}]', "malformed JSON", "text behind the closing bracket of the array"),
    ],
)
def test_what_is_no_whole_array_breaks_off(array, reason, message):
    for size in range(1, len(array) + 1):
        with pytest.raises(BrokenInputError) as caught:
            rewrite(array, size)
        assert (caught.value.reason, caught.value.message) == (reason, message)


@pytest.mark.parametrize("batch_bytes", [1, 8, 1 << 20])
def test_broken_arrays_give_their_whole_elements_and_one_reject(batch_bytes, tmp_path, read):
    path = tmp_path / "a.json"
    path.write_bytes(b'[{"title": "a"},\n{"title": "b"}, {"title": "c"')
    found = read(path, batch_bytes=batch_bytes)
    assert [row["title"] for row in found.rows] == ["a", "b"]
    assert found.rejects == [(3, 32, "truncated input", b' {"title": "c"')]
    path.write_bytes(b'[{"title": "a"}, {"title": "b"}]  {"title": "c"}')
    found = read(path, batch_bytes=batch_bytes)
    assert [row["title"] for row in found.rows] == ["a", "b"]
    assert [reject[2:] for reject in found.rejects] == [("malformed JSON", b'{"title": "c"}')]


def test_an_illegal_line_break_in_a_string_costs_one_record(tmp_path, read):
    path = tmp_path / "a.json"
    path.write_bytes(b'[{"title": "a"},{"title": "b\nc"},null,{"title": "d"}]')
    found = read(path)
    assert [row["title"] for row in found.rows] == ["a", "d"]
    assert [place.line for place in found.places] == [1, 4]
    assert [(line, reason) for line, _, reason, _ in found.rejects] == [
        (2, "malformed JSON"),
        (3, "not an object"),
    ]


def test_an_element_over_the_limit_is_one_reject(tmp_path, read):
    path = tmp_path / "a.json"
    path.write_bytes(b'[{"title": "a"},{"title": "%s"},{"title": "b"}]' % (b"x," * 900))
    for batch_bytes in (1, 100, 1 << 20):
        found = read(path, batch_bytes=batch_bytes, max_record_bytes=100)
        assert [row["title"] for row in found.rows] == ["a", "b"]
        assert [(line, reason) for line, _, reason, _ in found.rejects] == [(2, "record too large")]
