"""The section without its script: the settings' own case, and the command that prints it."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace

import pytest
from click.testing import CliRunner

from tests.page.report.bill.conftest import MACHINE
from tokmill.bill.text.summary import summary_rows
from tokmill.cli.report import command
from tokmill.page.report.bill.section import bill_section
from tokmill.page.report.bill.words import bars, words


def section(made):
    return bill_section(made.directory, made.manifest, made.bill, machine=MACHINE)


def rows(bill, part):
    return {row.label: row.text for row in summary_rows(bill, {part}) if row.label}


def test_the_first_case_is_that_of_the_report(llama):
    html = section(llama).html.replace("&#x27;", "'")
    found = rows(llama.bill, "gpu")
    assert f"llama-3.2-1b {found['verdict']}" in html
    assert found["GPU memory"] in html
    assert found["fits with"] in html
    assert rows(llama.bill, "host")["host RAM"] in html
    assert rows(llama.bill, "disk")["disk"] in html
    time = rows(llama.bill, "time")["time"]
    assert time.split(" for ")[0] in html
    assert time.split("; ")[-1] in html


def test_other_obstacles_are_those_of_the_verdict_of_the_command(llama):
    assert "no own" not in section(llama).html
    disk = replace(llama.bill.disk, free_bytes=1000)
    bill = replace(llama.bill, disk=disk)
    html = section(replace(llama, bill=bill)).html
    assert rows(bill, "gpu")["verdict"].endswith("; too little disk space")
    assert 'no own">Too little disk space<' in html
    assert f'<p class="verdict no">{rows(bill, "disk")["disk"]}<' in html


def test_every_shape_has_a_number_of_the_first_case(llama):
    html = section(llama).html
    found, limit = bars(llama.view, llama.axes.start)
    for bar in found:
        for n_bytes in bar.amounts:
            assert html.count(f'data-value="{n_bytes}"') >= 2
    assert f'data-value="{limit.n_bytes}"' in html


def test_without_a_model_an_example_is_shown_and_said(unnamed, llama):
    assert "The settings name no model and no GPU: this is an example." in section(unnamed).html
    assert "this is an example" not in section(llama).html
    assert unnamed.view.axes.chosen == (False, False)


def test_a_hostile_directory_stays_text(made, pretrained, tmp_path):
    link = tmp_path / "<script>&'"
    link.symlink_to(pretrained.directory)
    html = section(made(link)).html
    assert "<script>" not in html
    assert "&lt;script&gt;" in html


@pytest.mark.parametrize("at", [None, (3, 4, 3, 0, 3), (0, 0, 2, 2, 0)])
@pytest.mark.parametrize("which", ["llama", "unnamed", "wide_settings"])
def test_the_command_prints_the_same_case(request, which, at):
    view = request.getfixturevalue(which).view
    at = at or view.axes.start
    said = shlex.split(words(view, at).command)
    assert said[:2] == ["tokmill", "report"]
    result = CliRunner().invoke(command, [*said[2:], "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    peak = json.loads(result.stdout)["training"]["peak"]["lines"]
    found, _ = bars(view, at)
    assert found[0].n_bytes == sum(line["bytes"] for line in peak)
    assert found[0].high_bytes == sum(line["high_bytes"] for line in peak)


@pytest.fixture(scope="module")
def wide_settings(made, wide):
    """Settings of many kinds, with nodes."""
    training = {
        "gpu": "24GiB", "gpus": 16, "nodes": 2, "sharding": "fsdp", "micro_batch": 3,
        "checkpointing": "selective", "flat_buffer": True, "fragmentation": 0.2, "tokens": 10**6,
        "optimizer": "lion", "host_ram": 2**40,
    }  # fmt: skip
    return made(wide.directory, model={"name": "qwen2.5-0.5b"}, training=training)
