"""Exports to Megatron: its byte layout, blends by tokens, masks as twins."""

from __future__ import annotations

import json
import shlex
import struct
from pathlib import Path

import numpy as np
import pytest

import tokmill
from tokmill.api.dataset import Dataset
from tokmill.errors import UsageError, VerifyError
from tokmill.trainers import megatron
from tokmill.trainers.options import ExportOptions
from tokmill.trainers.trainer import ExportSource

CODES = {1: np.uint8, 4: np.int32, 8: np.uint16}


def read_prefix(prefix: Path) -> tuple[list[list[int]], int]:
    """Return the sequences of a prefix and its dtype code, read by the specification alone."""
    data = Path(f"{prefix}.idx").read_bytes()
    magic, version, code, n, n_indices = struct.unpack_from("<9sQBQQ", data)
    assert (magic, version, n_indices) == (b"MMIDIDX\0\0", 1, n + 1)
    assert len(data) == 42 + 20 * n
    lengths = np.frombuffer(data, "<i4", n, 34)
    pointers = np.frombuffer(data, "<i8", n, 34 + 4 * n)
    assert np.frombuffer(data, "<i8", n + 1, 34 + 12 * n).tolist() == list(range(n + 1))
    body = Path(f"{prefix}.bin").read_bytes()
    found = [
        np.frombuffer(body, CODES[code], length, pointer).tolist()
        for length, pointer in zip(lengths.tolist(), pointers.tolist(), strict=True)
    ]
    assert sum(map(len, found)) * np.dtype(CODES[code]).itemsize == len(body)
    return found, code


def documents(dataset: Dataset, split: str = "train") -> list[list[int]]:
    return [ids.tolist() for ids in dataset.split(split)]


def test_the_five_documents_are_read_by_the_specification(five, five_ids, tmp_path) -> None:
    five.export("megatron", tmp_path / "e")
    found, code = read_prefix(tmp_path / "e" / "train" / "train-0000000-0000")
    assert found == five_ids
    assert code == (8 if five.manifest["dtype"] == "uint16" else 4)


def test_a_mask_is_the_twin_of_its_tokens(unpacked, tmp_path) -> None:
    made = unpacked.export("megatron", tmp_path / "e")
    assert made.mask_alignment == "target"
    for shard in unpacked.shards:
        part = unpacked.split(shard.split)
        prefix = tmp_path / "e" / shard.split / shard.name
        tokens, _ = read_prefix(prefix)
        masks, code = read_prefix(Path(f"{prefix}_mask"))
        assert code == 1
        assert tokens == [ids.tolist() for ids in part]
        assert masks == [part.mask(i).tolist() for i in range(len(part))]


def test_merged_masks_have_the_documents_of_merged_tokens(chats, tmp_path) -> None:
    chats.export("megatron", tmp_path / "e", merge=True)
    part = chats.split("train")
    assert len([one for one in chats.shards if one.split == "train"]) > 1
    assert read_prefix(tmp_path / "e" / "train")[0] == [ids.tolist() for ids in part]
    masks, _ = read_prefix(tmp_path / "e" / "train_mask")
    assert masks == [part.mask(i).tolist() for i in range(len(part))]


def options_of(usage: str) -> dict[str, list[str]]:
    """Return the options of a command line, as a shell reads them."""
    words = shlex.split(usage.replace("\\\n", " "))
    found: dict[str, list[str]] = {}
    for word in words:
        if word.startswith("--"):
            found[word] = []
        else:
            found[list(found)[-1]].append(word)
    return found


