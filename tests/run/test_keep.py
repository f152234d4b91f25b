"""`keep`: fields of records stand beside the tokens, equal for every format and every worker."""

from __future__ import annotations

import csv
import datetime as dt
import decimal
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tokmill
from tokmill.dataset.checksum import manifest_sha256
from tokmill.dataset.verify import verify
from tokmill.errors import UsageError
from tokmill.place import open_place
from tokmill.run.finish import run
from tokmill.run.prepare import prepare
from tokmill.settings.sft import SftSettings

KEEP = ("url", "meta.language", "meta", "day")
N = 600


def row(i: int) -> dict:
    return {
        "text": f"hello {i} " * (i % 5 + 1),
        "url": None if i % 3 == 0 else f"http://site/{i}",
        "meta": {"language": "猫" if i % 2 else None, "n": i},
        "day": dt.date(2026, 1, 1 + i % 28),
    }


ROWS = [row(i) for i in range(N)]
AS_JSON = [{**record, "day": str(record["day"])} for record in ROWS]


def kept(record: dict) -> dict:
    meta = record["meta"]
    texts = meta["language"], json.dumps(meta, ensure_ascii=False), str(record["day"])
    return dict(zip(KEEP, (record["url"], *texts), strict=True))


def write(path, ending):
    path = path / f"in.{ending}"
    table = pa.Table.from_pylist(ROWS)
    if ending == "jsonl":
        path.write_text("".join(json.dumps(record) + "\n" for record in AS_JSON))
    elif ending == "json":
        path.write_text(json.dumps(AS_JSON))
    elif ending == "parquet":
        pq.write_table(table, path, row_group_size=70)
    elif ending == "arrow":
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as stream:
            stream.write_table(table, max_chunksize=50)
    else:
        with path.open("w", newline="") as file:
            cells = csv.writer(file)
            cells.writerow(AS_JSON[0])
            for record in AS_JSON:
                meta = json.dumps(record["meta"], ensure_ascii=False)
                cells.writerow([{**record, "meta": meta}[name] for name in record])
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory, configure, silent):
    """A dataset of JSON Lines with several parts and splits: to be read only."""
    place = tmp_path_factory.mktemp("keep")
    settings = {"part_bytes": 30_000, "shard_tokens": 900, "val_fraction": 0.2}
    run(configure(place / "out", write(place, "jsonl"), keep=KEEP, **settings), silent)
    return tokmill.open(place / "out")


@pytest.mark.parametrize("ending", ["jsonl", "json", "parquet", "arrow", "csv"])
def test_every_format_with_fields_gives_the_same_columns(tmp_path, configure, silent, ending):
    path = write(tmp_path, ending)
    run(configure(tmp_path / "out", path, keep=KEEP, block_bytes=5000, renderer="text"), silent)
    dataset = tokmill.open(tmp_path / "out")
    wanted = [kept(record) for record in ROWS]
    if ending == "csv":
        wanted = [values | {"url": values["url"] or ""} for values in wanted]  # csv has no null
    assert [dataset.meta(i) for i in range(N)] == wanted
    with pa.memory_map(str(tmp_path / "out/train-0000000-0000.meta")) as mapped:
        assert pa.ipc.open_file(mapped).read_all().to_pylist() == wanted


def test_the_columns_belong_to_the_documents_of_both_splits(made):
    assert len(made.splits) == 2
    assert len(made.shards) > 8
    for number in range(len(made)):
        record = ROWS[made.origin(number).record - 1]
        assert made.text(number).removesuffix("<eos>").strip() == record["text"].strip()
        assert made.meta(number) == kept(record)
    assert made.manifest["keep"] == list(KEEP)
    assert not made.verify().problems


def test_without_it_plan_and_manifest_have_no_word_of_it(tmp_path, configure, silent, write_rows):
    source = write_rows(tmp_path / "in.jsonl", AS_JSON[:9])
    run(configure(tmp_path / "out", source), silent)
    assert b"keep" not in (tmp_path / "out/plan.json").read_bytes()
    dataset = tokmill.open(tmp_path / "out")
    assert "keep" not in dataset.manifest["config"]["input"]
    with pytest.raises(UsageError, match="no metadata: make the dataset with keep="):
        dataset.meta(0)


def test_values_that_are_no_strings_are_json(tmp_path, configure, silent, write_rows):
    records = [
        {"text": "a", "v": 1.5, "a.b": "key with a dot", "a": {"b": "inside"}},
        {"text": "a", "v": True, "a": '{"b": "json in a string \\ud800"}'},
        {"text": "a", "v": ["x", None], "a": "no object"},
        {"text": "a", "v": ""},
    ]
    source = write_rows(tmp_path / "in.jsonl", records)
    run(configure(tmp_path / "out", source, keep=("v", "a.b", "none"), renderer="text"), silent)
    dataset = tokmill.open(tmp_path / "out")
    assert [tuple(dataset.meta(i).values()) for i in range(4)] == [
        ("1.5", "key with a dot", None),
        ("true", "json in a string \\ud800", None),
        ('["x", null]', None, None),
        ("", None, None),
    ]


