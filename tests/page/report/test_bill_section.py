"""The section of the bill says what the command says, with the numbers of the bill."""

from __future__ import annotations

import json

from click.testing import CliRunner

from tokmill.bill.bill_settings import bill_settings
from tokmill.bill.full_bill import full_bill
from tokmill.bill.inputs import complete_inputs
from tokmill.bill.on_disk import on_disk
from tokmill.bill.text.summary import asked_parts, summary_rows
from tokmill.cli.bill import memory_command
from tokmill.page.report.bill_section import bill_section

GIVEN = {
    "model": {"name": "llama-3.2-1b"},
    "training": {"gpu": "RTX 4090", "micro_batch": 2, "host_ram": 1 << 36, "price_per_hour": 0.5},
}


def bill_of(dataset, settings):
    asked = bill_settings(dataset.manifest["config"], None, None, settings)
    return full_bill(complete_inputs(asked, on_disk(dataset.directory, dataset.manifest)))


def section_of(dataset, **settings):
    return bill_section(dataset.directory, bill_of(dataset, settings))


def test_the_text_is_that_of_the_command(pretrained):
    section, bill = section_of(pretrained, **GIVEN), bill_of(pretrained, GIVEN)
    html = section.html.replace("&#x27;", "'")
    for row in summary_rows(bill, asked_parts(bill.settings)):
        assert row.label == "disk" or row.text in html  # the free space changes
        assert row.label in html


def test_the_bars_are_the_moments_and_their_groups_add_up(pretrained, page_of):
    page = page_of(pretrained.directory, given=GIVEN)
    moments = page.bill["training"]["moments"]
    n_bytes = [moment["bytes"] for moment in moments]
    assert list(page.data["bill"]["moments"].values()) == n_bytes
    groups = page.read.tables["bill-moments"].values()
    assert [sum(each) for each in groups] == n_bytes
    assert sum(page.read.bars["bill-disk"][:-1]) == page.bill["disk"]["dataset"]["bytes"]


def test_the_alternatives_are_those_of_compare(pretrained):
    options = ["--model", "llama-3.2-1b", "--gpu", "RTX 4090", "--micro-batch", "2"]
    shown = CliRunner().invoke(memory_command, [*options, "--compare", "--json"])
    data = section_of(pretrained, **GIVEN).data["alternatives"]
    assert data == json.loads(shown.stdout)["alternatives"]


def test_inference_alone_has_its_alternatives(pretrained):
    section = section_of(pretrained, model={"name": "gpt2"}, inference={"batch": 8})
    assert {"weight_type", "context"} == set(section.data["alternatives"][0]["values"])


def test_without_a_model_the_section_says_what_to_add(pretrained):
    section = section_of(pretrained)
    assert "unknown: add --model" in section.html
    assert section.data["moments"] == {}


def test_a_hostile_directory_stays_text(pretrained, tmp_path):
    link = tmp_path / "<script>&'"
    link.symlink_to(pretrained.directory)
    html = bill_section(link, bill_of(pretrained, {})).html
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
