from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tokmill.errors import RecordError
from tokmill.recipes.spec import Part
from tokmill.run.finish import run
from tokmill.run.forecast import forecast_run
from tokmill.run.prepare import undivided_notes
from tokmill.settings.schema import (
    Config,
)
from tokmill.settings.sft import SftSettings
from tokmill.sources.slices import Slice, SourceFile

SAMPLES = Path(__file__).parents[2] / "data_samples"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    """Three megabytes of the sample records, varied; without the one line of 53 kB."""
    rng = random.Random(1)
    lines = (SAMPLES / "records.jsonl").read_bytes().split(b"\n")
    records = [json.loads(line) for line in lines if 0 < len(line) < 9000]
    path = tmp_path_factory.mktemp("corpus") / "in.jsonl"
    with path.open("w") as file:
        for i in range(5000):
            record = rng.choice(records)
            sections = list(record.get("sections") or [])
            rng.shuffle(sections)
            kept = sections[: rng.randrange(len(sections) + 1)]
            title = f"{record.get('title') or ''} {i}"
            row = record | {"title": title, "sections": kept}
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
    assert path.stat().st_size > 2_500_000
    return path


def predict(config: Config) -> dict[str, Any]:
    return forecast_run(config, lambda _: None, lambda _: None)[0]


@pytest.mark.parametrize(("order", "part_bytes"), [("shuffled", 1 << 30), ("sorted", 200_000)])
def test_a_sample_predicts_tokens_documents_and_disk_within_its_band(
    tmp_path, configure, listener, corpus, part_bytes, order, monkeypatch
):
    monkeypatch.setattr("tokmill.run.forecast.COMPLETE_BYTES", 1 << 20)
    monkeypatch.setattr("tokmill.run.forecast.LEAST_SAMPLE_BYTES", 300_000)
    lines = corpus.read_bytes().splitlines(keepends=True)
    source = tmp_path / "in.jsonl"
    source.write_bytes(b"".join(sorted(lines, key=len) if order == "sorted" else lines))
    settings = {"engine": "fastokens", "part_bytes": part_bytes, "min_tokens": 30}
    out = tmp_path / "out"
    config = configure(out, source, path=str(SAMPLES / "tokenizer"), **settings)
    found = predict(config)
    manifest = run(config, listener).plain
    totals = manifest["totals"]
    assert found["input_bytes"] == source.stat().st_size
    assert found["sampled_bytes"] < 0.2 * found["input_bytes"]
    assert found["tokens"] == pytest.approx(totals["tokens"], rel=0.06)
    for name in ("tokens", "documents"):
        assert found[f"{name}_low"] <= totals[name] <= found[f"{name}_high"]
    on_disk = sum(file["bytes"] for file in manifest["files"])
    assert found["disk"]["low_bytes"] < on_disk < found["disk"]["high_bytes"]
    assert found["parts"] == len(listener.plans[0].parts)
    assert not found["heads_only"]
    assert not found["is_counted"]


def test_a_small_input_is_predicted_from_all_of_it(tmp_path, configure, write_rows):
    rows = [{"text": "hello " * i} for i in range(1, 21)]
    source = write_rows(tmp_path / "in.jsonl", [*rows, b"{bad", b"{bad", b"{bad", {"text": "a"}])
    config = configure(tmp_path / "out", source, min_tokens=2)
    predicted = predict(config)
    assert predicted["sampled_bytes"] == predicted["input_bytes"] == source.stat().st_size
    assert predicted["is_counted"]
    assert predicted["documents_low"] == predicted["documents"] == predicted["documents_high"] == 20
    assert predicted["tokens_low"] == predicted["tokens"] == predicted["tokens_high"]
    assert predicted["reject_fraction"] == 3 / 24
    assert predicted["drop_fraction"] == 1 / 24
    json.dumps(predicted)


def test_a_row_group_of_long_rows_takes_memory(tmp_path, configure):
    rows = pa.table({"text": [f"{i} " + "hello " * 10_000 for i in range(100)]})
    for name, rows_of_a_group in (("large", 100), ("small", 5)):
        pq.write_table(rows, tmp_path / f"{name}.parquet", row_group_size=rows_of_a_group)
    large = predict(configure(tmp_path / "out", tmp_path / "large.parquet"))
    small = predict(configure(tmp_path / "out", tmp_path / "small.parquet"))
    assert large["memory_bytes"] - small["memory_bytes"] == pytest.approx(2 * 95 * 60_000, rel=0.1)


def test_every_small_file_takes_time_memory_and_disk(tmp_path, configure, write_rows, monkeypatch):
    monkeypatch.setattr("tokmill.run.forecast.FILE_S", 1.0)  # much more than a loaded machine waits
    rows = [{"text": f"hello {i}"} for i in range(400)]
    for i, row in enumerate(rows):
        (tmp_path / "many").mkdir(exist_ok=True)
        write_rows(tmp_path / "many" / f"{i:03d}.jsonl", [row])
    one = predict(configure(tmp_path / "out", write_rows(tmp_path / "one.jsonl", rows)))
    many = predict(configure(tmp_path / "out", tmp_path / "many"))
    assert many["time_s"] > one["time_s"] + 390
    assert many["memory_bytes"] > one["memory_bytes"] + 399 * 700
    assert many["disk_bytes"] > one["disk_bytes"] + 399 * 300
    assert many["documents"] == pytest.approx(400, rel=0.25)


