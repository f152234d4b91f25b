"""`tokmill report --html`: one line, one file, and the numbers of `tokmill report --json`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


@pytest.fixture
def page(tmp_path: Path) -> Path:
    return tmp_path / "report.html"


def test_one_line_names_the_page_and_its_size(tokmill, pretrained, page):
    found = tokmill("report", pretrained.directory, "--html", page)
    assert found.code == 0
    n_kb = page.stat().st_size / 1000
    assert found.out == f"{page}: {n_kb:.3g} kB\n"
    assert found.err == ""


def test_the_numbers_are_those_of_the_json(tokmill, chats, page):
    assert tokmill("report", chats.directory, "--html", page).code == 0
    bill = json.loads(tokmill("report", chats.directory, "--json").out)
    tiles = re.findall(r'<dt>([^<]+)</dt><dd data-value="([^"]+)">', page.read_text())
    assert {name: float(value) for name, value in tiles} == {
        "tokens": bill["disk"]["found"]["tokens"],
        "samples": chats.manifest["totals"]["documents"],
        "size on disk": bill["disk"]["dataset"]["bytes"],
    }


def test_the_settings_of_the_bill_are_accepted(tokmill, pretrained, page):
    options = ("--model", "llama-3.2-1b", "--gpu", "RTX 4090", "--micro-batch", "2")
    assert tokmill("report", pretrained.directory, "--html", page, *options).code == 0
    wrong = tokmill("report", pretrained.directory, "--html", page, "--gpu", "none such")
    assert "none such" in wrong.error


def test_a_moved_tokenizer_is_named_by_an_option(tokmill, pretrained, page, tokenizer_dir):
    directory = pretrained.directory
    where = pretrained.manifest["config"]["tokenizer"]["path"]
    assert tokmill("report", directory, "--html", page, "--tokenizer", where).code == 0
    assert page.read_text().count("<article") == 24
    assert tokmill("report", directory, "--html", page, "-t", tokenizer_dir).code == 0
    assert "not the tokenizer of this dataset" in page.read_text()


@pytest.mark.parametrize("options", [("--json",), ("--only", "disk"), ("--measure", "1")])
def test_what_chooses_tables_does_not_go_with_a_page(tokmill, pretrained, page, options):
    found = tokmill("report", pretrained.directory, "--html", page, *options)
    assert "--html writes a page" in found.error
    assert not page.exists()


def test_no_file_of_the_dataset_is_replaced(tokmill, pretrained):
    manifest = pretrained.directory / "manifest.json"
    found = tokmill("report", pretrained.directory, "--html", manifest)
    assert "is inside the dataset, whose files are checked: name a file beside it" in found.error
