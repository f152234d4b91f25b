"""`read`, `render` and `encode` give what a run reads, renders and writes; nothing is written."""

from __future__ import annotations

import json
import pickle
import threading
import tracemalloc
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pyarrow as pa
import pytest

import tokmill
from tokmill.engines import spot_check
from tokmill.errors import ParityError, RecordError, UnreadInputError, UsageError
from tokmill.values import ControlToken

ROWS = [{"text": f"hello {i} 猫 " * (i % 5 + 1), "n": i} for i in range(300)]
TEXTS = [row["text"] for row in ROWS]
SECTIONS = [
    {"title": f"t{i}", "summary": "猫狗", "sections": [{"title": "a", "content": "there"}]}
    for i in range(50)
]
CHATS = [
    {"messages": [{"role": "user", "content": f"hi {i}"}, {"role": "assistant", "content": "你好"}]}
    for i in range(40)
]


def pieces(record):
    return [ControlToken("<bos>"), record["text"], ControlToken("<|im_start|>"), "<bos>"]


ROADS = {
    "texts": (tokmill.pretrain, ROWS, {}),
    "texts with bos": (tokmill.pretrain, ROWS, {"bos_token": "<bos>"}),
    "limits": (tokmill.pretrain, ROWS, {"min_tokens": 20, "max_tokens": 60}),
    "sections": (tokmill.pretrain, SECTIONS, {}),
    "a template": (tokmill.pretrain, ROWS, {"template": "= {text}"}),
    "a filter and a function": (
        tokmill.pretrain,
        ROWS,
        {"where": lambda r: r["n"] % 2 == 0, "renderer": lambda r: r["text"].upper()},
    ),
    "control tokens": (tokmill.pretrain, ROWS, {"renderer": pieces}),
    "an end that is left out": (tokmill.pretrain, ROWS, {"strip_end": "猫"}),
    "chats": (tokmill.sft, CHATS, {"template": "plain"}),
    "chats with weights": (
        tokmill.sft,
        CHATS,
        {"template": "plain", "weigh": ["你=2.0"], "samples": "turn"},
    ),
}


def write(path, rows):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("road", ROADS)
def test_the_steps_give_what_a_run_writes(tmp_path, tokenizer_dir, road):
    make, rows, settings = ROADS[road]
    settings = {**settings, "tokenizer": tokenizer_dir, "engine": "reference", "block_bytes": 900}
    dataset = make(rows, output=tmp_path / "out", workers=1, progress=False, **settings)
    path = write(tmp_path / "in.jsonl", rows)
    recipe = dataset.manifest["kind"]
    documents = tokmill.render(path, recipe=recipe, **settings)
    batches = list(tokmill.encode(documents))
    assert len(batches) > 1
    assert [ids.tolist() for batch in batches for ids in batch] == [ids.tolist() for ids in dataset]
    assert sum(len(batch.ids) for batch in batches) == dataset.n_tokens
    assert {batch.ids.dtype for batch in batches} == {dataset.dtype}
    records = [dataset.origin(i).record for i in range(len(dataset))]
    assert np.concatenate([batch.numbers for batch in batches]).tolist() == records
    if recipe == "sft":
        masks = np.concatenate([batch.mask for batch in batches])
        assert masks.tolist() == np.concatenate([*map(dataset.mask, range(len(dataset)))]).tolist()
    if "limits" not in road:  # which count tokens
        rendered = list(documents.rows())
        assert [row["number"] for row in rendered] == records
        ends = [dataset.text(i) for i in range(len(dataset))]
        assert all(row["text"] in end for row, end in zip(rendered, ends, strict=True))
    assert {path.name for path in tmp_path.iterdir()} == {"in.jsonl", "out"}


def test_documents_as_texts_have_the_ids_of_the_run(tmp_path, tokenizer_dir):
    dataset = tokmill.pretrain(
        SECTIONS, tokenizer=tokenizer_dir, output=tmp_path / "out", progress=False
    )
    texts = [row["text"] for row in tokmill.render(SECTIONS).rows()]  # needs no tokenizer
    tokens = tokmill.Encoder(tokenizer_dir, n_bytes=0)(texts)
    assert tokens.to_pylist() == [ids.tolist() for ids in dataset]


