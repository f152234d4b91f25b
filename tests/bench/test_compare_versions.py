"""Two versions are compared by what their datasets hold, whatever the size of their parts."""

from __future__ import annotations

import numpy as np

import tokmill
from bench.compare_versions import SAME, contents, first_difference, spellings


def test_parts_of_other_sizes_hold_the_same_and_other_text_does_not(
    tmp_path, tokenizer_dir, write_rows
):
    rows = [{"text": f"the cat {i} " * 20} for i in range(40)] + [b"broken"]
    files = write_rows(tmp_path / "a.jsonl", rows), write_rows(tmp_path / "b.jsonl", rows[5:])
    found = []
    for number, (file, part_bytes) in enumerate(
        [(files[0], 1 << 30), (files[0], 2_000), (files[1], 1 << 30)]
    ):
        made = tmp_path / f"out-{number}"
        tokmill.pretrain(
            file, tokenizer=tokenizer_dir, output=made, part_bytes=part_bytes, progress=False
        )
        found.append(contents(made))
    whole, in_parts, other = found
    assert first_difference(whole, in_parts) == SAME
    assert first_difference(whole, other) == "records: 41 here, 36 there"
    assert list(whole["rejects, places"]) == [f"{files[0]} 41 9120 not an object"]


def test_the_first_token_that_differs_is_named():
    one, other = {"train, .bin": np.array([1, 2, 3])}, {"train, .bin": np.array([1, 5, 6])}
    assert first_difference(one, other) == "train, .bin, number 1: 2 here, 5 there"


def test_a_setting_with_another_name_in_another_version_has_several_spellings():
    assert spellings("renderer", "text") == [["--renderer", "text"]]
    assert ["--title-field", "name"] in spellings("keys", "title=name")
    assert ["--fields", "title=name"] in spellings("keys", "title=name")
