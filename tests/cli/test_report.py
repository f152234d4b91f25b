"""`tokmill report`: what a finished dataset takes; and the bill that runs and plans end with."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import GOOD, SAMPLES, write_lines

CHATS = SAMPLES / "sft" / "chats.jsonl"
MODEL = """
[model]
family = "llama"
layers = 2
hidden = 64
heads = 4
ffn = 128
tied = "yes"
[training]
gpu = "T4"
sequence = 32
micro_batch = 2
"""


@pytest.fixture
def good(tmp_path: Path) -> Path:
    return write_lines(tmp_path / "good.jsonl", [*GOOD, b"{bad"])


@pytest.fixture
def made(pretrain: Callable[..., Any], good: Path, tmp_path: Path) -> Path:
    """A dataset for pretraining of two splits, with a reject."""
    assert pretrain(good, "--val-fraction", "0.5", "--max-reject-fraction", "1").code == 0
    return tmp_path / "out"


def sizes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def test_the_disk_of_a_dataset_is_the_sum_of_its_files_to_the_byte(tokmill, made):
    disk = json.loads(tokmill("report", made, "--json").out)["disk"]
    assert disk["dataset"]["bytes"] == sizes(made)
    assert sum(share["n_bytes"] for share in disk["found"]["splits"]) == sizes(made)
    assert sum(share["n_bytes"] for share in disk["found"]["sources"]) == sizes(made)
    assert {share["name"] for share in disk["found"]["splits"]} == {"train", "val", "other files"}
    assert disk["found"]["unlisted"] == [".lock"]
    assert {line["name"] for line in disk["dataset"]["lines"]} == {
        "tokens (.bin)", "document index (.idx)", "rejects", "records of parts",
        "manifest and plan", "origins (.origin)",
    }  # fmt: skip


def test_packed_chats_are_trained_in_rows_and_take_the_sum_of_their_files(sft, tokmill, tmp_path):
    settings = ("--packing", "4096", "--packed-rows", "--weights", "file", "--val-fraction", "0.3")
    assert sft(CHATS, "--max-tokens", "4096", *settings).code == 0
    found = json.loads(tokmill("report", tmp_path / "out", "--model", "gpt2", "--json").out)
    assert found["settings"]["training"]["sequence"] == 4096
    disk = found["disk"]
    assert disk["dataset"]["bytes"] == sizes(tmp_path / "out")
    assert disk["dataset"]["low_bytes"] == disk["dataset"]["high_bytes"]


def test_a_report_says_ratios_and_what_choices_would_add(tokmill, made, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")  # a long temporary path stays on one line
    (made / ".train-0000000-0009.bin.1-ab.tmp").write_bytes(bytes(1234))  # of a killed run
    outcome = tokmill("report", made, "--all")
    assert (outcome.code, outcome.err) == (0, "")
    assert ".train-0000000-0009.bin.1-ab.tmp" in outcome.out
    for expected in (
        r"^  not in the manifest +1\.2$",
        r"^disk +dataset \S+ [kMGT]?B; \S+ [kMGT]?B free$",
        r"^disk: the dataset, kB$",
        r"^  bytes per token +\d+\.\d{3} \(uint16\)$",
        r"^  size relative to the text +\d+\.\d% of ",
        r"^  relative to the input +\d+\.\d% of ",
        r"^  uint32 instead of uint16 ",
        r"^  loss masks ",
        r"^host RAM",
        r"^GPU memory +unknown: add --model",
        r"^records +\d+ = ",
    ):
        assert re.search(expected, outcome.out, re.MULTILINE), expected


def test_the_settings_of_a_run_are_the_defaults_of_its_report(pretrain, tokmill, good, tmp_path):
    (tmp_path / "run.toml").write_text(MODEL)
    words = ("-c", tmp_path / "run.toml", "--max-reject-fraction", "1")
    assert pretrain(good, *words).code == 0
    found = json.loads(tokmill("report", tmp_path / "out", "--json").out)
    vocabulary = json.loads((tmp_path / "out/manifest.json").read_bytes())["tokenizer"][
        "vocab_size"
    ]
    layer = 4 * 64 * 64 + 3 * 64 * 128 + 2 * 64
    assert found["model"]["parameters"] == vocabulary * 64 + 2 * layer + 64
    assert found["gpu"]["name"] == "T4"
    assert found["settings"]["training"]["sequence"] == 32
    assert found["compute"]["step_sequences"] == 2
    other = tokmill("report", tmp_path / "out", "--model", "gpt2", "--gpu", "80GiB", "--json")
    asked = json.loads(other.out)
    assert asked["model"]["parameters"] == 124_439_808
    assert asked["gpu"]["name"] == "80GiB"
    assert asked["settings"]["training"]["micro_batch"] == 2


# Runs and plans


def test_a_run_without_a_model_ends_with_its_size_and_another_model_changes_no_byte_of_it(
    pretrain, good, tmp_path
):
    words = (good, "--max-reject-fraction", "1")
    out = pretrain(*words).out
    last = out.splitlines()[-1]
    assert last.startswith("output ")
    assert last.endswith(f" as uint16 in {tmp_path / 'out'}; see also tokmill report")
    assert "RAM" not in out
    assert "GPU" not in out
    before = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*.*")}
    assert "gpt2, 124,439,808 parameters" in pretrain(*words, "--model", "gpt2").out
    assert {path: path.read_bytes() for path in (tmp_path / "out").rglob("*.*")} == before


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--gpu", "Voodoo"), "gpu: 'Voodoo' is not known"),
        (("--model", "no-such-model-xyz"), "no-such-model-xyz"),
    ],
)
def test_a_wrong_model_or_gpu_stops_a_run_before_it_begins(
    pretrain, good, tmp_path, monkeypatch, words, expected
):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    outcome = pretrain(good, *words)
    assert outcome.code == 2
    assert expected in outcome.error
    assert not (tmp_path / "out").exists()


def test_a_plan_shows_the_same_bill_before_a_token_is_written(
    tokmill, tokenizer_dir, good, tmp_path
):
    (tmp_path / "run.toml").write_text(MODEL)
    words = ("plan", good, "-t", tokenizer_dir, "-o", tmp_path / "out", "--engine", "reference")
    outcome = tokmill(*words, "-c", tmp_path / "run.toml")
    assert outcome.code == 0
    forecast, bill = (block.splitlines() for block in outcome.out.split("\n\n"))
    assert len(forecast) <= 10
    assert len(bill) <= 10
    assert re.search(r"^verdict +fits on T4 \(14\.57 GiB\)", outcome.out, re.MULTILINE)
    assert re.match(
        r"more +tokmill memory --all, with the same --config, --model and --gpu$", bill[-1]
    )
    assert not (tmp_path / "out").exists()
    planned = json.loads(tokmill(*words, "-c", tmp_path / "run.toml", "--json").out)
    assert planned["bill"]["schema"] == 1
    assert planned["bill"]["disk"]["dataset"]["bytes"] == planned["disk_bytes"]
    assert planned["bill"]["compute"]["tokens"] == planned["tokens"]
    assert planned["bill"]["disk"]["found"] is None
    words = (*words, "-c", tmp_path / "run.toml", "--val-fraction", "0.25", "--json")
    split = json.loads(tokmill(*words).out)
    assert split["bill"]["compute"]["tokens"] == round(0.75 * planned["tokens"])


def test_a_plan_of_chats_knows_their_packing(tokmill, tmp_path):
    words = ("plan", CHATS, "-t", SAMPLES / "tokenizer", "-o", tmp_path / "out")
    out = tokmill(*words, "--max-tokens", "512", "--packing", "512", "--model", "gpt2").out
    assert "sequence 512" in out
    planned = json.loads(tokmill(*words, "--max-tokens", "512", "--packing", "512", "--json").out)
    lines = planned["bill"]["disk"]["dataset"]["lines"]
    assert "pack index" in {line["name"] for line in lines}


# Bad input


def test_a_missing_file_is_a_mismatch(tokmill, made):
    (made / "val-0000000-0000.idx").unlink()
    outcome = tokmill("report", made)
    assert outcome.code == 1
    assert outcome.error.startswith("val-0000000-0000.idx: expected 442 B as in the manifest")


# The page


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


def test_ranks_that_wait_for_each_other_are_a_line(tokmill, pretrained, page):
    options = ("--gpus", "4", "--sequence", "64", "--micro-batch", "2")
    told = tokmill("report", pretrained.directory, *options).out
    found = re.search(
        r"attention cost +4 ranks of 2 rows wait for the slowest: a step takes (1\.\d{3}) times as "
        r"long as with equal batches; (1\.\d{3}) times if the loader balances windows of 64 tokens",
        told,
    )
    assert found is not None
    before, after = map(float, found.groups())
    assert 1 <= after <= before
    assert tokmill("report", pretrained.directory, *options, "--html", page).code == 0
    assert f"a step takes {found[1]} times as long" in page.read_text()
    assert "attention cost" not in tokmill("report", pretrained.directory).out  # one GPU


def test_a_report_of_too_few_rows_has_no_line_of_ranks(tokmill, made):
    outcome = tokmill("report", made, "--gpus", "512", "--sequence", "64")
    assert (outcome.code, "attention cost" in outcome.out) == (0, False)
