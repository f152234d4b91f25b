"""A part in a process of Ray, called here without Ray."""

from __future__ import annotations

import math
import pickle
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from tokmill.errors import StateError, StorageError
from tokmill.executors import ray_part
from tokmill.executors.ray_part import Answer, parts_per_process, run_one, summed
from tokmill.lock import locked, parts_locked
from tokmill.recipes.spec import Increments
from tokmill.run.node_proof import written_proof
from tokmill.run.store_part import in_directory, part_staging
from tokmill.stores.store import Store
from tokmill.timing import StageSeconds


@pytest.fixture
def planned(make_config, plan_of):
    return plan_of(make_config())


@pytest.fixture
def proof(planned, monkeypatch):
    monkeypatch.setattr(ray_part._Process, "nonce", "")
    with written_proof(planned.spec, planned.parts) as written:
        yield asdict(written)


def test_a_process_fetches_the_run_once_and_answers_with_records(planned, proof):
    fetched = []

    def fetch():
        fetched.append(1)
        return pickle.loads(pickle.dumps((planned.spec, list(planned.parts))))

    answers = [run_one(proof, fetch, index) for index in (1, 0)]
    assert [answer.record.part for answer in answers] == [1, 0]
    assert fetched == [1]
    again = run_one(proof, fetch, 1)
    assert isinstance(pickle.loads(pickle.dumps(again)), Answer)
    assert [one.documents for one in again.progress] == [answers[0].progress[1].documents, 0]


@pytest.mark.parametrize(
    ("part_bytes", "calls"), [(4 << 30, 8), (1 << 30, 8), (64 << 20, 128), (1, 10_000)]
)
def test_a_process_ends_after_8_parts_or_as_many_bytes_of_small_ones(planned, part_bytes, calls):
    config = planned.spec.config
    output = replace(config.output, part_bytes=part_bytes)
    spec = replace(planned.spec, config=replace(config, output=output))
    assert parts_per_process(spec) == calls


def test_a_node_that_differs_never_reads_the_run(planned, proof):
    def fetch():
        raise AssertionError

    error = run_one({**proof, "versions": {"tokmill": "9.9"}}, fetch, 0)
    assert isinstance(error, StateError)
    assert "expected 9.9" in str(error)


def test_the_first_input_of_each_part_is_compared_before_it_is_read(planned, proof, sources):
    def fetch():
        return planned.spec, planned.parts

    last = len(planned.parts) - 1
    assert isinstance(run_one(proof, fetch, 0), Answer)
    sources[1].write_bytes(sources[1].read_bytes() + b"\n")
    error = run_one(proof, fetch, last)
    assert isinstance(error, StorageError)
    assert f"the input {sources[1]} is another file" in str(error)
    assert isinstance(run_one(proof, fetch, 1), Answer)


def test_an_error_is_returned_and_a_bug_keeps_its_traceback(planned, proof, sources):
    def fetch():
        return planned.spec, []

    error = run_one(proof, fetch, 3)
    assert isinstance(error, IndexError)
    assert "in run_one" in error.__notes__[0]


def test_without_the_probe_a_part_stops_and_keeps_what_it_has(planned, proof, monkeypatch, out):
    def fetch():
        return planned.spec, planned.parts

    monkeypatch.setattr(ray_part, "_LOOK_S", 0.0)
    assert isinstance(run_one(proof, fetch, 0), Answer)
    (out / proof["probe"]).unlink()
    error = run_one(proof, fetch, 1)
    assert (type(error), str(error)) == (StateError, "the run was stopped")
    assert [path.name for path in (out / "parts").glob("0000001*")] == []


def test_an_interrupt_is_raised_for_ray(planned, proof):
    def fetch():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_one(proof, fetch, 0)


