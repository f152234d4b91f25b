"""Reading a finished dataset: any document by number, of one shard or of thousands."""

from __future__ import annotations

import json
import os
import pickle
import re
import resource
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import psutil
import pytest

import tokmill
from tests.fixtures.datasets import TOKENIZER
from tokmill.dataset.documents import MOST_OPEN, Documents
from tokmill.dataset.reader import read_manifest
from tokmill.errors import StateError, StorageError, UsageError, VerifyError
from tokmill.place.directory import locked
from tokmill.run.finish import run
from tokmill.settings.sft import SftSettings

ROWS = [{"text": f"hello {i} " * (i % 5 + 1)} for i in range(60)]


@pytest.fixture(scope="module")
def directory(tmp_path_factory, configure, silent, write_rows):
    """Two files, several parts and splits, a rejected and a dropped record: to be read only."""
    place = tmp_path_factory.mktemp("documents")
    sources = [
        write_rows(place / "a.jsonl", ROWS),
        write_rows(place / "b.jsonl", [*ROWS[:10], b"{bad", *ROWS[:10]]),
    ]
    settings = {"part_bytes": 700, "shard_tokens": 150, "val_fraction": 0.2}
    run(configure(place / "out", *sources, max_reject_fraction=1.0, **settings), silent)
    return place / "out"


@pytest.fixture
def copied(directory, tmp_path):
    """Return a copy that a test may change."""
    return shutil.copytree(directory, tmp_path / "out")


@pytest.fixture(scope="module")
def packed_chats(tmp_path_factory, configure, silent, write_rows):
    """Twelve packed samples with masks and weights."""
    place = tmp_path_factory.mktemp("chats")
    turns = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "the cat"}]
    source = write_rows(place / "c.jsonl", [{"messages": turns}] * 12)
    sft = SftSettings(template="plain", packing=64, weights="file")
    run(configure(place / "sft", source, sft=sft), silent)
    return place / "sft"


def test_documents_stand_in_the_order_of_the_dataset(directory):
    shards = list(Documents(directory, read_manifest(directory)).shards())
    expected = [shard.document(i).tolist() for shard in shards for i in range(len(shard.lengths))]
    dataset = tokmill.open(directory)
    assert len(dataset) == len(expected) == 80
    assert [dataset[i].tolist() for i in range(80)] == expected
    assert [ids.tolist() for ids in dataset] == expected
    assert dataset.n_tokens == sum(map(len, expected))
    assert dataset[-1].tolist() == dataset[np.int64(79)].tolist() == expected[-1]
    assert [one.name for one in dataset.shards] == [shard.name for shard in shards]
    assert dataset.manifest == read_manifest(directory).plain


def test_ids_are_views_that_nobody_can_change(directory):
    ids = tokmill.open(directory)[3]
    assert type(ids) is np.ndarray
    assert ids.dtype == np.uint16
    with pytest.raises(ValueError, match="read-only"):
        ids[0] = 1


def test_a_number_that_no_document_has_is_an_index_error(directory):
    dataset = tokmill.open(directory)
    for number in (80, -81, 1 << 70):
        with pytest.raises(IndexError, match=f"no document {number}; it holds 80"):
            dataset[number]
    with pytest.raises(TypeError):
        dataset["5"]


def test_a_split_is_a_dataset_of_its_own(directory):
    dataset = tokmill.open(directory)
    train, val = dataset.split("train"), tokmill.open(directory, split="val")
    assert dataset.splits == ("train", "val")
    assert (len(train) + len(val), train.n_tokens + val.n_tokens) == (80, dataset.n_tokens)
    assert (
        val[0].tolist()
        == next(Documents(directory, read_manifest(directory), "val").shards()).document(0).tolist()
    )
    assert {one.split for one in val.shards} == {"val"}
    with pytest.raises(UsageError, match="expected one of train, val; found 'test'"):
        dataset.split("test")


def test_text_is_what_inspect_shows(directory, packed_chats, tokenizer_dir):
    dataset = tokmill.open(directory)
    assert dataset.text(0) == f"{ROWS[0]['text']}<eos>"
    assert "hello" in tokmill.open(packed_chats, tokenizer=tokenizer_dir).text(2)


