"""A training from an object store: the batches of a directory, whatever the store and cache do."""

from __future__ import annotations

import errno
import fcntl
import itertools
import json
import logging
import os
import pickle
import shutil
import threading
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tokmill
from bench.loader_store import kill_readers
from tests.place.faulty_s3 import Faulty
from tokmill.api.dataset import Dataset
from tokmill.errors import StorageError, UsageError, VerifyError
from tokmill.loader import AttentionCost, BatchSampler, Loader, Phase, documents, packs, windows
from tokmill.place import open_place

SAMPLES = Path(__file__).parents[2] / "data_samples"
BIG = 10**9


@pytest.fixture(scope="session")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Twelve shards of about 6,000 tokens, packed in rows of 128."""
    return tokmill.pretrain(
        SAMPLES / "records.jsonl", tokenizer=SAMPLES / "tokenizer", val_fraction=0.02,
        output=tmp_path_factory.mktemp("shards") / "out", shard_tokens=6_000, packing=128,
        progress=False,
    )  # fmt: skip


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that fails is asked again at once."""
    monkeypatch.setattr("tokmill.stores.connections.time.sleep", lambda _: None)
    monkeypatch.setattr("tokmill.stores.connections._TRIES", 2)
    monkeypatch.setattr("tokmill.dataset.cached_dataset._FIRST_WAIT_S", 0.01)


def same(found: Any, expected: Any) -> None:
    """Check that two iterables of batches are equal."""
    for one, other in zip(found, expected, strict=True):
        assert one.keys() == other.keys()
        for name, values in other.items():
            np.testing.assert_array_equal(one[name], values)


Make = Callable[..., Any]
SOURCES: dict[str, Make] = {
    "windows": lambda place, **more: windows(place, 100, shift=True, **more),
    "long windows": lambda place, **more: windows(place, 2000, shift=True, **more),
    "segments": lambda place, **more: windows(
        place, 100, shift=False, document_ids=True, cu_seqlens=True, sources=True, **more
    ),
    "packs": lambda place, **more: packs(place, shift=True, sources=True, **more),
    "one source": lambda place, **more: windows(
        place, 100, shift=True, source=str(SAMPLES / "records.jsonl"), **more
    ),
}


@pytest.mark.parametrize(
    ("kind", "cache_bytes", "shuffle"),
    [
        ("windows", 40_000, False),  # as many bytes as the largest shard
        ("windows", 100_000, "blocks"),
        ("long windows", 40_000, True),
        ("segments", 100_000, "blocks"),
        ("segments", BIG, True),
        ("packs", 100_000, "blocks"),
        ("packs", BIG, True),
        ("one source", 100_000, "blocks"),
    ],
)
def test_batches_are_those_of_the_directory(
    kind, cache_bytes, shuffle, shards, uploaded, cache
) -> None:
    here = SOURCES[kind](shards.directory)
    there = SOURCES[kind](uploaded(shards.directory), cache=cache, cache_bytes=cache_bytes)
    options: dict[str, Any] = {"batch": 16, "seed": 5, "shuffle": shuffle, "blocks": 2, "epochs": 1}
    assert there.fingerprint == here.fingerprint
    same(Loader(there, workers=2, **options), Loader(here, **options))
    assert sum(path.stat().st_size for path in cache.glob("blake3-*")) <= cache_bytes


def test_chats_and_documents_are_those_of_the_directory(chats, uploaded, cache) -> None:
    url = uploaded(chats.directory)
    same(packs(url, shift=False, cache=cache), packs(chats.directory, shift=False))
    same(documents(url, cache=cache), documents(chats.directory))
    with pytest.raises(IndexError, match=f"^{url}: no sample 9999"):
        documents(url, cache=cache)[9999]


def test_each_file_is_fetched_once_if_the_cache_holds_all(shards, uploaded, cache, faults) -> None:
    source = windows(uploaded(shards.directory), 100, shift=True, cache=cache, cache_bytes=BIG)
    before = faults.counts["requests"]
    for _ in Loader(source, batch=8, epochs=2, workers=2):
        pass
    n_files = len([one for one in shards.manifest["shards"] if one["split"] == "train"])
    assert faults.counts["requests"] - before == n_files + 2  # the manifest is looked at