def test_options_name_train_and_val_with_absolute_paths(single, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = single.export("megatron", "it's here")
    found = options_of(made.usage)
    assert found["--train-data-path"] == [f"{tmp_path}/it's here/train/train-0000000-0000"]
    assert found["--valid-data-path"] == [f"{tmp_path}/it's here/val/val-0000000-0000"]


@pytest.fixture(scope="module")
def other(tmp_path_factory, pretrained) -> Dataset:
    """A dataset of other documents with the same tokenizer."""
    folder = tmp_path_factory.mktemp("other") / "pretrained"
    rows = [{"text": "word " * i} for i in range(1, 30)]
    (folder.parent / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    tokenizer = pretrained.manifest["tokenizer"]["name"]
    return tokmill.pretrain(
        folder.parent / "in.jsonl", tokenizer=tokenizer, output=folder, progress=False
    )


def test_weights_make_each_dataset_contribute_its_tokens(pretrained, other, tmp_path) -> None:
    wanted = {str(pretrained.directory): 30_000, str(other.directory): 10_000}
    tokens = [f"{name}={number}" for name, number in wanted.items()]
    made = pretrained.export("megatron", tmp_path / "e", tokens=tokens)
    blend = options_of(made.usage)["--train-data-path"]
    weights = dict(zip(blend[1::2], map(float, blend[::2]), strict=True))
    own = pretrained.split("train")
    for shard in own.shards:
        share = 0.75 * shard.tokens / own.n_tokens
        assert weights[f"{tmp_path}/e/train/{shard.name}"] == pytest.approx(share, rel=1e-9)
    theirs = f"{tmp_path}/e/train/pretrained/train-0000000-0000"
    assert weights[theirs] == 0.25
    assert read_prefix(Path(theirs))[0] == [ids.tolist() for ids in other]
    assert len(weights) == len(own.shards) + 1
    note = f"{other.directory}: 10,000 tokens are asked for, which is"
    assert any(one.startswith(note) for one in made.notes)


def test_a_merged_blend_has_a_prefix_for_each_source(pretrained, other, tmp_path) -> None:
    tokens = [f"{pretrained.directory}=3k", f"{other.directory}=1k"]
    pretrained.export("megatron", tmp_path / "e", tokens=tokens, merge=True)
    data = json.loads((tmp_path / "e" / "data.json").read_bytes())
    assert data["train"] == ["0.75", f"{tmp_path}/e/train-1", "0.25", f"{tmp_path}/e/train-2"]
    assert data["valid"] == [f"{tmp_path}/e/val"]
    assert read_prefix(tmp_path / "e" / "train-2")[0] == [ids.tolist() for ids in other]
    assert read_prefix(tmp_path / "e" / "train-1")[0] == documents(pretrained)


def test_a_dataset_of_0_tokens_is_left_out(pretrained, other, tmp_path) -> None:
    tokens = [f"{pretrained.directory}=0", f"{other.directory}=3B"]
    made = pretrained.export("megatron", tmp_path / "e", tokens=tokens)
    blend = options_of(made.usage)["--train-data-path"]
    assert blend == ["1", f"{tmp_path}/e/train/pretrained/train-0000000-0000"]


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (["OTHER=3B"], r"nothing is said of the exported dataset: add .*=60B, or =0 to leave"),
        (["OWN=3B", "books=1B"], "tokens books: expected the directory of a dataset"),
        (["OWN"], r"expected SOURCE=60B, found"),
        (["OWN=many"], r"expected a number such as 7.5B"),
        (["OWN=0"], "every source has 0 tokens"),
        (["OWN=1B", "OWN=1B"], "given twice"),
        (["OWN=1k", "OWN/.=1k"], r"is the dataset .*: name it once"),
        (["OWN=1k", "CHATS=1k"], "has another kind than"),
    ],
)
def test_a_wrong_blend_is_refused(pretrained, other, unpacked, tmp_path, tokens, message) -> None:
    names = {"OWN": pretrained, "OTHER": other, "CHATS": unpacked}
    for name, dataset in names.items():
        tokens = [text.replace(name, str(dataset.directory)) for text in tokens]
    with pytest.raises(UsageError, match=message):
        pretrained.export("megatron", tmp_path / "e", tokens=tokens)
    assert not (tmp_path / "e").exists()


def test_datasets_of_two_tokenizers_are_not_blended(pretrained, five, tmp_path) -> None:
    tokens = [f"{pretrained.directory}=3k", f"{five.directory}=1k"]
    with pytest.raises(UsageError, match="has another tokenizer than"):
        pretrained.export("megatron", tmp_path / "e", tokens=tokens)


def test_chats_are_not_blended(unpacked, tmp_path) -> None:
    with pytest.raises(UsageError, match="no Megatron trainer blends chats"):
        unpacked.export("megatron", tmp_path / "e", tokens=["*=1k"])


