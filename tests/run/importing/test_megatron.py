"""Pairs of Megatron become a dataset: any integer type, sequences, pointers and prefixes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.run.importing.conftest import EOS, ids, write_megatron
from tokmill.api.dataset import Dataset
from tokmill.errors import TokenizerError, UsageError, VerifyError

DOCUMENTS = [[5, 6, 7, EOS], [8, EOS], [9, 10, 11, 12, 13, EOS], [EOS]]


@pytest.mark.usefixtures("block_tokens")
@pytest.mark.parametrize(
    ("dtype", "kept"),
    [("<u2", "uint16"), ("<i4", "uint32"), ("<i8", "uint32"), ("u1", "uint16"), ("<i2", "uint16")],
)
def test_documents_of_every_integer_type_are_read(bring, tmp_path, dtype: str, kept: str) -> None:
    made = bring(write_megatron(tmp_path / "a", DOCUMENTS, dtype=dtype), "megatron")
    assert ids(made) == DOCUMENTS
    assert made.manifest["dtype"] == kept
    assert made.manifest["totals"]["records"] == 4


@pytest.mark.usefixtures("block_tokens")
def test_the_sequences_of_a_document_are_one_document(bring, tmp_path) -> None:
    sequences = [[5, 6], [7, EOS], [8, EOS], [9], [10], [EOS]]
    made = bring(write_megatron(tmp_path / "a", sequences, documents=[0, 2, 3]), "megatron")
    assert ids(made) == [[5, 6, 7, EOS], [8, EOS], [9, 10, EOS]]


@pytest.mark.usefixtures("block_tokens")
def test_pointers_lead_to_sequences_in_any_order_and_behind_a_header(
    bring, tmp_path, caplog
) -> None:
    prefix = write_megatron(tmp_path / "a", DOCUMENTS, order=[2, 0, 1, 3], header_bytes=1024)
    assert ids(bring(prefix, "megatron")) == DOCUMENTS
    assert "a.bin: its index leaves 1,024 bytes out" in caplog.text


@pytest.mark.usefixtures("block_tokens")
def test_prefixes_and_splits_stand_in_the_order_they_are_named(bring, tmp_path) -> None:
    a = write_megatron(tmp_path / "b", DOCUMENTS[:2])
    b = write_megatron(tmp_path / "a", DOCUMENTS[2:], dtype="<i4")
    v = write_megatron(tmp_path / "v", [[20, EOS]])
    made = bring([a, Path(f"{b}.bin")], "megatron", val=Path(f"{v}.idx"))
    assert ids(made.split("train")) == DOCUMENTS
    assert ids(made.split("val")) == [[20, EOS]]
    assert [shard.name for shard in made.shards] == [
        "train-0000000-0000",
        "train-0000001-0000",
        "val-0000002-0000",
    ]
    with pytest.raises(UsageError, match=r"imported tokens has no \.origin files"):
        made.origin(3)


@pytest.mark.usefixtures("block_tokens")
def test_documents_without_tokens_are_dropped_and_counted(bring, tmp_path, caplog) -> None:
    sequences = [[], DOCUMENTS[0], [], [], DOCUMENTS[1], []]
    made = bring(write_megatron(tmp_path / "a", sequences), "megatron")
    assert ids(made) == DOCUMENTS[:2]
    assert made.manifest["totals"]["drops"] == {"no token": 4}
    assert made.manifest["totals"]["records"] == 6
    assert "4 documents left out: no token" in caplog.text


@pytest.mark.usefixtures("block_tokens")
def test_a_document_without_eos_is_an_error_that_names_it(bring, tmp_path) -> None:
    prefix = write_megatron(tmp_path / "a", [[5, EOS], [6, 7], [8, EOS]])
    with pytest.raises(VerifyError, match=r"a\.bin: document 1 does not end with eos 0"):
        bring(prefix, "megatron")
    assert not (tmp_path / "out" / "manifest.json").exists()


@pytest.mark.usefixtures("block_tokens")
def test_eos_is_added_where_it_is_asked_for(bring, tmp_path, caplog) -> None:
    prefix = write_megatron(tmp_path / "a", [[5, EOS], [6, 7], [8, EOS], [9]])
    made = bring(prefix, "megatron", add_eos=True)
    assert ids(made) == [[5, EOS], [6, 7, EOS], [8, EOS], [9, EOS]]
    assert "eos was added to 2 documents" in caplog.text
    assert made.manifest["totals"]["counters"] == {"eos added": 2}


@pytest.mark.usefixtures("block_tokens")
@pytest.mark.parametrize(("wrong", "dtype"), [(291, "<u2"), (-1, "<i4"), (1 << 40, "<i8")])
def test_an_id_that_the_tokenizer_lacks_is_refused(bring, tmp_path, wrong: int, dtype: str) -> None:
    prefix = write_megatron(tmp_path / "a", [[5, EOS], [6, wrong, EOS]], dtype=dtype)
    with pytest.raises(TokenizerError, match=rf"token 3 is {wrong}, and the tokenizer has ids"):
        bring(prefix, "megatron")
    assert list(tmp_path.glob("out/*.bin")) == list(tmp_path.glob("out/manifest.json")) == []


@pytest.mark.usefixtures("block_tokens")
def test_shards_end_with_documents_and_are_at_most_so_long(bring, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("tokmill.run.imports.SHARD_BYTES", 2 * 5)
    made = bring(write_megatron(tmp_path / "a", DOCUMENTS * 3), "megatron")
    assert ids(made) == DOCUMENTS * 3
    assert len(made.shards) >= 6
    assert [shard.name[-4:] for shard in made.shards] == [
        f"{number:04d}" for number in range(len(made.shards))
    ]


@pytest.mark.parametrize("what", ["floats", "magic", "size", "modes", "bin", "first"])
def test_a_file_that_cannot_be_read_is_refused_with_the_reason(bring, tmp_path, what: str) -> None:
    prefix = write_megatron(tmp_path / "a", DOCUMENTS, dtype="<f4" if what == "floats" else "<u2")
    index = tmp_path / "a.idx"
    data = index.read_bytes()
    changed = {
        "magic": b"X" + data[1:],
        "size": data[:-3],
        "modes": data + bytes(4),
        "first": data[: -8 * 5] + b"\1" + data[-8 * 5 + 1 :],
    }
    index.write_bytes(changed.get(what, data))
    if what == "bin":
        (tmp_path / "a.bin").write_bytes(b"\5\0")
    message = {
        "floats": "holds floats",
        "magic": "does not begin with MMIDIDX",
        "size": "expected",
        "modes": "multimodal",
        "bin": r"a\.bin: shorter than its index says",
        "first": "documents begin with sequence 1",
    }[what]
    with pytest.raises((UsageError, VerifyError), match=message):
        bring(prefix, "megatron")
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_a_prefix_that_is_not_there_is_named(bring, tmp_path) -> None:
    with pytest.raises(UsageError, match=r"none\.idx: expected PREFIX\.bin and PREFIX\.idx"):
        bring(tmp_path / "none", "megatron")


def test_the_sources_stay_as_they_are(bring, tmp_path) -> None:
    prefix = write_megatron(tmp_path / "a", DOCUMENTS)
    before = (tmp_path / "a.bin").stat()
    made = bring(prefix, "megatron")
    after = (tmp_path / "a.bin").stat()
    assert (before.st_mode, before.st_nlink, before.st_mtime_ns) == (
        after.st_mode,
        after.st_nlink,
        after.st_mtime_ns,
    )
    assert not (made.directory / f"{made.shards[0].name}.bin").stat().st_mode & 0o222


def test_an_export_comes_back_with_the_same_bytes(pretrained: Dataset, bring, tmp_path) -> None:
    pretrained.export("megatron", tmp_path / "megatron")
    made = bring(tmp_path / "megatron", "megatron", pretrained)
    assert ids(made.split("train")) == ids(pretrained.split("train"))
    assert ids(made.split("val")) == ids(pretrained.split("val"))
    ours, theirs = made.shards, sorted(pretrained.shards, key=lambda shard: shard.split)
    for one, other in zip(ours, theirs, strict=True):
        for ending in ("bin", "idx"):
            assert (made.directory / f"{one.name}.{ending}").read_bytes() == (
                pretrained.directory / f"{other.name}.{ending}"
            ).read_bytes()


@pytest.mark.parametrize("pointer", [2**63 - 8, 2**62, 10**6])
def test_a_pointer_behind_the_end_is_refused(bring, tmp_path, pointer: int) -> None:
    prefix = write_megatron(tmp_path / "a", DOCUMENTS)
    index = tmp_path / "a.idx"
    data = bytearray(index.read_bytes())
    at = 34 + 4 * len(DOCUMENTS)
    data[at : at + 8] = pointer.to_bytes(8, "little")
    index.write_bytes(data)
    with pytest.raises(VerifyError, match=r"a\.bin: shorter than its index says"):
        bring(prefix, "megatron")
