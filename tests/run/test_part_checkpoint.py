"""A part that is stopped inside an open shard goes on from its checkpoint, to the same bytes."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import feather
from pyarrow import parquet as pq

from tokmill.dataset.commit_record import PartRecord
from tokmill.engines.choice import EngineChoice
from tokmill.errors import ParityError
from tokmill.recipes.table import make_recipe
from tokmill.run.part import run_part
from tokmill.run.plan import Plan
from tokmill.run.prepare import prepare
from tokmill.settings.sft import SftSettings
from tokmill.storage import PendingFile

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

TEXTS = [f"{i} hello 猫 " * (i * 7 % 11 + 1) for i in range(40)]
ROWS: list[Any] = [{"text": text} for text in TEXTS]
LINES = [json.dumps(row, ensure_ascii=False).encode() for row in ROWS]
LINES[4:4] = [b"{bad", b"", b'{"text": 7}', b"[1]"]
LINES[25:25] = [b"\xff", b'{"text": ""}', b" "]
JSONL = b"\n".join(LINES) + b"\n"
SETTINGS = {
    "shard_tokens": 900,
    "val_fraction": 0.3,
    "min_tokens": 9,
    "batch_bytes": 250,
    "renderer": "text",
    "max_reject_fraction": 1.0,
}
CHATS = [
    {
        "messages": [
            {"role": role, "content": f"{i} hello " * (i % 4 + 1), "weight": weight}
            for turn in range(i % 3 + 1)
            for role, weight in (("user", 0), ("assistant", 0.5 if turn else 1))
        ]
    }
    for i in range(40)
]


def as_csv() -> bytes:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["text", "other"])
    writer.writerows([[text, "a\nb"] for text in TEXTS])
    return file.getvalue().encode()


def as_parquet() -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"text": TEXTS}), sink, row_group_size=9)
    return sink.getvalue()


def as_arrow() -> bytes:
    sink = io.BytesIO()
    feather.write_feather(pa.table({"text": TEXTS}), sink, chunksize=7)
    return sink.getvalue()


SOURCES: dict[str, Callable[[], dict[str, bytes]]] = {
    "lines": lambda: {"a.jsonl": JSONL},
    "gzip": lambda: {"a.jsonl.gz": gzip.compress(JSONL, mtime=0)},
    "cut gzip": lambda: {"a.jsonl.gz": gzip.compress(JSONL, mtime=0)[:-12]},
    "open quote": lambda: {"a.csv": as_csv() + b'1,"never closed\n2,b\n'},
    "lost array": lambda: {"a.json": b"[" + b",".join(json.dumps(r).encode() for r in ROWS)},
    "zstd": lambda: {"a.jsonl.zst": zstd.compress(JSONL)},
    "array": lambda: {"a.json": b"[\n" + b",\n".join(json.dumps(r).encode() for r in ROWS) + b"]"},
    "csv": lambda: {"a.csv": as_csv()},
    "text": lambda: {"a.txt": "\n\n".join(TEXTS).encode()},
    "parquet": lambda: {"a.parquet": as_parquet()},
    "arrow": lambda: {"a.arrow": as_arrow()},
    "small files": lambda: {
        f"{i:02}.jsonl": b"\n".join(LINES[i : i + 3]) for i in range(0, len(LINES), 3)
    },
}


class StoppedError(Exception):
    """No error of tokmill: no last checkpoint is made."""


class CountingRecipe:
    """A recipe that counts the documents that it encodes."""

    def __init__(self, recipe: Any) -> None:
        self._recipe = recipe
        self.n_documents = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._recipe, name)

    def process(self, blocks: Sequence[Any]) -> list[Any]:
        encoded = self._recipe.process(blocks)
        for block in encoded:
            self.n_documents += block.n_documents + sum(map(len, block.drops.values()))
        return encoded


class Attempt:
    """One attempt at the only part of a plan; `report` number `stop_at` raises `error`."""

    def __init__(
        self,
        plan: Any,
        *,
        stop_at: int | None = None,
        error: type[BaseException] = KeyboardInterrupt,
        checkpoint_s: float = 0.0,
    ) -> None:
        self.heard: list[Any] = []
        self.record: PartRecord | None = None
        assert len(plan.parts) == 1
        recipe = CountingRecipe(make_recipe(plan.spec))

        def report(progress: Any) -> None:
            self.heard.append(progress)
            if stop_at is not None and len(self.heard) > stop_at:
                raise error

        try:
            self.record = run_part(
                plan.spec, plan.parts[0], lambda: recipe, report, checkpoint_s=checkpoint_s
            )
        except error:
            assert stop_at is not None
        self.n_encoded = recipe.n_documents

    @property
    def n_resumed(self) -> int:
        """Documents that earlier attempts made."""
        return sum(p.documents + sum(p.drops.values()) for p in self.heard if p.resumed)

    @property
    def n_reported(self) -> int:
        return sum(p.documents + sum(p.drops.values()) for p in self.heard)


def files(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


def checkpoints(directory: Path) -> list[Path]:
    return list(directory.glob("parts/.*.checkpoint"))


@pytest.fixture
def planner(tmp_path, configure, plan_of):
    """Return what plans a run of one part over some files, into a directory of a given name."""

    def make(sources: dict[str, bytes], sft: SftSettings | None = None, **fixed: Any):
        (tmp_path / "in").mkdir()
        for name, data in sources.items():
            (tmp_path / "in" / name).write_bytes(data)

        def plan(name: str, **settings: Any):
            paths = [tmp_path / "in" / source for source in sources]
            config = configure(tmp_path / name, *paths, sft=sft, **SETTINGS | fixed | settings)
            return plan_of(config)

        return plan

    return make


@pytest.mark.parametrize("source", SOURCES)
def test_an_interrupted_part_continues_to_the_same_bytes(planner, tmp_path, source):
    separator = {"text_separator": "\n\n"} if source == "text" else {}
    plan = planner(SOURCES[source](), **separator)
    unbroken = Attempt(plan("unbroken"))
    want = files(tmp_path / "unbroken")
    n_documents = unbroken.n_encoded
    assert unbroken.record is not None
    assert len(unbroken.record.commits) > 1
    n_kept = 0
    for k in range(0, len(unbroken.heard) - 1, 2):
        stopped = Attempt(plan("out"), stop_at=k, checkpoint_s=1000.0)
        # The second attempt cuts its blocks otherwise, and has other threads.
        change = {"batch_bytes": (300, 777, 1 << 20)[k % 3], "threads": k % 3 + 1}
        again = Attempt(plan("out", **change))
        assert files(tmp_path / "out") == want
        assert again.record == unbroken.record
        assert again.n_encoded == n_documents - again.n_resumed
        assert again.n_reported == n_documents
        n_kept += again.n_resumed == stopped.n_reported > 0
        shutil.rmtree(tmp_path / "out")
    # All of it, but where the part was all read, or a block began with a broken record.
    assert n_kept >= len(unbroken.heard) // 4


@pytest.mark.parametrize("source", ["lines", "gzip", "parquet"])
def test_a_part_stopped_again_and_again_encodes_no_document_twice(planner, tmp_path, source):
    plan = planner(SOURCES[source]())
    unbroken = Attempt(plan("unbroken"))
    n_encoded, record, n_attempts = 0, None, 0
    while record is None:
        attempt = Attempt(plan("out", threads=2, batch_bytes=(250, 400)[n_attempts % 2]), stop_at=3)
        record, n_attempts = attempt.record, n_attempts + 1
        n_encoded += attempt.n_encoded
        assert n_attempts < 50
    assert n_attempts > 3
    assert record == unbroken.record
    assert files(tmp_path / "out") == files(tmp_path / "unbroken")
    ahead = 4  # blocks that were under way when it was stopped are encoded again
    assert n_encoded <= unbroken.n_encoded + n_attempts * ahead * 10


def test_what_is_stopped_by_a_bug_goes_on_from_its_last_checkpoint(planner, tmp_path):
    plan = planner(SOURCES["lines"](), shard_tokens=100_000)
    unbroken = Attempt(plan("unbroken"))
    kept = []
    for k in range(0, len(unbroken.heard) - 1, 3):
        Attempt(plan("out"), stop_at=k, error=StoppedError)
        assert len(checkpoints(tmp_path / "out")) == 1
        again = Attempt(plan("out"))
        assert files(tmp_path / "out") == files(tmp_path / "unbroken")
        kept.append(again.n_resumed)
        shutil.rmtree(tmp_path / "out")
    assert kept == sorted(kept)
    assert kept[-1] > unbroken.n_encoded / 2


def test_tokens_of_an_engine_with_wrong_ids_are_not_kept(planner, tmp_path):
    plan = planner(SOURCES["lines"](), shard_tokens=100_000)
    Attempt(plan("out"), stop_at=5, error=ParityError)
    assert files(tmp_path / "out") == {}


def test_an_interrupt_during_the_last_commit_waits_until_the_part_has_its_record(
    planner, tmp_path, monkeypatch
):
    plan, link = planner(SOURCES["lines"](), shard_tokens=100_000)("out"), os.link

    def interrupted_link(source: Path, target: Path, **options: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        link(source, target, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", interrupted_link)  # which the part's record is committed with
        with pytest.raises(KeyboardInterrupt):
            run_part(plan.spec, plan.parts[0], lambda: make_recipe(plan.spec), lambda _: None)
    assert (tmp_path / "out/parts/0000000.json").exists()
    assert Attempt(plan).n_encoded == 0


def test_without_a_checkpoint_yet_nothing_is_left_behind(planner, tmp_path):
    plan = planner(SOURCES["lines"](), shard_tokens=100_000)
    Attempt(plan("out"), stop_at=3, error=StoppedError, checkpoint_s=1000.0)
    assert files(tmp_path / "out") == {}


def test_a_part_of_chats_continues_with_its_masks_weights_and_samples(
    configure, chat_tokenizer, write_rows, tmp_path
):
    sft = SftSettings(template="chatml", weights="file", samples="turn", schema="messages")
    source = write_rows(tmp_path / "in.jsonl", [*CHATS[:5], b"{bad", {"messages": []}, *CHATS[5:]])
    fixed = {"shard_tokens": 3000, "val_fraction": 0.3, "path": str(chat_tokenizer())}

    def plan(name: str, threads: int = 1, batch_bytes: int = 600) -> Plan:
        for folder in ("parts", "rejects"):
            (tmp_path / name / folder).mkdir(parents=True, exist_ok=True)
        settings = fixed | {"batch_bytes": batch_bytes, "max_reject_fraction": 1.0}
        prepared = prepare(configure(tmp_path / name, source, sft=sft, **settings))
        engine = EngineChoice("tokenizers", version("tokenizers"), "asked for")
        return Plan(prepared.spec(engine, threads), prepared.parts)

    unbroken = Attempt(plan("unbroken"))
    want = files(tmp_path / "unbroken")
    assert any(name.endswith(".weight") for name in want)
    assert any(name.startswith("val-") for name in want)
    for k in range(0, len(unbroken.heard) - 1, 3):
        Attempt(plan("out"), stop_at=k)
        again = Attempt(plan("out", threads=2, batch_bytes=900))
        assert files(tmp_path / "out") == want
        assert again.n_encoded == unbroken.n_encoded - again.n_resumed
        shutil.rmtree(tmp_path / "out")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-2])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to(path.with_name("elsewhere"))


@pytest.mark.parametrize("damage", [cut, flip, Path.unlink, link])
@pytest.mark.parametrize("ending", ["bin", "idx", "jsonl", "checkpoint"])
def test_a_damaged_checkpoint_is_ignored_and_the_commit_begins_again(
    planner, tmp_path, damage, ending
):
    plan = planner(SOURCES["lines"](), shard_tokens=100_000)
    Attempt(plan("unbroken"))
    Attempt(plan("out"), stop_at=8)
    out = tmp_path / "out"
    pattern = "parts/.*.checkpoint" if ending == "checkpoint" else f"**/.*.{ending}.*.tmp"
    damage(sorted(out.glob(pattern))[0])
    again = Attempt(plan("out"))
    assert again.n_resumed == (again.n_resumed if damage is link and ending == "checkpoint" else 0)
    found = {name: data for name, data in files(out).items() if "elsewhere" not in name}
    if (
        ending == "checkpoint"
    ):  # its files cannot be known: the run removes them, see `remove_leftovers`
        found = {name: data for name, data in found.items() if not name.endswith(".tmp")}
    assert found == files(tmp_path / "unbroken")


def test_a_checkpoint_of_another_commit_or_other_settings_is_removed(planner, tmp_path):
    plan = planner(SOURCES["lines"](), shard_tokens=300)
    Attempt(plan("unbroken"))
    Attempt(plan("out"), stop_at=2)
    (path,) = checkpoints(tmp_path / "out")
    early = files(tmp_path / "out")
    assert Attempt(plan("out"), stop_at=6).record is None
    assert len(list((tmp_path / "out" / "parts").glob("*-*.json"))) > 0
    for name, data in early.items():  # as if the kill had come before it was removed
        (tmp_path / "out" / name).unlink(missing_ok=True)
        (tmp_path / "out" / name).write_bytes(data)
    Attempt(plan("out"))
    assert files(tmp_path / "out") == {
        **files(tmp_path / "unbroken"),
        **{n: d for n, d in files(tmp_path / "out").items() if n.endswith(".tmp")},
    }
    assert not path.exists()
    Attempt(plan("other"), stop_at=2)
    other = plan("other", min_tokens=2)
    again = Attempt(other)
    assert again.n_resumed == 0
    assert checkpoints(tmp_path / "other") == []


def test_a_file_that_another_process_still_writes_is_not_continued(planner, tmp_path):
    plan = planner(SOURCES["lines"](), shard_tokens=100_000)
    Attempt(plan("unbroken"))
    Attempt(plan("out"), stop_at=8)
    (name,) = (path.name for path in (tmp_path / "out").glob(".train-*.bin.*"))
    zombie = PendingFile(tmp_path / "out" / "train-0000000-0000.bin", resumed=name, n_bytes=8)
    try:
        assert Attempt(plan("out")).n_resumed == 0
        zombie.write(b"late")
    finally:
        zombie.discard()
    assert files(tmp_path / "out") == files(tmp_path / "unbroken")
