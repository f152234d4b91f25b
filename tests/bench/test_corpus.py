"""What each contender is given stands for the same records."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from bench.corpus import Corpus, make_corpus, read_text, repeated_sample

LINES = ['{"text": "one"}', '{"text": "二"}', '{"text": "three"}']


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    path = tmp_path / "docs.jsonl"
    path.write_text("\n".join(LINES), encoding="utf-8")  # no line end at the end
    return make_corpus("docs", path, tmp_path / "made", repeat=2)


def test_ready_text_is_rendered_once_through(corpus: Corpus):
    assert read_text(corpus.text).to_pylist() == ["one", "二", "three"]
    assert corpus.text_bytes == 11


def test_long_input_repeats_whole_records(corpus: Corpus):
    (path,) = corpus.inputs("long", 2)
    assert Path(path).read_text(encoding="utf-8").splitlines() == LINES * 2


def test_parquet_holds_the_repeated_records(corpus: Corpus):
    (path,) = corpus.inputs("parquet", 2)
    assert pq.read_table(path)["text"].to_pylist() == ["one", "二", "three"] * 2


@pytest.mark.parametrize("cores", [1, 2, 3, 5])
def test_split_files_hold_every_record_once_in_order(corpus: Corpus, cores: int):
    paths = corpus.inputs("split", cores)
    assert len(paths) == cores
    lines = "".join(Path(path).read_text(encoding="utf-8") for path in paths).splitlines()
    assert lines == LINES


def test_a_small_corpus_is_its_own_start(corpus: Corpus):
    (path,) = corpus.inputs("start", 2)
    assert Path(path).read_text(encoding="utf-8").splitlines() == LINES


def test_a_sample_is_repeated_to_about_the_size_asked_for(tmp_path: Path):
    path = tmp_path / "s.jsonl"
    path.write_bytes(b'{"text": "a"}\n')
    assert repeated_sample(path, 30, tmp_path / "o").read_bytes() == b'{"text": "a"}\n' * 2
