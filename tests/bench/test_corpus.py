"""What each contender is given stands for the same records."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from bench.corpus import Corpus, make_corpus, read_text

LINES = ['{"text": "one"}', '{"text": "二"}', '{"text": "three"}']


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    path = tmp_path / "docs.jsonl"
    path.write_text("\n".join(LINES), encoding="utf-8")  # no line end at the end
    return make_corpus("docs", path, tmp_path / "made")


def test_ready_text_is_rendered_once_through(corpus: Corpus):
    assert read_text(corpus.text).to_pylist() == ["one", "二", "three"]
    assert corpus.text_bytes == 11


def test_lines_are_the_file_itself(corpus: Corpus):
    assert corpus.inputs("lines", 2) == [str(corpus.path)]


def test_parquet_holds_every_record_once(corpus: Corpus):
    (path,) = corpus.inputs("parquet", 2)
    assert pq.read_table(path)["text"].to_pylist() == ["one", "二", "three"]


@pytest.mark.parametrize(("text", "is_chinese"), [("abcdefgh é", False), ("code 二 二", True)])
def test_text_of_many_long_characters_is_chinese(tmp_path, text, is_chinese):
    path = tmp_path / "docs.jsonl"
    path.write_text(f'{{"text": "{text}"}}', encoding="utf-8")
    assert make_corpus("docs", path, tmp_path / "made").is_chinese is is_chinese


@pytest.mark.parametrize("cores", [1, 2, 3, 5])
def test_split_files_hold_every_record_once_in_order(corpus: Corpus, cores: int):
    paths = corpus.inputs("split", cores)
    assert len(paths) == cores
    lines = "".join(Path(path).read_text(encoding="utf-8") for path in paths).splitlines()
    assert lines == LINES


def test_a_small_corpus_is_its_own_start(corpus: Corpus):
    (path,) = corpus.inputs("start", 2)
    assert Path(path).read_text(encoding="utf-8").splitlines() == LINES
