"""What is no text in a chat: a field that nothing reads loses no record, one that is read does."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tokmill
from tests.cli.conftest import manifest, write_lines

TURNS = b'"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "%b"}]'
GOOD = TURNS % b"Hello"
UNREAD = {
    "half a pair": b'{"title": "\\ud800", ' + GOOD + b"}",
    "no UTF-8": b'{"title": "\xff", ' + GOOD + b"}",
    "a large number": b'{"id": 1e400, ' + GOOD + b"}",
    "no number": b'{"id": NaN, "n": [-Infinity], ' + GOOD + b"}",
    "a key twice": b'{"id": 1, "id": 2, ' + GOOD + b"}",
    "an inner key twice": b'{"meta": {"a": 1, "a": 2}, ' + GOOD + b"}",
    "bad keys": b'{"\xff": 1, "\\udc00": 2, ' + GOOD + b"}",
    "in a message": b'{"messages": [{"role": "user", "content": "Hi", "id": "\\ud800"}, '
    b'{"role": "assistant", "content": "Hello", "time": 1e999}]}',
}
READ = {
    "half a pair": b"{" + TURNS % b"a \\ud800" + b"}",
    "no UTF-8": b"{" + TURNS % b"a \xff" + b"}",
    "arguments": b'{"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", '
    b'"content": "", "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1e400}}}]}]}',
    "a key of arguments": b'{"messages": [{"role": "user", "content": "Hi"}, {"role": '
    b'"assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": '
    b'{"\\ud800": 1}}}]}]}',
    "a role": b'{"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant\xff", '
    b'"content": "a"}]}',
    "tools": b'{"tools": [{"name": "\\ud800"}], ' + GOOD + b"}",
}


def test_a_field_that_nothing_reads_may_hold_anything(sft, tmp_path):
    lines = [b"{" + GOOD + b"}", *UNREAD.values()]
    outcome = sft(write_lines(tmp_path / "in.jsonl", lines))
    assert outcome.code == 0, outcome.err
    totals = manifest(tmp_path / "out")["totals"]
    assert (totals["documents"], totals["rejects"]) == (len(lines), {})
    assert "replaced" not in outcome.out
    with tokmill.open(tmp_path / "out") as dataset:
        assert len({dataset.text(i) for i in range(len(lines))}) == 1


def test_in_a_field_that_is_read_it_makes_a_reject_of_the_parser(sft, tmp_path):
    lines = [b"{" + GOOD + b"}", *READ.values()]
    assert sft(write_lines(tmp_path / "in.jsonl", lines)).code == 0
    assert manifest(tmp_path / "out")["totals"]["documents"] == 1
    rejects = next((tmp_path / "out" / "rejects").iterdir()).read_text().splitlines()
    for what, reject in zip(READ, map(json.loads, rejects), strict=True):
        assert reject["reason"] in ("malformed JSON", "invalid UTF-8")
        assert ("--on-bad-text=replace" in reject["message"]) == (what != "arguments"), what


def test_it_can_be_replaced_where_it_is_text(sft, tmp_path):
    lines = [b"{" + GOOD + b"}", *READ.values()]
    outcome = sft(write_lines(tmp_path / "in.jsonl", lines), "--on-bad-text=replace")
    assert outcome.code == 0, outcome.err
    totals = manifest(tmp_path / "out")["totals"]
    assert totals["documents"] == len(lines) - 2  # a role and a number stay wrong
    assert totals["counters"]["characters replaced by U+FFFD"] == 4
    assert totals["counters"]["records with replaced characters"] == 4
    assert "4 characters in 4 records: U+FFFD" in outcome.out
    with tokmill.open(tmp_path / "out") as dataset:
        assert ["a \ufffd" in dataset.text(i) for i in range(3)] == [False, True, True]


def test_in_json_that_stands_in_a_text_it_stays_a_reject(sft, tmp_path):
    call = b'{"function": {"name": "f", "arguments": "{\\"x\\": \\"\\\\ud800\\"}"}}'
    said = b'{"role": "assistant", "content": "", "tool_calls": [' + call + b"]}"
    messages = b'[{"role": "user", "content": "Hi"}, ' + said + b"]"
    text = json.dumps(messages.decode()).encode()
    lines = [b"{" + GOOD + b"}", b'{"messages": ' + messages + b"}", b'{"messages": ' + text + b"}"]
    assert sft(write_lines(tmp_path / "in.jsonl", lines), "--on-bad-text=replace").code == 0
    totals = manifest(tmp_path / "out")["totals"]
    assert (totals["documents"], totals["rejects"]) == (1, {"lone surrogate": 2})


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_table_is_read_likewise(ending, sft, tmp_path):
    row = {"instruction": b"Hi", "output": b"Hello", "note": b"n"}
    rows = [row, row | {"note": b"\xff"}, row | {"output": b"x \xff"}]
    source = tmp_path / f"in.{ending}"
    if ending == "csv":
        write_lines(source, [b"instruction,output,note", *(b",".join(r.values()) for r in rows)])
    else:
        texts = {name: pa.array([r[name] for r in rows]).view(pa.string()) for name in row}
        pq.write_table(pa.table(texts), source)
    assert sft(source).code == 0
    totals = manifest(tmp_path / "out")["totals"]
    assert (totals["documents"], totals["rejects"]) == (2, {"invalid UTF-8": 1})
    assert sft(source, "--on-bad-text=replace", "--overwrite").code == 0
    assert manifest(tmp_path / "out")["totals"]["documents"] == 3


def test_a_renderer_that_gets_whole_records_gets_no_such_record(pretrain, tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(
        "import json, pyarrow as pa\n"
        "def text(batch):\n"
        "    return pa.array([json.loads(one)['text'] for one in batch['record'].to_pylist()])\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "in.jsonl").write_bytes(
        b'{"text": "one"}\n{"text": "\\ud800"}\n{"text": "three", "id": 1e400}\n{"text": "four"}\n'
    )
    words = ("--renderer", "mine:text", "--overwrite", "--workers", "1")
    assert pretrain(tmp_path / "in.jsonl", *words).code == 0
    totals = manifest(tmp_path / "out")["totals"]
    assert (totals["documents"], totals["rejects"]) == (2, {"malformed JSON": 2})
    assert pretrain(tmp_path / "in.jsonl", *words, "--on-bad-text=replace").code == 0
    assert manifest(tmp_path / "out")["totals"]["documents"] == 3
