"""Remake every sample file that is derived from `records.jsonl`, and the broken ones.

    python data_samples/make_samples.py

`records.jsonl` is written by hand. From it come the same records in other containers; read and
rendered, all give the same documents. An absent key, a null and an empty string render alike,
so a container may turn one into another (CSV has no null); keys other than title, summary and
sections are lost where there are columns. Run twice, the program writes the same bytes.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import sys
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]
import pyarrow.parquet as pq  # type: ignore[import-untyped,unused-ignore]

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

Record: TypeAlias = dict[str, object]

HERE = Path(__file__).resolve().parent

# Small enough that the Parquet file has several row groups.
ROW_GROUP_RECORDS = 50

# Share of a compressed file that its truncated copy keeps: at least one whole record comes out
# before the end is missed.
TRUNCATED_AT = 0.7

RECORD_SCHEMA = pa.schema(
    [
        ("title", pa.string()),
        ("summary", pa.string()),
        (
            "sections",
            pa.list_(pa.struct([("title", pa.string()), ("content", pa.string())])),
        ),
    ]
)

# Each case: its name, and its bytes with the line end.
BROKEN_CASES: tuple[tuple[str, bytes], ...] = (
    ("good", b'{"title": "Good 1", "summary": "The first good record.", "sections": []}\n'),
    # Not JSON.
    ("malformed: bare word", b'{"title": "Malformed", "summary": oops, "sections": []}\n'),
    ("malformed: missing comma", b'{"title": "Malformed" "summary": "No comma."}\n'),
    ("malformed: single quotes", b"{'title': 'Malformed', 'summary': 'Python, not JSON.'}\n"),
    ("malformed: unquoted key", b'{title: "Malformed"}\n'),
    ("malformed: null as a key", b'{"title": "Malformed", null: 1}\n'),
    ("malformed: bad escape", b'{"title": "Malformed \\x41 escape"}\n'),
    ("malformed: short \\u escape", b'{"title": "Malformed \\u12 escape"}\n'),
    ("malformed: bytes after the object", b'{"title": "Malformed"} and more\n'),
    ("malformed: comment line", b"// a comment\n"),
    ("not in the standard: NaN in an ignored key", b'{"title": "Not standard", "score": NaN}\n'),
    ("truncated line: inside a string", b'{"title": "Truncated", "summary": "It stops he\n'),
    ("truncated line: after a comma", b'{"title": "Truncated", "summary": "It stops.",\n'),
    ("truncated line: in the sections", b'{"title": "Truncated", "sections": [{"title": "A"\n'),
    (
        "truncated line: longer than most",
        b'{"title": "Truncated", "summary": "' + b"x" * 20_000 + b"\n",
    ),
    ("trailing comma: object", b'{"title": "Trailing comma", "summary": "One too many.",}\n'),
    ("trailing comma: array", b'{"title": "Trailing comma", "sections": [{"title": "A"},]}\n'),
    ("raw tab in a string", b'{"title": "Raw\ttab"}\n'),
    ("raw NUL in a string", b'{"title": "Raw NUL \x00 here", "summary": "Text after it."}\n'),
    ("raw NUL bytes alone on a line", b"\x00\x00\x00\x00\n"),
    ("good", b'{"title": "Good 2", "summary": "After what is not JSON."}\n'),
    # Bytes that are not UTF-8.
    ("invalid UTF-8: lone byte FF", b'{"title": "Bad byte \xff", "summary": "Text."}\n'),
    ("invalid UTF-8: Latin-1", b'{"title": "Caf\xe9", "summary": "Written in Latin-1."}\n'),
    ("invalid UTF-8: GBK", b'{"title": "\xb1\xb1\xbe\xa9", "summary": "Written in GBK."}\n'),
    ("invalid UTF-8: cut character", b'{"title": "Cut \xe4\xb8", "summary": "Text."}\n'),
    (
        "invalid UTF-8: overlong",
        b'{"title": "Overlong \xc0\x80\xe0\x80\xaf", "summary": "Text."}\n',
    ),
    (
        "invalid UTF-8: surrogate bytes",
        b'{"title": "CESU \xed\xa0\xbd\xed\xb8\x80", "summary": "T."}\n',
    ),
    ("invalid UTF-8: beyond U+10FFFF", b'{"title": "Beyond \xf4\x90\x80\x80", "summary": "T."}\n'),
    (
        "invalid UTF-8: in content",
        b'{"title": "Deep", "sections": [{"content": "Bad \x80\x81."}]}\n',
    ),
    ("invalid UTF-8: in an ignored key", b'{"title": "Ignored", "url": "https://\xfe\xff/"}\n'),
    ("good", '{"title": "好记录三", "summary": "在坏字节之后。"}\n'.encode()),
    # Escapes that name no character.
    ("lone high surrogate", b'{"title": "High \\ud800", "summary": "Half of a pair."}\n'),
    ("lone low surrogate", b'{"title": "Low \\udc00", "summary": "Half of a pair."}\n'),
    ("surrogates in the wrong order", b'{"title": "Swapped \\ude00\\ud83d"}\n'),
    ("high surrogate, then text", b'{"title": "High \\ud83dx", "summary": "Text."}\n'),
    ("lone surrogate in content", b'{"title": "Deep", "sections": [{"content": "\\udfff"}]}\n'),
    # Wrong types.
    ("title: a number", b'{"title": 42, "summary": "The title is a number."}\n'),
    ("title: a boolean", b'{"title": true, "summary": "The title is a boolean."}\n'),
    ("title: a list", b'{"title": ["A", "B"], "summary": "The title is a list."}\n'),
    ("title: an object", b'{"title": {"en": "A"}, "summary": "The title is an object."}\n'),
    ("summary: a number", b'{"title": "Wrong type", "summary": 3.14}\n'),
    ("summary: a list", b'{"title": "Wrong type", "summary": ["One.", "Two."]}\n'),
    ("sections: a string", b'{"title": "Wrong type", "sections": "All in one string."}\n'),
    (
        "sections: an object",
        b'{"title": "Wrong type", "sections": {"title": "A", "content": "B"}}\n',
    ),
    ("sections: a number", b'{"title": "Wrong type", "sections": 0}\n'),
    ("sections: a list of strings", b'{"title": "Wrong type", "sections": ["A", "B"]}\n'),
    ("sections: a list of lists", b'{"title": "Wrong type", "sections": [["A", "B"]]}\n'),
    (
        "section title: a number",
        b'{"title": "Wrong type", "sections": [{"title": 7, "content": "B"}]}\n',
    ),
    (
        "section content: a list",
        b'{"title": "Wrong type", "sections": [{"content": ["A", "B"]}]}\n',
    ),
    (
        "section content: an object",
        b'{"title": "Wrong type", "sections": [{"content": {"a": "b"}}]}\n',
    ),
    (
        "a null among the sections",
        b'{"title": "Null section", "sections": [null, {"content": "B"}]}\n',
    ),
    ("good", b'{"title": "Good 4", "summary": "After wrong types."}\n'),
    # JSON, but no object.
    ("bare array: of a record", b'[{"title": "In an array", "summary": "Text."}]\n'),
    ("bare array: of numbers", b"[1, 2, 3]\n"),
    ("bare array: empty", b"[]\n"),
    ("bare string", b'"just a string"\n'),
    ("bare number", b"12345\n"),
    ("bare null", b"null\n"),
    ("bare true", b"true\n"),
    ("deep nesting", b"[" * 2_000 + b"]" * 2_000 + b"\n"),
    # Objects without text.
    ("empty object", b"{}\n"),
    ("none of the three keys", b'{"name": "Other keys", "body": "Nothing that is looked for."}\n'),
    ("keys in capitals", b'{"Title": "Other keys", "SUMMARY": "Case matters."}\n'),
    (
        "all texts empty",
        b'{"title": "", "summary": "", "sections": [{"title": "", "content": ""}]}\n',
    ),
    ("all texts null", b'{"title": null, "summary": null, "sections": null}\n'),
    ("no text: sections of nothing", b'{"title": "", "sections": [{}, {"title": null}]}\n'),
    (
        "all texts white space",
        b'{"title": " ", "summary": "\\n", "sections": [{"content": "\\t"}]}\n',
    ),
    # Lines and records that do not match one to one.
    ("two objects on one line", b'{"title": "Left"}{"title": "Right"}\n'),
    ("two objects on one line, a blank between", b'{"title": "Left"} {"title": "Right"}\n'),
    ("two objects on one line, a comma between", b'{"title": "Left"},{"title": "Right"}\n'),
    ("an object over two lines", b'{"title": "Two lines",\n"summary": "The second half."}\n'),
    ("a string over two lines", b'{"title": "Raw line end", "summary": "first\nsecond"}\n'),
    ("objects separated by CR", b'{"title": "CR 1"}\r{"title": "CR 2"}\r{"title": "CR 3"}\n'),
    ("good: CRLF line end", b'{"title": "Good 5", "summary": "The line ends with CR LF."}\r\n'),
    ("blank line", b"\n"),
    ("blank lines with CR", b"\r\n\r\n"),
    ("white space line", b"   \t  \n"),
    ("good: white space around", b'  {"title": "Good 6", "summary": "Blanks around."}  \n'),
    ("line of other white space", "\u00a0\u3000\u2028\n".encode()),
    ("form feed line", b"\x0c\n"),
    (
        "BOM in the middle of the file",
        b'\xef\xbb\xbf{"title": "After a BOM", "summary": "Text."}\n',
    ),
    ("BOM alone on a line", b"\xef\xbb\xbf\n"),
    # Keys that occur twice.
    ("duplicate key", b'{"title": "First", "title": "Second", "summary": "Which one?"}\n'),
    ("duplicate key, other type", b'{"title": "First", "title": 2, "summary": "Which one?"}\n'),
    (
        "duplicate key in a section",
        b'{"title": "T", "sections": [{"content": "A", "content": "B"}]}\n',
    ),
    ("duplicate ignored key", b'{"title": "Duplicate url", "url": "a", "url": "b"}\n'),
    ("too large a number in an ignored key", b'{"title": "Large", "views": 1e400}\n'),
    ("good: no line end at the end of the file", '{"title": "Good 7 末尾"}'.encode()),
)


def main() -> int:
    """Write every derived file beside this program."""
    jsonl = (HERE / "records.jsonl").read_bytes()
    # Not splitlines(): texts hold U+2028 and U+0085 as they are.
    records: list[Record] = [json.loads(line) for line in jsonl.rstrip(b"\n").split(b"\n")]
    gz, zst = to_gzip(jsonl), to_zstd(jsonl)
    write("records.jsonl.gz", gz)
    write("records.jsonl.zst", zst)
    write("records_array.json", to_json_array(records))
    write("records.parquet", to_parquet(records))
    write("records.csv", to_csv(records))
    write("broken/broken.jsonl", b"".join(line for _, line in BROKEN_CASES))
    write("broken/truncated.jsonl.gz", gz[: int(len(gz) * TRUNCATED_AT)])
    write("broken/truncated.jsonl.zst", zst[: int(len(zst) * TRUNCATED_AT)])
    write("broken/empty.jsonl", b"")
    return 0


def to_gzip(data: bytes) -> bytes:
    """Compress to one gzip member that names no file and no time."""
    return gzip.compress(data, compresslevel=9, mtime=0)


def to_zstd(data: bytes) -> bytes:
    """Compress to one Zstandard frame with a checksum."""
    parameter = zstd.CompressionParameter
    return zstd.compress(
        data, options={parameter.compression_level: 19, parameter.checksum_flag: 1}
    )


def to_json_array(records: list[Record]) -> bytes:
    """Write the records as one indented JSON array."""
    return (json.dumps(records, ensure_ascii=False, indent=2) + "\n").encode()


def to_parquet(records: list[Record]) -> bytes:
    """Write the records' three columns; absent and null are both null."""
    table = pa.Table.from_pylist(records, schema=RECORD_SCHEMA)
    buffer = io.BytesIO()
    pq.write_table(table, buffer, row_group_size=ROW_GROUP_RECORDS, compression="zstd")
    return buffer.getvalue()


def to_csv(records: list[Record]) -> bytes:
    """Write title, summary and sections (as JSON); absent and null are empty."""
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(("title", "summary", "sections"))
    for record in records:
        sections = record.get("sections")
        as_json = None if sections is None else json.dumps(sections, ensure_ascii=False)
        writer.writerow((record.get("title"), record.get("summary"), as_json))
    return buffer.getvalue().encode()


def write(name: str, data: bytes) -> None:
    """Write one file below this folder and say so on stderr."""
    path = HERE / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    print(f"{len(data):>9,} {name}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
