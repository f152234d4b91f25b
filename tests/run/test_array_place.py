"""The plan of an array replaces no file of anybody: only another plan of an array."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from tokmill.errors import UsageError
from tokmill.run.array import plan_array
from tokmill.run.array_place import check_plan_place


@pytest.fixture
def config(make_config):
    return make_config()


def refused(path: Path, config, words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        check_plan_place(path, config)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"notes",
        b'{"text": "tokmill array plan"}\n',
        b'{"config":{},"text":"\\"format\\":\\"tokmill array plan\\""}\n',
        b'{"config":{}}\n{"config":{},"format":"tokmill array plan"}\n',
    ],
)
def test_a_file_that_is_no_plan_of_an_array_stays(
    content, config, make_config, out, tmp_path, listener
):
    path = tmp_path / "file.plan"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="a file, not the plan of an array, so it is not replaced"):
        plan_array(config, path, listener)
    assert path.read_bytes() == content
    assert not out.exists()


def test_a_plan_of_an_array_is_replaced_even_if_it_is_damaged_or_older(config, tmp_path, listener):
    path = tmp_path / "out.plan"
    plan_array(config, path, listener)
    whole = path.read_bytes()
    path.chmod(0o600)
    for content in (whole[:-9], whole.replace(b'"version":1', b'"version":0'), whole):
        path.write_bytes(content)
        plan_array(config, path, listener)
        assert path.read_bytes() == whole


def test_a_directory_a_link_and_a_pipe_are_no_place_for_a_plan(config, tmp_path, out, listener):
    (tmp_path / "folder").mkdir()
    refused(tmp_path / "folder", config, "a directory, not the plan of an array")
    plan = tmp_path / "out.plan"
    plan_array(config, plan, listener)
    for name, target in (("good", plan), ("broken", tmp_path / "nowhere")):
        (tmp_path / name).symlink_to(target)
        refused(tmp_path / name, config, "a link, not the plan of an array")
    os.mkfifo(tmp_path / "pipe")
    refused(tmp_path / "pipe", config, "a file, not the plan of an array")
    refused(tmp_path / "none" / "out.plan", config, f"there is no directory {tmp_path}/none")


def test_a_path_in_the_output_is_refused_however_it_is_written(config, out, tmp_path, monkeypatch):
    refused(out / "plan.json", config, "in the output directory")
    refused(out, config, "in the output directory")
    output = dataclasses.replace(config.output, dir=f"file://{out}")
    in_store = dataclasses.replace(config, output=output)
    refused(out / "x.plan", in_store, "in the output directory")
    (tmp_path / "link").symlink_to(out)
    refused(tmp_path / "link" / "parts" / "a.plan", config, "in the output directory")
    monkeypatch.chdir(tmp_path)
    refused(Path("out/../out/a.plan"), config, "in the output directory")
    check_plan_place(Path("out.plan"), config)


def test_an_input_is_refused_and_what_would_be_one(make_config, tmp_path, sources, monkeypatch):
    path = tmp_path / "array.json"
    for given in (path, tmp_path, tmp_path / "*.json", tmp_path / "**/*.json", tmp_path.parent):
        refused(path, make_config(given), "would be read as an input")
    monkeypatch.chdir(tmp_path)
    refused(Path("array.json"), make_config(Path("./*.json")), "would be read as an input")
    refused(sources[0], make_config(), "would be read as an input")
    (tmp_path / "in.jsonl").symlink_to(sources[0])
    refused(sources[0], make_config(tmp_path / "in.jsonl"), "would be read as an input")
    refused(tmp_path / "x.plan", make_config(tmp_path, format="jsonl"), "would be read as an input")


def test_a_plan_beside_the_inputs_is_no_input(make_config, tmp_path, sources):
    for given in (tmp_path, tmp_path / "*.jsonl", sources[0]):
        check_plan_place(tmp_path / "out.plan", make_config(given))
    check_plan_place(tmp_path / "out.json", make_config(tmp_path / "*.jsonl", tmp_path / "sub"))


def test_a_place_in_a_store_is_refused(config):
    with pytest.raises(UsageError, match=r"^s3://bucket/out\.plan: the plan of an array is a file"):
        check_plan_place(Path("s3://me:secret@bucket/out.plan"), config)


def test_a_file_stays_though_the_output_is_in_a_store(
    url, store, make_config, tmp_path, listener, private_temporary_files
):
    path = tmp_path / "notes"
    path.write_text("mine")
    with pytest.raises(UsageError, match="not the plan of an array"):
        plan_array(make_config(dir=url), path, listener)
    assert path.read_text() == "mine"
    assert not store.sizes()
