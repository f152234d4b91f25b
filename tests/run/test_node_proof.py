"""A node that does not see what the driver sees, or has other versions, is told so in one line."""

from __future__ import annotations

import dataclasses
import json
import os
import platform

import pytest

from tokmill.errors import StateError, StorageError
from tokmill.run import node_proof
from tokmill.run.node_proof import (
    NodeProof,
    check_input,
    check_node,
    has_relative_paths,
    written_proof,
)
from tokmill.run.probes import array_nonce
from tokmill.version import __version__

HERE = f"node {platform.node()}: "


@pytest.fixture
def planned(out, make_config, plan_of):
    return plan_of(make_config())


@pytest.fixture
def proof(planned):
    with written_proof(planned.spec, planned.parts) as written:
        yield written


def refused(proof: NodeProof, **other: object) -> str:
    """Return what a node is told for which these values are others."""
    with pytest.raises(StateError) as caught:
        check_node(dataclasses.replace(proof, **other), patience_s=0.0)
    message = str(caught.value)
    assert message.startswith(HERE)
    assert "\n" not in message
    return message.removeprefix(HERE)


def hidden(directory) -> list[str]:
    return [path.name for path in directory.rglob(".*")]


def test_a_node_like_the_driver_may_work_and_nothing_is_left(planned, out):
    with written_proof(planned.spec, planned.parts) as proof:
        assert hidden(out) == [proof.probe]
        check_node(proof)
        assert hidden(out) == [proof.probe]
    assert hidden(out) == []


def test_every_run_has_a_nonce_of_its_own_and_removes_probes_of_killed_ones(planned, out):
    with written_proof(planned.spec, planned.parts) as first:
        pass
    (out / first.probe).write_text(first.nonce)
    with written_proof(planned.spec, planned.parts) as second:
        assert hidden(out) == [second.probe]
    assert first.nonce != second.nonce


def test_the_proof_travels_as_plain_values(proof):
    values = json.loads(json.dumps(dataclasses.asdict(proof)))
    assert NodeProof(**values) == proof


def test_another_directory_under_the_same_path_is_seen(proof, out):
    (out / proof.probe).write_text("of another run")
    assert refused(proof).startswith(
        f"does not see the output directory {out} of {platform.node()} (another probe is there: "
    )
    (out / proof.probe).unlink()
    assert "(no such file or directory: .node-proof-" in refused(proof)
    assert "mount the same directory under this path" in refused(proof, directory=f"{out}/other")


def test_a_probe_that_appears_late_is_waited_for(proof, out, monkeypatch):
    (out / proof.probe).unlink()
    waits = []

    def appear(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            (out / proof.probe).write_text(proof.nonce)

    monkeypatch.setattr(node_proof.time, "sleep", appear)
    check_node(proof)
    assert len(waits) == 3


def test_an_output_that_only_the_driver_can_write_is_an_error(proof, out, monkeypatch):
    def read_only(path, **_) -> None:
        raise PermissionError(13, "Read-only file system", str(path))

    monkeypatch.setattr(node_proof.Path, "touch", read_only)
    assert refused(proof) == (
        f"cannot write into the output directory {out} (read-only file system): every node writes "
        "its shards there"
    )


def test_another_input_under_the_same_path_is_an_error(proof, sources):
    stat = sources[0].stat()
    assert proof.input_path == str(sources[0])
    found = refused(proof, input_bytes=stat.st_size + 1)
    assert f"expected {stat.st_size + 1:,} bytes of time " in found
    assert f", found {stat.st_size:,} of " in found
    os.utime(sources[0], ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
    assert "is another file" in refused(proof)
    sources[0].unlink()
    assert f"cannot read the input {sources[0]} (no such file or directory)" in refused(proof)


@pytest.mark.parametrize("name", ["tokmill", "tokenizers", "pyarrow"])
def test_another_version_is_an_error_that_names_both(proof, name):
    found = refused(proof, versions=proof.versions | {name: "0.0.1"})
    installed = proof.versions[name]
    assert found == (
        f"has {name} {installed}, expected 0.0.1, as on {platform.node()}: install that version "
        "on every node"
    )


def test_a_library_that_is_missing_is_an_error_and_versions_are_checked_first(proof):
    found = refused(proof, versions={"no-such-engine": "1.0"}, directory="nowhere")
    assert found.startswith("has no-such-engine none, expected 1.0")
    assert proof.versions["tokmill"] == __version__


def test_relative_paths_are_those_of_the_driver(configure, sources, tmp_path, monkeypatch, plan_of):
    monkeypatch.chdir(tmp_path)
    plan = plan_of(configure("out", "a.jsonl"))
    with written_proof(plan.spec, plan.parts) as proof:
        monkeypatch.chdir("/")
        check_node(proof)
        gone = str(tmp_path / "gone")
        assert f"has no directory {gone}" in refused(proof, working_directory=gone)
        monkeypatch.chdir(tmp_path)
    assert hidden(tmp_path / "out") == []


def test_names_of_stores_are_no_relative_paths(configure):
    assert not has_relative_paths(configure("/out", "/in.jsonl", "hf:name"))
    stores = dataclasses.replace(configure("/").output, dir="s3://bucket/out")
    assert not has_relative_paths(
        dataclasses.replace(configure("/", "s3://bucket/in"), output=stores)
    )
    assert has_relative_paths(configure("/out", "in.jsonl"))
    assert has_relative_paths(configure("out", "/in.jsonl"))


def test_a_part_is_compared_by_its_own_first_file(planned, proof, sources):
    last = planned.parts[-1:]
    assert proof.for_parts(last).input_path == str(sources[1])
    check_input(proof.for_parts(last))
    sources[1].write_bytes(b"{}")
    check_node(proof)
    with pytest.raises(StorageError, match=r"^node .*b\.jsonl is another file: .*, found 2 of "):
        check_input(proof.for_parts(last))


def test_the_probe_of_an_array_is_left_alone(planned, out):
    nonce = array_nonce(str(out))
    kept = hidden(out)
    with written_proof(planned.spec, planned.parts) as proof:
        assert sorted(hidden(out)) == sorted([*kept, proof.probe])
    assert hidden(out) == kept
    assert array_nonce(str(out)) == nonce


def test_input_that_is_no_file_is_not_compared(planned, sources):
    (piece, *_), *_ = (part.slices for part in planned.parts)
    others = [
        dataclasses.replace(piece, file=dataclasses.replace(piece.file, path=path, format=format_))
        for path, format_ in (("s3://bucket/a.jsonl", "jsonl"), ("hf:name", "hub"))
    ]
    part = dataclasses.replace(planned.parts[0], slices=tuple(others))
    with written_proof(planned.spec, [part]) as proof:
        assert proof.input_path == ""
        check_node(proof)
    with written_proof(planned.spec, [part, *planned.parts]) as proof:
        assert proof.input_path == str(sources[0])


def test_a_directory_that_cannot_be_written_is_an_error_of_the_driver(planned, monkeypatch):
    def full(*_) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(node_proof.Path, "write_text", full)
    with (
        pytest.raises(StorageError, match="no space left on device"),
        written_proof(planned.spec, planned.parts),
    ):
        pass