@pytest.mark.parametrize("engine", ["reference", "gigatoken", "fastokens"])
@pytest.mark.parametrize(
    "kind",
    [
        list,
        iter,
        pa.array,
        lambda texts: pa.chunked_array([texts[:7], texts[7:]]),
        lambda texts: pa.array(texts).dictionary_encode(),
        lambda texts: pytest.importorskip("pandas").Series(texts),
        lambda texts: pytest.importorskip("polars").Series(texts),
        lambda texts: np.array(texts),
    ],
)
def test_texts_of_any_kind_have_the_ids_of_the_library(tokenizer_dir, tokenizer, kind, engine):
    from tokenizers import Tokenizer as Library

    library = Library.from_str(tokenizer.json)
    expected = [library.encode(text, add_special_tokens=False).ids for text in TEXTS]
    stream = tokmill.encode(kind(TEXTS), tokenizer_dir, eos=False, engine=engine)
    assert list(stream.rows()) == expected
    first = next(iter(tokmill.encode(TEXTS, library, eos_token="<eos>")))
    assert first[0].tolist() == [*expected[0], 0]
    assert (len(first), first[-1].tolist()) == (300, [*expected[-1], 0])
    assert isinstance(first.to_arrow(), pa.Table)
    assert first.to_arrow().column("ids").to_pylist() == [[*ids, 0] for ids in expected]


