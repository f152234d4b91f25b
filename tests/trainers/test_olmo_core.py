"""Exports to OLMo-core: bodies, spans, label masks, and documents with eos inside."""

from __future__ import annotations

import gzip
import json
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import tokmill
from tests.fixtures.torchao_stub import stub_torchao
from tokmill.errors import UsageError, VerifyError
from tokmill.trainers import olmo_core
from tokmill.trainers.options import ExportOptions
from tokmill.trainers.trainer import ExportSource


def read_npy(path: Path, dtype: str) -> list[list[int]]:
    """Return the documents of a body, read by the specification alone."""
    tokens = np.fromfile(path, np.dtype(dtype).newbyteorder("<"))
    lines = gzip.decompress(path.with_suffix(".csv.gz").read_bytes()).decode().splitlines()
    spans = [slice(*map(int, line.split(",")[:2])) for line in lines]
    assert [0, *(span.stop for span in spans)] == [*(span.start for span in spans), len(tokens)]
    return [tokens[span].tolist() for span in spans]


def test_the_five_documents_are_read_by_the_specification(five, five_ids, tmp_path) -> None:
    five.export("olmo-core", tmp_path / "e")
    path = tmp_path / "e" / "train" / "train-0000000-0000.npy"
    assert read_npy(path, five.manifest["dtype"]) == five_ids
    lines = gzip.decompress(path.with_suffix(".csv.gz").read_bytes())
    assert lines == b"0,18\n18,319\n319,325\n325,1326\n1326,1391\n"
    assert path.samefile(five.directory / "train-0000000-0000.bin")


def test_every_shard_of_every_split_has_its_files(pretrained, tmp_path) -> None:
    made = pretrained.export("olmo-core", tmp_path / "e")
    assert len(made.files) == 2 * len(pretrained.shards) == 12
    for split in ("train", "val"):
        paths = sorted((tmp_path / "e" / split).glob("*.npy"))
        found = [ids for path in paths for ids in read_npy(path, "uint16")]
        assert found == [ids.tolist() for ids in pretrained.split(split)]


def test_label_masks_stand_in_a_folder_of_their_own(chats, tmp_path) -> None:
    made = chats.export("olmo-core", tmp_path / "e")
    assert made.mask_alignment == "target"
    for shard in chats.shards:
        path = tmp_path / "e" / f"{shard.split}-mask" / f"{shard.name}.npy"
        assert path.samefile(chats.directory / f"{shard.name}.mask")
    names = [sorted(p.name for p in (tmp_path / "e" / one).glob("*.npy"))
             for one in ("train", "train-mask")]  # fmt: skip
    assert names[0] == names[1]


@pytest.fixture
def eos_inside(words, tmp_path):
    """Three documents, the second with eos inside."""
    rows = [{"text": "w5 w6"}, {"text": "w7 <eos> w8"}, {"text": "w9"}]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def make(**settings):
        return tokmill.pretrain(
            tmp_path / "in.jsonl", tokenizer=words, output=tmp_path / "out", progress=False,
            **settings,
        )  # fmt: skip

    return make


def test_eos_inside_documents_is_said(eos_inside, tmp_path) -> None:
    dataset = eos_inside(control_tokens_in_text="parse")
    assert [ids.tolist() for ids in dataset] == [[5, 6, 2], [7, 2, 8, 2], [9, 2]]
    made = dataset.export("olmo-core", tmp_path / "e")
    assert any(note.startswith("documents may have eos inside") for note in made.notes)
    path = tmp_path / "e" / "train" / "train-0000000-0000.npy"
    assert read_npy(path, "uint16") == [[5, 6, 2], [7, 2, 8, 2], [9, 2]]


@pytest.fixture
def reader():
    reason = "ai2-olmo-core's reader is not installed: make oracles"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("torch", reason=reason)
        stub_torchao()
        return pytest.importorskip("olmo_core.data", reason=reason, exc_type=ImportError)


