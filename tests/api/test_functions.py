"""The Python face: each way of calling it, its settings, and what a call leaves behind."""

from __future__ import annotations

import io
import json
import logging
import os
import pkgutil
import signal
import subprocess
import sys
import threading
import time
import warnings
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pytest

import tokmill
from tokmill.errors import RecordError, UsageError, VerifyError

ROWS = [{"text": f"hello {i} " * (i % 5 + 1)} for i in range(200)]
SETTINGS = {"workers": 2, "engine": "reference", "part_bytes": "2kB"}


@pytest.fixture
def source(tmp_path, write_rows) -> Path:
    return write_rows(tmp_path / "in.jsonl", ROWS)


@pytest.fixture
def make(tmp_path, source, tokenizer_dir):
    """Make a dataset for pretraining in `out`, on one worker."""

    def run(inputs=source, **settings):
        given = {"tokenizer": tokenizer_dir, "output": tmp_path / "out", **SETTINGS, "workers": 1}
        return tokmill.pretrain(inputs, **given | settings)

    return run


# Ways of calling


CALL = """
import tokmill
print("imported", flush=True)
{before}
def call(name="out"):
    dataset = tokmill.pretrain({source!r}, tokenizer={tokenizer!r}, output=name, **{settings!r})
    return len(dataset), dataset.n_tokens, dataset.text(3)
{call}
"""

SCRIPT, POOL = "a script without a guard", "a daemonic worker of a pool"
SPAWNED = "a spawned process of a script with a guard"

WAYS = {
    SCRIPT: ("", "print(call())"),
    "two threads at once": (
        "from concurrent.futures import ThreadPoolExecutor",
        "with ThreadPoolExecutor() as pool: print(*set(pool.map(call, ['a', 'b'])))",
    ),
    POOL: (
        "import multiprocessing",
        "with multiprocessing.get_context('fork').Pool(1) as pool: print(pool.apply(call))",
    ),
    SPAWNED: (
        "import multiprocessing",
        "if __name__ == '__main__':\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool: print(pool.apply(call))",
    ),
    "a changed directory of packages": ("import sys; sys.path.append('/nowhere')", "print(call())"),
}


@pytest.mark.parametrize(
    ("way", "how"),
    [
        *((way, "file") for way in WAYS),
        (SCRIPT, "-c"),
        (POOL, "-"),
    ],
)
def test_it_can_be_called_on_two_workers_from(way, how, source, tokenizer_dir, tmp_path):
    before, call = WAYS[way]
    code = CALL.format(
        source=str(source),
        tokenizer=str(tokenizer_dir),
        settings=SETTINGS,
        before=before,
        call=call,
    )
    script = tmp_path / "script.py"
    script.write_text(code)
    words = {"file": [str(script)], "-c": ["-c", code], "-": ["-"]}[how]
    done = subprocess.run(
        [sys.executable, *words], cwd=tmp_path, capture_output=True, text=True,
        input=code if how == "-" else "", timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    imported = ["imported"] * (2 if way == SPAWNED else 1)  # here, and in the spawned process
    assert done.stdout.splitlines() == [*imported, str((200, 2997, ROWS[3]["text"] + "<eos>"))]


def test_an_interrupted_call_says_what_is_kept_and_leaves_no_process(
    tmp_path, tokenizer_dir, write_rows
):
    source = write_rows(tmp_path / "in.jsonl", ROWS * 200)
    code = CALL.format(
        source=str(source), tokenizer=str(tokenizer_dir), before="", settings=SETTINGS,
        call="try:\n    call()\nexcept KeyboardInterrupt as error:\n    print(error)",
    )  # fmt: skip
    words = [sys.executable, "-c", code]
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        while not list((tmp_path / "out").glob("parts/*.json")):
            assert process.poll() is None
            time.sleep(0.005)
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=300)
    assert "interrupted; " in said
    assert said.endswith(" kept: the same command continues\n")
    assert children
    assert not psutil.wait_procs(children, timeout=300)[1]


def state() -> dict[str, object]:
    handled = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGCHLD, signal.SIGPIPE)
    umask = os.umask(0)
    os.umask(umask)
    return {
        "variables": dict(os.environ),
        "signals": [signal.getsignal(number) for number in handled],
        "blocked": signal.pthread_sigmask(signal.SIG_BLOCK, ()),
        "alarm": signal.getitimer(signal.ITIMER_REAL),
        "warnings": list(warnings.filters),
        "logging": (logging.root.level, logging.root.handlers[:], logging.getLogger().disabled),
        "handlers": logging.getLogger("tokmill").handlers[:],
        "directory": Path.cwd(),
        "umask": umask,
        "threads of pyarrow": (pa.cpu_count(), pa.io_thread_count()),
        "threads": {thread.name for thread in threading.enumerate()},
        "hooks": (sys.excepthook, sys.unraisablehook, threading.excepthook),
        "streams": (sys.stdin, sys.stdout, sys.stderr),
        "path": list(sys.path),
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
    }


