"""torchtitan and Grain: the shards as they are, with `document_offsets.npy` for random access.

A folder for each split: `tokens-00000.bin`, …, `mask-00000.bin`, … (chats), and
`document_offsets.npy`, (D + 1,) int64: document i has the tokens `[offsets[i], offsets[i + 1])` of
all bodies end to end. Beside them `document_files.py`, which reads them: a source with `__len__`
and `__getitem__`, labels shifted already, as torchtitan's trainer wants them.

Source of the layout: torchtitan, components/data/README.md and sources.py (since #4088).
"""

from __future__ import annotations

import importlib.util
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from tokmill.trainers import document_files
from tokmill.trainers.rows import DocumentRows, Sample, check_equal, check_rows
from tokmill.trainers.trainer import Checked, Layout, Linked, Written

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokmill.trainers.options import ExportOptions
    from tokmill.trainers.trainer import ExportSource

_HEADER_BYTES = 128
"""Of a `.npy` file of version 1 with one axis."""


class Torchtitan:
    """Data pipelines on Grain, of which torchtitan's is one."""

    title = "torchtitan"
    kinds = frozenset({"pretrain", "sft"})
    options = frozenset({"merge"})
    reader: tuple[str, ...] = ("grain",)

    def layout(self, source: ExportSource, options: ExportOptions, output: Path) -> Layout:
        """Return the bodies, masks and offsets of each split; see `Trainer.layout`."""
        files: list[Linked | Written] = []
        bodies = {"tokens": "bin", "mask": "mask"} if source.alignment else {"tokens": "bin"}
        for split in source.splits:
            entries = source.entries(split)
            for i, some in enumerate([entries] if options.merge else [[one] for one in entries]):
                for name, ending in bodies.items():
                    files.append(source.body(f"{split}/{name}-{i:05d}.bin", some, ending))
            n_bytes = _HEADER_BYTES + 8 * (len(source.documents(split)) + 1)
            name = f"{split}/document_offsets.npy"
            files.append(Written(name, n_bytes, partial(_write_offsets, source, split)))
        text = Path(document_files.__file__).read_bytes()
        files.append(Written.of("document_files.py", text))
        usage = (
            f"import sys; sys.path.append({str(output.absolute())!r})\n"
            "from document_files import DocumentFiles\n\n"
            f"train = DocumentFiles({str(output.absolute() / 'train')!r})\n"
            "import grain.python as grain\n\n"
            "documents = grain.MapDataset.source(train).shuffle(seed=1)"
        )
        notes = [
            "inside torchtitan, wrap DocumentFiles in a source: see docs/trainers/torchtitan.md"
        ]
        return Layout(files, usage, source.alignment, notes)

    def check(self, source: ExportSource, options: ExportOptions, output: Path) -> Checked:
        """Compare every document as Grain returns it; see `Trainer.check`."""
        import importlib.metadata

        import grain.python as grain

        kind = _written(output)
        return check_rows(
            source, [DocumentRows(source, split) for split in source.splits], output,
            lambda split: grain.MapDataset.source(kind(output / split)), _compare,
            f"grain {importlib.metadata.version('grain')}",
        )  # fmt: skip


def _compare(row: Any, samples: Sequence[Sample], where: str) -> None:
    check_equal(row["input_ids"], samples[0].ids[:-1], where, "input_ids")
    check_equal(row["labels"], samples[0].labels[1:], where, "labels")


def _write_offsets(source: ExportSource, split: str, file: BinaryIO) -> None:
    n = len(source.documents(split)) + 1
    header = {"descr": "<i8", "fortran_order": False, "shape": (n,)}
    np.lib.format.write_array_header_1_0(file, header)
    file.write(np.zeros(1, "<i8").data)
    stop = 0
    for shard in source.shards(split):
        stops = stop + np.cumsum(shard.lengths, dtype="<i8")
        file.write(stops.data)
        stop = int(stops[-1])


def _written(output: Path) -> Any:
    """Return the class of the export's own `document_files.py`."""
    spec = importlib.util.spec_from_file_location(
        "tokmill_document_files", output / "document_files.py"
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"{output / 'document_files.py'}: cannot be imported")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.DocumentFiles


TRAINER = Torchtitan()