def chat(question: str, reply: str, **more: object) -> dict[str, object]:
    turns = [{"role": "user", "content": question}, {"role": "assistant", "content": reply, **more}]
    return {"messages": turns}


@pytest.mark.parametrize(
    ("sft", "limits"),
    [
        ({}, {}),
        ({"boundary": "joint", "samples": "turn"}, {"min_tokens": 12}),
        ({"packing": 64, "packed_rows": True}, {"max_tokens": 40}),
        ({"too_long": "window", "window_overlap": 4}, {"max_tokens": 30}),
        ({"weights": "file"}, {"val_fraction": 0.3}),
    ],
)
def test_a_small_set_of_chats_is_predicted_exactly(
    tmp_path, configure, write_rows, silent, sft, limits
):
    rng = random.Random(2)
    words = ["a", "bb", "ccc", "猫", "dddd"]
    rows = [
        chat(*(" ".join(rng.choices(words, k=rng.randrange(30))) for _ in range(2)), weight=i % 3)
        for i in range(300)
    ]
    rows = [row if row["messages"][1]["weight"] < 2 else chat("q", "r") for row in rows]
    source = write_rows(tmp_path / "in.jsonl", [*rows, {"messages": []}])
    path = str(SAMPLES / "tokenizer")
    config = configure(
        tmp_path / "out", source, path=path, sft=SftSettings(template="chatml", **sft), **limits
    )
    predicted = predict(config)
    manifest = run(config, silent).plain
    totals = manifest["totals"]
    assert (predicted["tokens"], predicted["documents"]) == (totals["tokens"], totals["documents"])
    assert predicted["drop_fraction"] == pytest.approx(sum(totals["drops"].values()) / 301)
    assert predicted["reject_fraction"] == pytest.approx(1 / 301)
    on_disk = sum(file.stat().st_size for file in (tmp_path / "out").rglob("*") if file.is_file())
    assert predicted["disk"]["low_bytes"] < on_disk < predicted["disk"]["high_bytes"]


def test_a_forecast_of_a_run_that_drops_everything_is_an_error(tmp_path, configure, write_rows):
    source = write_rows(tmp_path / "in.jsonl", [chat("q", "r", weight=0)] * 3 + [{"messages": []}])
    sft = SftSettings(template="chatml")
    config = configure(tmp_path / "out", source, path=str(SAMPLES / "tokenizer"), sft=sft)
    with pytest.raises(RecordError) as caught:
        predict(config)
    assert str(caught.value) == (
        "the run would make no document of 4 records (1 rejected: empty conversation; 3 dropped: "
        f"no trained token); the first: {source}: empty conversation: record: expected messages, "
        "found an empty list"
    )


def test_packing_and_its_rows_are_part_of_the_predicted_disk(
    tmp_path, configure, silent, monkeypatch
):
    chats = SAMPLES / "sft" / "chats.jsonl"
    source = tmp_path / "in.jsonl"
    source.write_bytes(chats.read_bytes() * 15)
    sft = SftSettings(packing=4096, packed_rows=True)
    settings = {"path": str(SAMPLES / "tokenizer"), "max_tokens": 4096, "sft": sft}
    config = configure(tmp_path / "out", source, **settings)
    monkeypatch.setattr("tokmill.run.forecast.COMPLETE_BYTES", 0)
    monkeypatch.setattr("tokmill.run.forecast.LEAST_SAMPLE_BYTES", 40_000)
    _, disk, _ = forecast_run(config, lambda _: None, lambda _: None)
    manifest = run(config, silent).plain
    on_disk = sum(file["bytes"] for file in manifest["files"])
    # Of so few chats the long ones decide the tokens; what a token takes does not vary so.
    a_token = on_disk / manifest["totals"]["tokens"]
    size = disk.size
    assert disk.bill.n_bytes / size.tokens == pytest.approx(a_token, rel=0.03)
    assert size.capacity == 4096
    assert sum(size.length_histogram) == pytest.approx(size.documents, abs=9)
    assert len(size.length_histogram) <= len(manifest["length_histogram"])


def test_a_large_piece_that_cannot_be_divided_is_named_with_a_remedy():
    file = SourceFile("all.jsonl.gz", "jsonl", "gz", 9 << 30, 0, "")
    parts = (Part(0, (Slice(file, 0, -1, 9 << 30),)),)
    (note,) = undivided_notes(parts, 256 << 20)
    assert note.startswith("all.jsonl.gz, 9.66 GB, cannot be divided: each is read by one process")
    assert "compress it as .zst with many frames" in note
    assert undivided_notes(parts, 10 << 30) == []


def test_encoding_the_longest_text_takes_memory(tmp_path, configure, write_rows):
    """Of any text with the reference: 60 to 142 bytes a byte; so does one long word."""
    short, long = [{"text": "hello " * 100}], [{"text": "hello" * 300_000}]
    found = [
        predict(configure(tmp_path / "out", write_rows(tmp_path / "in.jsonl", rows)))
        for rows in (short, short + long)
    ]
    assert found[1]["memory_bytes"] - found[0]["memory_bytes"] > 50_000_000
