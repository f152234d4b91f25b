"""The gate of a JSON parser: quirks, messages, and random lines against Python's own parser."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tokmill.sources.json_lines import Failure, parser_entry, read_json

SECTION = pa.struct([("title", pa.string()), ("content", pa.string())])
SCHEMA = pa.schema([("title", pa.string()), ("sections", pa.list_(SECTION))])
MESSAGES = {
    '{"title": 1}': ("wrong type", "title: expected text, found a number"),
    '{"title": ["a"]}': ("wrong type", "title: expected text, found a list"),
    '{"sections": [["a"]]}': ("wrong type", "sections[]: expected an object, found a list"),
    '{"title": "a", "title": "b"}': ("malformed JSON", "Column(/title) was specified twice"),
    '{"title": "lone \\ud800"}': (
        "malformed JSON",
        "The surrogate pair in string is invalid",
    ),
    '{"title": "a"}}': ("malformed JSON", "The document is empty"),
    '{"title": "a",}': ("malformed JSON", "Missing a name for object member"),
    '{"title" "a"}': ("malformed JSON", "Missing a colon after a name of object member"),
    '{"x": 1e999}': ("malformed JSON", "Number too big to be stored in double"),
    '{"x": 01}': ("malformed JSON", "Missing a comma or '}' after an object member"),
    '{"title": "tab\t"}': ("malformed JSON", "Invalid encoding in string"),
    '{"title": "a"} null {"title": "b"}': (
        "several records on a line",
        "3 JSON values on one line",
    ),
}
"""What the rejects of datasets say. A parser with other texts changes their bytes."""

LINES = [
    '{"title": "a\\n\\u00e9\\ud83d\\ude00", "sections": [{"title": "b", "content": ""}, null]}',
    '{"x": {"title": [1, -2.5e3, true, null]}, "title": null, "sections": []}',
    '{"sections": [{"content": "d", "y": "\\"\\\\"}], "title": ""}',
    "{}",
]
PIECES = [*'{}[]",: \\0123456789.eE+-/ntu\t\x00', "\\u0041", "\\ud800", "null", "title", '"title":']


def model(line: str) -> dict[str, Any] | None:
    """The record of a line by Python's parser and the quirks of Arrow; None if it is refused."""
    try:
        record = json.loads(line, object_pairs_hook=lambda pairs: pairs, parse_float=_finite)
        re.sub("[^\ud800-\udfff]", "", json.dumps(record, ensure_ascii=False)).encode()
        found = _read(record, "title", "sections")
        sections = found["sections"]
        if sections is not None:
            _check(isinstance(sections, list) and not _is_object(sections))
            found["sections"] = [
                None if one is None else _read(one, "title", "content") for one in sections
            ]
        texts = [found["title"]]
        for one in found["sections"] or ():
            texts += () if one is None else one.values()
        _check(all(text is None or isinstance(text, str) for text in texts))
    except ValueError:
        return None
    return found


def _finite(text: str) -> float:
    _check(abs(number := float(text)) != float("inf"))
    return number


def _check(is_good: bool) -> None:
    if not is_good:
        raise ValueError


def _is_object(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], tuple)


def _read(value: Any, *names: str) -> dict[str, Any]:
    """The members of an object that have these names; none twice."""
    _check(isinstance(value, list) and (not value or _is_object(value)))
    found = [pair for pair in value if pair[0] in names]
    _check(len({name for name, _ in found}) == len(found))
    return {name: dict(found).get(name) for name in names}


def parsed(line: str) -> dict[str, Any] | None:
    outcome = read_json(pa.py_buffer(line.encode()), 1, SCHEMA)
    if isinstance(outcome, Failure):
        return None
    assert outcome.schema == SCHEMA
    outcome.validate(full=True)
    return outcome.to_pylist()[0]


@st.composite
def broken_lines(draw: Any) -> str:
    """A line with a few characters replaced, removed or added; it begins with { and ends with }."""
    line = draw(st.sampled_from(LINES))
    for _ in range(draw(st.integers(0, 4))):
        start = draw(st.integers(0, len(line)))
        stop = min(len(line), start + draw(st.integers(0, 3)))
        line = line[:start] + draw(st.sampled_from(["", *PIECES])) + line[stop:]
    return "{" + line.removeprefix("{").removesuffix("}") + "}"


@settings(max_examples=300)
@given(broken_lines())
@example('{"title": "a", "t\\u0069tle": "b"}')
@example('{"title": "a" "x": 1}')
@example('{"x": [1,, 2]}')
@example('{"x": -}')
@example('{"x": "\\uDC00"}')
@example('{"x": "\\x"}')
def test_a_line_gives_what_the_standard_and_the_quirks_say(line):
    assert parsed(line) == model(line)


@pytest.mark.parametrize(("line", "expected"), MESSAGES.items())
def test_rejects_say_the_same_with_every_parser(line, expected):
    outcome = read_json(pa.py_buffer(line.encode()), 1, SCHEMA)
    assert outcome[:2] == expected


def test_a_failure_of_several_lines_may_name_the_line():
    lines = b'{"title": "a"}\n{"title": 1}\n{"title": "b"}'
    assert read_json(pa.py_buffer(lines), 3, SCHEMA).row == 1


def test_the_version_of_pyarrow_has_an_upper_bound():
    """Its messages are read, and stand in rejects.

    Before the bound is raised: install the new version, and run the tests of this folder. If a
    message is another one, `read_json` must turn it into the text above.
    """
    project = Path(__file__).parents[2] / "pyproject.toml"
    needed = tomllib.loads(project.read_text(encoding="utf-8"))["project"]["dependencies"]
    (bound,) = [found[1] for one in needed if (found := re.match(r"pyarrow>=[\d.]+,<(\d+)$", one))]
    assert int(pa.__version__.partition(".")[0]) < int(bound)
    assert parser_entry() == {"name": "pyarrow", "version": pa.__version__}