def test_a_dataset_is_decoded_when_its_tokenizer_has_moved(copied, tmp_path, tokenizer_dir):
    manifest = json.loads((copied / "manifest.json").read_text())
    manifest["config"]["tokenizer"]["path"] = str(tmp_path / "gone")
    path = copied / "manifest.json"
    path.chmod(0o644)
    path.write_text(json.dumps(manifest))
    assert tokmill.open(copied).text(0).startswith("hello")
    assert tokmill.open(copied, tokenizer=tokenizer_dir).text(0).startswith("hello")


def test_masks_weights_and_packs_of_chats(packed_chats):
    dataset = tokmill.open(packed_chats)
    shard = next(Documents(packed_chats, read_manifest(packed_chats)).shards())
    assert dataset.mask(3).tolist() == shard.sample_mask(3).tolist()
    assert 0 < dataset.mask(3).sum() < len(dataset[3])
    assert dataset.weight(3).tolist() == dataset.mask(3).tolist()
    rows = dataset.packs["train"]
    assert np.concatenate([rows.row(i) for i in range(rows.n_rows)]).tolist() == list(range(12))


def test_a_dataset_without_masks_or_weights_says_so(directory):
    dataset = tokmill.open(directory)
    assert dataset.packs == {}
    with pytest.raises(UsageError, match="no masks: a pretrain dataset trains all tokens"):
        dataset.mask(0)
    with pytest.raises(UsageError, match="no weights: "):
        dataset.weight(0)


# What is not a finished dataset


def test_an_unfinished_directory_says_how_to_go_on_or_that_a_run_is_writing_there(copied):
    (copied / "manifest.json").unlink()
    with pytest.raises(StateError, match=r"not finished .*: make the same call again to "):
        tokmill.open(copied)
    with locked(copied), pytest.raises(StateError, match="a run is writing here: wait for "):
        tokmill.open(copied)


def test_a_shard_that_is_gone_is_an_error_when_it_is_read(copied):
    dataset = tokmill.open(copied)
    (copied / f"{dataset.shards[0].name}.bin").unlink()
    with pytest.raises(VerifyError, match=f"{dataset.shards[0].name}.bin"):
        dataset[0]
    assert len(dataset[-1])


# Open files, threads and processes


@pytest.fixture(scope="module")
def many(tmp_path_factory, configure, silent, write_rows):
    """A dataset of 3,000 shards, of which all but the first are links to it."""
    directory = tmp_path_factory.mktemp("many")
    source = write_rows(directory / "in.jsonl", ROWS)
    out = directory / "out"
    run(configure(out, source), silent)
    manifest = json.loads((out / "manifest.json").read_text())
    first = manifest["shards"][0]
    for i in range(1, 3000):
        name = f"train-{i:07d}-0000"
        manifest["shards"].append({**first, "name": name})
        for ending in ("bin", "idx"):
            os.link(out / f"{first['name']}.{ending}", out / f"{name}.{ending}")
    (out / "manifest.json").unlink()
    (out / "manifest.json").write_text(json.dumps(manifest))
    return out


def n_open(directory: Path) -> int:
    return sum(one.path.startswith(f"{directory}/train-") for one in psutil.Process().open_files())


def test_thousands_of_shards_are_opened_only_when_they_are_read_and_few_at_a_time(many):
    process = psutil.Process()
    before = process.num_fds()
    with tokmill.open(many) as dataset:
        assert (len(dataset), n_open(many), process.num_fds()) == (180_000, 0, before)
        last = dataset[-1].tolist()
        assert n_open(many) == 2
        for i in range(0, len(dataset), 61):
            assert dataset[i].tolist() == dataset[i % 60].tolist()
        assert n_open(many) <= 2 * MOST_OPEN
        assert process.num_fds() <= before + 2 * MOST_OPEN
        assert dataset[-1].tolist() == last
    assert (n_open(many), process.num_fds()) == (0, before)


