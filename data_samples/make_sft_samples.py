"""Remake the sample files for SFT that are derived from others, and the broken one.

    python data_samples/make_sft_samples.py

`sft/chats.jsonl`, `sharegpt.jsonl`, `alpaca.jsonl`, `prompt.jsonl`, `prompt_chat.jsonl` and
`mixed.jsonl` are written by hand. From the Alpaca records without history come the same ones in
other containers; all give the same samples. Run twice, the program writes the same bytes.
"""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]
import pyarrow.parquet as pq  # type: ignore[import-untyped,unused-ignore]

Record: TypeAlias = dict[str, object]

HERE = Path(__file__).resolve().parent / "sft"

ALPACA_COLUMNS = ("system", "instruction", "input", "output")

# Small enough that the Parquet file has several row groups.
ROW_GROUP_RECORDS = 20

USER = b'{"role": "user", "content": "Hi"}'
SAID = b'{"role": "assistant", "content": "Hello."}'
TOOL = b'{"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}}'


def chat(*messages: bytes, rest: bytes = b"") -> bytes:
    """Give a line of messages; `rest` is further keys of the record."""
    return b'{"messages": [' + b", ".join(messages) + b"]" + rest + b"}\n"


def said(content: bytes, rest: bytes = b"", role: bytes = b"assistant") -> bytes:
    """Give a message whose content is JSON; `rest` is further keys of it."""
    return b'{"role": "' + role + b'", "content": ' + content + rest + b"}"


def calling(function: bytes) -> bytes:
    """Give a line of a conversation with a tool call."""
    return chat(USER, said(b"null", b', "tool_calls": [{"function": ' + function + b"}]"))


SAMPLE = "sample"
UNTRAINED = "dropped: no trained token"
NOTHING = "no record"

