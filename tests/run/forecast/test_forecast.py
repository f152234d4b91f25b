from __future__ import annotations

import dataclasses
import json
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tokmill.errors import RecordError
from tokmill.executors.run import run
from tokmill.run.choose_engine import choose_run_engine
from tokmill.run.forecast.forecast import Forecast, forecast, sample_limits
from tokmill.run.forecast.read_sample import add_fragments
from tokmill.run.forecast.sample import InputSample
from tokmill.run.prepare import prepare, reference_of, sample
from tokmill.settings.schema import (
    Config,
    InputSettings,
    LimitSettings,
    OutputSettings,
    RunSettings,
    TokenizerSettings,
)
from tokmill.settings.sft import SftSettings

SAMPLES = Path(__file__).parents[3] / "data_samples"


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


@pytest.fixture
def predict(plan_of):
    """Return a function that predicts the run of some settings."""

    def make(config: Config, workers: int = 1, fraction: float = 0) -> Forecast:
        prepared = prepare(config)
        in_records, in_all = sample_limits(prepared.parts)
        if fraction:
            in_all = int(fraction * sum(file.n_bytes for file in prepared.files))
            in_records = in_all // 2
        found = sample(prepared, in_records, keep_blocks=True)
        add_fragments(prepared.parts, found, in_all)
        spec = dataclasses.replace(plan_of(config).spec, template=prepared.template)
        return forecast(spec, prepared.parts, found, workers)

    return make


@pytest.mark.parametrize("part_bytes", [1 << 30, 200_000])
@pytest.mark.parametrize("bos_token", ["", "<bos>"])
def test_a_twentieth_of_the_input_predicts_tokens_and_disk_within_three_percent(
    tmp_path, configure, predict, listener, corpus, part_bytes, bos_token
):
    config = configure(
        tmp_path,
        corpus,
        path=str(SAMPLES / "tokenizer"),
        engine="fastokens",
        part_bytes=part_bytes,
        bos_token=bos_token,
        min_tokens=30,
    )
    predicted = predict(config, fraction=0.049)
    for name in ("parts", "rejects"):
        (tmp_path / name).rmdir()
    manifest = run(config, listener)
    totals = manifest["totals"]
    assert predicted.input_bytes == corpus.stat().st_size
    assert predicted.sampled_bytes <= 0.05 * predicted.input_bytes
    assert predicted.tokens == pytest.approx(totals["tokens"], rel=0.03)
    assert predicted.text_bytes == pytest.approx(totals["text_bytes"], rel=0.03)
    assert predicted.documents == pytest.approx(totals["documents"], rel=0.1)
    on_disk = sum(file["bytes"] for file in manifest["files"])
    assert predicted.disk_bytes == pytest.approx(on_disk, rel=0.05)
    assert predicted.parts == len(listener.plans[0].parts)
    assert not predicted.heads_only
    assert not predicted.is_counted
    assert predicted.disk.low_bytes < on_disk < predicted.disk.high_bytes
    assert predicted.tokens_low < totals["tokens"] < predicted.tokens_high
    assert predicted.documents_low < totals["documents"] < predicted.documents_high


def test_a_small_input_is_predicted_from_all_of_it(tmp_path, configure, predict, write_rows):
    rows = [{"text": "hello " * i} for i in range(1, 21)]
    source = write_rows(tmp_path / "in.jsonl", [*rows, b"{bad", b"{bad", b"{bad", {"text": "a"}])
    config = configure(tmp_path / "out", source, min_tokens=2)
    predicted = predict(config)
    assert predicted.sampled_bytes == predicted.input_bytes == source.stat().st_size
    assert predicted.is_counted
    assert predicted.documents_low == predicted.documents == predicted.documents_high == 20
    assert predicted.tokens_low == predicted.tokens == predicted.tokens_high
    assert predicted.reject_fraction == 3 / 24
    assert predicted.drop_fraction == 1 / 24
    assert set(predicted.as_json()) == {field.name for field in dataclasses.fields(Forecast)}
    json.dumps(predicted.as_json())


def test_more_workers_are_faster_and_take_more_memory(tmp_path, configure, predict, write_rows):
    source = write_rows(tmp_path / "in.jsonl", [{"text": "hello " * 99}] * 500)
    config = configure(tmp_path / "out", source)
    one, four = predict(config, 1), predict(config, 4)
    assert four.time_s < one.time_s + 0.1
    assert four.memory_bytes == pytest.approx(4 * one.memory_bytes, rel=1e-3)


def test_a_row_group_of_long_rows_takes_memory(tmp_path, configure, predict):
    rows = pa.table({"text": [f"{i} " + "hello " * 10_000 for i in range(100)]})
    for name, rows_of_a_group in (("large", 100), ("small", 5)):
        pq.write_table(rows, tmp_path / f"{name}.parquet", row_group_size=rows_of_a_group)
    large = predict(configure(tmp_path / "out", tmp_path / "large.parquet"))
    small = predict(configure(tmp_path / "out", tmp_path / "small.parquet"))
    assert large.memory_bytes - small.memory_bytes == pytest.approx(2 * 95 * 60_000, rel=0.1)


