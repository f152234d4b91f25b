"""`where`: a function of one record keeps or drops it, alike for every format and recipe."""

from __future__ import annotations

import csv
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tokmill
from tokmill.errors import RecordError, StateError, UsageError
from tokmill.settings.schema import Source

ROWS = [
    {"text": f"hello {i} " * (i % 5 + 1), "language": "en" if i % 3 else "猫", "meta": {"n": i}}
    for i in range(60)
]
SECTIONS = [
    {"title": f"t{i}", "summary": "hello", "sections": [{"title": "a", "content": "there " * 9}]}
    for i in range(60)
]
CHATS = [
    {
        "messages": [
            {"role": "user", "content": f"hi {i}"},
            {"role": "assistant", "content": "hello " * (i % 4 + 1)},
        ],
        "n": i,
    }
    for i in range(60)
]
SETTINGS = {"workers": 1, "engine": "reference", "progress": False}
DROPPED = "left out by where"


def is_english(record):
    return record["language"] == "en"


def is_even(record):
    number = record.get("n", record.get("title", "")[1:])
    return int(number) % 2 == 0


def write(path, rows):
    table = pa.Table.from_pylist(rows)
    match path.suffix:
        case ".jsonl":
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        case ".json":
            path.write_text(json.dumps(rows))
        case ".parquet":
            pq.write_table(table, path, row_group_size=7)
        case ".arrow":
            with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as stream:
                stream.write_table(table, max_chunksize=5)
        case ".csv":
            with path.open("w", newline="") as file:
                cells = csv.writer(file)
                cells.writerow(rows[0])
                for row in rows:
                    cells.writerow([row["text"], row["language"], json.dumps(row["meta"])])
    return path


def ids_of(dataset):
    return [ids.tolist() for ids in dataset]


@pytest.mark.parametrize("ending", ["jsonl", "json", "parquet", "arrow", "csv"])
def test_the_dataset_is_that_of_a_file_without_these_records(tmp_path, tokenizer_dir, ending):
    kept = [row for row in ROWS if is_english(row)]
    settings = {**SETTINGS, "tokenizer": tokenizer_dir, "keep": ["meta.n"], "val_fraction": 0.2}
    all_rows = write(tmp_path / f"all.{ending}", ROWS)
    made = tokmill.pretrain(
        all_rows, output=tmp_path / "a", where=is_english, block_bytes=700, **settings
    )
    expected = tokmill.pretrain(
        write(tmp_path / f"kept.{ending}", kept), output=tmp_path / "b", **settings
    )
    assert ids_of(made) == ids_of(expected)
    numbers = [int(made.meta(i)["meta.n"]) for i in range(len(made))]
    assert numbers == [int(expected.meta(i)["meta.n"]) for i in range(len(made))]
    assert [made.origin(i).record - 1 for i in range(len(made))] == numbers
    totals = made.manifest["totals"]
    assert (totals["records"], totals["documents"], totals["drops"]) == (60, 40, {DROPPED: 20})
    assert made.verify().problems == ()


CASES = {
    "sections": (tokmill.pretrain, SECTIONS, {}),
    "a renderer of its own": (tokmill.pretrain, SECTIONS, {"renderer": lambda r: r["title"]}),
    "chats": (tokmill.sft, CHATS, {"template": "plain", "min_tokens": 8}),
    "a sample for each turn": (tokmill.sft, CHATS, {"template": "plain", "samples": "turn"}),
}


