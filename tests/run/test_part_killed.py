"""A part that is killed before any call that makes a file durable is made again with equal bytes.

The children are forked by a process that has encoded nothing yet, so no library has threads in it:
one is killed, the next one goes on. It imports what the first of them needed: they all begin warm.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CHILDREN = """
import importlib, os, shutil, signal, sys
from pathlib import Path
from tokmill.settings.load import build_config
from tokmill.engines.choice import EngineChoice
from tokmill.engines.engine import engine_version
from tokmill.run.output import remove_leftovers
from tokmill.run.prepare import prepare
from tokmill.run.part import run_part
from tokmill.recipes.table import make_recipe
from tokmill.place import open_place

source, tokenizer, top = sys.argv[1:4]

def make(name, kill_at):
    out = Path(top, name)
    for folder in ("parts", "rejects"):
        (out / folder).mkdir(parents=True, exist_ok=True)
    prepared = prepare(build_config({
        "input": {"paths": [source], "keep": ["url"]}, "tokenizer": {"path": tokenizer},
        "output": {"dir": str(out), "shard_tokens": 500, "val_fraction": 0.3},
        "run": {"block_bytes": 400, "threads": 1},
    }, where="test"))
    engine = EngineChoice("reference", engine_version("reference", prepared.tokenizer), "asked")
    spec = prepared.spec(engine)
    calls = 0

    def watched(call):
        def watch(*arguments, **named):
            nonlocal calls
            calls += 1
            if calls == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **named)
        return watch

    for name in ("fdatasync", "fsync"):  # a killed process loses no written byte: only counted
        setattr(os, name, watched(os.fstat))
    for name in ("replace", "fchmod", "link", "unlink"):
        setattr(os, name, watched(getattr(os, name)))
    place = open_place(str(out))
    remove_leftovers(place)
    run_part(spec, prepared.parts[0], place, make_recipe(spec), lambda progress: None)
    remove_leftovers(place)

def child(name, kill_at):
    pid = os.fork()
    if pid == 0:
        try:
            make(name, kill_at)
            Path(top, "modules").write_text(" ".join(sys.modules))
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

def files(name):
    top_of = Path(top, name)
    return {p.relative_to(top_of): p.read_bytes() for p in top_of.rglob("*") if p.is_file()}

assert child("unbroken", 0) == 0
want = files("unbroken")
for module in Path(top, "modules").read_text().split():
    importlib.import_module(module)
kill_at = 1
while True:
    stopped = child("out", kill_at)
    if stopped == 0:
        break
    assert stopped == -signal.SIGKILL
    # Killed once more, and then not.
    assert child("out", 2 * kill_at) in (0, -signal.SIGKILL)
    assert child("out", 0) == 0
    assert files("out") == want, kill_at
    shutil.rmtree(Path(top, "out"))
    kill_at += 5 if kill_at > 16 else 1
print(kill_at)
"""


def test_a_part_killed_before_any_call_is_made_again_with_the_same_bytes(
    tmp_path, tokenizer_dir, write_rows
):
    rows = [{"text": f"{i} hello 猫 " * (i % 5 + 1), "url": f"{i}"} for i in range(36)]
    rows[9:9] = [b"{bad"]
    source: Path = write_rows(tmp_path / "in.jsonl", rows)
    done = subprocess.run(
        [sys.executable, "-c", CHILDREN, str(source), str(tokenizer_dir), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 30
