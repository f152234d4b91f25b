"""Rows in memory as input: the dataset is that of a file of the same rows, for each kind."""

from __future__ import annotations

import datetime as dt
import io
import os
import signal
import subprocess
import sys
from collections import deque
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import tokmill
from tokmill.api import in_memory
from tokmill.errors import StateError, StorageError, UsageError

ROWS = [{"text": f"hello {i} 猫 " * (i % 5 + 1), "n": i} for i in range(300)]
TEXTS = [row["text"] for row in ROWS]
CHATS = [
    {"messages": [{"role": "user", "content": f"hi {i}"}, {"role": "assistant", "content": "你好"}]}
    for i in range(40)
]
SETTINGS = {"workers": 1, "engine": "reference", "part_bytes": "2kB"}


def of_datasets(rows, *, is_stream=False):
    datasets = pytest.importorskip("datasets")
    dataset = datasets.Dataset.from_list(rows)
    return dataset.to_iterable_dataset() if is_stream else dataset


KINDS = {
    "a list of dicts": lambda rows: rows,
    "a tuple of dicts": tuple,
    "a generator of dicts": lambda rows: (row for row in rows),
    "a function": lambda rows: lambda: iter(rows),
    "a function that returns a table": lambda rows: lambda: pa.Table.from_pylist(rows),
    "an Arrow table": pa.Table.from_pylist,
    "a table of many batches": lambda rows: pa.concat_tables(
        pa.Table.from_pylist([row]) for row in rows
    ),
    "a record batch": pa.RecordBatch.from_pylist,
    "a reader": lambda rows: pa.Table.from_pylist(rows).to_reader(),
    "a pandas DataFrame": lambda rows: pytest.importorskip("pandas").DataFrame(rows),
    "a part of a pandas DataFrame": lambda rows: pytest.importorskip("pandas").DataFrame(
        [{}, *rows, {}]
    )[1:-1],
    "a polars DataFrame": lambda rows: pytest.importorskip("polars").DataFrame(rows),
    "a Dataset": of_datasets,
    "an IterableDataset": lambda rows: of_datasets(rows, is_stream=True),
    "a shuffled Dataset": lambda rows: of_datasets(rows[::-1]).select(range(len(rows))[::-1]),
    "a Dataset with a transform": lambda rows: of_datasets(rows).with_transform(dict),
}
COLUMNS = {
    "an iterator of texts": iter,
    "a function that returns texts": lambda texts: lambda: list(texts),
    "a pandas Series": lambda texts: pytest.importorskip("pandas").Series(texts),
    "a polars Series": lambda texts: pytest.importorskip("polars").Series(texts),
    "an Arrow array": pa.array,
    "a chunked array": lambda texts: pa.chunked_array([texts[:7], texts[7:]]),
}


@pytest.fixture
def pretrain(tmp_path, tokenizer_dir):
    def call(inputs, output="out", **settings):
        place = output if isinstance(output, Path) or "://" in output else tmp_path / output
        given = {"tokenizer": tokenizer_dir, "output": place, **SETTINGS}
        return tokmill.pretrain(inputs, **given | settings)

    return call


def tokens(dataset):
    return [dataset[i].tolist() for i in range(len(dataset))]


def left(tmp_path: Path) -> list[str]:
    """Return what stands beside the output but the input."""
    return sorted(path.name for path in tmp_path.iterdir() if path.suffix == ".rows")


# The same as from a file


@pytest.mark.parametrize("kind", KINDS)
def test_rows_make_the_dataset_of_a_file_of_the_same_rows(tmp_path, pretrain, write_rows, kind):
    from_file = pretrain(write_rows(tmp_path / "in.jsonl", ROWS), "file")
    dataset = pretrain(KINDS[kind](ROWS))
    assert tokens(dataset) == tokens(from_file)
    of_source = pretrain(tokmill.Source("rows", KINDS[kind](ROWS)), "source")
    assert tokens(of_source) == tokens(from_file)
    assert left(tmp_path) == []


@pytest.mark.parametrize("kind", COLUMNS)
def test_texts_alone_are_documents(tmp_path, pretrain, write_rows, kind):
    from_file = pretrain(write_rows(tmp_path / "in.jsonl", ROWS), "file")
    assert tokens(pretrain(COLUMNS[kind](TEXTS))) == tokens(from_file)


@pytest.mark.parametrize("kind", KINDS)
def test_chats_in_memory_have_the_masks_of_a_file(tmp_path, tokenizer_dir, write_rows, kind):
    def sft(inputs, output):
        settings = {"template": "plain", "workers": 1, "engine": "reference"}
        return tokmill.sft(inputs, tokenizer=tokenizer_dir, output=tmp_path / output, **settings)

    from_file = sft(write_rows(tmp_path / "in.jsonl", CHATS), "file")
    dataset = sft(KINDS[kind](CHATS), "out")
    assert tokens(dataset) == tokens(from_file)
    for i in range(len(CHATS)):
        np.testing.assert_array_equal(dataset.mask(i), from_file.mask(i))


