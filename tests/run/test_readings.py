"""What is read of a record is decided before a run, for every format alike."""

from __future__ import annotations

import csv
import json
import re
import shlex
import shutil
import subprocess

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tokmill.errors import UsageError
from tokmill.run.readings import find_readings, first_document, inputs_of
from tokmill.settings.names import from_text, schema
from tokmill.settings.sft import SftSettings

BODY = "they hunt by night and sleep by day "


def write(path, records):
    """Write records in the format of a file's ending."""
    suffix = path.suffix
    if suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(records), path)
    elif suffix == ".arrow":
        table = pa.Table.from_pylist(records)
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    elif suffix == ".csv":
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(records[0]))
            writer.writeheader()
            writer.writerows(records)
    elif suffix == ".json":
        path.write_text(json.dumps(records))
    else:
        path.write_text("".join(json.dumps(record) + "\n" for record in records))


def fields_read(config):
    (reading,) = find_readings(inputs_of(config, None), None)
    return reading.reading.render


NO_TEXT = {
    "token ids": [{"doc_id": f"d{i:03}", "input_ids": [i, 2, 3, 4]} for i in range(9)],
    "a time series": [{"t": f"2024-01-0{i}", "v": i / 7} for i in range(1, 9)],
    "an embedding": [{"id": f"e-{i}", "embedding": [i / 7, 0.25]} for i in range(9)],
    "notes beside numbers": [
        {"x": i / 7, "y": i / 3, "note": f"sensor {'abcdefghi'[i]} was reset"} for i in range(1, 9)
    ],
    "a label": [{"id": i, "label": "positive"} for i in range(3)],
    "labels of words": [{"id": i, "label": ("very good", "very bad")[i % 2]} for i in range(20)],
    "numbers as text": [{"a": f"{i}.5", "b": f"{i},000"} for i in range(9)],
    "addresses": [{"url": f"https://a.b/{i}", "date": "12 March 2024"} for i in range(9)],
    "booleans": [{"id": f"r{i}", "ok": "True"} for i in range(3)],
}


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".csv", ".parquet", ".arrow"])
@pytest.mark.parametrize("what", NO_TEXT)
def test_records_without_text_stop_the_run_and_their_columns_are_named(
    what, suffix, tmp_path, configure
):
    path = tmp_path / f"a{suffix}"
    write(path, NO_TEXT[what])
    if what == "token ids" and suffix != ".csv":  # no import reads CSV
        with pytest.raises(UsageError, match=r"rows of ids \(input_ids\), not text"):
            fields_read(configure(tmp_path / "o", path))
        return
    with pytest.raises(UsageError, match="the records hold no text: expected a field") as error:
        fields_read(configure(tmp_path / "o", path))
    message = str(error.value)
    assert "\n" not in message
    for name in NO_TEXT[what][0]:
        assert re.search(rf"{name} \([a-zA-Z ]+\)", message)
    if option := re.search(r"--renderer=text --fields=(\S+)", message):
        fields = tuple(shlex.split(option[1]))
        render = fields_read(configure(tmp_path / "o", path, renderer="text", fields=fields))
        assert render.fields == fields


@pytest.mark.parametrize(
    ("records", "field"),
    [
        ([{"text": "ok"}, {"text": "no"}], "text"),
        ([{"id": i, "text": "yes"} for i in range(9)], "text"),
        ([{"text": f"d00{i}", "v": 0.5, "w": 0.5} for i in range(9)], "text"),
        ([{"id": 7, "headline": f"Cats sleep {i} h"} for i in range(9)], "headline"),
        ([{"id": 7, "标题": "猫在夜里捕食"}], "标题"),
        ([{"passage": BODY * 9, "embedding": [0.5, 0.25]}], "passage"),
        ([{"review": "I liked it very much", "stars": 4.5}], "review"),
    ],
)
def test_short_texts_are_text(records, field, tmp_path, configure):
    write(tmp_path / "a.jsonl", records)
    assert fields_read(configure(tmp_path / "o", tmp_path / "a.jsonl")).text_field == field


