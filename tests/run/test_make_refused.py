"""What a run does not continue, and what the message says; see `run.finish`."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from tokmill.dataset.plan_file import plan_fingerprint
from tokmill.errors import StateError
from tokmill.run.finish import run
from tokmill.sources.json_lines import parser_entry

CHANGED_SETTINGS = [
    ({"shard_tokens": 151}, "--shard-tokens was 150, is 151"),
    (
        {"checksum": "sha256"},
        "the algorithm of checksums (output.checksum) was 'blake3', is 'sha256'",
    ),
    (
        {"bos_token": "<bos>"},
        "--bos-token was '', is '<bos>'; the id of bos was None, is 1",
    ),
    ({"template": "{text}!"}, "--renderer was 'text', is 'template'; --"),
]


@pytest.mark.parametrize(("change", "expected"), CHANGED_SETTINGS)
def test_a_changed_setting_is_named(out, make_config, listener, begun, change, expected):
    before = sorted(out.rglob("*"))
    with pytest.raises(StateError) as caught:
        run(make_config(**change), listener)
    message = str(caught.value)
    assert message.startswith(f"{out}: holds a run of other inputs or settings: {expected}")
    assert message.endswith("choose another --output, or run with --overwrite to start again")
    assert "\n" not in message
    assert sorted(out.rglob("*")) == before


def test_settings_of_speed_may_change(make_config, listener, begun):
    change = {"block_bytes": 99, "threads": 2, "on_error": "skip", "max_reject_fraction": 0.5}
    assert run(make_config(**change), listener).plain["files"] == begun["files"]


def test_a_changed_tokenizer_is_named(make_config, listener, begun, tokenizer_dir, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "tokenizer_config.json").write_text('{"eos_token": "<eos>"}')
    data = json.loads((tokenizer_dir / "tokenizer.json").read_bytes())
    data["normalizer"] = {"type": "NFC"}
    (other / "tokenizer.json").write_text(json.dumps(data))
    told = "the tokenizer differs: normalizer: none there, NFC here: choose another --output"
    with pytest.raises(StateError, match=re.escape(told)):
        run(make_config(path=str(other)), listener)


def test_the_same_tokenizer_elsewhere_is_the_same(
    make_config, listener, begun, tokenizer_dir, tmp_path
):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for path in tokenizer_dir.iterdir():
        (elsewhere / path.name).write_bytes(path.read_bytes())
    again = run(make_config(path=str(elsewhere)), listener).plain
    assert again["totals"] == begun["totals"]


def test_a_file_that_grew_is_named_with_both_sizes(sources, make_config, listener, begun):
    before = sources[0].stat().st_size
    with sources[0].open("ab") as file:
        file.write(b'{"text": "one more"}\n')
    expected = rf"a\.jsonl has changed \({before:,} bytes before, {before + 21:,} now\)"
    with pytest.raises(StateError, match=expected):
        run(make_config(), listener)


def test_a_file_of_the_same_size_that_was_modified_is_named(sources, make_config, listener, begun):
    os.utime(sources[1], ns=(0, 0))
    with pytest.raises(StateError, match=r"b\.jsonl has changed \(it was modified\)"):
        run(make_config(), listener)


def test_a_removed_an_added_and_a_reordered_file_are_named(
    sources, make_config, listener, begun, tmp_path, write_rows
):
    a, b = sources
    c = write_rows(tmp_path / "c.jsonl", [{"text": "hello"}])
    for paths, expected in [
        ([a], f"{b} is gone"),
        ([a, b, c], f"{c} is new"),
        ([b, a], "the input files come in another order"),
    ]:
        with pytest.raises(StateError) as caught:
            run(make_config(*paths), listener)
        assert f"settings: {expected}: choose another --output" in str(caught.value)


def replace_plan(path: Path, plan: dict[str, Any]) -> None:
    """Write another plan, with its own fingerprint."""
    path.unlink()
    plan["fingerprint"] = plan_fingerprint(plan)
    path.write_text(json.dumps(plan))


def test_another_version_of_the_engine_is_refused(out, make_config, listener, begun):
    plan = json.loads((out / "plan.json").read_bytes())
    installed = plan["engine"]["version"]
    plan["engine"]["version"] = "0.0.1"
    replace_plan(out / "plan.json", plan)
    with pytest.raises(StateError) as caught:
        run(make_config(), listener)
    assert str(caught.value) == (
        f"the run in this directory began with reference 0.0.1, installed is {installed}: "
        "install that version, or run with --overwrite to start again"
    )


def test_another_engine_than_the_plan_s_is_refused(make_config, listener, begun):
    with pytest.raises(StateError) as caught:
        run(make_config(engine="gigatoken"), listener)
    assert str(caught.value) == (
        "the run in this directory began with engine reference, asked for is gigatoken: "
        "leave --engine out to continue, or run with --overwrite to start again"
    )


def test_another_version_of_the_parser_is_refused(out, make_config, listener, begun):
    plan = json.loads((out / "plan.json").read_bytes())
    assert plan["parser"] == parser_entry()
    plan["parser"]["version"] = "0.0.1"
    replace_plan(out / "plan.json", plan)
    with pytest.raises(StateError) as caught:
        run(make_config(), listener)
    assert str(caught.value) == (
        "the run in this directory began with the JSON parser pyarrow 0.0.1, installed is "
        f"{parser_entry()['version']}: install that version, or run with --overwrite to start again"
    )


def test_a_plan_with_an_engine_that_does_not_exist_is_refused(out, make_config, listener, begun):
    plan = json.loads((out / "plan.json").read_bytes())
    plan["engine"]["name"] = "tokenizers+cache"
    replace_plan(out / "plan.json", plan)
    with pytest.raises(StateError) as caught:
        run(make_config(engine="auto"), listener)
    assert str(caught.value).startswith(
        "the run in this directory began with engine tokenizers+cache: engine: expected one of "
    )


@pytest.mark.parametrize("engine", [{}, {"name": "reference", "unknown": 1}])
def test_a_damaged_engine_in_a_plan_is_an_error(out, make_config, listener, begun, engine):
    plan = json.loads((out / "plan.json").read_bytes())
    replace_plan(out / "plan.json", plan | {"engine": engine})
    with pytest.raises(StateError, match=r"plan\.json: damaged \(.*\): run with --overwrite"):
        run(make_config(engine="auto"), listener)
