"""Tasks of Ray make the dataset that this machine makes alone; every loss ends in one line."""

from __future__ import annotations

import importlib.util
import os
import signal
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tokmill import children
from tokmill.api.functions import import_dataset, pretrain
from tokmill.api.jobs import verify_dataset
from tokmill.dataset.verify import verify
from tokmill.errors import RecordError, UsageError, WorkerError
from tokmill.place import open_place
from tokmill.run import finish
from tokmill.run.finish import run
from tokmill.run.tasks import plan_array

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="ray is not installed"
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, request):
    """Ray on this machine, with two processors; the executor, and what Ray may raise."""
    if all(map(importlib.util.find_spec, ("boto3", "moto", "obstore"))):
        request.getfixturevalue("server")  # its variables are those of the tasks, too
    ray = pytest.importorskip("ray")
    from tokmill.run import ray as ours

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    handler = signal.getsignal(signal.SIGTERM)
    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=80 << 20,
        _memory=4 << 30,
    )
    signal.signal(signal.SIGTERM, handler)
    with ours._silent():
        yield SimpleNamespace(ray=ray, ours=ours, exceptions=ray.exceptions)
    ray.shutdown()


@pytest.fixture
def planned(make_config, listener):
    return plan_array(make_config(executor="ray"), listener)


@pytest.fixture
def answered(cluster, planned, monkeypatch):
    """Run the parts with tasks whose ends are given: a value to return, or an error to raise."""

    def answer(end, parts=planned.parts, spec=planned.spec):
        tasks = []

        def begin(*arguments):
            tasks.append(arguments)
            return len(tasks) - 1

        def get(task):
            found = end(*tasks[task])
            if isinstance(found, Exception) and isinstance(found, cluster.exceptions.RayError):
                raise found
            return found

        remote = SimpleNamespace(options=lambda **_: SimpleNamespace(remote=begin))
        stub = SimpleNamespace(
            is_initialized=lambda: True,
            nodes=lambda: [{"Alive": True, "Resources": {"CPU": 2.0, "memory": 4 << 30}}],
            remote=lambda **_: lambda function: remote,
            wait=lambda flying, **_: (flying[:1], flying[1:]),
            get=get,
            cancel=lambda task, force: None,
        )
        monkeypatch.setattr(cluster.ours, "ray", stub)
        cluster.ours.run_parts(spec, parts, print)

    return answer


def test_tasks_make_the_dataset_of_one_process(
    cluster, out, make_config, listener, silent, files_of
):
    alone = out.parent / "alone"
    want = run(make_config(dir=str(alone)), silent).plain
    manifest = run(make_config(executor="ray", shard_tokens=150), listener).plain
    assert files_of(out) == files_of(alone)
    assert manifest["totals"] == want["totals"]
    assert not verify(open_place(str(out)), manifest).problems
    assert sum(progress.documents for progress in listener.heard) == 80
    assert sum(sum(progress.rejects.values()) for progress in listener.heard) == 1
    assert [path.name for path in out.rglob(".*")] == [".lock"]
    assert cluster.ray.is_initialized()  # it was there before


def test_tasks_write_to_a_store_that_fails(
    cluster, faults, url, make_config, listener, out, files_of, monkeypatch, tmp_path
):
    run(make_config(), listener)
    faults.share = 0.01
    run(make_config(dir=url, executor="ray"), listener)
    place = open_place(url)
    names = [name for name in place.entries() if name != "manifest.json"]
    assert {name: place.read(name) for name in names} == {
        name: (out / name).read_bytes() for name in files_of(out)
    }
    assert not verify_dataset(Path(url)).problems


def test_tasks_import_what_one_process_imports_into_a_store_that_fails(
    cluster, faults, url, tokenizer_dir, files_of, tmp_path
):
    for number in range(6):
        np.array([5, number + 6, 0] * 40, "<u2").tofile(tmp_path / f"train_{number}.bin")
    alone, where = tmp_path / "alone", {"trainer": "nanogpt", "tokenizer": tokenizer_dir}
    files = sorted(tmp_path.glob("*.bin"))
    import_dataset(files, output=alone, **where)
    faults.share = 0.01
    import_dataset(files, output=url, executor="ray", **where)
    place = open_place(url)
    names = [name for name in files_of(alone) if name != "manifest.json"]
    assert {name: place.read(name) for name in names} == {
        name: (alone / name).read_bytes() for name in names
    }
    assert not verify_dataset(Path(url)).problems