def test_blocks_fetch_each_shard_at_most_twice_an_epoch(shards, uploaded, cache, faults) -> None:
    source = windows(uploaded(shards.directory), 20, shift=True, cache=cache, cache_bytes=90_000)
    before = faults.counts["requests"]
    for _ in Loader(source, batch=8, epochs=1, shuffle="blocks", blocks=2):
        pass
    n_files = len([one for one in shards.manifest["shards"] if one["split"] == "train"])
    assert faults.counts["requests"] - before <= 2 * n_files + 1


def test_two_datasets_share_a_cache(shards, pieces, uploaded, cache) -> None:
    here = [windows(one.directory, 1000, shift=True) for one in (shards, pieces)]
    options: dict[str, Any] = {"shift": True, "cache": cache, "cache_bytes": 80_000}
    urls = [uploaded(shards.directory, "a"), uploaded(pieces.directory, "b")]
    there = [windows(url, 1000, **options) for url in urls]
    given: dict[str, Any] = {"batch": 4, "epochs": 1, "shuffle": "blocks", "blocks": 2}
    same(
        Loader([(one, 0.5) for one in there], **given),
        Loader([(one, 0.5) for one in here], **given),
    )


def test_a_pickled_source_and_workers_of_a_dataloader_read_the_store(
    shards, uploaded, cache
) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    source = windows(uploaded(shards.directory), 500, shift=True, cache=cache, cache_bytes=100_000)
    here = windows(shards.directory, 500, shift=True)
    same([pickle.loads(pickle.dumps(source))[3]], [here[3]])
    batches = [
        torch.utils.data.DataLoader(
            one, batch_sampler=BatchSampler(one, batch=16, shuffle="blocks", blocks=2),
            num_workers=n_workers, collate_fn=tokmill.loader.collate,
        )
        for one, n_workers in ((source, 1), (here, 0))
    ]  # fmt: skip
    same(*batches)


def test_phases_go_on_from_two_ranks_to_three_as_in_a_directory(shards, uploaded, cache) -> None:
    phases = [Phase(until="120 samples", batch=12, length=200), Phase(batch=12, length=400)]

    def read(place: Any, **options: Any) -> list[Any]:
        found, state = [], None
        for world, n_batches in ((2, 8), (3, 5)):
            loaders = [
                Loader(windows(place, 400, shift=True, **options), phases=phases, rank=rank,
                       world=world, seed=2)
                for rank in range(world)
            ]  # fmt: skip
            for loader in loaders:
                if state:
                    loader.load_state_dict(state)
                found += list(itertools.islice(loader, n_batches))
            state = loaders[0].state_dict()
        return found

    url = uploaded(shards.directory)
    same(read(url, cache=cache, cache_bytes=BIG), read(shards.directory))


def test_a_small_cache_is_said_once(shards, uploaded, cache, caplog) -> None:
    source = windows(uploaded(shards.directory), 4000, shift=True, cache=cache, cache_bytes=40_000)
    with caplog.at_level(logging.WARNING, "tokmill"):
        for _ in range(2):
            next(iter(Loader(source, batch=1)))
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith(f"{cache}: the cache holds 40 kB of 144 kB: almost every row fetches")


def test_an_older_source_does_not_read_the_dataset_that_was_opened_at_its_url_since(
    shards, pieces, uploaded, cache
) -> None:
    url = uploaded(shards.directory)
    old = windows(url, 100, shift=True, document_ids=True, cache=cache, cache_bytes=BIG)
    uploaded(pieces.directory)
    new = windows(url, 100, shift=True, cache=cache, cache_bytes=BIG)
    same([new[0]], [windows(pieces.directory, 100, shift=True)[0]])
    with pytest.raises(VerifyError, match=f"^{url}: the dataset was replaced after it was opened"):
        old[0]


