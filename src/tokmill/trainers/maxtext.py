"""MaxText: the files of its pipeline `olmo_grain`, and a mix file for each split.

| file             | bytes                                                                        |
|------------------|------------------------------------------------------------------------------|
| `train/NAME.npy` | ids end to end, uint16 or uint32; no header, despite its name: a link        |
| `train.txt`      | a line for each file: `train,train/NAME.npy`                                 |

MaxText's own tool makes an index of a mix file for one length of rows, and its reader cuts each
file into rows of that length; the rest of a file is never read.

Source of the layout: MaxText e591f30, src/maxtext/input_pipeline/olmo_data.py and
olmo_data_grain.py, tools/data_generation/build_olmo_npy_index.py. There is no package of it.
"""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING

import numpy as np

from tokmill.trainers.trainer import Checked, Layout, Linked, Written, yaml_text
from tokmill.words import plural

if TYPE_CHECKING:
    from pathlib import Path

    from tokmill.trainers.options import ExportOptions
    from tokmill.trainers.trainer import ExportSource

ROW = 4096
"""Tokens of a row in the printed lines; the user may choose others."""


class MaxText:
    """MaxText, for pretraining: its reader has no masks."""

    title = "MaxText"
    kinds = frozenset({"pretrain"})
    options: frozenset[str] = frozenset()
    reader: tuple[str, ...] = ()

    def layout(self, source: ExportSource, options: ExportOptions, output: Path) -> Layout:
        """Return a link for each shard and a mix file for each split; see `Trainer.layout`."""
        files: list[Linked | Written] = []
        for split in source.splits:
            names = {one.name: f"{split}/{one.name}.npy" for one in source.entries(split)}
            files += [Linked(path, source.path(name, "bin")) for name, path in names.items()]
            lines = "".join(f"{split},{path}\n" for path in names.values())
            files.append(Written.of(f"{split}.txt", lines.encode()))
        notes = [
            "MaxText reads rows across the ends of documents, and never the end of a file that is "
            "shorter than a row",
            "olmo_apply_ngram_filter masks rows with repetitions unless it is false",
            "MaxText evaluates on rows of the same index, not on the val split",
        ]
        return Layout(files, _usage(source, output.absolute()), "", notes)

    def check(self, source: ExportSource, options: ExportOptions, output: Path) -> Checked:
        """Compare the files of each mix file, mapped as MaxText does; see `Trainer.check`."""
        n_tokens = 0
        for split in source.splits:
            start = 0
            for line in (output / f"{split}.txt").read_text().splitlines():
                path = output / line.split(",", maxsplit=1)[1]
                found = np.memmap(path, source.dtype, "r")
                source.check_tokens(split, start, found, path)
                start += len(found)
            n_tokens += start
        return Checked(f"numpy {np.__version__}", plural(n_tokens, "token"))


def _usage(source: ExportSource, place: Path) -> str:
    """Return the command that makes the index of a split, and the settings that name it."""
    split = source.splits[0]
    index = place / f"{split}-{ROW}.json"
    return "\n".join(
        [
            "python tools/data_generation/build_olmo_npy_index.py \\",
            f"  --mix-file {quote(str(place / f'{split}.txt'))} --gcs-base {quote(str(place))} \\",
            f"  --dtype {source.dtype.name} --sequence-length {ROW} \\",
            f"  --output {quote(str(index))}",
            "",
            "dataset_type: olmo_grain",
            f"max_target_length: {ROW}",
            f"olmo_index_path: {yaml_text(str(index))}",
        ]
    )


TRAINER = MaxText()
