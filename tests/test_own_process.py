from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SAMPLES = Path(__file__).parents[1] / "data_samples"

STAND_IN = """
import os, sys
with open(os.environ["PANDAS_LOG"], "a") as log:
    log.write("imported\\n")
raise ImportError("a stand-in for pandas")
"""


@pytest.fixture
def run_with_stand_in(tmp_path):
    """Run Python with a `pandas` in front of all others, which notes its imports and fails."""
    folder, log = tmp_path / "packages", tmp_path / "log"
    (folder / "pandas").mkdir(parents=True)
    (folder / "pandas/__init__.py").write_text(STAND_IN)

    def run(*arguments: object) -> tuple[str, int]:
        log.write_text("")
        paths = [str(folder), *filter(None, sys.path)]
        environment = {**os.environ, "PANDAS_LOG": str(log), "PYTHONPATH": os.pathsep.join(paths)}
        words = [sys.executable, *map(str, arguments)]
        done = subprocess.run(words, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout, len(log.read_text().splitlines())

    return run


NO_LIST = "import pyarrow as pa, pyarrow.compute as pc; pc.fill_null(pa.nulls(2, 'int8'), 0)"
"""pyarrow's own Python code converts the 0."""


@pytest.mark.parametrize("importing", ["import pandas", NO_LIST])
def test_other_modules_get_pandas(run_with_stand_in, importing):
    lines = ["from tokmill.own_process import begin_process", "begin_process()", "try:"]
    program = "\n".join([*lines, f"    {importing}", "except ImportError:", "    pass"])
    assert run_with_stand_in("-c", program)[1] > 0


RENDERER = """
import sys

import pyarrow as pa

assert all(type(finder).__module__ != "tokmill.own_process" for finder in sys.meta_path)

def render(batch):
    import pandas
    texts = pandas.Series(batch.column(0).to_pylist())
    texts[0] = float("nan")
    return pa.array(texts, pa.string())
"""


def test_a_renderer_from_outside_gets_pandas(tmp_path, tokenizer_dir):
    pytest.importorskip("pandas")
    (tmp_path / "with_pandas.py").write_text(RENDERER)
    words = ["-m", "tokmill", "pretrain", SAMPLES / "documents.jsonl", "-t", tokenizer_dir]
    words += ["-o", "out", "--json", "--renderer", "with_pandas:render"]
    command = [sys.executable, *map(str, words)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert sum(json.loads(done.stdout)["totals"]["drops"].values()) == 1, done.stderr


def test_neither_a_run_nor_its_workers_import_pandas(run_with_stand_in, tmp_path, tokenizer_dir):
    words = ["-m", "tokmill", "pretrain", SAMPLES / "records.jsonl", "-t", tokenizer_dir]
    words += ["-o", tmp_path / "out", "--json", "--workers", 2]
    printed, n_imports = run_with_stand_in(*words)
    assert json.loads(printed)["totals"]["documents"]
    assert n_imports == 0


def test_a_command_starts_no_threads_of_numpy(pretrained):
    lines = ["import os, sys", "from tokmill.__main__ import main", "sys.argv[1:] = sys.argv[2:]"]
    lines += ["try:", "    main()", "finally:", "    assert 'numpy' in sys.modules"]
    lines += ["    print('THREADS', len(os.listdir('/proc/self/task')))"]
    variables = {k: v for k, v in os.environ.items() if k != "OPENBLAS_NUM_THREADS"}
    words = [sys.executable, "-c", "\n".join(lines), "--", "verify", str(pretrained)]
    done = subprocess.run(words, env=variables, capture_output=True, text=True)
    assert done.stdout.endswith("THREADS 1\n"), done.stderr


LOGGING_RENDERER = """
LOG = open("log", "w")

def render(batch):
    LOG.write("rendered")
    return batch.column(0)
"""


def test_what_a_renderer_from_outside_has_not_flushed_is_written(tmp_path, tokenizer_dir):
    (tmp_path / "logging_renderer.py").write_text(LOGGING_RENDERER)
    (tmp_path / "a.jsonl").write_text('{"text": "hello"}\n')
    words = ["-m", "tokmill", "pretrain", "a.jsonl", "-t", tokenizer_dir]
    words += ["-o", "out", "--renderer", "logging_renderer:render"]
    subprocess.run([sys.executable, *map(str, words)], cwd=tmp_path, check=True)
    assert "rendered" in (tmp_path / "log").read_text()
