"""The benchmark's figures: medians of later runs, ratios of the same work alone."""

from __future__ import annotations

from bench.__main__ import HEAD, named_input, named_tokenizers, row
from bench.peers import Timing

MB = 1_000_000
FOUND = {
    "tokmill": [Timing(9.0, 100 * MB, 50, 7.0), Timing(4.0, 100 * MB, 50, 2.0)],
    "other version": [Timing(9.0, 100 * MB, 50, 7.0), Timing(5.0, 100 * MB, 50, 1.0)],
    "gigatoken forced": [Timing(9.0, 100 * MB, 50, 7.0), Timing(2.0, 100 * MB, 50, 1.0)],
    "gigatoken alone, serial, at once": [Timing(2.0, 100 * MB, 50)],
    "fastokens alone, serial, at once": [Timing(1.0, 100 * MB, 50)],
    "reference": [Timing(40.0, 100 * MB, 50)],
    "datatrove": [Timing(80.0, 100 * MB, 49)],
}


def test_a_row_has_the_first_run_the_later_ones_and_ratios_of_the_same_tokens():
    cells = dict(zip(HEAD, row("en, gpt2", FOUND), strict=True))
    assert (cells["first run, s"], cells["later, s"], cells["later, MB/s"]) == (
        "9.00",
        "4.00",
        "25.0",
    )
    assert (cells["start-up, s"], cells["without, MB/s"]) == ("2.00", "50.0")
    assert cells["× reference"] == "10.0"
    assert cells["× datatrove"] == "-"  # other tokens: other work
    assert cells["of best engine"] == "0.50"
    assert cells["auto"] == "0.50"
    assert cells["× other version"] == "2.00"


def test_without_tokmill_there_is_no_figure():
    assert set(row("en, gpt2", {})[1:]) == {"-"}


def test_inputs_and_tokenizers_are_named(tmp_path):
    (tmp_path / "gpt2").mkdir()
    assert named_input(f"en={tmp_path}/a.jsonl") == ("en", tmp_path / "a.jsonl")
    assert named_input(f"{tmp_path}/docs.jsonl")[0] == "docs"
    assert list(named_tokenizers(f"{tmp_path}/t:<eos>")) == [(tmp_path / "t", "<eos>")]
    assert list(named_tokenizers(str(tmp_path))) == [(tmp_path / "gpt2", "<|endoftext|>")]
