from __future__ import annotations

import http.server
import importlib.util
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import tokmill
from tokmill.errors import StorageError, UsageError
from tokmill.run.finish import run
from tokmill.settings.schema import InputSettings
from tokmill.sources.files import Slice, SourceFile
from tokmill.sources.formats import open_slice
from tokmill.sources.hub import commit_of, hub_name

REVISION = "0" * 39 + "1"
FILE = "data/train.jsonl"
DATA = b"".join(b'{"title": "t%d", "ids": [%d, 0]}\n' % (i, i + 3) for i in range(5))
INFO = {"id": "org/name", "sha": REVISION, "tags": [], "siblings": [{"rfilename": FILE}]}
ENTRY = {"type": "file", "path": FILE, "size": len(DATA), "oid": "a" * 40}
FOLDER = {"type": "directory", "path": "data", "size": 0, "oid": "b" * 40}

READ = """
import json
import sys

import pyarrow as pa

from tokmill.settings.schema import InputSettings
from tokmill.errors import TokmillError
from tokmill.sources.files import Slice, discover
from tokmill.sources.first_records import first_of_file
from tokmill.sources.formats import open_slice

schema = pa.schema([("title", pa.string())])
for name in sys.argv[1:]:
    settings = InputSettings(paths=(name,))
    try:
        (file,) = discover(settings).files
        names = list(first_of_file(file, settings, 100, 1 << 20, whole=False)[0])
        found = []
        with open_slice(Slice(file, 0, -1, 0), settings, schema, 20) as reader:
            for block in reader.blocks():
                records = block.parse()
                for row, record in enumerate(records.batch.to_pylist()):
                    found.append([int(records.places[row, 0]), record["title"]])
        print(json.dumps([names, found]))
    except TokmillError as error:
        print(json.dumps([type(error).__name__, str(error)]))
"""


class Server(http.server.BaseHTTPRequestHandler):
    """Answers what `datasets` asks for, for one dataset of one file."""

    protocol_version = "HTTP/1.1"

    def answer(self):
        length = int(self.headers.get("Content-Length") or 0)
        asked = self.rfile.read(length).decode()
        path = self.path.split("?")[0]
        if re.fullmatch(r"/api/datasets/org/name(/revision/[^/]+)?", path):
            self.reply(200, json.dumps(INFO).encode())
        elif path.endswith("/paths-info/" + REVISION):
            self.reply(200, json.dumps([ENTRY] if FILE in asked else [FOLDER]).encode())
        elif found := re.fullmatch(r"/api/datasets/org/name/tree/[^/]+(/data)?", path):
            self.reply(200, json.dumps([ENTRY] if found[1] else [FOLDER]).encode())
        elif re.fullmatch(rf"/datasets/org/name/resolve/[^/]+/{FILE}", path):
            self.send_file()
        elif path.startswith(("/datasets/org/name/", "/api/datasets/org/name/")):
            self.reply(404, headers={"X-Error-Code": "EntryNotFound"})
        else:
            self.reply(404, headers={"X-Error-Code": "RepoNotFound"})

    do_GET = do_HEAD = do_POST = answer

    def send_file(self):
        headers = {"ETag": '"1"', "Accept-Ranges": "bytes"}
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if wanted is None:
            self.reply(200, DATA, headers)
            return
        start, stop = int(wanted[1]), min(int(wanted[2] or len(DATA)), len(DATA) - 1)
        headers["Content-Range"] = f"bytes {start}-{stop}/{len(DATA)}"
        self.reply(206, DATA[start : stop + 1], headers)

    def reply(self, status, body=b"", headers=None):
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Repo-Commit", REVISION)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_):
        """Say nothing."""


@pytest.fixture
def read_hub(tmp_path):
    """Reads from a stub of the Hub in a process of its own: `datasets` fixes the address early."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    settings = {
        "HF_ENDPOINT": f"http://127.0.0.1:{server.server_address[1]}",
        "HF_HOME": str(tmp_path / "hub"),
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "NO_PROXY": "127.0.0.1",
    }

    def read(*names):
        done = subprocess.run(
            [sys.executable, "-c", READ, *names],
            env={**os.environ, **settings},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        return [json.loads(line) for line in done.stdout.splitlines()[-len(names) :]]

    yield read
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.skipif(
    importlib.util.find_spec("datasets") is None, reason="the datasets package is not installed"
)
def test_a_hub_dataset_is_streamed_and_one_that_cannot_be_reached_is_one_line(read_hub):
    (names, found), (kind, message) = read_hub("hf:org/name", "hf:org/none")
    assert names == ["title", "ids"]
    assert found == [[i + 1, f"t{i}"] for i in range(5)]
    assert kind == "StorageError"
    assert message.startswith("hf:org/none: cannot be read from the Hub: ")
    assert "\n" not in message


def test_a_missing_package_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    piece = Slice(SourceFile("hf:a/b", "hub", "", 0, 0, ""), 0, -1, 0)
    opened = open_slice(piece, InputSettings(), pa.schema([]), 10)
    with pytest.raises(UsageError, match=r"hf:a/b: .* install tokmill\[hub\]"), opened:
        pass
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(UsageError, match=r"the huggingface_hub package; install tokmill\[hub"):
        commit_of(NAME)


# Which commit is read: with stand-ins for the packages


OLD, NEW = "a" * 40, "b" * 40
NAME = "hf:org/name"


class Hub:
    """A Hub of one dataset whose branches move; says what it was asked for."""

    def __init__(self) -> None:
        self.branches = {None: OLD, "side": "c" * 40}
        self.asked: list[str | None] = []
        self.read: list[str | None] = []
        self.has_ids = False

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
        if self.has_ids:
            return Rows([{"input_ids": [3, 4 + i], "labels": [-100, 4 + i]} for i in range(40)])
        text = f"hello {how['revision']}"
        return Rows([{"text": f"{text} {i}"} for i in range(40)])


class Rows:
    """As much of an IterableDataset as is used."""

    features = None

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows, self.column_names = rows, list(rows[0])

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


@pytest.mark.parametrize(
    ("revision", "message"),
    [("gone", r"^hf:org/name@gone: cannot be read from the Hub: Revision Not Found$")],
)
def test_what_the_hub_does_not_know_is_one_line(hub, revision, message):
    with pytest.raises(StorageError, match=message):
        commit_of(f"{NAME}@{revision}")


def test_rows_of_ids_are_imported_and_continued_at_their_commit(hub, tokenizer_dir, tmp_path):
    hub.has_ids = True
    given = {"trainer": "datasets", "output": tmp_path / "out", "tokenizer": tokenizer_dir}
    tokmill.import_dataset(NAME, **given)
    hub.branches[None] = NEW
    made = tokmill.import_dataset(NAME, **given)
    assert [made[i].tolist() for i in range(40)] == [[3, 4 + i] for i in range(40)]
    assert stamps(tmp_path / "out") == [OLD]
    assert set(hub.read) == {OLD}