# What a cache refuses, and what it finds


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "a dataset in a store is read through a cache on a local disk: name a directory"),
        ({"cache_bytes": "1GB"}, "cache_bytes: without cache there is none"),
        ({"cache": "CACHE", "cache_bytes": "much"}, "cache_bytes: expected a size such as 8MiB"),
        ({"cache": "CACHE", "cache_bytes": 0}, "cache_bytes: expected a whole number from 1"),
        ({"cache": "CACHE", "cache_bytes": 900}, "hold no shard of URL: .* has 34,... bytes: give"),
        ({"cache": "s3://bucket/cache"}, "cache: expected a directory of this machine, found"),
        ({"cache": ""}, "cache: expected a directory of this machine, found ''"),
    ],
)
def test_a_wrong_cache_is_refused_in_one_line(options, message, shards, uploaded, cache) -> None:
    url = uploaded(shards.directory)
    given = {name: str(cache) if value == "CACHE" else value for name, value in options.items()}
    with pytest.raises(UsageError, match=message.replace("URL", url)) as raised:
        windows(url, 100, shift=True, **given)
    assert "\n" not in str(raised.value)


def test_a_dataset_on_a_disk_needs_no_cache(shards, cache) -> None:
    with pytest.raises(UsageError, match="is on a disk, and needs no cache: leave it out"):
        windows(shards.directory, 100, shift=True, cache=cache)


def test_a_cache_that_cannot_be_written_to_is_refused(shards, uploaded, cache, monkeypatch) -> None:
    url = uploaded(shards.directory)
    cache.write_text("a file")
    with pytest.raises(StorageError, match="the cache needs a directory that this user can write"):
        windows(url, 100, shift=True, cache=cache)
    cache.unlink()
    cache.mkdir(mode=0o500)
    real = os.open

    def refuse(path: Any, flags: int, *more: Any, **options: Any) -> int:
        if str(path).startswith(str(cache)) and flags & os.O_CREAT:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return real(path, flags, *more, **options)

    monkeypatch.setattr(os, "open", refuse)  # root may write anywhere
    with pytest.raises(StorageError, match=f"^{cache}: read-only file system: the cache needs"):
        windows(url, 100, shift=True, cache=cache)


def test_a_full_disk_is_one_line_and_leaves_nothing(shards, uploaded, cache, monkeypatch) -> None:
    source = windows(uploaded(shards.directory), 100, shift=True, cache=cache, cache_bytes=BIG)

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("tokmill.dataset.object_cache.os.pwrite", full)
    with pytest.raises(StorageError, match="no space left on device: the cache needs a directory"):
        source[0]
    assert not list(cache.glob("*blake3*"))


def test_what_others_left_in_a_cache_is_no_obstacle(shards, uploaded, cache) -> None:
    url = uploaded(shards.directory)
    sums = [
        f"blake3-{one['blake3']}" for one in shards.manifest["files"] if one["name"].endswith("bin")
    ]
    cache.mkdir()
    for name in sums[:3]:
        (cache / f".{name}.part").write_bytes(bytes(70_000))  # of a process that was killed
    (cache / sums[4]).write_bytes(b"cut")
    (cache / f".order-12345-{'0' * 8}").write_text("\n".join(sums))
    (cache / "notes.txt").write_bytes(bytes(10**6))
    source = windows(url, 100, shift=True, cache=cache, cache_bytes=60_000)
    same(source, windows(shards.directory, 100, shift=True))
    assert (cache / "notes.txt").exists()
    assert not list(cache.glob("*.part"))
    assert len(list(cache.glob(".order-*"))) <= 1


def test_a_process_that_stands_still_while_it_fetches_is_waited_for_with_a_word(
    shards, uploaded, cache, caplog, monkeypatch
) -> None:
    monkeypatch.setattr("tokmill.dataset.object_cache.SILENT_S", 0.05)
    url = uploaded(shards.directory)
    source = windows(url, 100, shift=True, cache=cache, cache_bytes=BIG)
    held = []
    for one in shards.manifest["files"]:
        held.append((cache / f".blake3-{one['blake3']}.part").open("wb"))
        fcntl.flock(held[-1], fcntl.LOCK_EX)
    release = threading.Timer(0.3, lambda: [file.close() for file in held])
    release.start()
    with caplog.at_level(logging.WARNING, "tokmill"):
        same([source[0]], [windows(shards.directory, 100, shift=True)[0]])
    release.join()
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.endswith(".part: waiting for the process that fetches it")


