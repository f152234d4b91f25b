from __future__ import annotations

import json
import sys

import psutil
import pyarrow as pa
import pytest

from tokmill.chat.control_strings import Vocabulary
from tokmill.chat.records import RecordWriter, Written
from tokmill.chat.templates import make_template
from tokmill.chat.weights import mask_rule
from tokmill.chat.worker import OUT_OF_MEMORY, OUT_OF_TIME
from tokmill.children import Child
from tokmill.errors import UsageError, WorkerError
from tokmill.recipes import render_pool
from tokmill.recipes.render_pool import RenderPool
from tokmill.settings.sft import SftSettings

SETTINGS = SftSettings(schema="messages", template="plain", samples="turn")
VOCABULARY = Vocabulary({"<eos>": 2}, "<eos>", "", {"eos_token": "<eos>"})
TEXT = pa.array(
    [
        json.dumps({"messages": [{"role": "user", "content": "U"}, *reply]})
        for reply in (
            [{"role": "assistant", "content": "猫"}],
            [],
            [{"role": "bot", "content": "?"}],
            [{"role": "assistant", "content": ""}, {"role": "assistant", "content": "B"}],
        )
    ],
    pa.large_string(),
)


def make_pool(
    n_processes: int, vocabulary: Vocabulary = VOCABULARY, *, children_only: bool = False
) -> RenderPool:
    template = make_template("plain", SETTINGS, VOCABULARY)
    writer = RecordWriter(SETTINGS, template, mask_rule(SETTINGS), VOCABULARY)
    return RenderPool(
        writer, (SETTINGS, "plain", vocabulary), n_processes, children_only=children_only
    )


def plain(written: Written) -> tuple[object, ...]:
    columns = written.columns
    table = [column.tolist() for column in columns.table]
    return (
        columns.text.to_pylist(),
        columns.ids.tolist(),
        str(table),
        columns.offsets.tolist(),
        written.rows.tolist(),
        written.refused,
        written.drops,
    )


@pytest.fixture
def at_once(monkeypatch):
    """Start processes with the second call."""
    monkeypatch.setattr(render_pool, "START_AFTER_S", -1.0)


def n_processes(pool: RenderPool) -> int:
    return len(pool._children)


def test_children_render_the_same_as_this_process(at_once):
    here, pool = make_pool(1), make_pool(2)
    expected = plain(here.write(TEXT))
    assert expected[4] == [0, 3, 3]
    assert [plain(pool.write(TEXT)) for _ in range(3)] == [expected] * 3
    assert (n_processes(here), n_processes(pool)) == (0, 2)
    pool.close()


def test_a_little_work_starts_no_child():
    pool = make_pool(2)
    pool.write(TEXT)
    assert n_processes(pool) == 0


@pytest.mark.parametrize("most", [0, 1, 3])
def test_a_template_from_outside_is_rendered_by_a_child_from_the_first_record(most):
    pool = make_pool(most, children_only=True)
    expected = plain(make_pool(1).write(TEXT))
    pool._write_here = None
    assert plain(pool.write(TEXT)) == expected
    assert n_processes(pool) == 1
    pool._spent_s = 1.0
    assert plain(pool.write(TEXT)) == expected
    assert n_processes(pool) == max(most, 1)
    pool.close()


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (OUT_OF_TIME, "took more than 120 s of processor time for one block of records"),
        (OUT_OF_MEMORY, "took more than 4 GiB for one block of records"),
    ],
)
def test_a_template_beyond_its_bounds_stops_the_run(tmp_path, monkeypatch, status, words):
    python = tmp_path / "python"
    end = f"exit {status}" if status > 0 else f"kill -{-status} $$"
    python.write_text(f"#!/bin/sh\n{end}\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    pool = make_pool(1, children_only=True)
    with pytest.raises(WorkerError, match=words):
        pool.write(TEXT)
    pool.close()


FAULT = """
from tokmill.chat import worker
from tokmill.errors import UsageError
def fail(self, text):
    raise UsageError("turns depend on each other")
worker.RecordWriter.write = fail
"""


def test_an_error_of_a_child_is_raised_here_in_its_own_words(tmp_path, monkeypatch):
    module = tmp_path / "faulty_worker.py"
    module.write_text(FAULT + "main = worker.main\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(render_pool, "Child", lambda _: Child("faulty_worker"))
    pool = make_pool(1, children_only=True)
    for _ in range(2):  # the child goes on
        with pytest.raises(UsageError, match=r"^turns depend on each other$"):
            pool.write(TEXT)
    pool.close()


def test_a_child_that_died_is_an_error(at_once):
    pool = make_pool(2)
    pool.write(TEXT)
    for process in pool._children:
        process.stop()
        process.wait()
    with pytest.raises(WorkerError, match=r"renders chats died \(exit status -9\)"):
        pool.write(TEXT)
    pool.close()


def test_a_child_that_dies_at_its_start_is_an_error_for_every_thread(
    at_once, tmp_path, monkeypatch
):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 7\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    too_long_for_a_pipe = {f"token {i}": i for i in range(100_000)}
    pool = make_pool(2, Vocabulary(too_long_for_a_pipe, "<eos>", "", {"eos_token": "<eos>"}))
    for _ in range(3):
        with pytest.raises(WorkerError, match=r"renders chats died \(exit status 7\)"):
            pool.write(TEXT)
    pool.close()


def test_children_end_with_the_pool(at_once):
    before = set(psutil.Process().children())  # helpers of multiprocessing, of earlier tests
    pool = make_pool(2)
    pool.write(TEXT)
    assert len(set(psutil.Process().children()) - before) == 2
    pool.close()
    assert set(psutil.Process().children()) == before