def test_a_source_of_rows_has_settings_of_its_own(tmp_path, pretrain):
    sources = [
        tokmill.Source("web", [{"text": "", "b": str(i)} for i in range(3)], fields={"text": "b"}),
        {
            "name": "books",
            "paths": pa.Table.from_pylist([{"body": "hello"}]),
            "fields": ["text=body"],
        },
    ]
    dataset = pretrain((), source=sources)
    assert [dataset.text(i) for i in range(4)] == [
        f"{text}<eos>" for text in ("0", "1", "2", "hello")
    ]
    assert Path(dataset.origin(0).path).name.startswith("web-")
    assert "web" in repr(sources[0])


def test_equal_rows_of_two_sources_are_both_read(pretrain):
    sources = [tokmill.Source(name, iter(["hello"])) for name in ("a b", "a_b")]
    assert len(pretrain(sources)) == 2


def test_paths_stay_paths_however_they_are_listed(tmp_path, pretrain, write_rows):
    path = write_rows(tmp_path / "in.jsonl", ROWS)
    want = tokens(pretrain(path, "want"))
    for i, inputs in enumerate(([str(path)], (path,), tmp_path.glob("*.jsonl"), iter([path]))):
        assert tokens(pretrain(inputs, f"out-{i}")) == want


def test_values_that_json_does_not_have_are_written_as_a_table_would(pretrain):
    row = {
        "text": "hello", "a": np.arange(2), "b": np.float32(1), "c": float("nan"), "d": (1, 2),
        "e": dt.date(2020, 1, 1), "f": Decimal("1.5"), "g": pa.scalar(3), "h": {"": "\ud800"},
        "i": [np.array([np.nan])],
    }  # fmt: skip
    dataset = pretrain([row], fields={"text": "text"}, keep=["a", "c", "e", "f", "g"])
    assert dataset.text(0) == "hello<eos>"
    assert dataset.meta(0) == {"a": "[0, 1]", "c": None, "e": "2020-01-01", "f": "1.5", "g": "3"}


def test_long_rows_of_a_table_are_written_in_small_row_groups(pretrain, monkeypatch):
    monkeypatch.setattr(in_memory, "_PIECE_BYTES", 1 << 10)
    monkeypatch.setattr(in_memory, "_GROUP_BYTES", 4 << 10)
    views = pa.table({"text": pa.array(TEXTS, pa.string_view())})
    table = pa.Table.from_pylist(ROWS)
    assert tokens(pretrain(views, "views")) == tokens(pretrain(table, "table"))


def test_a_forecast_of_rows_leaves_nothing_behind(tmp_path, tokenizer_dir, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    forecast = tokmill.plan(lambda: iter(ROWS), tokenizer=tokenizer_dir, engine="reference")
    assert forecast.documents == len(ROWS)
    assert list(tmp_path.iterdir()) == []


# Going on


CHILD = """
import os, signal, sys
import tokmill
from tests.api.test_in_memory import ROWS, SETTINGS

from tokmill.run import finish

def run_part(spec, part, *others):
    if part.index == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return run(spec, part, *others)

run, finish.run_part = finish.run_part, run_part
tokmill.pretrain((row for row in ROWS), tokenizer={tokenizer!r}, output="out", **SETTINGS)
"""


@pytest.mark.parametrize("with_file", [False, True])
def test_a_run_that_was_killed_continues_with_the_same_rows_or_their_file(
    tmp_path, tokenizer_dir, pretrain, monkeypatch, with_file
):
    script = CHILD.format(tokenizer=str(tokenizer_dir))
    environment = os.environ | {"PYTHONPATH": os.getcwd()}  # noqa: PTH109
    killed = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=environment)
    assert killed.returncode == -signal.SIGKILL
    [kept] = (tmp_path / "out.rows").iterdir()
    monkeypatch.chdir(tmp_path)
    assert tokmill.status("out").done == (0, 1)
    inputs = kept.relative_to(tmp_path) if with_file else (row for row in ROWS)
    dataset = pretrain(inputs, Path("out"))
    assert tokens(dataset) == tokens(pretrain(ROWS, "whole"))
    assert left(tmp_path) == (["out.rows"] if with_file else [])


def test_a_finished_dataset_is_returned_for_the_same_rows_and_refuses_others(tmp_path, pretrain):
    first = pretrain(iter(ROWS))
    again = pretrain(iter(ROWS))
    assert again.manifest == first.manifest
    with pytest.raises(StateError, match="holds a run of other inputs"):
        pretrain(ROWS[1:])
    assert left(tmp_path) == []


def test_rows_of_an_iterator_stay_where_a_run_cannot_begin(tmp_path, pretrain, caplog):
    with pytest.raises(UsageError, match="wants the keys"):
        pretrain(iter(ROWS), renderer="encyclopedia")
    [kept] = (tmp_path / "out.rows").iterdir()
    assert f"rows are kept in {kept}" in caplog.text
    assert len(pretrain(kept)) == len(ROWS)