def test_every_small_file_takes_time_memory_and_disk(tmp_path, configure, predict, write_rows):
    rows = [{"text": f"hello {i}"} for i in range(400)]
    for i, row in enumerate(rows):
        (tmp_path / "many").mkdir(exist_ok=True)
        write_rows(tmp_path / "many" / f"{i:03d}.jsonl", [row])
    one = predict(configure(tmp_path / "out", write_rows(tmp_path / "one.jsonl", rows)))
    many = predict(configure(tmp_path / "out", tmp_path / "many"))
    assert many.time_s > one.time_s + 399 * 1e-4
    assert many.memory_bytes > one.memory_bytes + 399 * 700
    assert many.disk_bytes > one.disk_bytes + 399 * 300
    assert many.documents == pytest.approx(400, rel=0.25)


def test_a_sample_without_documents_predicts_nothing(tmp_path, configure, plan_of, write_rows):
    source = write_rows(tmp_path / "in.jsonl", [{"text": "a"}])
    plan = plan_of(configure(tmp_path / "out", source))
    with pytest.raises(RecordError, match="the sample of the input holds no record"):
        forecast(plan.spec, plan.parts, InputSample(), 1)


@pytest.mark.parametrize(
    ("n_bytes", "limits"),
    [
        (4 << 20, (4 << 20, 4 << 20)),
        (5 << 20, (1 << 20, 2 << 20)),
        (100_000_000, (2_450_000, 4_900_000)),
        (1 << 40, (8 << 20, 16 << 20)),
    ],
)
def test_4_mib_are_read_completely_and_of_more_a_twentieth_or_2_to_16_mib(
    tmp_path, configure, plan_of, write_rows, n_bytes, limits
):
    source = write_rows(tmp_path / "in.jsonl", [{"text": "a"}])
    (part,) = plan_of(configure(tmp_path / "out", source)).parts
    (piece,) = part.slices
    part = dataclasses.replace(part, slices=(dataclasses.replace(piece, n_bytes=n_bytes),))
    assert sample_limits((part,)) == limits


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
    tmp_path, configure, predict, write_rows, silent, sft, limits
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
    for name in ("parts", "rejects"):
        (tmp_path / "out" / name).rmdir()
    manifest = run(config, silent)
    totals = manifest["totals"]
    assert (predicted.tokens, predicted.documents) == (totals["tokens"], totals["documents"])
    assert predicted.drop_fraction == pytest.approx(sum(totals["drops"].values()) / 301)
    assert predicted.reject_fraction == pytest.approx(1 / 301)
    on_disk = sum(file.stat().st_size for file in (tmp_path / "out").rglob("*") if file.is_file())
    assert predicted.disk.low_bytes < on_disk < predicted.disk.high_bytes


def test_a_forecast_of_a_run_that_drops_everything_is_an_error(
    tmp_path, configure, predict, write_rows
):
    source = write_rows(tmp_path / "in.jsonl", [chat("q", "r", weight=0)] * 3 + [{"messages": []}])
    sft = SftSettings(template="chatml")
    config = configure(tmp_path / "out", source, path=str(SAMPLES / "tokenizer"), sft=sft)
    with pytest.raises(RecordError) as caught:
        predict(config)
    assert str(caught.value) == (
        "the run would make no document of 4 records (1 empty conversation, 3 no trained token)"
    )


def test_packing_and_its_rows_are_part_of_the_predicted_disk(tmp_path, silent):
    chats = SAMPLES / "sft" / "chats.jsonl"
    source = tmp_path / "in.jsonl"
    source.write_bytes(chats.read_bytes() * 15)
    sft = SftSettings(packing=4096, packed_rows=True)
    config = Config(
        input=InputSettings(paths=(str(source),)),
        tokenizer=TokenizerSettings(path=str(SAMPLES / "tokenizer")),
        output=OutputSettings(dir=str(tmp_path / "out")),
        limits=LimitSettings(max_tokens=4096),
        run=RunSettings(engine="reference", threads=1),
        sft=sft,
    )
    prepared = prepare(config)
    found = sample(prepared, 40_000, keep_blocks=True)
    add_fragments(prepared.parts, found, 80_000)
    engine = choose_run_engine(prepared, reference_of(prepared), 1)
    predicted = forecast(prepared.spec(engine, 1), prepared.parts, found, 1)
    manifest = run(config, silent)
    on_disk = sum(file["bytes"] for file in manifest["files"])
    # Of so few chats the long ones decide the tokens; what a token takes does not vary so.
    a_token = on_disk / manifest["totals"]["tokens"]
    assert predicted.disk_bytes / predicted.tokens == pytest.approx(a_token, rel=0.03)
    assert predicted.size.capacity == 4096
    assert sum(predicted.size.length_histogram) == pytest.approx(predicted.documents, abs=9)
    assert len(predicted.size.length_histogram) <= len(manifest["length_histogram"])
