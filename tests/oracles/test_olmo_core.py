"""OLMo-core's own datasets read a dataset of SFT: the same tokens, labels where the mask is 1."""

from __future__ import annotations

import gzip
import os
import warnings
from pathlib import Path

import numpy as np
import pytest

from tests.fixtures.torchao_stub import stub_torchao
from tokmill.settings.sft import SftSettings

REASON = "the oracle is not installed: make oracles"
MASKED = -100
ROW = 512  # OLMo-core packs into powers of two


with warnings.catch_warnings():
    # Importing it warns of optional packages that are not here.
    warnings.simplefilter("ignore")
    torch = pytest.importorskip("torch", reason=REASON)
    stub_torchao()
    data = pytest.importorskip("olmo_core.data", reason=REASON, exc_type=ImportError)
    from olmo_core.data.utils import get_labels, iter_document_indices, load_array_slice

# It packs in a process of its own, by fork, which newer Pythons warn of.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


@pytest.fixture(scope="module", params=["uint16", "uint32"])
def chats(request, make_chats):
    """The sample chats, none longer than a row, in several shards."""
    settings = {"dtype": request.param, "max_tokens": ROW, "shard_tokens": 8000}
    made = make_chats(SftSettings(too_long="drop-turns"), **settings)
    assert len(made.shards) > 2
    assert made.manifest["dtype"] == request.param
    return made


@pytest.fixture
def linked(chats, tmp_path) -> list[Path]:
    """The bodies by the name that OLMo-core wants, with a `.csv.gz` made of their `.idx`."""
    paths = []
    for shard in chats.shards:
        body = tmp_path / f"{shard.name}.npy"
        os.link(chats.directory / f"{shard.name}.bin", body)
        with gzip.open(body.with_suffix(".csv.gz"), "wt", newline="") as file:
            for i in range(len(shard.lengths)):
                span = shard.span(i)
                file.write(f"{span.start},{span.stop},{i},chats.jsonl,{i + 1}\n")
        paths.append(body)
    return paths


def as_dtype(chats):
    return data.NumpyDatasetDType(chats.manifest["dtype"])


def tokenizer_of(chats):
    return data.TokenizerConfig(
        vocab_size=chats.manifest["tokenizer"]["vocab_size"],
        eos_token_id=chats.eos_id,
        pad_token_id=chats.eos_id,
    )


def labels_in_place(row) -> np.ndarray:
    """Return the labels of a row at their own tokens: OLMo-core shifts them to the left."""
    shifted = get_labels({name: row[name][None] for name in ("input_ids", "label_mask")})[0]
    assert shifted[-1] == MASKED
    return np.concatenate([[MASKED], shifted[:-1].numpy()])


@pytest.mark.parametrize("length", [64, 1024])
def test_rows_of_a_stream_hold_our_tokens_and_labels_where_our_mask_is_1(chats, tmp_path, length):
    config = data.NumpyFSLDatasetConfig(
        paths=[str(path) for path in chats.files("bin")],
        label_mask_paths=[str(path) for path in chats.files("mask")],
        sequence_length=length,
        tokenizer=tokenizer_of(chats),
        dtype=as_dtype(chats),
        work_dir=str(tmp_path),
    )
    theirs = config.build()
    theirs.prepare()
    windows = [
        (shard.tokens[start : start + length], shard.mask[start : start + length])
        for shard in chats.shards
        for start in range(0, len(shard.tokens) - length + 1, length)
    ]
    assert len(theirs) == len(windows) > 10
    for row, (tokens, mask) in zip(theirs, windows, strict=True):
        assert row["input_ids"].tolist() == tokens.tolist()
        assert row["label_mask"].tolist() == mask.astype(bool).tolist()
        expected = np.where(mask, tokens.astype(np.int64), MASKED)
        # A row is a window of the stream: what predicts its first token is in the row before.
        assert labels_in_place(row)[1:].tolist() == expected[1:].tolist()


def packed_rows(chats, linked: list[Path], work_dir: Path, **settings):
    config = data.NumpyPackedFSLDatasetConfig(
        paths=[str(path) for path in linked],
        label_mask_paths=[str(path) for path in chats.files("mask")],
        sequence_length=ROW,
        tokenizer=tokenizer_of(chats),
        dtype=as_dtype(chats),
        work_dir=str(work_dir),
        generate_doc_lengths=True,
        use_array_if_local=False,
        **settings,
    )
    dataset = config.build()
    dataset.prepare()
    return list(dataset)


def test_packed_rows_hold_every_sample_once_with_labels_where_its_mask_is_1(
    chats, linked, tmp_path
):
    found: list[tuple[list[int], list[int]]] = []
    for row in packed_rows(chats, linked, tmp_path):
        ids, labels = row["input_ids"].numpy(), labels_in_place(row)
        stop = 0
        for length in row["doc_lens"].tolist():
            start, stop = stop, stop + length
            sample = (ids[start:stop].tolist(), labels[start:stop].tolist())
            if set(sample[0]) == {chats.eos_id}:  # padding
                assert set(sample[1]) == {MASKED}
            else:
                found.append(sample)
        assert stop == ROW
    expected = chats.samples()
    assert len(expected) == sum(shard["documents"] for shard in chats.manifest["shards"]) > 100
    assert sorted(found) == sorted(expected)
    n_trained = sum(label != MASKED for _, labels in found for label in labels)
    assert n_trained == chats.manifest["totals"]["trained_tokens"]


def test_the_samples_end_where_the_csv_says_and_not_where_eos_stands(chats, linked):
    for shard, path in zip(chats.shards, linked, strict=True):
        spans = [shard.span(i) for i in range(len(shard.lengths))]
        expected = [(span.start, span.stop) for span in spans]
        by_csv = iter_document_indices(str(path), use_array_if_local=False, dtype=chats.dtype)
        assert list(by_csv) == expected
        by_eos = iter_document_indices(str(path), eos_token_id=chats.eos_id, dtype=chats.dtype)
        assert list(by_eos) != expected
        last = load_array_slice(str(path), *expected[-1], chats.dtype)
        assert last.tolist() == shard.document(len(expected) - 1).tolist()