@pytest.mark.parametrize("workers", [1, 2])
def test_a_call_leaves_nothing_changed_in_the_process(
    make, monkeypatch, workers, tmp_path, write_rows, source, tokenizer_dir
):
    monkeypatch.delenv("RAYON_NUM_THREADS", raising=False)
    make(output=tmp_path / "warm", workers=workers).close()
    broken = write_rows(tmp_path / "broken.jsonl", [*ROWS[:50], b"{bad", *ROWS])
    before = state()
    with make(workers=workers) as dataset:
        dataset.text(0)
    with pytest.raises(RecordError):
        make(broken, output=tmp_path / "bad", workers=workers, on_error="fail")
    tokmill.plan(source, tokenizer=tokenizer_dir, engine="reference")
    assert state() == before


def test_engine_threads_are_set_while_a_run_is_under_way_and_no_longer(make, monkeypatch):
    names = ["RAYON_NUM_THREADS", "FASTOKENS_BPE_THREADS"]
    for name in names:
        monkeypatch.delenv(name, raising=False)
    seen = []

    def progress(_):
        seen.append([os.environ.get(name) for name in names])

    make(threads=3, progress=progress)
    assert seen[0] == ["3", "1"]
    assert not set(names) & set(os.environ)
    monkeypatch.setenv("RAYON_NUM_THREADS", "2")
    seen.clear()
    make(threads=3, overwrite=True, progress=progress)
    assert seen[0] == ["2", "1"]
    assert [os.environ.get(name) for name in names] == ["2", None]


def test_nothing_is_printed_and_no_terminal_is_driven_where_there_is_none(make, capfd):
    make(progress=True)
    make(progress=None)
    make(progress=False)
    assert capfd.readouterr() == ("", "")


def test_notes_and_warnings_go_to_the_logger(make, caplog, write_rows, tmp_path, source):
    caplog.set_level(logging.INFO, "tokmill")
    make()
    next((tmp_path / "out").glob("*.bin")).unlink()
    make()
    said = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert any(level == "INFO" and line.startswith("input: 1 file") for level, line in said)
    assert any(level == "WARNING" and "was removed or cut" in line for level, line in said)


# Progress


def test_a_callback_hears_how_far_the_run_is(make, source):
    heard = []
    make(progress=heard.append, workers=2)
    assert all(isinstance(one, tokmill.Progress) for one in heard)
    last = heard[-1]
    assert (last.input_bytes, last.total_bytes) == (source.stat().st_size,) * 2
    assert (last.documents, last.tokens, last.drops, last.rejects) == (200, 2997, 0, 0)


def test_what_a_callback_raises_stops_the_run_and_the_same_call_continues_it(make):
    class EnoughError(Exception):
        pass

    def stop(progress):
        raise EnoughError

    with pytest.raises(EnoughError):
        make(progress=stop, workers=2)
    assert len(make(workers=2)) == 200


# Settings


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"val_fractoin": 1}, "val_fractoin: no such setting: did you mean val_fraction? "),
        ({"roles": ["user"]}, "roles: no such setting: it belongs to [sft]; known: "),
        ({"val_fraction": 2.0}, "val_fraction: expected between 0.0 and 1.0, found 2.0"),
        ({"workers": "2"}, "workers: expected int, found str ('2')"),
        ({"part_bytes": "2 parsecs"}, "part_bytes: expected a size such as 8MiB or 1GB, "),
        ({"tokenizer": ""}, "tokenizer: expected a value, found ''"),
        ({"output": None}, "no output: give output, a directory to write the dataset to"),
        ({"output": "a\0b"}, "output: expected a path, found "),
        ({"output": 5}, "output: expected a path, found 5"),
        ({"config": 5}, "config: expected a path, found 5"),
        ({"config": ""}, "config: expected a path, found ''"),
        ({"overwrite": "no"}, "overwrite: expected True or False, found 'no'"),
        ({"progress": "bar"}, "progress: expected a function, True or False, found 'bar'"),
        ({"paths": ["a"]}, "paths: the input is named twice: name it as inputs only"),
    ],
)
def test_a_wrong_argument_is_one_line_that_names_it_as_it_was_written(make, settings, message):
    with pytest.raises(UsageError) as caught:
        make(**settings)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("inputs", [None, 5, b"a", [None], [["a"]], {"a"}, {"a": 1}, io.StringIO()])
def test_inputs_that_are_no_ordered_paths_are_refused(inputs):
    with pytest.raises(UsageError, match="inputs: expected a path, a Source, a sequence of"):
        tokmill.pretrain(inputs, tokenizer="a", output="b")


@pytest.mark.parametrize("call", [tokmill.open, tokmill.verify])
@pytest.mark.parametrize("directory", [None, 5, b"a", "", "\0"])
def test_a_directory_that_is_no_path_is_refused(call, directory):
    with pytest.raises(UsageError, match="directory: expected a path, found "):
        call(directory)


