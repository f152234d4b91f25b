from __future__ import annotations

import http.server
import importlib.util
import json
import os
import re
import subprocess
import sys
import threading

import pyarrow as pa
import pytest

from tokmill.errors import UsageError
from tokmill.settings.schema import InputSettings
from tokmill.sources.files import Slice, SourceFile
from tokmill.sources.formats import open_slice

REVISION = "0" * 39 + "1"
FILE = "data/train.jsonl"
DATA = b"".join(b'{"title": "t%d", "n": %d}\n' % (i, i) for i in range(5))
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


class Hub(http.server.BaseHTTPRequestHandler):
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
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
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
    assert names == ["title", "n"]
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