def test_a_file_of_another_user_or_a_link_is_refused(shards, uploaded, cache, tmp_path) -> None:
    url = uploaded(shards.directory)
    entry = next(one for one in shards.manifest["files"] if one["name"].startswith("train-"))
    cache.mkdir()
    (tmp_path / "other").write_bytes(bytes(entry["bytes"]))
    for one in shards.manifest["files"]:
        (cache / f"blake3-{one['blake3']}").symlink_to(tmp_path / "other")
    source = windows(url, 100, shift=True, cache=cache, cache_bytes=BIG)
    with pytest.raises(StorageError, match="expected a file of this user in the cache: remove it"):
        source[0]


# What a store does


def put(url: str, name: str, data: bytes) -> None:
    open_place(url).write(name, data)


def test_a_wrong_byte_is_an_error_that_names_the_shard(shards, uploaded, cache) -> None:
    url = uploaded(shards.directory)
    name = f"{next(s for s in shards.manifest['shards'] if s['split'] == 'train')['name']}.bin"
    data = bytearray((shards.directory / name).read_bytes())
    data[100] ^= 1
    put(url, name, bytes(data))
    source = windows(url, 100, shift=True, cache=cache, cache_bytes=BIG)
    with pytest.raises(VerifyError, match=f"^{url}/{name}: its 1.,... bytes are not those of the"):
        source[0]
    assert not list(cache.glob("*blake3*"))
    with pytest.raises(VerifyError, match="not those of the manifest"):
        list(Loader(source, batch=8, workers=2, epochs=1))


def test_a_missing_shard_is_an_error(shards, uploaded, cache) -> None:
    url = uploaded(shards.directory)
    name = f"{next(s for s in shards.manifest['shards'] if s['split'] == 'train')['name']}.bin"
    open_place(url).remove(name)
    source = windows(url, 100, shift=True, cache=cache, cache_bytes=BIG)
    with pytest.raises(VerifyError, match=f"^{url}/{name}: missing in the store"):
        source[0]


@pytest.mark.parametrize("is_known", [False, True])
def test_a_dataset_that_is_replaced_is_refused(is_known, shards, uploaded, cache, tmp_path) -> None:
    url = uploaded(shards.directory)
    source = windows(url, 100, shift=True, cache=cache, cache_bytes=BIG)
    loader = Loader(source, batch=8)
    other = tokmill.mix([shards.directory], shuffle=1, output=tmp_path / "mix", progress=False)
    uploaded(other.directory)
    if is_known:
        with pytest.raises(VerifyError, match=f"^{url}: the dataset was replaced"):
            loader.one_epoch()
    with pytest.raises(VerifyError, match=f"^{url}: the dataset was replaced"):
        source.batch(range(len(source)))


def failing(faults: Faulty, kind: str, times: int) -> None:
    """Let the next requests for shards fail."""
    left = iter(range(times))

    def fails(method: str, path: str) -> str:
        return kind if path.endswith((".bin", ".json")) and next(left, None) is not None else ""

    faults.fails = fails


@pytest.mark.parametrize("kind", ["error", "cut", "refused", "vanished"])
def test_a_training_waits_for_its_store_says_so_and_goes_on(
    kind, shards, uploaded, cache, faults, caplog, monkeypatch
) -> None:
    monkeypatch.setattr("tokmill.stores.connections._RETRY_S", 0)
    url = uploaded(shards.directory)
    tokmill.stores.connections.forget_connections()
    source = windows(url, 100, shift=True, cache=cache, cache_bytes=BIG)
    failing(faults, kind, 6)
    with caplog.at_level(logging.WARNING, "tokmill"):
        same(source, windows(shards.directory, 100, shift=True))
    faults.fails = None
    said = [record.getMessage() for record in caplog.records]
    assert [one for one in said if f"{url}: waiting for the store, up to 30 minutes" in one]
    assert said[-1] == f"{url}: the store answers again"
    assert len(said) <= 4, "it is said once"
    tokmill.stores.connections.forget_connections()


