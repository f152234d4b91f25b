from __future__ import annotations

import pyarrow as pa

from tokmill.settings.schema import InputSettings
from tokmill.sources.files import Slice, SourceFile
from tokmill.sources.formats import open_slice


def test_the_weight_of_a_block_is_its_bytes(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b"{}\n" * 10)
    file = SourceFile((tmp_path / "a.jsonl").as_posix(), "jsonl", "", 30, 0, "")
    settings = InputSettings()
    with open_slice(Slice(file, 0, -1, 30), settings, pa.schema([]), 9) as reader:
        blocks = list(reader.blocks())
    assert [block.n_bytes for block in blocks] == [9, 9, 9, 3]
    assert sum(block.input_bytes for block in blocks) == 30