def test_a_run_begun_by_processes_continues_on_ray(cluster, begun, make_config, listener):
    listener.heard.clear()
    run(make_config(executor="ray"), listener)
    assert listener.n_done[-1] > 3
    kept = sum(progress.documents for progress in listener.heard if progress.resumed)
    assert 60 < kept < sum(progress.documents for progress in listener.heard) == 80


def test_relative_paths_are_those_of_the_driver(
    cluster, tmp_path, sources, tokenizer_dir, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    made = pretrain(
        "a.jsonl", output="out", tokenizer=tokenizer_dir, executor="ray", part_bytes=1000
    )
    assert len(made) == 60


def test_what_a_part_raises_ends_the_run_as_it_does_here(
    cluster, out, make_config, silent, write_rows, tmp_path
):
    rows = [{"text": f"hello {i} " * 5} for i in range(30)]
    source = write_rows(tmp_path / "in.jsonl", [*rows, b"{bad", *rows])
    with pytest.raises(RecordError, match=r"in\.jsonl:31 .*--on-error=skip"):
        run(make_config(source, executor="ray", on_error="fail"), silent)
    assert not (out / "manifest.json").exists()
    assert {path.name for path in out.rglob(".*")} == {".lock"}


@pytest.mark.parametrize(
    ("error", "why", "advice"),
    [
        ("OutOfMemoryError", "the node was short of memory", "run.engine_memory_bytes"),
        ("NodeDiedError", "killed, or the node was lost", "--threads if memory is short"),
    ],
)
def test_a_part_whose_process_always_dies_is_one_clear_error(
    cluster, answered, planned, error, why, advice
):
    begun = []
    kind = getattr(cluster.exceptions, error)

    def end(job, index, fingerprint):
        begun.append(index)
        return kind("gone\nwith many lines")

    with pytest.raises(WorkerError) as caught:
        answered(end, planned.parts[:1])
    assert begun == [0] * cluster.ours.MOST_TRIES
    assert str(caught.value).startswith(
        f"part 0: its process on the Ray cluster died 4 times ({why}"
    )
    assert str(caught.value).endswith(advice)
    assert "\n" not in str(caught.value)


def test_a_part_whose_process_died_goes_to_the_end_of_the_queue(
    cluster, answered, planned, monkeypatch
):
    monkeypatch.chdir(Path.cwd())  # a part changes it
    ended = []

    def end(job, index, fingerprint):
        ended.append(index)
        if ended.count(0) == 1 and index == 0:
            return cluster.exceptions.WorkerCrashedError()
        return cluster.ours.run_one(job, index, fingerprint)

    answered(end)
    cluster.ours._watched(children.LOOK_S).kill()
    cluster.ours._watched.cache_clear()
    assert ended.count(0) == 2
    assert ended.index(0, 1) > 1


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
def test_a_part_whose_process_is_stopped_or_killed_is_made_by_another(
    cluster, out, make_config, listener, monkeypatch, tmp_path, number
):
    monkeypatch.setattr(children, "LOOK_S", 0.02)
    is_hit = tmp_path / "hit"

    def run_hit(job, index, fingerprint):
        """Begin a part in a process of Ray; the first one is hit by the signal."""
        from tokmill.run import ray as ours

        def hit(*_):
            is_hit.touch()
            os.kill(os.getpid(), number)

        if not is_hit.exists():
            ours.run_part = hit
        return ours.run_one(job, index, fingerprint)

    monkeypatch.setattr(cluster.ours, "run_one", run_hit)
    manifest = run(make_config(executor="ray"), listener).plain
    assert is_hit.exists()
    assert manifest["totals"]["documents"] == 80
    assert not verify(open_place(str(out)), manifest).problems


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("RayTaskError", r"cannot run tokmill \(The remote .*: install the same"),
        ("LocalRayletDiedError", r"^Ray has failed \(.*run the same command again"),
    ],
)
def test_a_task_that_cannot_be_loaded_and_a_cluster_that_is_gone_are_one_line(
    cluster, answered, error, said
):
    cause = RuntimeError("The remote function failed to import on the worker.\nmore")
    words = ("run_one", "trace", cause) if error == "RayTaskError" else ("The raylet died.\nmore",)
    raised = getattr(cluster.exceptions, error)(*words)
    with pytest.raises(WorkerError, match=said):
        answered(lambda *_: raised)