def test_rows_that_can_be_read_again_leave_nothing_where_a_run_cannot_begin(tmp_path, pretrain):
    with pytest.raises(UsageError, match="wants the keys"):
        pretrain(ROWS, renderer="encyclopedia")
    assert left(tmp_path) == []


def test_an_iterator_that_raises_leaves_nothing(tmp_path, pretrain):
    def rows():
        yield from ROWS
        raise LookupError("the network")

    with pytest.raises(LookupError, match="the network"):
        pretrain(rows())
    assert left(tmp_path) == []


@pytest.mark.parametrize(
    "settings",
    [
        {"tokenizer": "nowhere"},
        {"config": "nowhere"},
        {"tokenizer": None},
        {"workers": -1},
        {"fields": 3},
    ],
)
def test_wrong_settings_are_found_before_an_iterator_is_read(pretrain, settings):
    rows = iter(ROWS)
    with pytest.raises(tokmill.TokmillError):
        pretrain(rows, **settings)
    assert len(list(rows)) + 1 == len(ROWS)  # the first one was looked at


def test_an_output_in_a_store_has_its_rows_in_the_temporary_directory(url, tmp_path, pretrain):
    dataset = pretrain(iter(ROWS), url)
    assert dataset.manifest["totals"] == pretrain(ROWS, "here").manifest["totals"]
    assert [path for path in tmp_path.rglob("*") if path.suffix == ".jsonl"] == []


def test_a_temporary_directory_of_somebody_else_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / f"tokmill-rows-{os.getuid()}").mkdir(mode=0o755)
    with pytest.raises(StorageError, match="expected a folder that only you can open"):
        in_memory._folder_beside("s3://bucket/out")


# What is no rows


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (iter([]), "inputs: expected paths or rows, found <list_iterator>, which gives none"),
        (iter([1]), "inputs: row 1: expected a dict or a text, found 1"),
        (iter([None]), "inputs: row 1: expected a dict or a text, found None"),
        ([{"text": "a"}, 5], "inputs: row 2: expected a dict or a text, found 5"),
        ([{"text": "a", "x": {1}}], "inputs: row 1: 'x': expected what JSON can hold (found set)"),
        (
            [{"text": "a", "x": b""}],
            "inputs: row 1: 'x': expected what JSON can hold (found bytes)",
        ),
        ([{"text": "a", (1,): 2}], "inputs: row 1: expected what JSON can hold (keys must be str"),
        (
            deque([Path("a")]),
            "inputs: row 1: expected a dict or a text, found PosixPath('a'): give",
        ),
        (lambda: {"a": 1}, "inputs: expected rows: dicts, texts or a table; found {'a': 1}: give "),
        (lambda: "text", "inputs: expected rows: dicts, texts or a table; found 'text'"),
        (lambda: None, "inputs: expected rows: dicts, texts or a table; found None"),
        ({"text": ["a"]}, "inputs: expected a path, a Source, a sequence of these, or rows"),
        (io.StringIO("a"), "inputs: expected a path, a Source, a sequence of these, or rows"),
        (
            pa.table({"a": [{}]}),
            "inputs: the table cannot be written as Parquet: ",
        ),
    ],
)
def test_other_values_are_an_error_of_one_line(pretrain, inputs, message):
    with pytest.raises(UsageError) as caught:
        pretrain(inputs)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["in.jsonl", "hf:name", "s3://bucket/name"])
def test_names_of_files_are_no_texts(tmp_path, pretrain, write_rows, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    write_rows(tmp_path / "in.jsonl", ROWS)
    for inputs in (iter([name]), lambda: [name], np.array([name]), pa.array([name, "b"])):
        with pytest.raises(UsageError, match=r"the name of an input, .*: give paths as a list"):
            pretrain(inputs)


def test_texts_that_only_look_like_names_are_texts(pretrain):
    for i, text in enumerate(("hf: high frequency", "s3://a and more", "*", "x" * 5000, "\0")):
        assert pretrain(iter([text]), f"out-{i}").text(0) == f"{text}<eos>"


@pytest.mark.parametrize("rows", [[], lambda: [], pa.table({"text": pa.array([], pa.string())})])
def test_no_rows_are_an_error(pretrain, rows):
    with pytest.raises(tokmill.TokmillError, match=r"no input|made no document"):
        pretrain(rows)


def test_tasks_of_an_array_refuse_rows(tmp_path, tokenizer_dir):
    with pytest.raises(UsageError, match="tasks cannot read rows in memory"):
        tokmill.write_plan(ROWS, tokenizer=tokenizer_dir, output=tmp_path / "out")


def test_a_table_of_pandas_that_arrow_cannot_hold_says_what_to_do(pretrain):
    pandas = pytest.importorskip("pandas")
    with pytest.raises(UsageError, match=r"the table cannot be written .* give its rows as dicts"):
        pretrain(pandas.DataFrame({"text": ["a", {"b": 1}]}))


def test_what_is_written_is_said(tmp_path, pretrain, caplog):
    caplog.set_level("INFO", "tokmill")
    pretrain(ROWS)
    assert "300 rows written to " in caplog.text
    assert "removed once the dataset is complete" in caplog.text
