"""Megatron-LM's own reader and writer of the layout, held against ours."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer as Library
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

from tests.oracles.conftest import import_or_skip
from tokmill.dataset.documents import Documents
from tokmill.dataset.manifest import Manifest
from tokmill.run.finish import run

SAMPLES = Path(__file__).parents[2] / "data_samples"
N_WORDS = 70_000


@pytest.fixture(scope="module", autouse=True)
def oracle():
    import_or_skip("torch", "megatron.core.datasets.indexed_dataset")


@pytest.fixture(scope="module")
def wide_tokenizer(tmp_path_factory) -> Path:
    """A tokenizer of 70,000 words, w0 to w69999, and <eos>."""
    words = {f"w{i}": i for i in range(N_WORDS)} | {"<eos>": N_WORDS}
    library = Library(WordLevel(words, unk_token="w0"))
    library.pre_tokenizer = WhitespaceSplit()
    library.add_special_tokens(["<eos>"])
    directory = tmp_path_factory.mktemp("wide")
    library.save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<eos>"}))
    return directory


@pytest.fixture(scope="module")
def narrow(tmp_path_factory, configure, silent):
    """The sample records as uint16, in several shards of both splits."""
    out = tmp_path_factory.mktemp("narrow") / "out"
    config = configure(
        out,
        SAMPLES / "records.jsonl",
        path=str(SAMPLES / "tokenizer"),
        shard_tokens=20_000,
        val_fraction=0.2,
        bos_token="<bos>",
    )
    return out, run(config, silent).plain


@pytest.fixture(scope="module")
def wide(tmp_path_factory, configure, wide_tokenizer, write_rows, silent):
    """Documents of ids above 65,535, as uint32."""
    out = tmp_path_factory.mktemp("wide") / "out"
    rows = [{"text": " ".join(f"w{N_WORDS - 1 - j * i}" for j in range(i))} for i in range(1, 99)]
    source = write_rows(out.parent / "in.jsonl", rows)
    config = configure(out, source, path=str(wide_tokenizer), shard_tokens=1000)
    return out, run(config, silent).plain


def megatron_dataset(path: Path, *, mmap: bool = True):
    from megatron.core.datasets.indexed_dataset import IndexedDataset

    return IndexedDataset(str(path), mmap=mmap)


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize(
    ("dataset", "dtype", "n_shards"), [("narrow", np.uint16, 5), ("wide", np.int32, 5)]
)
def test_megatron_reads_every_document_as_we_do(request, dataset, dtype, n_shards, mmap):
    directory, manifest = request.getfixturevalue(dataset)
    shards = list(Documents(directory, Manifest.of(manifest, directory)).shards())
    assert len(shards) >= n_shards
    for shard in shards:
        theirs = megatron_dataset(directory / shard.name, mmap=mmap)
        n = len(shard.lengths)
        assert len(theirs) == n
        assert theirs.index.dtype is dtype
        assert theirs.sequence_lengths.tolist() == shard.lengths[:].tolist()
        assert theirs.document_indices.tolist() == list(range(n + 1))
        for i in range(n):
            assert theirs[i].tolist() == shard.document(i).tolist()
        assert [document.tolist() for document in theirs[0:n]] == [
            shard.document(i).tolist() for i in range(n)
        ]


@pytest.mark.parametrize(("dataset", "dtype"), [("narrow", np.uint16), ("wide", np.int32)])
def test_megatron_s_builder_writes_the_same_bytes(request, tmp_path, dataset, dtype):
    import torch
    from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder

    directory, manifest = request.getfixturevalue(dataset)
    for shard in Documents(directory, Manifest.of(manifest, directory)).shards():
        theirs = tmp_path / shard.name
        builder = IndexedDatasetBuilder(str(theirs.with_suffix(".bin")), dtype=dtype)
        for i in range(len(shard.lengths)):
            builder.add_item(torch.from_numpy(shard.document(i).astype(np.int64)))
            builder.end_document()
        builder.finalize(str(theirs.with_suffix(".idx")))
        for ending in (".bin", ".idx"):
            ours = (directory / shard.name).with_suffix(ending).read_bytes()
            assert theirs.with_suffix(ending).read_bytes() == ours


def test_a_mask_beside_its_tokens_is_read_as_their_twin(make_chats, tmp_path):
    chats = make_chats()
    for shard in chats.shards:
        n, name = len(shard.lengths), tmp_path / f"{shard.name}_mask"
        os.link(chats.directory / f"{shard.name}.mask", name.with_suffix(".bin"))
        starts = np.array([shard.span(i).start for i in range(n)], "<i8")
        head = struct.pack("<9sQBQQ", b"MMIDIDX\0\0", 1, 1, n, n + 1)  # code 1: uint8
        numbers = np.arange(n + 1, dtype="<i8")
        index = head + shard.lengths[:].tobytes() + starts.tobytes() + numbers.tobytes()
        name.with_suffix(".idx").write_bytes(index)
        tokens = megatron_dataset(chats.directory / shard.name)
        twin = megatron_dataset(name)
        assert twin.index.dtype is np.uint8
        assert twin.sequence_lengths.tolist() == tokens.sequence_lengths.tolist()
        assert twin.document_indices.tolist() == tokens.document_indices.tolist()
        for i in range(n):
            assert tokens[i].tolist() == shard.document(i).tolist()
            assert twin[i].tolist() == shard.sample_mask(i).tolist()