@pytest.mark.parametrize("name", ["pretrained", "wide", "chats"])
def test_olmo_core_reads_every_document_and_row(reader, request, tmp_path, name: str) -> None:
    dataset = request.getfixturevalue(name)
    made = dataset.export("olmo-core", tmp_path / "e", check=True)
    n_rows = sum(shard.tokens // 1024 for shard in dataset.shards)
    assert made.checked is not None
    assert f"{len(dataset)} documents" in made.checked.compared
    assert ("and by eos" in made.checked.compared) == (name != "chats")
    assert f"{n_rows} rows of 1,024 tokens" in made.checked.compared
    assert made.checked.left_out == dataset.n_tokens - 1024 * n_rows
    assert n_rows > 10


def test_olmo_core_reads_documents_with_bos_by_eos_too(reader, pretrained, tmp_path) -> None:
    dataset = tokmill.pretrain(
        Path(pretrained.manifest["sources"][0]["path"]), output=tmp_path / "out", progress=False,
        tokenizer=pretrained.manifest["tokenizer"]["name"], bos_token="<bos>",
    )  # fmt: skip
    made = dataset.export("olmo-core", tmp_path / "e", check=True)
    assert made.checked is not None
    assert "by .csv.gz and by eos" in made.checked.compared


def test_olmo_core_finds_more_documents_by_eos_as_the_note_says(
    reader, eos_inside, tmp_path
) -> None:
    dataset = eos_inside(control_tokens_in_text="parse")
    made = dataset.export("olmo-core", tmp_path / "e", check=True)
    assert made.checked is not None
    assert "by .csv.gz)" in made.checked.compared
    path = str(tmp_path / "e" / "train" / "train-0000000-0000.npy")
    found = list(reader.utils.iter_document_indices(path, eos_token_id=2, dtype=np.uint16))
    assert found == [(0, 3), (3, 5), (5, 7), (7, 9)]


@pytest.mark.parametrize(
    ("name", "offset"),
    [("train/train-0000000-0000.npy", 90), ("train-mask/train-0000000-0000.npy", 7)],
)
def test_the_check_finds_a_wrong_byte(reader, unpacked, tmp_path, name: str, offset: int) -> None:
    unpacked.export("olmo-core", tmp_path / "e", copy=True)
    source, options = ExportSource(unpacked.directory), ExportOptions(copy=True)
    data = (tmp_path / "e" / name).read_bytes()
    (tmp_path / "e" / name).write_bytes(
        data[:offset] + bytes([data[offset] ^ 1]) + data[offset + 1 :]
    )
    with pytest.raises(VerifyError, match="differ"):
        olmo_core.TRAINER.check(source, options, tmp_path / "e")


def test_the_check_finds_a_wrong_span(reader, single, tmp_path) -> None:
    single.export("olmo-core", tmp_path / "e")
    path = tmp_path / "e" / "train" / "train-0000000-0000.csv.gz"
    lines = gzip.decompress(path.read_bytes())
    path.unlink()
    path.write_bytes(gzip.compress(lines.replace(b"\n", b"0\n", 1)))
    with pytest.raises(VerifyError, match=r"document 0 is \(0, \d+0\) by csv\.gz"):
        olmo_core.TRAINER.check(ExportSource(single.directory), ExportOptions(), tmp_path / "e")


def test_a_reader_that_cannot_be_imported_is_named(reader, single, tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "olmo_core.data.utils", None)
    with pytest.raises(UsageError, match="the reader of OLMo-core cannot be imported"):
        single.export("olmo-core", tmp_path / "e", check=True)


# It packs in a process of its own, by fork, which newer Pythons warn of.
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("place", ["plain", "a *star* and 'quotes'"])
def test_packed_rows_of_the_usage_train_our_targets(reader, unpacked, tmp_path, place) -> None:
    made = unpacked.export("olmo-core", tmp_path / place)
    namespace: dict = {}
    exec(made.usage.replace("dataset-cache", str(tmp_path / "cache")), namespace)
    dataset = namespace["config"].build()
    dataset.prepare()
    part, found = unpacked.split("train"), []
    for row in dataset:
        batch = {name: row[name][None] for name in ("input_ids", "label_mask")}
        labels = reader.utils.get_labels(batch)[0].tolist()
        ids, stop = row["input_ids"].tolist(), 0
        for length in row["doc_lens"].tolist():
            start, stop = stop, stop + length
            # The label at a token is the next one; the last of a sample predicts nothing.
            shifted = [-100, *labels[start : stop - 1]]
            if set(shifted) != {-100}:
                found.append((ids[start:stop], shifted))
    expected = [
        (part[i].tolist(), np.where(part.mask(i), part[i].astype(int), -100).tolist())
        for i in range(len(part))
    ]
    assert sorted(found) == sorted(expected)
    assert namespace["vocab_size"] % 128 == 0
