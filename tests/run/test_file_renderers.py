"""Each file of sections is rendered by its own script, the same in every slice and on every way."""

from __future__ import annotations

import csv
import gzip
import io
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.shapes import en, zh
from tests.folders.corpora import article, documents, entry, formula, lines
from tokmill.api.functions import finish, pretrain, run_part, write_plan
from tokmill.errors import StateError

Row = dict[str, Any]
CHINESE = [entry(zh, i) for i in range(120)]
ENGLISH = [entry(en, i) for i in range(60)]
TURNED = [*CHINESE, *ENGLISH]
"""A file whose head is Chinese: over 5,000 letters, and English behind them."""

EXPECTED = [*map(article, ENGLISH), *map(formula, TURNED)]


def as_lines(rows: Sequence[Row]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def as_frames(rows: Sequence[Row]) -> bytes:
    packed = [pa.Codec("zstd").compress(as_lines([row]), asbytes=True) for row in rows]
    return b"".join(packed)


def as_csv(rows: Sequence[Row]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["title", "summary", "sections"])
    for row in rows:
        writer.writerow([row["title"], row["summary"], json.dumps(row["sections"])])
    return text.getvalue().encode()


def as_parquet(rows: Sequence[Row]) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(list(rows)), file, row_group_size=7)
    return file.getvalue()


def as_arrow(rows: Sequence[Row]) -> bytes:
    file = io.BytesIO()
    table = pa.Table.from_pylist(list(rows))
    with pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=7)
    return file.getvalue()


FORMATS: dict[str, Callable[[Sequence[Row]], bytes]] = {
    "jsonl": as_lines,
    "jsonl.gz": lambda rows: gzip.compress(as_lines(rows)),
    "jsonl.zst": as_frames,
    "json": lambda rows: json.dumps(rows).encode(),
    "csv": as_csv,
    "parquet": as_parquet,
    "arrow": as_arrow,
}
WAYS: dict[str, dict[str, Any]] = {
    "one block": {},
    "many blocks": {"block_bytes": 1},
    "many slices": {"part_bytes": 2000},
    "two workers": {"part_bytes": 9000, "workers": 2, "block_bytes": 700},
}


@pytest.mark.parametrize("ending", FORMATS)
def test_the_head_of_a_file_decides_for_all_its_slices_blocks_and_workers(
    tmp_path, tokenizer_dir, monkeypatch, ending
):
    monkeypatch.chdir(tmp_path)
    for name, rows in (("a", ENGLISH), ("b", TURNED)):
        Path(f"in-{name}.{ending}").write_bytes(FORMATS[ending](rows))
    for way, settings in WAYS.items():
        inputs = [f"in-a.{ending}", f"in-b.{ending}"]
        made = pretrain(inputs, tokenizer=tokenizer_dir, output=way, **settings)
        assert documents(Path(way)) == EXPECTED, way
        assert made.manifest["totals"]["renderers"] == {"article": 60, "encyclopedia": 180}
        rows = [row["renderers"] for row in made.manifest["sources"]]
        assert rows == [{"article": 60}, {"encyclopedia": 180}]


def test_files_of_one_record_decide_each_for_itself(tmp_path, tokenizer_dir):
    for i in range(60):
        lines(tmp_path / f"in/{i:03}a.jsonl", [ENGLISH[i]])
        lines(tmp_path / f"in/{i:03}b.jsonl", [CHINESE[i]])
    expected = [
        text
        for pair in zip(map(article, ENGLISH), map(formula, CHINESE), strict=False)
        for text in pair
    ]
    for workers in (1, 2):
        out = tmp_path / str(workers)
        pretrain(
            tmp_path / "in", tokenizer=tokenizer_dir, output=out, workers=workers, part_bytes=9000
        )
        assert documents(out) == expected


@pytest.mark.parametrize(("others", "render"), [(CHINESE, formula), (ENGLISH, article)])
def test_a_file_with_few_letters_is_rendered_as_its_source(tmp_path, tokenizer_dir, others, render):
    few = {"title": "BMW", "summary": "X5", "sections": [{"title": "T", "content": "2019"}]}
    lines(tmp_path / "in/a.jsonl", others)
    lines(tmp_path / "in/few.jsonl", [few])
    pretrain(tmp_path / "in", tokenizer=tokenizer_dir, output=tmp_path / "out")
    assert documents(tmp_path / "out") == [render(row) for row in (*others, few)]


def test_a_renderer_that_is_named_is_taken_for_all_files(tmp_path, tokenizer_dir):
    lines(tmp_path / "in/a.jsonl", ENGLISH)
    lines(tmp_path / "in/b.jsonl", CHINESE)
    for name, render in (("encyclopedia", formula), ("article", article)):
        out = tmp_path / name
        made = pretrain(tmp_path / "in", tokenizer=tokenizer_dir, output=out, renderer=name)
        assert documents(out) == [render(row) for row in (*ENGLISH, *CHINESE)]
        assert "renderers" not in made.manifest["totals"]


def test_standard_input_decides_by_its_head(tmp_path, tokenizer_dir, monkeypatch):
    for name, rows, render in (("zh", TURNED, formula), ("en", [*ENGLISH, *CHINESE], article)):
        command = [sys.executable, "-m", "tokmill", "pretrain", "-", "-t", str(tokenizer_dir)]
        options = ["--format", "jsonl", "-o", str(tmp_path / name)]
        monkeypatch.setenv("TOKMILL_BLOCK_BYTES", "900")
        subprocess.run([*command, *options], input=as_lines(rows), check=True, capture_output=True)
        assert documents(tmp_path / name) == [render(row) for row in rows]


def test_a_continued_run_and_tasks_of_an_array_decide_alike(tmp_path, tokenizer_dir, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("b.jsonl").write_bytes(as_lines(TURNED))
    settings = {"tokenizer": tokenizer_dir, "part_bytes": 900}
    write_plan("b.jsonl", output="out", **settings)
    run_part("out", 1, 3)  # the slices of others come first
    run_part("out", 0, 3)
    made = pretrain("b.jsonl", output="out", **settings)  # the rest
    assert made.manifest["run"]["resumed_parts"] > 5
    assert documents(Path("out")) == list(map(formula, TURNED))
    write_plan("b.jsonl", output="array", **settings)
    for index in range(3):
        run_part("array", index, 3)
    assert finish("array").manifest["files"] == made.manifest["files"]


def test_a_run_with_a_named_renderer_does_not_continue_one_that_chose(tmp_path, tokenizer_dir):
    lines(tmp_path / "in/a.jsonl", CHINESE)
    where = {"tokenizer": tokenizer_dir, "output": tmp_path / "out"}
    pretrain(tmp_path / "in", **where)
    with pytest.raises(StateError, match="was 'sections:unclear=encyclopedia', is 'encyclopedia'"):
        pretrain(tmp_path / "in", renderer="encyclopedia", **where)
    pretrain(tmp_path / "in", renderer="sections:unclear=encyclopedia", **where)


@pytest.mark.parametrize("filler", [b"\n" * 6_000_000, b'{"title": "1", "summary": "2"}\n' * 9000])
def test_a_head_without_letters_ends_and_the_source_decides(tmp_path, tokenizer_dir, filler):
    (tmp_path / "a.jsonl").write_bytes(filler + as_lines(ENGLISH))
    where = {"tokenizer": tokenizer_dir, "output": tmp_path / "out"}
    few = {"renderer": "sections:unclear=encyclopedia"}
    pretrain(tmp_path / "a.jsonl", block_bytes=50_000, **where, **few)
    assert documents(tmp_path / "out")[-60:] == list(map(formula, ENGLISH))
