from __future__ import annotations

import numpy as np
import pyarrow as pa

from tokmill.chat.learned.assembly import assembled
from tokmill.chat.learned.pattern import Pattern


def pattern(pieces: list[str], contents: list[int], segments: list[int], turns: list[int]):
    count = len(segments)
    return Pattern(
        pieces,
        np.array(contents),
        np.array(segments),
        np.arange(10, 10 + count, dtype=np.int32),
        np.arange(count),
        np.array(turns),
        np.arange(max(turns) + 1),
        np.zeros(max(contents) + 1, np.int64),
    )


TWO = pattern(["<", "", ">", "", "!"], [-1, 0, -1, 1, -1], [0, 3, 4], [0, 1, 1])
ONE = pattern(["", "?"], [0, -1], [0], [0])


def test_contents_stand_in_the_patterns_of_their_records():
    contents = pa.array(["a", "é", "c", "unused", "中", "e"], pa.string())
    columns = assembled(contents, np.array([0, 2, 4]), np.array([1, 0, 1]), [ONE, TWO, None])
    assert columns.text.to_pylist() == ["<a>", "é", "!", "c?", "<中>", "e", "!"]
    assert columns.offsets.tolist() == [0, 3, 4, 7]
    assert columns.ids.tolist() == [10, 11, 12, 10, 10, 11, 12]
    assert columns.table.kinds.tolist() == [0, 1, 2, 0, 0, 1, 2]
    assert columns.table.turns.tolist() == [0, 1, 1, 2, 3, 4, 4]
    assert columns.table.roles.tolist() == [0, 1, 0, 0, 1]
    assert columns.table.samples.tolist() == [0, 0, 1, 2, 2]
    assert np.isnan(columns.table.given).all()


def test_the_columns_have_the_types_of_all_writers():
    columns = assembled(pa.array(["a"]), np.array([0]), np.array([0]), [ONE, None])
    assert columns.text.type == pa.large_string()
    assert columns.ids.dtype == np.int32
    assert columns.offsets.dtype == np.int64
    assert columns.table.given.dtype == np.float32
