"""Hugging Face `datasets`: a directory for `load_from_disk`, one row for each document.

Columns: `input_ids`, and `labels` for chats (-100 where the mask is 0, at the token's own place).
With weights other than 0 and 1 also `weights`, float32, at the token's own place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokmill.trainers.checks.compare_rows import check_count, check_equal, compared, expected_rows
from tokmill.trainers.layouts.arrow_directory import (
    INPUT_IDS,
    LABELS,
    WEIGHTS,
    Column,
    arrow_files,
)
from tokmill.trainers.layouts.rows import DocumentRows
from tokmill.trainers.trainer import Checked, Layout

if TYPE_CHECKING:
    from pathlib import Path

    from tokmill.trainers.options import ExportOptions
    from tokmill.trainers.source import ExportSource


class HfDatasets:
    """Every program that opens a directory with `datasets.load_from_disk`."""

    title = "Hugging Face datasets"
    kinds = frozenset({"pretrain", "sft"})
    options: frozenset[str] = frozenset()
    reader: tuple[str, ...] = ("datasets",)

    def layout(self, source: ExportSource, options: ExportOptions, output: Path) -> Layout:
        """Return the files of the directory; see `Trainer.layout`."""
        rows = [DocumentRows(source, split) for split in source.splits]
        columns = _columns(source, options)
        files = arrow_files(source, rows, columns)
        place = str(output.absolute())
        usage = f"from datasets import load_from_disk\n\ndataset = load_from_disk({place!r})"
        alignment = "target" if source.kind == "sft" else ""
        return Layout(files, usage, alignment, has_weights=WEIGHTS in columns)

    def check(self, source: ExportSource, options: ExportOptions, output: Path) -> Checked:
        """Compare every row that `datasets` reads; see `Trainer.check`."""
        import datasets

        columns = _columns(source, options)
        splits = [DocumentRows(source, split) for split in source.splits]
        for rows in splits:
            found = loaded(output, rows.split).with_format("numpy")
            check_count(len(found), rows, str(output))
            for i, (row, samples) in enumerate(
                zip(found, expected_rows(source, rows), strict=True)
            ):
                where = f"{output}: row {i} of {rows.split}"
                check_equal(row["input_ids"], samples[0].ids, where, "input_ids")
                if source.kind == "sft":
                    check_equal(row["labels"], samples[0].labels, where, "labels")
                if WEIGHTS in columns and samples[0].weights is not None:
                    check_equal(row["weights"], samples[0].weights, where, "weights")
        return Checked(f"datasets {datasets.__version__}", compared(splits))


def _columns(source: ExportSource, options: ExportOptions) -> list[Column]:
    columns = [INPUT_IDS, LABELS] if source.kind == "sft" else [INPUT_IDS]
    return [*columns, WEIGHTS] if source.has_weights and not options.drop_weights else columns


def loaded(output: Path, split: str) -> Any:
    """Return a split of a directory, loaded with `datasets`."""
    import datasets

    found = datasets.load_from_disk(str(output))
    return found[split] if isinstance(found, datasets.DatasetDict) else found


TRAINER = HfDatasets()