def advised(path, configure):
    """Return how a file is read once the advice in the error about it is followed."""
    with pytest.raises(UsageError) as error:
        fields_read(configure(path.parent / "o", path))
    advice = str(error.value)
    settings = {}
    for word in shlex.split(advice[advice.index("--") :].partition(", or ")[0]):
        name, _, text = word.removeprefix("--").partition("=")
        value = from_text(schema()["render"][name], text)
        settings[name] = tuple(value) if isinstance(value, list) else value
    return fields_read(configure(path.parent / "o", path, **settings))


def test_all_fields_of_text_are_named_however_many_they_are(tmp_path, configure):
    record = {f"part {i}": BODY * i for i in range(1, 21)}
    write(tmp_path / "a.jsonl", [record, record])
    render = advised(tmp_path / "a.jsonl", configure)
    assert render.template.split("\n") == [f"{{{name}}}" for name in record]


def test_a_field_that_a_template_cannot_name_is_said_with_its_share(tmp_path, configure):
    write(tmp_path / "a.jsonl", [{"a: b": BODY, "c": BODY, "d": BODY * 2}])
    with pytest.raises(UsageError, match=r"without a: b 25%, which no template can name"):
        fields_read(configure(tmp_path / "o", tmp_path / "a.jsonl"))


@pytest.mark.parametrize(
    "records",
    [
        [{"text": BODY}, {"content": BODY}],
        [{"text": BODY, "content": ""}, {"text": None, "content": BODY}],
        [{"text": BODY, "title": "Cats at"}, {"content": BODY * 3, "title": "Dogs in"}],
        [{"text": BODY}, {"content": BODY}, {"body": BODY}],
        [{"正文": "夜行动物。" * 9}, {"内容": "夜行动物。" * 9}],
    ],
)
def test_fields_that_stand_in_turn_are_taken_in_turn(records, tmp_path, configure):
    write(tmp_path / "a.jsonl", records * 3)
    render = advised(tmp_path / "a.jsonl", configure)
    assert render.renderer == "text"
    texts = [key for record in records for key in record if key != "title" and record[key]]
    assert render.keys_of("text") == tuple(dict.fromkeys(texts))


def test_lines_of_a_document_in_a_list_become_an_article_without_stray_colons(tmp_path, configure):
    lines = [{"行号": i, "是否重复": False, "内容": f"夜行动物在夜里捕食{i}。"} for i in range(9)]
    write(tmp_path / "a.jsonl", [{"文件名": "a/b.txt", "段落": lines}] * 2)
    render = advised(tmp_path / "a.jsonl", configure)
    assert (render.renderer, render.key_of("sections")) == ("article", "段落")


@pytest.mark.parametrize("name", ["data", "条目"])
def test_a_file_of_one_list_of_records_is_converted_by_the_printed_command(
    name, tmp_path, configure
):
    sections = [{"title": "习性", "content": "它在夜里捕食。"}]
    entries = [
        {"title": f"猫{i}", "summary": f"第{i}种哺乳动物", "sections": sections} for i in range(9)
    ]
    path = tmp_path / "a b.json"
    path.write_text(json.dumps({name: entries}))
    with pytest.raises(UsageError, match="write its entries as records with jq") as error:
        fields_read(configure(tmp_path / "o", path))
    command = str(error.value).partition("records with ")[2]
    if shutil.which("jq") is None:
        pytest.skip("jq is not installed")
    subprocess.run(command, shell=True, check=True, cwd=tmp_path)
    render = fields_read(configure(tmp_path / "o", tmp_path / "NEW_FILE.jsonl"))
    assert render.renderer.startswith("sections:")


def test_all_odd_files_of_a_folder_are_named_up_to_ten(tmp_path, configure):
    write(tmp_path / "a.jsonl", [{"text": BODY}] * 2)
    for i in range(14):
        write(tmp_path / f"odd{i:02}.jsonl", [{f"k{i}": BODY, "b": BODY}])
    with pytest.raises(UsageError, match=r"odd00\.jsonl: .* \(not read either: ") as error:
        fields_read(configure(tmp_path / "o", tmp_path))
    message = str(error.value)
    assert message.endswith("odd09.jsonl and 4 other files)")
    assert len(set(re.findall(r"odd\d\d", message))) == 10