@pytest.mark.parametrize("case", CASES)
def test_each_recipe_sees_the_records_that_are_left_as_if_they_were_all(
    tmp_path, tokenizer_dir, case
):
    make, rows, settings = CASES[case]
    settings = {**SETTINGS, **settings, "tokenizer": tokenizer_dir}
    made = make(rows, output=tmp_path / "a", where=is_even, block_bytes=900, **settings)
    expected = make(list(filter(is_even, rows)), output=tmp_path / "b", **settings)
    assert ids_of(made) == ids_of(expected)
    drops = dict(made.manifest["totals"]["drops"])
    assert drops.pop(DROPPED) == 30
    assert drops == expected.manifest["totals"]["drops"]
    if make is tokmill.sft:
        assert all((made.mask(i) == expected.mask(i)).all() for i in range(len(made)))
    forecast = tokmill.plan(rows, where=is_even, recipe=made.manifest["kind"], **settings)
    assert (forecast.documents, forecast.tokens) == (len(expected), expected.n_tokens)


def test_a_source_has_its_own_function_and_its_own_renderer(tmp_path, tokenizer_dir):
    sources = [
        Source("even", SECTIONS, where=is_even, renderer=lambda record: record["title"]),
        {"name": "all", "paths": ROWS[:3], "where": lambda record: True},
    ]
    made = tokmill.pretrain(
        source=sources, tokenizer=tokenizer_dir, output=tmp_path / "out", **SETTINGS
    )
    assert len(made) == 30 + 3
    assert made.text(0) == "t0<eos>"
    kinds = [extension["kind"] for extension in made.manifest["extensions"]]
    assert sorted(kinds) == ["renderer", "where", "where"]
    with pytest.raises(UsageError, match=r"renderer __main__:.*: workers cannot import"):
        tokmill.pretrain(
            source=sources,
            tokenizer=tokenizer_dir,
            output=tmp_path / "two",
            **{**SETTINGS, "workers": 2},
        )


def test_a_record_for_which_it_raises_is_a_reject_with_its_place_and_the_line(
    tmp_path, tokenizer_dir
):
    rows = [*ROWS, {"text": "no language"}]
    path = write(tmp_path / "in.jsonl", rows)
    settings = {**SETTINGS, "tokenizer": tokenizer_dir, "output": tmp_path / "out"}
    made = tokmill.pretrain(path, where=is_english, **settings)
    totals = made.manifest["totals"]
    assert totals["rejects"] == {"the function of where raised an error": 1}
    assert totals["records"] == 61
    (file,) = (tmp_path / "out" / "rejects").iterdir()
    reject = json.loads(file.read_text())
    assert reject["line"] == 61
    assert "KeyError: 'language' (test_where.py" in reject["message"]
    assert 'return record["language"] == "en"' in reject["message"]
    with pytest.raises(RecordError, match=r"in.jsonl:61 .* raised an error: KeyError"):
        tokmill.pretrain(path, where=is_english, on_error="fail", overwrite=True, **settings)
    with pytest.raises(RecordError, match="60 dropped: left out by where"):
        tokmill.pretrain(
            write(tmp_path / "b.jsonl", ROWS), where=lambda _: False, overwrite=True, **settings
        )