# The functions


def test_a_forecast_has_what_plan_prints(source, tokenizer_dir, command_json):
    forecast = tokmill.plan(source, tokenizer=tokenizer_dir, engine="reference")
    printed = command_json("plan", source, "-t", tokenizer_dir, "--engine", "reference")
    assert forecast.values.keys() == printed.keys()
    assert (forecast.documents, forecast.tokens) == (200, 2997)
    assert forecast.tokens == printed["tokens"]
    assert forecast.engine == printed["engine"]["name"] == "reference"


def test_a_forecast_of_a_run_that_would_stop_has_its_error(tmp_path, tokenizer_dir, write_rows):
    source = write_rows(tmp_path / "in.jsonl", [*ROWS, b"{bad"])
    forecast = tokmill.plan(source, tokenizer=tokenizer_dir, engine="reference", on_error="fail")
    assert isinstance(forecast.problem, RecordError)
    assert "would stop at a broken record: " in str(forecast.problem)


def test_verify_says_what_was_checked_and_raises_what_is_wrong(make, tmp_path):
    dataset = make()
    found = tokmill.verify(tmp_path / "out")
    assert (found.n_documents, found.n_tokens, found.problems) == (200, 2997, ())
    assert dataset.verify() == found
    (tmp_path / "out" / "notes.txt").write_text("mine")
    path = next((tmp_path / "out").glob("*.bin"))
    path.chmod(0o644)
    path.write_bytes(b"\0" + path.read_bytes()[1:])
    with pytest.raises(VerifyError, match="verification failed, ") as caught:
        tokmill.verify(tmp_path / "out")
    assert any(path.name in line for line in caught.value.problems)


def test_the_bill_of_a_dataset_is_the_one_that_report_prints(make, command_json, tmp_path):
    dataset = make(model="gpt2")
    printed = command_json("report", tmp_path / "out", "--gpu", "H100", "--micro-batch", 2)
    found = dataset.bill(gpu="H100", micro_batch=2).as_json()
    for bill in (found, printed):
        bill["host"] = bill["disk"]["free_bytes"] = None  # as they are at the moment
    assert json.loads(json.dumps(found)) == printed
    assert found["model"]["name"] == "gpt2"


@pytest.fixture
def command_json(command):
    """Run the command line, and read the JSON that it prints."""
    return lambda *words: json.loads(command(*words, "--json").out)


# The package


def test_the_face_has_all_its_names_when_every_module_has_been_imported():
    for module in pkgutil.walk_packages(tokmill.__path__, "tokmill."):
        has_package = module.name != "tokmill.run.ray" or find_spec("ray")
        if has_package and not module.name.endswith("__main__"):
            import_module(module.name)
    for name in tokmill.__all__:
        found = getattr(tokmill, name)
        is_value = name in ("__version__", "bill", "loader")
        assert callable(found) != is_value, name
    assert tokmill.bill.count_parameters("gpt2") == 124_439_808
    assert set(tokmill.__all__) <= set(dir(tokmill))
    with pytest.raises(AttributeError, match="module 'tokmill' has no attribute 'nothing'"):
        tokmill.nothing  # noqa: B018


def test_importing_the_package_imports_nothing_that_takes_time():
    code = (
        "import sys; before = set(sys.modules); import tokmill; dir(tokmill); "
        "print(*sorted({name.partition('.')[0] for name in set(sys.modules) - before}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"numpy", "pyarrow", "click", "rich", "tokenizers", "psutil", "dataclasses", "asyncio"}
    assert not heavy & set(done.stdout.split()), done.stdout


@pytest.mark.parametrize("name", [name for name in tokmill.__all__ if name != "__version__"])
def test_every_public_name_says_what_it_is(name):
    text = getattr(tokmill, name).__doc__
    assert text
    assert text.splitlines()[0].endswith(".")
    if name in ("open", "plan", "pretrain", "sft", "verify"):
        for heading in ("Args:", "Returns:", "Raises:", "Example:"):
            assert heading in text


def test_numbers_of_numpy_are_numbers(make):
    made = make(min_tokens=np.int64(1), val_fraction=np.float64(0.25))
    assert made.manifest["config"]["limits"]["min_tokens"] == 1
    assert made.manifest["config"]["output"]["val_fraction"] == 0.25


def test_a_renderer_of_one_record_that_raises_rejects_by_the_rule_of_all_others(make):
    def render(record):
        assert record["text"] != ROWS[7]["text"]
        return record["text"]

    dataset = make(renderer=render)
    assert dataset.manifest["totals"]["rejects"] == {"the renderer raised an error": 1}
    with pytest.raises(RecordError, match=r'in\.jsonl:8 .*assert record\["text"\] != ROWS\[7\]'):
        make(renderer=render, on_error="fail", overwrite=True)
