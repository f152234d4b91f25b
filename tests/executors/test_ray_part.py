"""A part in a process of Ray, called here without Ray."""

from __future__ import annotations

import math
import os
import pickle
from dataclasses import replace

import pytest

from tokmill.errors import StateError, StorageError
from tokmill.executors import ray_part
from tokmill.executors.ray_part import Answer, Job, parts_per_process, run_one, summed
from tokmill.recipes.spec import Increments
from tokmill.run.tasks import plan_array
from tokmill.timing import StageSeconds


@pytest.fixture
def planned(make_config, listener, monkeypatch):
    """A plan that stands in its directory; no process has read it."""
    monkeypatch.setattr(ray_part._Process, "job", None)
    monkeypatch.chdir(os.getcwd())  # noqa: PTH109  a part changes it
    return plan_array(make_config(), listener)


@pytest.fixture
def job(planned):
    return Job.of(planned.spec)


def test_a_process_reads_the_plan_once_and_answers_with_counts(job, out, monkeypatch):
    read = []
    load = ray_part.read_planned
    monkeypatch.setattr(ray_part, "read_planned", lambda *a: read.append(1) or load(*a))
    answers = [run_one(pickle.loads(pickle.dumps(job)), index) for index in (1, 0)]
    assert all(isinstance(answer, Answer) for answer in answers)
    assert answers[0].progress.documents > 0
    assert {path.name for path in out.glob("parts/*.json")} == {"0000000.json", "0000001.json"}
    assert read == [1]
    assert isinstance(run_one(job, 1), Answer)  # again: the same bytes, the first record stays


@pytest.mark.parametrize(
    ("part_bytes", "calls"), [(4 << 30, 8), (1 << 30, 8), (64 << 20, 128), (1, 10_000)]
)
def test_a_process_ends_after_8_parts_or_as_many_bytes_of_small_ones(planned, part_bytes, calls):
    config = planned.spec.config
    output = replace(config.output, part_bytes=part_bytes)
    spec = replace(planned.spec, config=replace(config, output=output))
    assert parts_per_process(spec) == calls


def test_a_node_that_sees_no_plan_or_another_one_is_named(job, out, make_config, listener):
    (out / "plan.json").rename(out.parent / "plan.json")
    error = run_one(job, 0)
    assert isinstance(error, StateError)
    assert str(error).startswith("node ")
    assert "no such plan" in str(error)
    plan_array(make_config(min_tokens=3), listener)
    error = run_one(job, 0)
    assert isinstance(error, StateError)
    assert "holds the plan of another run" in str(error)
    assert not list(out.glob("*.bin"))


def test_every_input_of_a_part_is_checked_when_it_is_opened(job, planned, sources):
    last = len(planned.parts) - 1
    assert isinstance(run_one(job, 0), Answer)
    sources[1].write_bytes(sources[1].read_bytes() + b"\n")
    error = run_one(job, last)
    assert isinstance(error, StorageError)
    assert "b.jsonl: changed" in str(error)
    assert isinstance(run_one(job, 1), Answer)


def test_an_error_is_returned_and_a_bug_keeps_its_traceback(job):
    error = run_one(job, 300)
    assert isinstance(error, IndexError)
    assert "in run_one" in error.__notes__[0]


def test_an_interrupt_is_raised_for_ray(job, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(ray_part, "run_part", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_one(job, 0)


def test_progress_is_summed():
    reports = [
        Increments(
            1, 2, 3, 4, 5, {"short": 1}, {"bad": 1}, "a:1", stage_s={"read": StageSeconds(1, 2, 90)}
        ),
        Increments(
            1, 2, 3, 4, 5, {"short": 2}, {"odd": 1}, "b:2", stage_s={"read": StageSeconds(1, 2, 95)}
        ),
        Increments(stage_s={"libraries": StageSeconds(0, 1, math.inf)}),
    ]
    assert summed(reports, 100.0) == Increments(
        2, 4, 6, 8, 10, {"short": 3}, {"bad": 1, "odd": 1}, "a:1",
        stage_s={"read": StageSeconds(2, 4, -10), "libraries": StageSeconds(0, 1, math.inf)},
    )  # fmt: skip