def test_a_store_that_never_answers_ends_a_training(
    shards, uploaded, cache, faults, monkeypatch
) -> None:
    monkeypatch.setattr("tokmill.stores.connections._RETRY_S", 0)
    monkeypatch.setattr("tokmill.dataset.cached_dataset.PATIENCE_S", 0.05)
    url = uploaded(shards.directory)
    tokmill.stores.connections.forget_connections()
    source = windows(url, 100, shift=True, cache=cache, cache_bytes=BIG)
    failing(faults, "error", 10**6)
    with pytest.raises(StorageError, match=f"^{url}/.*: the store did not answer for"):
        source[0]
    faults.fails = None
    tokmill.stores.connections.forget_connections()


def test_errors_now_and_then_change_nothing(shards, uploaded, cache, faults) -> None:
    url = uploaded(shards.directory)
    source = windows(url, 500, shift=True, cache=cache, cache_bytes=60_000)
    faults.share = 0.05
    options: dict[str, Any] = {"batch": 16, "shuffle": "blocks", "blocks": 3, "epochs": 1}
    same(
        Loader(source, workers=2, **options),
        Loader(windows(shards.directory, 500, shift=True), **options),
    )


@pytest.mark.usefixtures("server")
def test_readers_that_share_a_cache_are_killed_and_read_the_same_batches(tmp_path) -> None:
    outcome = kill_readers(tmp_path, 2)
    assert (outcome.n_kills, outcome.n_wrong, outcome.left) == (2, 0, [])
    assert outcome.n_batches == 4 * 90
    assert outcome.most_bytes <= outcome.cache_bytes


def test_a_cache_that_is_removed_is_one_line(shards, uploaded, cache) -> None:
    source = windows(uploaded(shards.directory), 100, shift=True, cache=cache, cache_bytes=BIG)
    shutil.rmtree(cache)
    with pytest.raises(StorageError, match="the cache needs a directory"):
        source[0]


@pytest.mark.parametrize("shuffle", [True, "blocks"])
def test_phases_and_kept_fields_are_those_of_the_directory(
    shuffle: Any, tmp_path, tokenizer_dir, uploaded, cache
) -> None:
    rows = [{"text": f"{i} " + "x " * (i % 9), "url": f"u{i}"} for i in range(40)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    made = tokmill.pretrain(
        tmp_path / "a.jsonl", tokenizer=tokenizer_dir, output=tmp_path / "out", keep=["url"],
        shard_tokens=100, progress=False,
    )  # fmt: skip
    options: Any = {"shift": True, "columns": ["url"], "sources": True}
    here = windows(made, 16, **options)
    there = windows(uploaded(made.directory), 16, **options, cache=cache, cache_bytes=10_000)
    phases = [Phase("8 samples", length=8, batch=2), Phase("44 samples", length=16, batch=6)]
    make: Any = {"phases": phases, "shuffle": shuffle, "blocks": 2}
    whole = [{**one, "url": one["url"].tolist()} for one in Loader(here, **make)]
    two = [Loader(there, rank=rank, world=2, **make) for rank in range(2)]
    found = list(islice(zip(*two, strict=True), 5))  # into the second phase
    three = [Loader(there, rank=rank, world=3, **make) for rank in range(3)]
    for loader in three:
        loader.load_state_dict(two[0].state_dict())
    found += list(zip(*three, strict=True))
    for ranks, batch in zip(found, whole, strict=True):
        assert [url for one in ranks for url in one["url"].tolist()] == batch["url"]
        for name in ("input_ids", "labels", "source_ids", "column_ids"):
            np.testing.assert_array_equal(np.concatenate([one[name] for one in ranks]), batch[name])


@pytest.mark.parametrize("shuffle", [True, "blocks"])
def test_rows_of_a_store_are_balanced_as_those_of_a_directory(
    shards, uploaded, cache, shuffle
) -> None:
    here = windows(shards.directory, 100, shift=True, cu_seqlens=True)
    url = uploaded(shards.directory)
    there = windows(url, 100, shift=True, cu_seqlens=True, cache=cache, cache_bytes=BIG)
    balance = AttentionCost(token=8)
    options: dict[str, Any] = {"batch": 2, "world": 2, "shuffle": shuffle, "epochs": 1}
    same(Loader(there, balance=balance, **options), Loader(here, balance=balance, **options))
    assert Loader(there, **options).balance() == Loader(here, **options).balance()
