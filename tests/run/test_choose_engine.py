"""The engine of a run, and what is weighed and read for the choice."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tokenizers import AddedToken
from tokenizers import Tokenizer as Library

import tokmill.engines.choose as choosing
from tokmill.engines.engine import FAST_ENGINES, REFERENCE, is_installed
from tokmill.executors.run import run
from tokmill.run.prepare import choose_run_engine, prepare
from tokmill.settings.sft import SftSettings

CHATS = Path(__file__).parents[2] / "data_samples" / "sft"
ROWS = [{"text": f"hel hello {i} the cat " * (i % 4 + 1)} for i in range(60)]

needs_fast_engines = pytest.mark.skipif(
    not all(is_installed(name) for name in FAST_ENGINES), reason="an engine has no wheel here"
)


@pytest.fixture
def any_size(monkeypatch) -> None:
    for name in ("LEAST_BYTES", "TIMED_FROM_BYTES"):
        monkeypatch.setattr(choosing, name, 0)


@pytest.fixture
def whole_word(tokenizer_dir, tmp_path) -> dict[str, str]:
    """Settings of a tokenizer whose ids gigatoken gets wrong: it takes "hel" inside words too."""
    library = Library.from_file(str(tokenizer_dir / "tokenizer.json"))
    library.add_tokens([AddedToken("hel", single_word=True)])
    library.save(str(tmp_path / "tokenizer.json"))
    return {"path": str(tmp_path), "eos_token": "<eos>"}


def lines_of(texts: list[str]) -> bytes:
    return "".join(json.dumps({"text": text}) + "\n" for text in texts).encode()


def dataset(directory: Path) -> dict[str, bytes]:
    """The files that hold tokens."""
    patterns = ("*.bin", "*.idx", "*.mask")
    return {path.name: path.read_bytes() for one in patterns for path in directory.glob(one)}


@needs_fast_engines
@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("a.parquet", lambda path, texts: pq.write_table(pa.table({"text": texts}), path)),
        ("a.jsonl.gz", lambda path, texts: path.write_bytes(gzip.compress(lines_of(texts)))),
        ("a.jsonl", lambda path, texts: path.write_bytes(lines_of(texts))),
    ],
)
def test_an_input_is_weighed_by_its_text_where_it_is_stored_smaller(
    configure, tmp_path, name, write
):
    names = []
    for n_texts in (1000, 2000):  # 6 and 12 MB
        path = tmp_path / f"{n_texts}-{name}"
        write(path, [f"{i} " + "the cat sat " * 500 for i in range(n_texts)])
        prepared = prepare(configure(tmp_path / "out", path, engine="auto"))
        names.append(choose_run_engine(prepared).name)
    assert names[0] == REFERENCE
    assert names[1] in FAST_ENGINES


@needs_fast_engines
@pytest.mark.parametrize("workers", [1, 2])
def test_a_wrong_engine_is_left_out_before_anything_is_written(
    configure, write_rows, whole_word, any_size, listener, tmp_path, workers
):
    source = write_rows(tmp_path / "in.jsonl", ROWS)
    settings = {"part_bytes": 900, "block_bytes": 300, **whole_word}
    run(configure(tmp_path / "reference", source, engine=REFERENCE, **settings), listener)
    given = settings | {"engine": "auto", "workers": workers}
    manifest = run(configure(tmp_path / "out", source, **given), listener)
    assert manifest["engine"]["name"] == "fastokens"
    assert "its ids differ" in manifest["engine"]["refused"]["gigatoken"]
    assert dataset(tmp_path / "out") == dataset(tmp_path / "reference")


@needs_fast_engines
def test_an_engine_of_a_run_is_loaded_once_and_the_others_are_dropped(
    configure, write_rows, any_size, loads, silent, tmp_path
):
    source = write_rows(tmp_path / "in.jsonl", ROWS)
    prepared = prepare(configure(tmp_path / "first", source, engine="auto"))
    choice = choose_run_engine(prepared)
    assert {key[0] for key in prepared.engines._engines} == {REFERENCE, choice.name}
    del loads[:]
    manifest = run(configure(tmp_path / "out", source, engine="fastokens"), silent)
    assert sorted(loads) == ["fastokens", REFERENCE]
    assert manifest["engine"]["reason"] == "asked for"


@needs_fast_engines
def test_chats_have_the_ids_of_the_reference(configure, any_size, silent, tmp_path):
    settings = {"sft": SftSettings(template="alpaca"), "max_tokens": 400}
    for name, engine in (("reference", REFERENCE), ("out", "auto")):
        config = configure(tmp_path / name, CHATS / "alpaca.csv", engine=engine, **settings)
        manifest = run(config, silent)
    assert manifest["engine"]["name"] in FAST_ENGINES
    assert dataset(tmp_path / "out") == dataset(tmp_path / "reference")
