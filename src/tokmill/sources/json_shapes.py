"""Recognise what stands where one JSON object on each line is expected, and the command to mend it.

A record that is none becomes a reject whose message says what stands on its line. A file in which
no one of the first lines is an object stops the run before it begins, with a command that makes
JSON Lines of it, if there is one.
"""

from __future__ import annotations

import ast
import json
import shlex
from typing import NamedTuple

from tokmill.sources.blocks import json_record

_UNPACK = {"gz": "gzip -dc", "zst": "zstd -dc"}

_FIRST_LINES = 50
"""Lines of a file that are looked at."""

_LONGEST = 16 << 10
"""Characters of a line that are looked at as a whole; a longer one has no shape."""


class Shape(NamedTuple):
    """What stands on a line, and a filter of the shell that makes JSON Lines of such lines.

    `filter`: reads standard input and writes standard output; '' if there is none.
    """

    words: str
    filter: str = ""


_STRING = Shape("a JSON string", "jq -c '{text: .}'")
_OBJECTS = Shape("a JSON array of objects", "jq -c '.[]'")
_STRINGS = Shape("a JSON array of strings", """jq -c '{text: join("\\n")}'""")
_COMMA = Shape("an object and a comma behind it", "sed 's/,[[:space:]]*$//'")
_COMMENTED = Shape("an object and a comment", "sed -E 's,\\}[[:space:]]*(//|#).*,},'")
_SEVERAL = Shape("several JSON objects", "jq -c .")
_OVER_LINES = Shape("JSON objects over several lines", "jq -c .")
_PYTHON = Shape(
    "a Python dictionary",
    "python3 -c 'import ast, json, sys; [print(json.dumps(ast.literal_eval(line))) for line in "
    "sys.stdin]'",
)
_COMMENT = Shape("a comment")
_MARKUP = Shape("HTML or XML")
_TEXT = Shape("plain text")
_OTHER_JSON = {list: "a JSON array", bool: "true or false", int: "a number", float: "a number"}


def no_json_lines(head: str, path: str, compression: str, *, is_whole: bool) -> str:
    """Return what a file holds that has no JSON object among its first lines, and what to do.

    '' if it has one, or if nothing is known of what it holds. `head`: the first characters of the
    file. `is_whole`: they are all of it.
    """
    lines = [line.strip() for line in head.split("\n")]
    if not is_whole:
        lines.pop()  # the last one may be half of a line
    lines = [line for line in lines if line][:_FIRST_LINES]
    if any(map(_is_object, lines)):
        return ""
    if _begins_object_over_lines(head):
        return _message(_OVER_LINES, path, compression)
    shapes = {shape_of(line) for line in lines}
    if len(shapes) != 1:
        return ""
    (shape,) = shapes
    return _message(shape, path, compression) if shape is not None and len(lines) > 1 else ""


def _is_object(line: str) -> bool:
    return json_record(line) is not None


def several_objects(head: str, path: str, compression: str) -> str:
    """Return that a file of one JSON object holds more, and what to do; '' if it does not."""
    try:
        _, stop = json.JSONDecoder().raw_decode(head.lstrip())
    except (ValueError, RecursionError):
        return ""
    if not head.lstrip()[stop:].lstrip().startswith("{"):
        return ""
    return _message(_OVER_LINES, path, compression)


def _message(shape: Shape, path: str, compression: str) -> str:
    advice = ""
    if shape is _TEXT:
        advice = ": use --format=text"
    elif shape is _MARKUP:
        advice = ": is it the page of an error? else extract its text first"
    elif shape.filter:
        name = shlex.quote(path)
        command = f"{shape.filter} < {name}"
        if unpack := _UNPACK.get(compression):
            command = f"{unpack} {name} | {shape.filter}"
        advice = f": convert it with {command} > NEW_FILE.jsonl"
    where = "" if shape is _OVER_LINES else " on each line"
    return f"holds {shape.words}{where}, expected one JSON object on each line{advice}"


def shape_of(line: str) -> Shape | None:
    """Return what stands on a line, without blanks around it; None: an object, or unknown."""
    if len(line) > _LONGEST:
        return None
    try:
        value, stop = json.JSONDecoder().raw_decode(line)
    except RecursionError:
        return None
    except ValueError:
        return _shape_of_no_json(line)
    rest = line[stop:].strip()
    if isinstance(value, dict):
        return _shape_behind_object(rest)
    if rest:
        return _TEXT
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        return _OBJECTS
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        return _STRINGS
    if isinstance(value, str):
        return _STRING
    return Shape(_OTHER_JSON.get(type(value), "null"))


def _shape_behind_object(rest: str) -> Shape | None:
    """Return the shape of a line that begins with an object, by what stands behind that."""
    if not rest:
        return None
    if rest == ",":
        return _COMMA
    if rest.startswith(("//", "#")):
        return _COMMENTED
    return _SEVERAL if rest.startswith("{") else Shape("an object and text behind it")


def _shape_of_no_json(line: str) -> Shape | None:
    """Return the shape of a line that does not begin with a value of JSON."""
    if line.startswith("{"):
        return _PYTHON if _is_python_dict(line) else None
    if line.startswith(("//", "#")):
        return _COMMENT
    if line.startswith("<"):
        return _MARKUP
    return _TEXT if line[0].isalpha() else None


def _is_python_dict(line: str) -> bool:
    try:
        return isinstance(ast.literal_eval(line), dict)
    except (ValueError, SyntaxError, MemoryError, RecursionError):  # of hostile nesting, too
        return False


def _begins_object_over_lines(head: str) -> bool:
    """Return whether a text begins with an object that goes on behind its first line."""
    text = head.lstrip()
    if not text.startswith("{"):
        return False
    first_line = text.partition("\n")[0].rstrip()
    if first_line == "{":
        return True
    try:
        _, stop = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return False
    return "\n" in text[:stop]
