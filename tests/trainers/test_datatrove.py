"""Exports to datatrove and nanotron: `.ds` files and what stands beside them."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import numpy as np
import pytest

from tokmill.errors import VerifyError
from tokmill.trainers import datatrove
from tokmill.trainers.options import ExportOptions
from tokmill.trainers.trainer import ExportSource


def read_ds(path: Path) -> tuple[list[list[int]], list[list[int]] | None]:
    """Return the documents of a `.ds` and their loss bytes, read by the specification alone."""
    first, n_tokens, _ = Path(f"{path}.metadata").read_text().split("\n")
    _, token_bytes = first.split("|")
    tokens = np.fromfile(path, {"2": "<u2", "4": "<u4"}[token_bytes])
    assert len(tokens) == int(n_tokens)
    ends = np.fromfile(f"{path}.index", "<u8").astype(np.int64)
    assert ends[-1] == len(tokens)
    spans = [slice(*span) for span in zip([0, *ends[:-1]], ends, strict=True)]
    loss = None
    if Path(f"{path}.loss").exists():
        trained = np.fromfile(f"{path}.loss", bool)
        assert len(trained) == len(tokens)
        loss = [trained[span].astype(int).tolist() for span in spans]
    return [tokens[span].tolist() for span in spans], loss


def test_the_five_documents_are_read_by_the_specification(five, five_ids, tmp_path) -> None:
    five.export("datatrove", tmp_path / "e")
    path = tmp_path / "e" / "train" / "train-0000000-0000.ds"
    assert read_ds(path) == (five_ids, None)
    ends = [18, 319, 325, 1326, 1391]
    assert Path(f"{path}.index").read_bytes() == np.array(ends, "<u8").tobytes()
    item = {"uint16": 2, "uint32": 4}[five.manifest["dtype"]]
    name = five.manifest["tokenizer"]["name"]
    assert Path(f"{path}.metadata").read_text() == f"{name}|{item}\n1391\n1.39 kT"
    assert path.samefile(five.directory / "train-0000000-0000.bin")


def test_loss_bytes_are_the_masks_in_place(chats, tmp_path) -> None:
    made = chats.export("datatrove", tmp_path / "e")
    assert made.mask_alignment == "target"
    for split in ("train", "val"):
        part = chats.split(split)
        read = [read_ds(tmp_path / "e" / split / f"{one.name}.ds") for one in part.shards]
        assert list(chain.from_iterable(tokens for tokens, _ in read)) == [
            ids.tolist() for ids in part
        ]
        masks = [part.mask(i).tolist() for i in range(len(part))]
        assert list(chain.from_iterable(loss or [] for _, loss in read)) == masks


@pytest.fixture
def reader():
    for package in ("torch", "humanize", "datatrove.utils.dataset"):
        pytest.importorskip(package, reason="datatrove's reader is not installed: make oracles")


@pytest.mark.filterwarnings("ignore")  # its import warns of packages that it can do without
@pytest.mark.parametrize("name", ["pretrained", "wide", "chats"])
def test_datatrove_reads_every_document_and_window(reader, request, tmp_path, name: str) -> None:
    dataset = request.getfixturevalue(name)
    made = dataset.export("datatrove", tmp_path / "e", check=True)
    assert made.checked is not None
    n_windows = sum(shard.tokens // 1024 for shard in dataset.shards)
    assert f"{len(dataset)} documents" in made.checked.compared
    assert f"{n_windows} windows of 1,024 tokens" in made.checked.compared
    assert made.checked.left_out == dataset.n_tokens - 1024 * n_windows
    assert n_windows > 10


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("ending", "offset", "message"),
    [("", 100, "document 0 differs"), (".index", 8, "differ|exhausted|correct"), (".loss", 99, "")],
)
def test_the_check_finds_a_wrong_byte(
    reader, unpacked, tmp_path, ending: str, offset: int, message: str
) -> None:
    unpacked.export("datatrove", tmp_path / "e", copy=True)
    source, options = ExportSource(unpacked.directory), ExportOptions(copy=True)
    datatrove.TRAINER.check(source, options, tmp_path / "e")
    path = tmp_path / "e" / "train" / f"train-0000000-0000.ds{ending}"
    path.chmod(0o644)
    data = path.read_bytes()
    path.write_bytes(data[:offset] + bytes([data[offset] ^ 1]) + data[offset + 1 :])
    with pytest.raises(VerifyError, match=message):
        datatrove.TRAINER.check(source, options, tmp_path / "e")


@pytest.mark.filterwarnings("ignore")
def test_datatrove_s_merger_writes_the_same_bytes(reader, unpacked, tmp_path) -> None:
    from datatrove.pipeline.tokens.merger import DocumentTokenizerMerger

    unpacked.export("datatrove", tmp_path / "e")
    folder = tmp_path / "e" / "train"
    assert len(list(folder.glob("*.ds"))) == 1
    DocumentTokenizerMerger(
        str(folder), str(tmp_path / "m"), save_filename="m", shuffle=False,
        save_loss_metadata=True, progress=False,
    ).run()  # fmt: skip
    ours = folder / "train-0000000-0000.ds"
    for ending in ("", ".index", ".loss", ".metadata"):
        theirs = tmp_path / "m" / f"000_m.ds{ending}"
        assert theirs.read_bytes() == Path(f"{ours}{ending}").read_bytes()


@pytest.mark.filterwarnings("ignore")
def test_windows_and_their_loss_train_our_targets(reader, unpacked, tmp_path) -> None:
    made = unpacked.export("datatrove", tmp_path / "e")
    namespace: dict = {}
    exec(made.usage.replace("2048", "64"), namespace)
    part, loss = unpacked.split("train"), namespace["loss"]
    trained = [
        window["input_ids"][1:].numpy()[loss[i * 65 + 1 : (i + 1) * 65]].tolist()
        for i, window in enumerate(namespace["train"])
    ]
    stream = np.concatenate(
        [np.where(part.mask(i), part[i].astype(int), -1) for i in range(len(part))]
    )
    n = len(stream) // 65
    targets = stream[: 65 * n].reshape(n, 65)[:, 1:]  # what each window predicts
    assert trained == [row[row >= 0].tolist() for row in targets]
    assert sum(map(len, trained)) > 1000
