"""The benchmark's figures: medians of later runs, ratios of the same work alone."""

from __future__ import annotations

from bench.__main__ import HEAD, row
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