WRONG = {
    "a value that is no truth": (
        lambda record: record["language"],
        r"expected True or False, found '猫' for the record that begins '{\"text\": \"hello 0",
    ),
    "two parameters": (lambda a, b: True, r"expected a function of one record, found .* \(a, b\)"),
    "a file": ("keep.py", "expected a module, found a file: name it as keep:FUNCTION"),
    "a file and a function": ("x/keep.py:f", "found a file: name it as keep:f"),
    "a word": ("keep", "where keep: expected package.module:function"),
    "no module": ("nothing_here:keep", "where nothing_here:keep: cannot be imported"),
    "no function": ("math:pi", "where math:pi: expected a function, found float"),
    "a number": (5, "where: expected str, found int"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_no_filter_is_one_line(tmp_path, tokenizer_dir, wrong):
    function, message = WRONG[wrong]
    with pytest.raises(UsageError, match=message) as caught:
        tokmill.pretrain(
            iter(ROWS),
            tokenizer=tokenizer_dir,
            output=tmp_path / "out",
            where=function,
            **SETTINGS,
        )
    assert "\n" not in str(caught.value)
    read_first = wrong == "a value that is no truth"
    assert (tmp_path / "out.rows").exists() == read_first  # the rows are not spent in vain


@pytest.mark.parametrize("setting", ["where", "renderer"])
def test_tasks_of_an_array_cannot_have_a_function_of_a_notebook(tmp_path, tokenizer_dir, setting):
    path = write(tmp_path / "in.jsonl", ROWS)
    sources = [Source("a", path, **{setting: lambda record: record["text"]})]
    for given in ({setting: lambda record: record["text"]}, {"source": sources}):
        inputs = () if "source" in given else path
        with pytest.raises(UsageError, match=rf"^{setting} __main__:.*: tasks cannot import"):
            tokmill.write_plan(inputs, tokenizer=tokenizer_dir, output=tmp_path / "out", **given)
    assert not (tmp_path / "out").exists()


def test_workers_import_it_and_write_the_same_bytes(tmp_path, tokenizer_dir):
    path = write(tmp_path / "in.jsonl", ROWS)
    settings = {**SETTINGS, "tokenizer": tokenizer_dir, "part_bytes": 900, "where": is_english}
    made = [
        tokmill.pretrain(path, output=tmp_path / str(n), **{**settings, "workers": n})
        for n in (1, 2)
    ]
    assert ids_of(made[0]) == ids_of(made[1])
    assert len(made[0]) == 40


@pytest.mark.parametrize("block_bytes", [300, 1 << 20])
def test_a_file_is_rendered_by_the_script_of_all_its_records(tmp_path, tokenizer_dir, block_bytes):
    han = [{"title": f"t{i}", "summary": "猫狗" * 20, "sections": []} for i in range(20)]
    latin = [{**row, "sections": [{"title": "a", "content": "there"}]} for row in SECTIONS[:2]]
    made = tokmill.pretrain(
        [*han, *latin],
        tokenizer=tokenizer_dir,
        output=tmp_path / "out",
        where=lambda record: record["summary"] == "hello",
        block_bytes=block_bytes,
        **SETTINGS,
    )
    assert made.text(0) == "t0:helloa:there。<eos>"  # the formula of encyclopedias


def test_another_function_is_another_run(tmp_path, tokenizer_dir):
    path = write(tmp_path / "in.jsonl", ROWS)
    settings = {**SETTINGS, "tokenizer": tokenizer_dir, "output": tmp_path / "out"}
    limit = 5
    tokmill.pretrain(path, where=lambda record: record["meta"]["n"] > limit, **settings)
    limit = 6
    with pytest.raises(StateError, match=r"where was '__main__:.*, is '__main__:"):
        tokmill.pretrain(path, where=lambda record: record["meta"]["n"] > limit, **settings)


def test_a_value_of_the_module_that_the_function_reads_is_part_of_it():
    from tokmill.rendering.user_functions import function_setting

    code = "keep = lambda record: record['n'] > LIMIT and helper(record)\n"
    names = []
    for limit, helper in ((5, "True"), (5, "True"), (6, "True"), (5, "False")):
        notebook = {"LIMIT": limit, "__name__": "__main__"}
        exec(f"helper = lambda record: {helper}\n{code}", notebook)
        names.append(function_setting(notebook["keep"]))
    assert names[0] == names[1]
    assert len(set(names)) == 3


def test_a_record_that_is_no_utf8_is_seen_as_the_renderer_sees_it(tmp_path, tokenizer_dir):
    (tmp_path / "in.jsonl").write_bytes(b'{"text": "hello \xff"}\n{"text": "there"}\n')
    seen = []
    made = tokmill.pretrain(
        tmp_path / "in.jsonl",
        tokenizer=tokenizer_dir,
        output=tmp_path / "out",
        where=lambda record: bool(seen.append(record["text"])) or True,
        on_bad_text="replace",
        **SETTINGS,
    )
    assert len(made) == 2
    assert {"hello \ufffd", "there"} == set(seen)
