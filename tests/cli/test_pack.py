"""`tokmill pack` and `pretrain --packing`: what they print, and what they refuse in one line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import SAMPLES, manifest
from tokmill.api.functions import open_dataset


@pytest.fixture
def out(pretrain, good: Path, tmp_path: Path) -> Path:
    assert pretrain(good).code == 0
    return tmp_path / "out"


def test_it_says_how_full_rows_are_and_what_is_wasted(tokmill, out) -> None:
    outcome = tokmill("pack", out, "--length", "16")
    packs = manifest(out)["packs"]["train"]
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out == (
        f"packs, train  {packs['pieces']} pieces of 40 documents in {packs['rows']} rows of "
        f"16 tokens, {packs['fill']:.2%} full; {packs['padding']} tokens of padding, 0 left out "
        "(last pieces: fragment)\n"
    )
    printed = json.loads(tokmill("pack", out, "--length", "16", "--json").out)
    assert printed == {"directory": str(out), "packs": manifest(out)["packs"]}
    assert tokmill("verify", out).code == 0


def test_a_run_packs_at_its_end(tokmill, pretrain, good, tmp_path) -> None:
    outcome = pretrain(good, "--packing", "16")
    assert re.search(r"^packing +train \d+ rows of 16 tokens, .* full$", outcome.out, re.MULTILINE)
    packed = manifest(tmp_path / "out")
    assert packed["config"]["output"]["packing"] == 16
    assert tokmill("pack", tmp_path / "out", "--length", "16").code == 0
    assert manifest(tmp_path / "out") == packed
    assert tokmill("verify", tmp_path / "out").code == 0
    assert "packing" in pretrain(good, "--packing", "32").error  # another run


def test_the_report_and_inspect_know_pieces(tokmill, out, tokenizer_dir) -> None:
    tokmill("pack", out, "--length", "4")
    page = out.parent / "report.html"
    report = tokmill("report", out)
    assert "packs, train" in report.out
    assert tokmill("report", out, "--html", page).code == 0
    assert "Packed rows" in page.read_text(encoding="utf-8")
    rows = [
        [
            json.loads(line)
            for line in tokmill("inspect", out, "--row", i, "--json").out.splitlines()
        ]
        for i in range(manifest(out)["packs"]["train"]["rows"])
    ]
    assert all(sum(len(piece["ids"]) for piece in row) <= 4 for row in rows)
    cut = [piece for row in rows for piece in row if "piece" in piece]
    assert all(piece["piece"][1] - piece["piece"][0] == len(piece["ids"]) for piece in cut)
    shown = tokmill("inspect", out, "--row", 0).out
    assert re.match(r"row 0 of train: 1 piece, 4 of 4 tokens \(100\.0%\)\n", shown)
    assert "tokens 0 to 3 of the document" in shown


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--length", "1"), "--length: expected rows of 2 to 268,435,456 tokens, found 1"),
        (("--length", "many"), "length: expected a number of tokens such as 4096 or 32k"),
        (("--length", "8", "--split", "val"), "--split: expected train, found 'val'"),
        (("--length", "8", "--max-samples-per-row", "-1"), "max_samples_per_row"),
        (("--length", "8", "--max-samples-per-row", "few"), "max_samples_per_row: expected a"),
        (("--length", "8", "--last", "keep"), "'keep' is not one of 'fragment', 'drop'"),
        ((), "Missing option '--length'"),
    ],
)
def test_a_wrong_option_is_one_line(tokmill, out, options, message) -> None:
    outcome = tokmill("pack", out, *options)
    assert (outcome.code, message in outcome.error) == (2, True), outcome.err
    assert "packs" not in manifest(out)


def test_what_cannot_be_packed_is_one_line(tokmill, sft, out, tmp_path) -> None:
    nothing = tokmill("pack", tmp_path / "none", "--length", "8")
    assert (nothing.code, "not a tokmill dataset" in nothing.error) == (2, True)
    store = tokmill("pack", "s3://bucket/name", "--length", "8")
    assert (store.code, "only a dataset in a directory" in store.error) == (2, True)
    (out / "manifest.json").unlink()
    unfinished = tokmill("pack", out, "--length", "8")
    assert (unfinished.code, "its run is not finished" in unfinished.error) == (6, True)


def test_chats_say_how_they_are_packed(tokmill, sft, tmp_path) -> None:
    samples = SAMPLES / "sft" / "chats.jsonl"
    assert sft(samples, "--max-tokens", "512").code == 0
    outcome = tokmill("pack", tmp_path / "out", "--length", "512")
    assert "run tokmill sft with --packing=4096" in outcome.error


@pytest.mark.parametrize(
    ("verb", "toml", "message"),
    [
        ("sft", "[output]\npacking = 64\n", "is for tokmill pretrain: set packing in [sft]"),
        ("pretrain", "[output]\npacking = 1\n", "expected rows of at least 2 tokens, found 1"),
        ("pretrain", "[output]\nmax_samples_per_row = 3\n", "needs --packing"),
        ("sft", "[sft]\nmax_samples_per_row = 3\n", "needs --packing"),
    ],
)
def test_a_setting_that_packs_nothing_is_refused(tokmill, good, tmp_path, verb, toml, message):
    (tmp_path / "c.toml").write_text(toml, encoding="utf-8")
    inputs = SAMPLES / "sft" / "chats.jsonl" if verb == "sft" else good
    options = ("--config", tmp_path / "c.toml", "-t", SAMPLES / "tokenizer")
    outcome = tokmill(verb, inputs, "-o", tmp_path / "o", *options)
    assert message in outcome.error
    assert not (tmp_path / "o").exists()


def most_samples(directory: Path) -> tuple[int, int]:
    """Return the most samples in a row of train, and what the manifest says of it."""
    dataset = open_dataset(directory)
    sizes = np.diff(dataset.packs["train"].row_offsets)
    return int(sizes.max()), dataset.manifest["packs"]["train"]["max_samples_per_row"]


def test_rows_of_text_have_a_most_number_of_pieces(tokmill, out, pretrain, good) -> None:
    outcome = tokmill("pack", out, "--length", "64", "--max-samples-per-row", "2")
    assert " rows of 64 tokens and at most 2 pieces, " in outcome.out
    assert most_samples(out) == (2, 2)
    assert tokmill("verify", out).code == 0
    options = ("--packing", "64", "--max-samples-per-row", "3", "--overwrite")
    assert pretrain(good, *options).code == 0
    assert most_samples(out) == (3, 3)
    other = pretrain(good, "--packing", "64")
    assert "settings: --max-samples-per-row was 3" in other.error


def test_rows_of_chats_have_a_most_number_of_samples(tokmill, sft, tmp_path) -> None:
    samples = SAMPLES / "sft" / "chats.jsonl"
    out, mixed = tmp_path / "out", tmp_path / "mixed"
    options = ("--max-tokens", "512", "--packing", "4096", "--max-samples-per-row", "3")
    assert sft(samples, *options, "--packed-rows").code == 0
    assert most_samples(out) == (3, 3)
    assert tokmill("mix", f"{out}=1.0", "-o", mixed).code == 0
    assert most_samples(mixed) == (3, 3)
    assert tokmill("verify", mixed).code == tokmill("verify", out).code == 0