def test_a_field_that_no_record_has_is_told_before_the_run(tmp_path, configure, write_rows):
    source = write_rows(tmp_path / "in.jsonl", AS_JSON[:9])
    prepared = prepare(configure(tmp_path / "out", source, keep=("url", "langauge", "meta.n")))
    told = "the first records have no value there; their keys are text, url, meta, day"
    assert prepared.discovery.unmatched == [f"--keep=langauge: {told}"]


@pytest.mark.parametrize("keep", [("url", "url"), ("",)])
def test_fields_have_different_names(tmp_path, configure, keep):
    with pytest.raises(UsageError, match="expected different fields"):
        configure(tmp_path / "out", tmp_path / "in.jsonl", keep=keep)


def test_samples_of_chats_have_them_too(tmp_path, configure, silent, write_rows):
    turn = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hello there"}]
    records = [{"messages": turn * (1 + i % 2), "url": f"http://site/{i}"} for i in range(5)]
    source = write_rows(tmp_path / "in.jsonl", records)
    packed = SftSettings(template="plain", packing=60, packed_rows=True)
    run(configure(tmp_path / "out", source, keep=("url",), sft=packed), silent)
    dataset = tokmill.open(tmp_path / "out")
    assert [dataset.meta(i)["url"] for i in range(5)] == [record["url"] for record in records]
    assert not dataset.verify().problems


def test_exports_of_datasets_have_the_columns(made, tmp_path):
    pytest.importorskip("datasets")
    from datasets import load_from_disk

    made.export("datasets", tmp_path / "out", check=True)
    val = made.split("val")
    rows = load_from_disk(str(tmp_path / "out"))["val"]
    assert rows.column_names == ["input_ids", *KEEP]
    for number in range(len(val)):
        assert {name: rows[number][name] for name in KEEP} == val.meta(number)
    made.export("nanogpt", tmp_path / "other")


def test_plain_text_has_no_fields(tmp_path, configure):
    (tmp_path / "in.txt").write_text("hello")
    with pytest.raises(UsageError, match=r"in\.txt: plain text has no fields to keep"):
        prepare(configure(tmp_path / "out", tmp_path / "in.txt", keep=("url",)))


def test_verify_compares_rows_and_columns(made):
    place = open_place(str(made.directory))
    for keep in (["url"], [*KEEP, "more"]):
        manifest = {**made.manifest, "keep": keep}
        manifest["sha256"] = manifest_sha256(manifest)
        assert any("expected columns of text" in told for told in verify(place, manifest).problems)


NUMBERS = [
    "12345678901234567890", "123456789012345678901234567890.5", "0.12345678901234567890123", "1.10",
    "-0", "-0.0", "1E5", "1e-400", "9" * 5000, '{"a": 1.10, "b": [-0, 2e3, "x", true, null]}',
]  # fmt: skip


@pytest.mark.parametrize("ending", ["jsonl", "json", "csv", "nested"])
def test_numbers_are_kept_as_the_record_writes_them(tmp_path, configure, silent, ending):
    lines = [f'{{"text": "t", "n": {n}, "m": {{"n": {n}}}}}' for n in NUMBERS]
    path = tmp_path / "in.jsonl"
    if ending == "json":
        path = tmp_path / "in.json"
        path.write_text(f"[{', '.join(lines)}]")
    elif ending == "csv":
        path = tmp_path / "in.csv"
        with path.open("w", newline="") as file:
            cells = csv.writer(file)
            cells.writerow(["text", "n", "m"])
            cells.writerows(["t", n, f'{{"n": {n}}}'] for n in NUMBERS)
    elif ending == "nested":
        texts = [json.dumps({"text": "t", "n": n, "m": f'{{"n": {n}}}'}) for n in NUMBERS]
        path.write_text("\n".join(texts))
    else:
        path.write_text("\n".join(lines))
    run(configure(tmp_path / "out", path, keep=("n", "m.n"), renderer="text"), silent)
    dataset = tokmill.open(tmp_path / "out")
    assert [dataset.meta(i) for i in range(len(dataset))] == [{"n": n, "m.n": n} for n in NUMBERS]


def test_numbers_of_tables_are_kept_whole(tmp_path, configure, silent):
    decimals = pa.array([decimal.Decimal("12345678901234567890.10")], pa.decimal128(38, 2))
    columns = {
        "text": ["t"],
        "u": pa.array([2**64 - 1], pa.uint64()),
        "d": decimals,
        "f": [0.1],
        "s": [{"x": 2**63 - 1}],
    }
    pq.write_table(pa.table(columns), tmp_path / "in.parquet")
    keep = ("u", "d", "f", "s.x")
    run(configure(tmp_path / "out", tmp_path / "in.parquet", keep=keep, renderer="text"), silent)
    texts = (str(2**64 - 1), "12345678901234567890.10", "0.1", str(2**63 - 1))
    assert tokmill.open(tmp_path / "out").meta(0) == dict(zip(keep, texts, strict=True))


def test_a_value_that_is_nested_too_deeply_is_null(tmp_path, configure, silent):
    deep = "[" * 5000 + "]" * 5000
    path = tmp_path / "in.csv"
    path.write_text(f'text,m\nt,"{{""n"": {deep}}}"\n')
    run(configure(tmp_path / "out", path, keep=("m.n",), renderer="text"), silent)
    assert tokmill.open(tmp_path / "out").meta(0) == {"m.n": None}