def test_a_part_is_waited_for_until_another_process_lets_it_go(planned, proof, monkeypatch):
    directory, tries = Path(planned.spec.config.output.dir), []

    def busy_twice(*arguments):
        tries.append(arguments)
        if len(tries) < 3:
            raise StateError("another task is writing part 0")
        return parts_locked(*arguments)

    monkeypatch.setattr(ray_part, "parts_locked", busy_twice)
    answer = run_one(proof, lambda: (planned.spec, planned.parts), 0)
    assert answer.record.part == 0
    assert tries == [(directory, [0])] * 3
    monkeypatch.setattr(ray_part, "_LOCK_S", -1.0)
    tries.clear()
    assert isinstance(run_one(proof, lambda: None, 0), StateError)
    assert len(tries) == 1


def test_progress_is_summed_and_what_was_resumed_stays_apart():
    heard = [
        Increments(input_bytes=5, tokens=7, resumed=True),
        Increments(
            1, 2, 3, 4, 5, {"short": 1}, {"bad": 1}, "a:1", stage_s={"read": StageSeconds(1, 2, 90)}
        ),
        Increments(
            1, 2, 3, 4, 5, {"short": 2}, {"odd": 1}, "b:2", stage_s={"read": StageSeconds(1, 2, 95)}
        ),
        Increments(stage_s={"libraries": StageSeconds(0, 1, math.inf)}),
    ]
    resumed, fresh = summed(heard, 100.0)
    assert resumed == Increments(input_bytes=5, tokens=7, resumed=True)
    assert fresh == Increments(
        2, 4, 6, 8, 10, {"short": 3}, {"bad": 1, "odd": 1}, "a:1",
        stage_s={"read": StageSeconds(2, 4, -10), "libraries": StageSeconds(0, 1, math.inf)},
    )  # fmt: skip


@pytest.fixture
def in_store(make_config, plan_of, monkeypatch, tmp_path):
    """The plan of a run to a store, and its proof."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(ray_part._Process, "nonce", "")
    url = f"memory://bucket/{tmp_path.name}"
    planned = plan_of(make_config())
    planned = replace(planned, spec=in_directory(planned.spec, url))
    with written_proof(planned.spec, planned.parts) as written:
        yield planned, asdict(written)
    assert Store(url).names(".node-proofs") == []


def test_a_part_goes_to_a_store(in_store):
    pytest.importorskip("fsspec")
    planned, proof = in_store
    store = Store(planned.spec.config.output.dir)
    answer = run_one(proof, lambda: (planned.spec, list(planned.parts)), 1)
    assert isinstance(answer, Answer)
    names = {entry.name for entry in answer.record.files()}
    assert names | {"parts/0000001.json"} <= set(store.sizes())
    with written_proof(planned.spec, planned.parts):  # of a driver that came after a killed one
        assert store.names(".node-proofs") != [proof["probe"]]
        error = run_one(proof, lambda: (planned.spec, list(planned.parts)), 0)
    assert isinstance(error, StateError)
    assert "the run was stopped" in str(error)


@pytest.mark.parametrize("found", [None, b"another"])
def test_a_node_that_sees_other_objects_is_named(in_store, found):
    pytest.importorskip("fsspec")
    planned, proof = in_store
    store = Store(planned.spec.config.output.dir)
    store.remove(proof["probe"])
    if found is not None:
        store.write(proof["probe"], found)
    error = run_one(proof, lambda: (planned.spec, list(planned.parts)), 0)
    assert isinstance(error, StateError)
    assert "does not see the objects of" in str(error)
    assert "the same endpoint and credentials" in str(error)


def test_a_part_for_a_store_is_waited_for(in_store, monkeypatch):
    pytest.importorskip("fsspec")
    planned, proof = in_store
    staging = part_staging(planned.spec, planned.parts[0])
    staging.mkdir(parents=True)
    waited: list[float] = []
    with ExitStack() as stack:
        stack.enter_context(locked(staging))

        def let_go(seconds: float) -> None:
            waited.append(seconds)
            stack.close()

        monkeypatch.setattr("tokmill.executors.ray_part.time.sleep", let_go)
        answer = run_one(proof, lambda: (planned.spec, list(planned.parts)), 0)
    assert waited
    assert isinstance(answer, Answer)
