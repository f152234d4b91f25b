"""What stands where JSON Lines are expected is named, and the command in the message makes them."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess

import pytest

from tests.sources.test_file_contents import checked
from tokmill.errors import UsageError
from tokmill.sources.json_lines import parse_lines

ROWS = [{"title": f"title {i}", "text": f"it's {i}, see https://a.b/c"} for i in range(3)]
LINES = [json.dumps(row) for row in ROWS]
TEXTS = [{"text": row["text"]} for row in ROWS]

INDENTED = [json.dumps(row, indent=1) for row in ROWS]
STRINGS = [json.dumps(row["text"]) for row in ROWS]
SHAPES = {
    "over lines": ("JSON objects over several lines", INDENTED),
    "one over lines": ("JSON objects over several lines", INDENTED[:1]),
    "commas": ("an object and a comma behind it", [f"{line}," for line in LINES]),
    "comments": ("an object and a comment", [f"{line}  // note" for line in LINES]),
    "strings": ("a JSON string", STRINGS),
    "arrays of strings": ("a JSON array of strings", [f"[{string}]" for string in STRINGS]),
    "arrays of objects": ("a JSON array of objects", [f"[{line}]" for line in LINES]),
    "two on a line": ("several JSON objects", [LINES[0] + LINES[1], f"{LINES[2]} {LINES[0]}"]),
    "single quotes": ("a Python dictionary", list(map(repr, ROWS))),
}
MADE = {
    "one over lines": ROWS[:1],
    "strings": TEXTS,
    "arrays of strings": TEXTS,
    "two on a line": [*ROWS, ROWS[0]],
}


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
@pytest.mark.parametrize("ending", ["jsonl", "jsonl.gz"])
@pytest.mark.parametrize("name", SHAPES)
def test_a_file_without_an_object_on_its_lines_is_named_and_the_command_converts_it(
    name, ending, tmp_path
):
    words, lines = SHAPES[name]
    path, content = tmp_path / f"a b.{ending}", "\n".join(lines).encode()
    path.write_bytes(gzip.compress(content) if ending.endswith("gz") else content)
    with pytest.raises(UsageError, match=rf"holds {words}.*, expected one JSON object") as caught:
        checked(path)
    command = str(caught.value).partition("convert it with ")[2]
    subprocess.run(["sh", "-c", command], cwd=tmp_path, check=True)
    made = (tmp_path / "NEW_FILE.jsonl").read_text().splitlines()
    assert list(map(json.loads, made)) == MADE.get(name, ROWS)
    checked(tmp_path / "NEW_FILE.jsonl")


def test_several_objects_in_a_json_file_are_named_too(tmp_path):
    (tmp_path / "a.json").write_text("\n".join(json.dumps(row, indent=1) for row in ROWS))
    with pytest.raises(UsageError, match=r"holds JSON objects over several lines, .* jq -c \. <"):
        checked(tmp_path / "a.json")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("<!DOCTYPE html>\n<html>\n<body>404</body>\n", "holds HTML or XML on each line"),
        ("Some prose.\nMore prose.\n", "holds plain text on each line, .*: use --format=text"),
        ("1\n2\n", "holds a number on each line"),
        ("version https://git-lfs.github.com/spec/v1\noid sha256:ab\n", "use|git lfs pull"),
    ],
)
def test_what_no_command_converts_is_named_all_the_same(content, said, tmp_path):
    (tmp_path / "a.jsonl").write_text(content)
    with pytest.raises(UsageError, match=said):
        checked(tmp_path / "a.jsonl")


@pytest.mark.parametrize(
    "content",
    [
        f"# a comment\n{LINES[0]}\n",
        f"{LINES[0]}\n{{'single': 'quotes'}}\n",
        '[1, 2]\n"a"\n',
        '{"a": {"b": [',
        f"{{\n{LINES[0]}\n",
        "{" * 5000 + "\n" + "[" * 5000 + "\n",
        "{'a': " * 500 + "\n" + "{'a': " * 500 + "\n",
        "\n\n",
    ],
)
def test_lines_of_several_kinds_are_left_to_their_rejects(content, tmp_path):
    (tmp_path / "a.jsonl").write_text(content)
    checked(tmp_path / "a.jsonl")


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ('{"text": "a"},', "an object and a comma behind it"),
        ("# text", "a comment"),
        ('"text"', "a JSON string"),
        ("null", "null"),
        ("[1]", "a JSON array"),
        ("</body>", "HTML or XML"),
        ("Prose.", "plain text"),
    ],
)
def test_the_reject_of_a_line_says_what_stands_there(line, found):
    import pyarrow as pa

    refused = parse_lines(line.encode(), pa.schema([("text", pa.string())])).refused
    assert refused == {0: ("not an object", f"expected one JSON object on the line, found {found}")}