# Each case: its name, what becomes of it (one of these three, or the reason of its reject), and its
# bytes with the line end. Outcomes are those of `schema = mixed` with the template of
# tokenizer/ and no other setting.
BROKEN_CASES: tuple[tuple[str, str, bytes], ...] = (
    ("good", SAMPLE, chat(USER, SAID)),
    # Conversations of which nothing, or too little, is left.
    ("empty messages", "empty conversation", b'{"messages": []}\n'),
    ("empty messages, system beside", "empty conversation", chat(rest=b', "system": "S"')),
    ("messages: blank text", "no such fields", b'{"messages": " "}\n'),
    ("no assistant turn", UNTRAINED, chat(USER)),
    ("no assistant turn: system alone", UNTRAINED, chat(said(b'"Be kind."', role=b"system"))),
    ("no assistant turn: tool output last", UNTRAINED, chat(USER, said(b'"7"', role=b"tool"))),
    ("every reply switched off", UNTRAINED, chat(USER, said(b'"No."', b', "train": false'))),
    ("weight of the record is 0", UNTRAINED, chat(USER, SAID, rest=b', "weight": 0')),
    ("reply empty: its end is trained", SAMPLE, chat(USER, said(b'""'))),
    ("reply null: its end is trained", SAMPLE, chat(USER, said(b"null"))),
    ("reply of white space", SAMPLE, chat(USER, said(b'"  "'))),
    # Roles.
    ("unknown role: critic", "unknown role", chat(USER, said(b'"Bad."', role=b"critic"))),
    ("role in capitals", SAMPLE, chat(said(b'"Hi"', role=b"User"), SAID)),
    ("role with a blank behind it", SAMPLE, chat(USER, said(b'"A"', role=b"gpt "))),
    ("no role", "unknown role", chat(USER, b'{"content": "Who says this?"}')),
    ("role: a number", "wrong type", chat(USER, b'{"role": 1, "content": "One."}')),
    (
        "unknown speaker in ShareGPT",
        "unknown role",
        b'{"conversations": [{"from": "human", "value": "Hi"}, {"from": "narrator", "value": "He '
        b'said."}]}\n',
    ),
    ("two assistants in a row", SAMPLE, chat(USER, SAID, SAID)),
    ("assistant first", SAMPLE, chat(SAID, USER)),
    ("good", SAMPLE, chat(said('"你好"'.encode(), role=b"user"), said('"嗨"'.encode()))),
    # Content.
    ("content: a number", "wrong type", chat(USER, said(b"42"))),
    ("content: a boolean", "wrong type", chat(USER, said(b"true"))),
    ("content: an object without a type", "wrong type", chat(USER, said(b'{"text": "A"}'))),
    ("content: a list of texts", "wrong type", chat(USER, said(b'["A", "B"]'))),
    ("content: an empty list", SAMPLE, chat(USER, said(b"[]"))),
    (
        "content: an image part",
        "unknown content part",
        chat(
            said(
                b'[{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": '
                b'{"url": "file:///cat.png"}}]',
                role=b"user",
            ),
            SAID,
        ),
    ),
    (
        "content: a part without text: its end is trained",
        SAMPLE,
        chat(USER, said(b'[{"type": "text"}]')),
    ),
    ("content: a part of no type", "unknown content part", chat(USER, said(b"[{}]"))),
    (
        "content: reasoning behind text",
        "order of parts",
        chat(USER, said(b'[{"type": "text", "text": "A"}, {"type": "thinking", "text": "B"}]')),
    ),
    ("content missing", "no such fields", chat(USER, b'{"role": "assistant"}')),
    (
        "content under another key",
        "no such fields",
        chat(USER, b'{"role": "assistant", "message": "Hello."}'),
    ),
    ("good: message text null", SAMPLE, chat(said(b"null", role=b"user"), SAID)),
    # Reasoning.
    ("reasoning: a list", "wrong type", chat(USER, said(b'"A"', b', "thinking": ["B"]'))),
    (
        "reasoning told twice, unlike",
        "contradictory reasoning",
        chat(USER, said(b'"A"', b', "thinking": "B", "reasoning": "C"')),
    ),
    (
        "reasoning of the user",
        "wrong role",
        chat(said(b'"A"', b', "reasoning_content": "B"', role=b"user"), SAID),
    ),
    # Tools and their calls.
    (
        "broken tool call: arguments not JSON",
        "broken tool call",
        calling(b'{"name": "now", "arguments": "{\\"zone\\": UTC}"}'),
    ),
    (
        "broken tool call: arguments cut off",
        "broken tool call",
        calling(b'{"name": "now", "arguments": "{\\"zone\\": \\"U"}'),
    ),
    (
        "broken tool call: arguments a list",
        "broken tool call",
        calling(b'{"name": "now", "arguments": ["UTC"]}'),
    ),
    (
        "broken tool call: arguments under another name",
        "broken tool call",
        calling(b'{"name": "now", "parameters": {"zone": "UTC"}}'),
    ),
    ("broken tool call: no name", "broken tool call", calling(b'{"arguments": {}}')),
    ("broken tool call: a text", "broken tool call", calling(b'"now()"')),
    ("good: tool call without arguments", SAMPLE, calling(b'{"name": "now"}')),
    (
        "tool call of the user",
        "wrong role",
        chat(said(b'"A"', b', "tool_calls": [{"name": "now"}]', role=b"user"), SAID),
    ),
    (
        "function_call that is prose",
        "broken tool call",
        b'{"conversations": [{"from": "human", "value": "Time?"}, {"from": "function_call", '
        b'"value": "call now()"}]}\n',
    ),
    ("broken tools: not JSON", "broken tools", chat(USER, SAID, rest=b', "tools": "[now"')),
    ("good: tools are one object", SAMPLE, chat(USER, SAID, rest=b', "tools": ' + TOOL)),
    ("broken tools: names", "broken tools", chat(USER, SAID, rest=b', "tools": ["now"]')),
    ("broken tools: no name", "broken tools", chat(USER, SAID, rest=b', "tools": [{}]')),
    ("good: tools empty", SAMPLE, chat(USER, SAID, rest=b', "tools": []')),
    # Weights.
    ("weight: fractional", "fractional weight", chat(USER, said(b'"A"', b', "weight": 0.5'))),
    ("weight: 2", "fractional weight", chat(USER, said(b'"A"', b', "loss_weight": 2'))),
    ("weight: negative", "wrong type", chat(USER, said(b'"A"', b', "weight": -1'))),
    ("weight: a text", "wrong type", chat(USER, said(b'"A"', b', "weight": "1"'))),
    ("weight: NaN", "wrong type", chat(USER, said(b'"A"', b', "weight": NaN'))),
    ("train: a number", "wrong type", chat(USER, said(b'"A"', b', "train": 1'))),
    (
        "weight of the record: fractional",
        "fractional weight",
        chat(USER, SAID, rest=b', "weight": 0.25'),
    ),
    (
        "good: the user is trained, by marks around the text",
        SAMPLE,
        chat(said(b'"A"', b', "train": true', role=b"user"), SAID),
    ),
    ("weight null says nothing", SAMPLE, chat(USER, said(b'"A"', b', "weight": null'))),
    ("good", SAMPLE, chat(USER, said(b'"A"', b', "weight": 1.0'))),
    # Preference data.
    (
        "preference: chosen and rejected",
        "preference data",
        b'{"prompt": "Hi", "chosen": "Hello.", "rejected": "What?"}\n',
    ),
    (
        "preference: chosen beside messages",
        "preference data",
        chat(USER, rest=b', "chosen": ' + SAID + b', "rejected": ' + said(b'"What?"')),
    ),
    (
        "preference: label",
        "preference data",
        b'{"prompt": "Hi", "completion": "What?", "label": false}\n',
    ),
    # Fields.
    ("no known fields", "no such fields", b'{"dialog": [], "id": 1}\n'),
    ("empty object", "no such fields", b"{}\n"),
    ("all null", "no such fields", b'{"messages": null, "text": null}\n'),
    ("prompt without completion", "no such fields", b'{"prompt": "Hi"}\n'),
    ("instruction without output", "no such fields", b'{"instruction": "Wave."}\n'),
    ("output: a number", "wrong type", b'{"instruction": "1 + 1", "output": 2}\n'),
    (
        "history: no pairs",
        "wrong type",
        b'{"instruction": "A", "output": "B", "history": [["C"]]}\n',
    ),
    (
        "history: text that is no JSON",
        "broken history",
        b'{"instruction": "A", "output": "B", "history": "C, D"}\n',
    ),
    (
        "prompt with a trained message",
        "contradictory weights",
        b'{"prompt": [{"role": "user", "content": "Hi", "train": true}], "completion": ['
        + SAID
        + b"]}\n",
    ),
    ("good: prompt", SAMPLE, b'{"prompt": "Hi", "completion": "Hello."}\n'),
    # Shapes.
    ("messages: text that is no JSON", "broken messages", b'{"messages": "Hi! Hello."}\n'),
    ("messages: an object", "wrong type", b'{"messages": ' + SAID + b"}\n"),
    ("messages: a number", "wrong type", b'{"messages": 3}\n'),
    ("message: a text", "wrong type", chat(b'"Hi"', b'"Hello."')),
    ("message: null", "wrong type", chat(b"null")),
    ("message: a list", "wrong type", chat(b'["user", "Hi"]')),
    ("not an object: a list of messages", "not an object", b"[" + USER + b", " + SAID + b"]\n"),
    ("not an object: a text", "not an object", b'"Hi"\n'),
    ("not an object: a number", "not an object", b"42\n"),
    ("not an object: null", "not an object", b"null\n"),
    # Not JSON, not UTF-8.
    ("not JSON: prose", "not an object", b"user: Hi\n"),
    ("not JSON: cut off", "malformed JSON", b'{"messages": [' + USER + b"\n"),
    ("not JSON: trailing comma", "malformed JSON", chat(USER, SAID, rest=b",")),
    ("not JSON: single quotes", "malformed JSON", b"{'messages': []}\n"),
    ("not JSON: raw tab", "malformed JSON", chat(USER, said(b'"A\tB"'))),
    ("lone surrogate", "malformed JSON", chat(USER, said(b'"\\ud83d"'))),
    (
        "lone surrogate in a key that nothing reads",
        SAMPLE,
        chat(USER, SAID, rest=b', "\\udc00": 1'),
    ),
    (
        "lone surrogate in messages as text",
        "lone surrogate",
        b'{"messages": "[\\"\\\\udc00\\"]"}\n',
    ),
    ("invalid UTF-8: GBK", "invalid UTF-8", chat(USER, said(b'"\xc4\xe3\xba\xc3"'))),
    ("blank line", NOTHING, b"\n"),
    ("good: CR LF, blanks around", SAMPLE, b" " + chat(USER, SAID)[:-1] + b" \r\n"),
    ("good: no line end at the end of the file", SAMPLE, chat(USER, SAID)[:-1]),
)