def test_arrays_of_more_shards_than_files_can_be_open_are_kept(many):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (psutil.Process().num_fds() + 100, hard))
    try:
        dataset = tokmill.open(many)
        kept = [dataset[i] for i in range(0, len(dataset), 60)]
        assert all(np.array_equal(ids, kept[0]) for ids in kept)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_dataset_travels_to_another_process_as_a_name(directory, monkeypatch):
    monkeypatch.chdir(directory.parent)
    dataset = tokmill.open(directory.name, split="val")
    data = pickle.dumps(dataset)
    monkeypatch.chdir("/")
    assert len(data) < 1000
    copy = pickle.loads(data)
    assert [ids.tolist() for ids in copy] == [ids.tolist() for ids in dataset]


def test_threads_read_one_dataset_side_by_side(many):
    dataset = tokmill.open(many)
    expected = [dataset[i].tolist() for i in range(60)]
    barrier = threading.Barrier(8)

    def read(seed: int) -> bool:
        barrier.wait()
        numbers = np.random.default_rng(seed).integers(0, len(dataset), 250).tolist()
        return all(dataset[i].tolist() == expected[i % 60] for i in numbers)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(read, range(8)))


def test_a_printed_bill_has_the_rows_of_the_command_line(directory, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "500")
    bill = tokmill.open(directory).bill("gpt2", gpu="24GiB", tokens="1B")
    shown = command("report", directory, "--model", "gpt2", "--gpu", "24GiB", "--tokens", "1B")
    rows, _, _ = shown.out.partition("\nmore ")
    free = re.compile(r"[\d.]+ [MGT]B free")  # other programs write meanwhile
    assert free.sub("", str(bill)) == free.sub("", rows)
    assert repr(bill) == "<FullBill: gpt2; print() shows it>"
    assert pickle.loads(pickle.dumps(bill)) == bill
    assert str(tokmill.bill.of("gpt2")).startswith("verdict     unknown: add --gpu")


# The page


def tiles_of(path: Path) -> dict[str, float]:
    """Return the numbers at the head of a page."""
    found = re.findall(r'<dt>([^<]+)</dt><dd data-value="([^"]+)">', path.read_text())
    return {name: float(value) for name, value in found}


def test_the_page_of_a_dataset_is_written_and_replaced(pretrained, tmp_path):
    path = tmp_path / "report.html"
    pretrained.report(path)
    path.write_text(path.read_text().replace(">tokens<", ">old<"))
    pretrained.report(path)
    assert tiles_of(path)["tokens"] == pretrained.n_tokens
    assert path.stat().st_mode & 0o777 == 0o644
    assert [one.name for one in tmp_path.iterdir()] == ["report.html"]


def test_the_page_has_the_bill_that_is_given(chats, tmp_path):
    bill = chats.bill("llama-3.2-1b", gpu="RTX 4090")
    chats.report(str(tmp_path / "report.html"), bill)
    assert tiles_of(tmp_path / "report.html")["size on disk"] == bill.disk.bill.n_bytes


@pytest.mark.parametrize("trainer", ["megatron", "datatrove"])
def test_the_page_of_an_import_has_no_amount_of_unknown_text(single, chats, tmp_path, trainer):
    original = single if trainer == "megatron" else chats
    original.export(trainer, tmp_path / "old")
    made = tokmill.import_dataset(
        tmp_path / "old", trainer=trainer, output=tmp_path / "new", tokenizer=TOKENIZER
    )
    made.report(tmp_path / "report.html")
    assert tiles_of(tmp_path / "report.html")["tokens"] == original.n_tokens
    html = (tmp_path / "report.html").read_text()
    assert "text bytes per token" not in html.lower()
    assert "of text a second" not in html


def test_a_page_that_cannot_be_written_leaves_nothing(pretrained, tmp_path):
    with pytest.raises(UsageError, match="not a file"):
        pretrained.report(tmp_path)
    with pytest.raises(StorageError):
        pretrained.report(tmp_path / "missing" / "report.html")
    with pytest.raises(UsageError, match="path: expected a path, found 3"):
        pretrained.report(3)
    assert list(tmp_path.iterdir()) == []
