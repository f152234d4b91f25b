from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokmill.sources import json_formats
from tokmill.sources.json_formats import array_lines
from tokmill.sources.streams import BrokenInputError


def pieces(data, size):
    return array_lines(data[i : i + size] for i in range(0, len(data), size))


def rewrite(data, size=1 << 20):
    return b"".join(pieces(data, size))


def consumed(data, size):
    """Read to the end or the break; give all lines, and why it broke off."""
    lines = []
    try:
        lines.extend(pieces(data, size))
    except BrokenInputError as error:
        return lines, (error.reason, error.message)
    return lines, None


@pytest.mark.parametrize(
    ("array", "lines"),
    [
        (b"[]", b" \n"),
        (b" [ ] \n", b"   \n  "),
        (b'[{"a": 1},{"b": [1, 2]}]', b' {"a": 1}\n{"b": [1, 2]}\n'),
        (b'[\n{"a":\r\n1}\n,\n{}\n]', b'  {"a":  1} \n {} \n'),
        (b'["],[", "\\",\\\\", 1]\n\n', b' "],["\n "\\",\\\\"\n 1\n  '),
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


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (b'{"a": 1}', "expected [ at the start of a JSON array, found b'{'"),
        (b'[{"a": 1}', "the JSON array has no closing bracket"),
        (b"[", "the JSON array has no closing bracket"),
        (b'[{"a": 1}]\n x', "text after the closing bracket of the array: found b'x'"),
        (b'[{"a": 1}]\n [{}]', "text after the closing bracket of the array: found b'['"),
        (b'[{"a": 1}, {{"a": 2}, {"a": 3}]', "the JSON array has no closing bracket"),
    ],
)
def test_what_is_no_whole_array_breaks_off_and_all_of_it_is_given(array, message):
    for size in range(1, len(array) + 1):
        given_, error = consumed(array, size)
        assert error == ("lost array", message)
        assert sum(map(len, given_)) == len(array)


def test_closing_brackets_are_each_looked_at_once(monkeypatch):
    scanned = []
    lines = json_formats._Scanner.lines
    monkeypatch.setattr(
        json_formats._Scanner,
        "lines",
        lambda scanner, chunk: scanned.append(len(chunk)) or lines(scanner, chunk),
    )
    array = b"[" + b"]" * 100_000
    given_, error = consumed(array, len(array))
    assert (b"".join(given_), error) == (b" " + b"\n" * 100_000, None)
    assert sum(scanned) < 2 * len(array)


@pytest.mark.parametrize(
    ("array", "lines"),
    [
        (b'[{"a":1}},{"a":2},{"a":3}]', [b' {"a":1}}', b'{"a":2}', b'{"a":3}']),
        (b'[{"a":1}}}}}},\n{"a":[2]}}] ', [b' {"a":1}}}}}}', b' {"a":[2]}}']),
        (b'[{"a":1}] , {"a":2},{}]', [b' {"a":1}', b' , {"a":2}', b"{}"]),
        (b'[{"a":1}]],{"a":2}]', [b' {"a":1}', b',{"a":2}']),
        (b'[{"a":1}]]', [b' {"a":1}']),
        (b'["a":1},{"a":2}]', [b' "a":1}', b'{"a":2}']),
        (b'[{"a":1]},{"a":2}]', [b' {"a":1]}', b'{"a":2}']),
    ],
)
def test_a_closing_bracket_too_many_costs_at_most_one_line(array, lines):
    for size in range(1, len(array) + 1):
        assert [line for line in rewrite(array, size).split(b"\n") if line.strip()] == lines


@pytest.mark.parametrize("batch_bytes", [1, 8, 1 << 20])
def test_a_lost_array_gives_its_whole_elements_and_says_what_is_left(batch_bytes, tmp_path, read):
    path = tmp_path / "a.json"
    path.write_bytes(b'[{"title": "a"},\n{"title": "b"}, {"title": "c"')
    found = read(path, batch_bytes=batch_bytes)
    assert [row["title"] for row in found.rows] == ["a", "b"]
    assert found.unread == [(3, 32, "lost array", 14, -1, 0)]
    path.write_bytes(b'[{"title": "a"}, {"title": "b"}]  {"title": "c"}\n')
    found = read(path, batch_bytes=batch_bytes)
    assert [row["title"] for row in found.rows] == ["a", "b"]
    assert found.unread == [(3, 32, "lost array", 17, -1, 0)]
    assert found.rejects == []


@given(
    st.lists(
        st.dictionaries(st.sampled_from(["title", "x"]), values, max_size=2), min_size=1, max_size=5
    ),
    st.data(),
)
@settings(deadline=None)
def test_one_byte_too_many_or_too_few_gives_the_same_whatever_the_chunks(records, data):
    array = json.dumps(records, ensure_ascii=False).encode()
    at = data.draw(st.integers(0, len(array) - 1))
    byte = data.draw(st.sampled_from([b"", *(bytes([c]) for c in b'{}[],"\\ \nx')]))
    array = array[:at] + byte + array[at + (not byte) :]
    whole = consumed(array, len(array))
    for size in (1, 2, 3, 7):
        given_, error = consumed(array, size)
        assert (b"".join(given_), error) == (b"".join(whole[0]), whole[1])
    if whole[1] is not None:
        assert len(b"".join(whole[0])) == len(array)