def main() -> int:
    """Write every derived file beside the records that they come from."""
    lines = (HERE / "alpaca.jsonl").read_bytes().rstrip(b"\n").split(b"\n")
    records = [record for record in map(json.loads, lines) if "history" not in record]
    write("alpaca_array.json", to_json_array(records))
    write("alpaca.parquet", to_parquet(records))
    write("alpaca.csv", to_csv(records))
    write("broken.jsonl", b"".join(line for _, _, line in BROKEN_CASES))
    return 0


def to_json_array(records: list[Record]) -> bytes:
    """Write the records as one indented JSON array."""
    return (json.dumps(records, ensure_ascii=False, indent=1) + "\n").encode()


def to_parquet(records: list[Record]) -> bytes:
    """Write the records' four columns; absent and null are both null."""
    schema = pa.schema([(name, pa.string()) for name in ALPACA_COLUMNS])
    buffer = io.BytesIO()
    table = pa.Table.from_pylist(records, schema=schema)
    pq.write_table(table, buffer, row_group_size=ROW_GROUP_RECORDS, compression="zstd")
    return buffer.getvalue()


def to_csv(records: list[Record]) -> bytes:
    """Write the records' four columns; absent, null and empty are all empty."""
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(ALPACA_COLUMNS)
    writer.writerows([record.get(name) for name in ALPACA_COLUMNS] for record in records)
    return buffer.getvalue().encode()


def write(name: str, data: bytes) -> None:
    """Write one file below `sft/` and say so on stderr."""
    (HERE / name).write_bytes(data)
    print(f"{len(data):>9,} sft/{name}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
