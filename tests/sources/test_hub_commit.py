"""Which commit of a Hub dataset is read: with stand-ins for the packages, without a network."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from tokmill.dataset.canonical import json_chunks
from tokmill.dataset.plan_file import plan_fingerprint
from tokmill.errors import StorageError, UsageError
from tokmill.executors.run import run
from tokmill.place import open_place
from tokmill.run.begin import hub_commits
from tokmill.run.prepare import prepare
from tokmill.sources.hub import commit_of, hub_name

OLD, NEW = "a" * 40, "b" * 40
NAME = "hf:org/name"


class Hub:
    """A Hub of one dataset whose branches move; says what it was asked for."""

    def __init__(self) -> None:
        self.branches = {None: OLD, "side": "c" * 40}
        self.asked: list[str | None] = []
        self.read: list[str | None] = []

    def dataset_info(self, name: str, *, revision: str | None) -> Any:
        assert name == "org/name"
        self.asked.append(revision)
        if revision not in self.branches:
            raise OSError("Revision Not Found.\nmore")
        return SimpleNamespace(sha=self.branches[revision])

    def load_dataset(self, name: str, config: str | None, **how: Any) -> Any:
        assert sys.modules["datasets"].config.HF_DATASETS_TRUST_REMOTE_CODE is False
        assert (name, how["streaming"]) == ("org/name", True)
        self.read.append(how["revision"])
        text = f"hello {how['revision']}"
        return Rows([{"text": f"{text} {i}"} for i in range(40)])


class Rows:
    """As much of an IterableDataset as is used."""

    features = None

    def __init__(self, rows: list[dict[str, str]]) -> None:
        self.rows, self.column_names = rows, ["text"]

    def with_format(self, _: str) -> Rows:
        return self

    def iter(self, batch_size: int) -> Iterator[pa.Table]:
        for i in range(0, len(self.rows), batch_size):
            yield pa.Table.from_pylist(self.rows[i : i + batch_size])


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Hub:
    hub = Hub()
    for name, attribute, value in (
        ("huggingface_hub", "HfApi", lambda: hub),
        ("datasets", "load_dataset", hub.load_dataset),
    ):
        module = ModuleType(name)
        setattr(module, attribute, value)
        vars(module)["config"] = SimpleNamespace(HF_DATASETS_TRUST_REMOTE_CODE="ask")
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.chdir(tmp_path)
    return hub


def stamps(out: Path) -> list[str]:
    return [row[5] for row in json.loads((out / "plan.json").read_bytes())["files"]]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("hf:org/name", ("org/name", "", "", "train")),
        ("hf:org/name@side", ("org/name", "side", "", "train")),
        ("hf:name?config=a-b&split=train%5B%3A10%25%5D", ("name", "", "a-b", "train[:10%]")),
        ("hf:org/name@1f?split=test", ("org/name", "1f", "", "test")),
    ],
)
def test_a_name_may_have_a_revision_a_configuration_and_a_split(path, expected):
    assert hub_name(path) == expected


@pytest.mark.parametrize(
    "path", ["hf:", "hf:org/name@", "hf:org/name?spilt=test", "hf:a?split=a&split=b"]
)
def test_a_name_of_the_hub_that_is_none_is_refused(path):
    with pytest.raises(UsageError, match=r"expected hf:NAME\[@REVISION\]\[\?config=C&split=S\]"):
        hub_name(path)


@pytest.mark.parametrize(("asked", "commit"), [("", OLD), ("side", "c" * 40)])
def test_a_revision_is_resolved_to_a_commit_that_the_plan_names_and_that_is_read(
    hub, configure, listener, tmp_path, asked, commit
):
    run(configure(tmp_path / "out", f"{NAME}@{asked}" if asked else NAME), listener)
    assert stamps(tmp_path / "out") == [commit]
    assert hub.asked == [asked or None]
    assert set(hub.read) == {commit}


def test_a_commit_stands_for_itself_and_the_hub_is_not_asked(hub):
    assert commit_of(f"{NAME}@{NEW}") == NEW
    assert hub.asked == []


def test_a_run_that_is_continued_reads_the_commit_that_it_began_with(
    hub, configure, listener, tmp_path, files_of
):
    sources = [NAME, tmp_path / "b.jsonl"]
    sources[1].write_text('{"text": "hello"}\n' * 40)
    out = tmp_path / "out"
    config = configure(out, *sources, part_bytes=100)
    run(config, listener)
    before = files_of(out)
    hub.branches[None] = NEW
    hub.read.clear()
    (out / "manifest.json").unlink()
    (out / "train-0000000-0000.bin").unlink()
    run(config, listener)
    assert files_of(out) == before
    assert hub.asked == [None]
    assert set(hub.read) == {OLD}
    run(config, listener, overwrite=True)
    assert stamps(out)[0] == NEW


def test_a_hub_that_names_no_commit_is_an_error_before_anything_is_written(
    hub, configure, listener, tmp_path
):
    hub.branches[None] = ""
    with pytest.raises(StorageError, match="names no commit"):
        run(configure(tmp_path / "out", NAME), listener)
    assert not (tmp_path / "out").exists()


def test_a_plan_of_before_that_names_no_commit_goes_on_as_it_began(
    hub, configure, listener, tmp_path
):
    out = tmp_path / "out"
    config = configure(out, NAME)
    run(config, listener)
    plan = json.loads((out / "plan.json").read_bytes())
    plan["files"][0][5] = ""
    plan["fingerprint"] = plan_fingerprint(plan)
    (out / "plan.json").write_bytes(b"".join(json_chunks(plan)))
    hub.asked.clear()
    hub.read.clear()
    commits = hub_commits(config, open_place(str(out)), overwrite=False)
    assert commits == {NAME: ""}
    prepared = prepare(config, commits)
    assert [file.stamp for file in prepared.discovery.files] == [""]
    assert (hub.asked, set(hub.read)) == ([], {None})


@pytest.mark.parametrize(
    ("revision", "message"),
    [("gone", r"^hf:org/name@gone: cannot be read from the Hub: Revision Not Found$")],
)
def test_what_the_hub_does_not_know_is_one_line(hub, revision, message):
    with pytest.raises(StorageError, match=message):
        commit_of(f"{NAME}@{revision}")


def test_a_missing_package_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(UsageError, match=r"the huggingface_hub package; install tokmill\[hub"):
        commit_of(NAME)


def test_a_local_path_has_no_commit(hub, tmp_path):
    (tmp_path / "org/name").mkdir(parents=True)
    with pytest.raises(UsageError, match="found a local path, which has no commit"):
        commit_of(NAME)