def test_a_driver_without_its_raylet_asks_ray_no_more(cluster, answered, tmp_path, monkeypatch):
    assert cluster.ours._has_raylet()
    monkeypatch.setattr(cluster.ours, "_has_raylet", lambda: False)
    ended = []
    with pytest.raises(WorkerError, match=r"^the raylet of this machine is gone: .*ray start"):
        answered(lambda *task: ended.append(task))
    assert ended == []
    monkeypatch.undo()
    node = cluster.ray._private.worker._global_node
    monkeypatch.setattr(node, "_raylet_socket_name", str(tmp_path / "gone"))
    assert not cluster.ours._has_raylet()


def test_no_cluster_at_an_address_is_a_usage_error(cluster, monkeypatch):
    monkeypatch.setattr(cluster.ours.ray, "is_initialized", lambda: False)

    def refuse(**_) -> None:
        raise ConnectionError("ray.init(address=host:1) failed.\nmore")

    monkeypatch.setattr(cluster.ours.ray, "init", refuse)
    with (
        pytest.raises(
            UsageError, match=r"no Ray cluster can be used at host:1: .*--executor=ray:HOST:PORT"
        ),
        cluster.ours._connected("host:1"),
    ):
        pass
    with (
        pytest.raises(UsageError, match=r"^--executor=ray:ray://host:1: expected HOST:PORT"),
        cluster.ours._connected("ray://host:1"),
    ):
        pass


def test_input_that_no_other_machine_can_read_is_refused(configure, tmp_path, silent):
    with pytest.raises(UsageError, match="cannot read standard input"):
        run(configure(tmp_path / "out", Path("-"), executor="ray"), silent)


def test_without_the_package_the_error_says_what_to_install(
    configure, tmp_path, silent, monkeypatch
):
    monkeypatch.setattr(finish, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'tokmill\[ray\]'"):
        run(configure(tmp_path / "out", tmp_path / "in.jsonl", executor="ray"), silent)


# A part in a process of Ray, here without Ray


# What a file or a renderer decides, in tasks and in a store


def test_each_file_of_sections_keeps_its_own_renderer(
    cluster, url, out, make_config, silent, write_rows, tmp_path
):
    texts = {"zh": "苹果是一种水果，" * 20, "en": "An apple is a fruit. " * 20}
    for name, text in texts.items():
        section = {"title": name, "content": text}
        rows = [{"title": f"{name} {i}", "summary": text, "sections": [section]} for i in range(6)]
        (tmp_path / "corpus").mkdir(exist_ok=True)
        write_rows(tmp_path / f"corpus/{name}.jsonl", rows)
    settings = {"renderer": "auto", "part_bytes": 1000}
    alone = run(make_config(tmp_path / "corpus", **settings), silent).plain
    assert set(alone["totals"]["renderers"]) == {"article", "encyclopedia"}
    made = run(make_config(tmp_path / "corpus", dir=url, executor="ray", **settings), silent).plain
    place = open_place(url)
    names = [shard["name"] for shard in alone["shards"]]
    assert [shard["name"] for shard in made["shards"]] == names
    for name in names:
        assert place.read(f"{name}.bin") == (out / f"{name}.bin").read_bytes()
    assert made["totals"]["renderers"] == alone["totals"]["renderers"]


def test_control_tokens_that_a_renderer_places_are_those_of_one_process(
    cluster, out, make_config, silent, sources, files_of
):
    settings = {"renderer": "tests.fixtures.placing:render"}
    alone = out.parent / "alone"
    run(make_config(*sources, dir=str(alone), **settings), silent)
    run(make_config(*sources, executor="ray", **settings), silent)
    assert files_of(out) == files_of(alone)