WRONG = {
    "a text": ("hello", "expected several texts, found 'hello'"),
    "a path": (__file__, "expected several texts"),
    "no text": (["a", None], "text 1: expected a text, found None"),
    "a null": (pa.array(["a", None]), "text 1: expected a text, found null"),
    "numbers": (pa.array([1]), "expected a column of texts, found int64"),
    "a table": (pa.table({"text": ["a"]}), "expected a column of texts, found a table"),
    "bytes that are no text": (pa.array([b"\xff"]), "expected texts in UTF-8"),
    "half a character": (["a", "\ud800"], "text 1: expected whole characters"),
    "a number": (5, "expected an iterable of texts, found 5"),
    "records": (tokmill.read(ROWS), "expected texts, found records: render them first"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_no_text_is_one_line(tokenizer_dir, wrong):
    texts, message = WRONG[wrong]
    with pytest.raises(UsageError, match=message) as caught:
        list(tokmill.encode(texts, tokenizer_dir))
    assert "\n" not in str(caught.value)


def test_an_encoder_works_in_other_processes(tokenizer_dir):
    encoder = tokmill.Encoder(tokenizer_dir, engine="gigatoken")
    expected = encoder(TEXTS).to_pylist()
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        assert pool.submit(encoder, TEXTS).result().to_pylist() == expected
    assert pickle.loads(pickle.dumps(encoder))(TEXTS).to_pylist() == expected


def test_an_encoder_is_a_function_of_map(tokenizer_dir):
    datasets = pytest.importorskip("datasets")
    encoder = tokmill.Encoder(tokenizer_dir, n_bytes=0)
    rows = datasets.Dataset.from_list(ROWS)
    mapped = rows.map(lambda batch: {"ids": encoder(batch["text"]).to_pylist()}, batched=True)
    assert mapped["ids"][:] == encoder(TEXTS).to_pylist()


def test_ids_that_are_not_the_reference_s_stop_it(tokenizer_dir, monkeypatch):
    monkeypatch.setattr(spot_check, "_SHARE_OF_FAST", 1.0)
    encoder = tokmill.Encoder(tokenizer_dir, engine="gigatoken")
    encoder(["hello"])
    engine = encoder._texts.engine.engine
    real = type(engine).encode

    def wrong(self, text):
        tokens = real(self, text)
        tokens.ids[0] += 1
        return tokens

    monkeypatch.setattr(type(engine), "encode", wrong)
    with pytest.raises(ParityError, match="differ from the reference's at token 0"):
        encoder(["hello there"])


def test_rejects_stop_it_where_they_stop_a_run(tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_bytes(b'{"text": "a", "n": 1}\n{bad\n{"text": "b", "n": 2}\n')
    assert [row["text"] for row in tokmill.read(path).rows()] == ["a", "b"]
    batch = next(iter(tokmill.read(path)))
    assert batch.column("number").to_pylist() == [1, 3]
    for stream in (tokmill.read(path, on_error="fail"), tokmill.render(path, on_error="fail")):
        with pytest.raises(RecordError, match=r"in.jsonl:2 .*; on_error=\"skip\" counts it"):
            list(stream)
    path.write_bytes(b'{"text": "a"}\n' + b"{bad\n" * 11)
    with pytest.raises(RecordError, match="11 of 12 records were rejected"):
        list(tokmill.read(path))
    assert len(list(tokmill.read(path, max_reject_fraction=1.0).rows())) == 1


def test_input_that_breaks_off_is_an_error_at_its_end(tmp_path):
    path = tmp_path / "in.json"
    path.write_text('[{"text": "a"}, {"text": "b"}, {"te')
    seen = []
    with pytest.raises(UnreadInputError, match=r"in.json: .*no closing bracket"):
        seen.extend(row["text"] for row in tokmill.read(path).rows())
    assert len(list(tokmill.read(path, on_unread="skip").rows())) == 2


def test_a_stream_begins_anew_and_an_iterator_of_rows_is_read_once():
    stream = tokmill.read(ROWS)
    assert list(stream.rows()) == list(stream.rows()) == ROWS
    once = tokmill.render(iter(ROWS))
    assert [row["text"] for row in once.rows()] == TEXTS
    with pytest.raises(UsageError, match="was read before: give a function"):
        list(once)
    with pytest.raises(UsageError, match="was it read before"):
        tokmill.render(iter([]))


def test_a_stream_that_is_left_leaves_nothing(tokenizer_dir, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    n_threads = threading.active_count()
    settings = {"block_bytes": 500, "tokenizer": tokenizer_dir}
    for stream in (
        tokmill.read(iter(ROWS)),
        tokmill.render(iter(ROWS), **settings),
        tokmill.encode(tokmill.render(iter(ROWS), **settings)),
        tokmill.encode(iter(TEXTS), tokenizer_dir),
    ):
        batches = iter(stream)
        next(batches)
        batches.close()
    assert list(tmp_path.iterdir()) == []
    assert threading.active_count() == n_threads


def test_records_are_filtered_as_in_a_run():
    kept = tokmill.read(ROWS, where=lambda record: record["n"] < 3)
    assert [record["n"] for record in kept.rows()] == [0, 1, 2]
    assert next(iter(kept)).column("number").to_pylist() == [1, 2, 3]


def test_settings_are_refused_by_the_call(tokenizer_dir):
    with pytest.raises(UsageError, match="min_tokens: no such setting"):
        tokmill.read("x.jsonl", min_tokens=5)
    with pytest.raises(UsageError, match="on_error: expected one of skip, fail"):
        tokmill.render("x.jsonl", recipe="pretrain", on_error="x")
    with pytest.raises(UsageError, match="take their settings there"):
        tokmill.encode(tokmill.render(ROWS), tokenizer_dir, eos=False)
    with pytest.raises(RecordError, match=r"text 1: .* control_tokens_in_text is reject"):
        list(tokmill.encode(["a", "<eos>"], tokenizer_dir, control_tokens_in_text="reject"))


def test_memory_does_not_grow_with_the_texts(tokenizer_dir):
    def peak(n):
        texts = (f"{i} " + "hello there " * 80 for i in range(n))
        encoder = tokmill.Encoder(tokenizer_dir, engine="reference", threads=1)
        tracemalloc.start()
        assert sum(len(tokens) for tokens in encoder.stream(texts)) == n
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    assert peak(12_000) < 1.5 * peak(6_000)