def test_all_files_of_another_kind_are_named(tmp_path, configure):
    write(tmp_path / "a.jsonl", [{"text": BODY}] * 2)
    for name in ("b", "c"):
        (tmp_path / f"{name}.jsonl").write_bytes(b"%PDF-1.7")
    with pytest.raises(UsageError, match=r"b\.jsonl: holds a PDF.*either: \S+c\.jsonl\)$"):
        fields_read(configure(tmp_path / "o", tmp_path))


@pytest.mark.parametrize(
    ("record", "table"),
    [
        ({"prompt": "how many", "chosen": "nine cats", "rejected": "none"}, "completion"),
        (
            {"chosen": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]},
            "messages",
        ),
    ],
)
def test_a_preference_file_beside_chats_gets_a_source_of_its_own(
    record, table, tmp_path, configure, tokenizer
):
    chat = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]
    write(tmp_path / "a.jsonl", [{"messages": chat}] * 2)
    write(tmp_path / "b.jsonl", [record] * 2)
    config = configure(tmp_path / "o", tmp_path, sft=SftSettings())
    with pytest.raises(UsageError, match=rf"fields = \{{{table} = \"chosen\"\}}'$") as error:
        find_readings(inputs_of(config, None), tokenizer)
    assert f'--source=\'paths = ["{tmp_path}/b.jsonl"], ' in str(error.value)


NESTED = [
    {"id": 1, "content": {"text": f"{BODY} {i}", "lang": "en", "raw": {"html": "x"}}}
    for i in range(9)
]


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".parquet", ".arrow"])
def test_a_text_inside_an_object_is_advised_and_can_be_named(suffix, tmp_path, configure):
    path = tmp_path / f"a{suffix}"
    write(path, NESTED)
    assert advised(path, configure).text_field == "content.text"
    config = configure(tmp_path / "o", path, fields=("text=content.text",))
    (reading,) = find_readings(inputs_of(config, None), None)
    assert first_document(reading) == f"{BODY} 0"
    assert reading.fields_note().startswith("content.text 100%")
    template = configure(tmp_path / "o", path, template="{content.lang}: {content.raw.html}")
    (reading,) = find_readings(inputs_of(template, None), None)
    assert first_document(reading) == "en: x"


@pytest.mark.parametrize("renderer", ["article", "encyclopedia", "sections"])
@pytest.mark.parametrize(
    "pair", ["title=meta.t", "summary=meta.t", "sections=meta.s", "section_content=body.text"]
)
@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_a_path_is_refused_where_a_key_is_expected(pair, renderer, suffix, tmp_path, configure):
    items = [{"title": "h", "content": BODY, "body": {"text": BODY}}]
    path = tmp_path / f"a{suffix}"
    write(path, [{"title": "T", "meta": {"t": "T", "s": items}, "sections": items}])
    message = f"{pair}: renderer {renderer} expects a key there, found a field of the object "
    with pytest.raises(UsageError, match=re.escape(message) + ".*--renderer=MODULE:FUNCTION"):
        fields_read(configure(tmp_path / "o", path, renderer=renderer, fields=(pair,)))


def test_a_key_with_a_dot_beside_its_object_is_a_key(tmp_path, configure):
    items = [{"title": "h", "a.b": BODY, "a": {}}]
    write(tmp_path / "a.jsonl", [{"meta.t": "T", "meta": {"t": "no"}, "sections": items}])
    fields = ("title=meta.t", "section_content=a.b")
    config = configure(tmp_path / "o", tmp_path / "a.jsonl", renderer="article", fields=fields)
    (reading,) = find_readings(inputs_of(config, None), None)
    assert first_document(reading) == f"T\n\nh\n{BODY}"


def test_a_key_with_a_dot_is_still_a_key(tmp_path, configure):
    write(tmp_path / "a.csv", [{"id": "1", "meta.text": BODY}])
    config = configure(tmp_path / "o", tmp_path / "a.csv", fields=("text=meta.text",))
    (reading,) = find_readings(inputs_of(config, None), None)
    assert first_document(reading) == BODY


def test_an_object_and_a_text_inside_it_are_not_named_together(tmp_path, configure):
    write(tmp_path / "a.jsonl", NESTED)
    fields = ("text=content", "text=content.text")
    with pytest.raises(UsageError, match=r"content is named, and content\.text inside it"):
        fields_read(configure(tmp_path / "o", tmp_path / "a.jsonl", fields=fields))