@pytest.fixture
def megatron_core():
    pytest.importorskip("torch", reason="megatron-core's reader needs torch")
    pytest.importorskip("megatron.core", reason="megatron-core is not installed: make oracles")


@pytest.mark.filterwarnings("ignore")  # its import warns of packages that it can do without
@pytest.mark.parametrize("merge", [False, True])
@pytest.mark.parametrize("name", ["pretrained", "wide", "chats"])
def test_megatron_core_reads_every_document(
    megatron_core, request, tmp_path, name: str, merge: bool
) -> None:
    dataset = request.getfixturevalue(name)
    made = dataset.export("megatron", tmp_path / "e", check=True, merge=merge)
    twin = " and their masks" if name == "chats" else ""
    expected = f"{len(dataset)} documents, {dataset.n_tokens:,} tokens{twin}"
    assert made.checked is not None
    assert made.checked.compared == expected


@pytest.mark.filterwarnings("ignore")
def test_the_check_finds_a_wrong_token_and_a_wrong_length(megatron_core, single, tmp_path) -> None:
    single.export("megatron", tmp_path / "e", copy=True)
    source, options = ExportSource(single.directory), ExportOptions(copy=True)
    prefix = tmp_path / "e" / "train" / "train-0000000-0000"
    for ending, offset in (("bin", 1000), ("idx", 34)):
        path = Path(f"{prefix}.{ending}")
        data = path.read_bytes()
        path.write_bytes(data[:offset] + bytes([data[offset] ^ 1]) + data[offset + 1 :])
        with pytest.raises(VerifyError, match="differ"):
            megatron.TRAINER.check(source, options, tmp_path / "e")
        path.write_bytes(data)
    megatron.TRAINER.check(source, options, tmp_path / "e")


@pytest.mark.filterwarnings("ignore")
def test_megatron_s_builder_writes_the_merged_bytes(megatron_core, pretrained, tmp_path) -> None:
    import torch
    from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder

    pretrained.export("megatron", tmp_path / "e", merge=True)
    builder = IndexedDatasetBuilder(str(tmp_path / "theirs.bin"), dtype=np.uint16)
    for ids in pretrained.split("train"):
        builder.add_document(torch.from_numpy(ids.astype(np.int64)), [len(ids)])
    builder.finalize(str(tmp_path / "theirs.idx"))
    for ending in ("bin", "idx"):
        ours = tmp_path / "e" / f"train.{ending}"
        assert (tmp_path / f"theirs.{ending}").read_bytes() == ours.read_bytes()


@pytest.mark.filterwarnings("ignore")
def test_megatron_parses_the_blend_to_our_weights(
    megatron_core, pretrained, other, tmp_path
) -> None:
    from megatron.core.datasets.utils import get_blend_from_list

    tokens = [f"{pretrained.directory}=3k", f"{other.directory}=1k"]
    made = pretrained.export("megatron", tmp_path / "e", tokens=tokens, merge=True)
    found = options_of(made.usage)
    names, weights = get_blend_from_list(found["--train-data-path"])
    assert (names, weights) == (
        [f"{tmp_path}/e/train-1", f"{tmp_path}/e/train-2"],
        [0.75, 0.25],
    )
    two = ["--valid-data-path", f"{tmp_path}/e/val"]
    assert get_blend_from_list(found[two[0]]) == ([two[1]], None)
    assert get_blend_from_list(two[1:] * 2) == (two[1:] * 2, None)


@pytest.mark.filterwarnings("ignore")
def test_the_lines_for_chats_train_our_targets(megatron_core, unpacked, tmp_path) -> None:
    made = unpacked.export("megatron", tmp_path / "it's here")
    lines = made.usage.replace("[0]", "[number]").replace("# sample 0", "")
    opening, _, body = lines.partition("ids, trained")
    names: dict = {}
    exec(opening, names)
    part = unpacked.split("train")
    assert len(names["tokens"]) == len(part) > 100
    for number, ids in enumerate(part):
        names["number"] = number
        exec(f"ids, trained{body}", names)
        assert names["inputs"].tolist() == ids[:-1].tolist()
        targets = names["labels"][names["loss_mask"] == 1].tolist()
        assert targets == ids[part.mask(number) == 1].tolist()
