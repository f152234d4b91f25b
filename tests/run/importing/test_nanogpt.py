"""Streams of nanoGPT become a dataset; eos is their only boundary."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

import tokmill
from tests.fixtures.datasets import TOKENIZER
from tests.run.importing.conftest import EOS, ids
from tokmill.api.dataset import Dataset
from tokmill.errors import StateError, TokenizerError, UsageError, VerifyError


def write(path: Path, tokens: list[int], dtype: str = "<u2") -> Path:
    path.write_bytes(np.array(tokens, dtype).tobytes())
    return path


@pytest.mark.usefixtures("block_tokens")
def test_eos_ends_the_documents_and_the_loss_is_said(bring, tmp_path, caplog) -> None:
    write(tmp_path / "train.bin", [5, 6, EOS, 7, EOS, EOS, 8, 9, 10, 11, EOS])
    write(tmp_path / "val.bin", [12, EOS])
    made = bring(tmp_path, "nanogpt")
    assert ids(made.split("train")) == [[5, 6, EOS], [7, EOS], [EOS], [8, 9, 10, 11, EOS]]
    assert ids(made.split("val")) == [[12, EOS]]
    assert "boundaries are those of eos" in caplog.text


@pytest.mark.usefixtures("block_tokens")
@pytest.mark.parametrize("tail", [[8], [8, 9], [8, 9, 10, 11]])
def test_a_tail_without_eos_gets_one(bring, tmp_path, caplog, tail: list[int]) -> None:
    made = bring(write(tmp_path / "train.bin", [5, EOS, *tail]), "nanogpt")
    assert ids(made) == [[5, EOS], [*tail, EOS]]
    assert "eos was added to 1 document" in caplog.text


def test_where_shards_end_does_not_depend_on_the_size_of_blocks(
    bring, tmp_path, monkeypatch
) -> None:
    path = write(tmp_path / "train.bin", [*range(5, 12), EOS, 5, EOS, *range(5, 9), EOS] * 9)
    monkeypatch.setattr("tokmill.run.imports.SHARD_BYTES", 2 * 11)
    found = []
    for block in (1, 4, 1000):
        monkeypatch.setattr("tokmill.sources.token_files.BLOCK_TOKENS", block)
        made = bring(path, "nanogpt", output=f"out{block}")
        found.append([(shard.documents, shard.tokens) for shard in made.shards])
    assert found == [[(2, 10), (1, 5)] * 9] * 3


def test_a_stream_without_eos_is_not_held_in_memory_without_end(
    bring, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr("tokmill.sources.token_files.BLOCK_TOKENS", 4)
    monkeypatch.setattr("tokmill.sources.token_files.MAX_LENGTH", 10)
    with pytest.raises(VerifyError, match=r"a document of more than 10 tokens: .* eos_token"):
        bring(write(tmp_path / "train.bin", [5] * 100), "nanogpt")


def test_ids_of_four_bytes_are_read_where_they_are_named(bring, tmp_path) -> None:
    path = write(tmp_path / "train.bin", [5, EOS, 289, EOS], "<u4")
    made = bring(path, "nanogpt", dtype="uint32")
    assert ids(made) == [[5, EOS], [289, EOS]]
    assert made.manifest["dtype"] == "uint32"


def test_a_file_of_four_bytes_is_not_read_as_two(bring, tmp_path) -> None:
    path = write(tmp_path / "train.bin", [5, 6, 289, EOS] * 20, "<u4")
    with pytest.raises(UsageError, match="every second id is below 4"):
        bring(path, "nanogpt")
    assert len(bring(path, "nanogpt", dtype="uint32")) == 20


@pytest.mark.parametrize("add_eos", [False, True])
def test_ids_too_narrow_for_the_eos_of_a_tokenizer_are_refused(tmp_path, add_eos: bool) -> None:
    words = Tokenizer(WordLevel({"a": 0, "b": 1, "<eos>": 128_001}, unk_token="a"))
    words.save(str(tmp_path / "tokenizer.json"))
    path = write(tmp_path / "train.bin", [0, 1])
    with pytest.raises(
        TokenizerError, match=r"train\.bin: its ids are uint16, .* eos is 128,001: "
    ):
        tokmill.import_dataset(
            path, trainer="nanogpt", output=tmp_path / "out", add_eos=add_eos, eos_token="<eos>",
            tokenizer=tmp_path / "tokenizer.json",
        )  # fmt: skip


def test_an_output_inside_a_dataset_is_refused(bring, tmp_path, single: Dataset) -> None:
    path = write(tmp_path / "train.bin", [5, EOS])
    with pytest.raises(StateError, match="is inside the dataset"):
        tokmill.import_dataset(
            path, trainer="nanogpt", output=single.directory / "new", tokenizer=TOKENIZER
        )
    assert not (single.directory / "new").exists()


def test_an_export_comes_back_and_is_exported_to_the_same_bytes(
    single: Dataset, bring, tmp_path
) -> None:
    single.export("nanogpt", tmp_path / "a")
    made = bring(tmp_path / "a", "nanogpt", single)
    assert ids(made) == ids(single)
    made.export("nanogpt", tmp_path / "b", check=True)
    for name in ("train.bin", "val.bin", "meta.pkl"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_a_progress_function_that_raises_stops_the_import(bring, tmp_path) -> None:
    def stop(progress: object) -> None:
        raise KeyboardInterrupt

    write(tmp_path / "train.bin", [5, EOS])
    with pytest.raises(KeyboardInterrupt):
        bring(tmp_path / "train.bin", "nanogpt", progress=stop)
    assert list(tmp_path.glob("out/*.bin")) == list(tmp_path.glob("out/manifest.json")) == []
