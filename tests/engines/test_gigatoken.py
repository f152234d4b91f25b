from __future__ import annotations

import pyarrow as pa
import pytest

from tokmill.engines.reference import load_reference
from tokmill.tokenizer.hostile_texts import hostile_texts

pytest.importorskip("gigatoken")
pytest.importorskip("awkward")

from tokmill.engines import gigatoken
from tokmill.engines.gigatoken import Gigatoken


@pytest.fixture(autouse=True, params=["in tables", "by awkward", "in tables at first"])
def way(request, monkeypatch):
    """How ids come back from the library."""
    most = {"in tables": 1 << 40, "by awkward": 0, "in tables at first": 10_000}[request.param]
    monkeypatch.setattr(gigatoken, "_TABLE_BYTES", most)


@pytest.mark.parametrize("n_threads", [1, 2])
def test_the_ids_do_not_depend_on_threads(tokenizer, n_threads):
    text = pa.array(hostile_texts(["<eos>"]) * 3, pa.large_string())
    batch = Gigatoken(tokenizer, parse=False, n_threads=n_threads).encode(text)
    expected = load_reference(tokenizer, parse=False).encode(text)
    assert batch.ids.tolist() == expected.ids.tolist()
    assert batch.offsets.tolist() == expected.offsets.tolist()


def test_more_text_than_one_call_takes_gives_the_ids_of_its_documents(tokenizer):
    text = pa.array(["the cat sat there " * 4000, "猫", ""] * 20, pa.large_string())
    assert text.nbytes > 1 << 20
    batch = Gigatoken(tokenizer, parse=False, n_threads=2).encode(text)
    one = Gigatoken(tokenizer, parse=False, n_threads=1).encode(text.slice(0, 3))
    assert batch.ids.tolist() == one.ids.tolist() * 20
    assert batch.lengths.tolist() == one.lengths.tolist() * 20


@pytest.mark.parametrize("n_repeats", [1, 100, 400, 2000])
def test_documents_of_any_length_give_the_ids_of_each_alone(tokenizer, n_repeats):
    texts = ["", "hello 猫 " * n_repeats, "", "the \0 cat" * n_repeats, "é" * n_repeats]
    text = pa.array(["before", *texts, "behind"], pa.large_string()).slice(1, len(texts))
    batch = Gigatoken(tokenizer, parse=False, n_threads=2).encode(text)
    alone = Gigatoken(tokenizer, parse=False, n_threads=1)
    expected = [alone.encode(text.slice(i, 1)).ids.tolist() for i in range(len(texts))]
    assert batch.ids.tolist() == [token for ids in expected for token in ids]
    assert batch.lengths.tolist() == list(map(len, expected))
