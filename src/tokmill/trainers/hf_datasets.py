"""Hugging Face `datasets`: a directory for `load_from_disk`, one row for each document.

Columns: `input_ids`, and `labels` for chats (-100 where the mask is 0, at the token's own place).
With weights other than 0 and 1 also `weights`, float32, at the token's own place.

A dataset for pretraining that is packed becomes a row for each pack, with `labels` (-100 at the
first token of each piece) and `seq_lengths`, the tokens of each piece. Rows that are documents have
the fields that the run kept as columns of strings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokmill.errors import VerifyError
from tokmill.trainers.checks.compare_rows import check_columns, check_count, compared, expected_rows
from tokmill.trainers.layouts.arrow_directory import (
    INPUT_IDS,
    LABELS,
    SEQ_LENGTHS,
    WEIGHTS,
    Column,
    arrow_files,
)
from tokmill.trainers.layouts.rows import DocumentRows, Rows, rows_of
from tokmill.trainers.trainer import Checked, Layout

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tokmill.trainers.options import ExportOptions
    from tokmill.trainers.source import ExportSource


class HfDatasets:
    """Every program that opens a directory with `datasets.load_from_disk`."""

    title = "Hugging Face datasets"
    kinds = frozenset({"pretrain", "sft"})
    options = frozenset({"unpacked"})
    reader: tuple[str, ...] = ("datasets",)

    def layout(self, source: ExportSource, options: ExportOptions, output: Path) -> Layout:
        """Return the files of the directory; see `Trainer.layout`."""
        rows = _rows(source, options)
        columns = _columns(source, options, rows)
        files = arrow_files(source, rows, columns)
        place = str(output.absolute())
        usage = f"from datasets import load_from_disk\n\ndataset = load_from_disk({place!r})"
        alignment = "target" if source.kind == "sft" else ""
        return Layout(files, usage, alignment, has_weights=WEIGHTS in columns)

    def check(self, source: ExportSource, options: ExportOptions, output: Path) -> Checked:
        """Compare every row that `datasets` reads; see `Trainer.check`."""
        import datasets

        splits = _rows(source, options)
        columns = _columns(source, options, splits)
        for rows in splits:
            found = loaded(output, rows.split).with_format("numpy")
            check_count(len(found), rows, str(output))
            texts, documents = loaded(output, rows.split), source.documents(rows.split)
            for i, samples in enumerate(expected_rows(source, rows)):
                row = found[i]
                own = {column.name: row[column.name] for column in columns}
                where = f"{output}: row {i} of {rows.split}"
                check_columns(own, samples, where)
                kept = documents.metadata(i).to_pylist()[0] if rows.keep else {}
                if any(texts[i][name] != kept[name] for name in rows.keep):
                    raise VerifyError(f"{where}: {', '.join(rows.keep)}: expected {kept}")
        return Checked(f"datasets {datasets.__version__}", compared(splits))


def _rows(source: ExportSource, options: ExportOptions) -> list[Rows]:
    """Return the rows of all splits: packs of text if there are any; chats one by one.

    Documents have the kept fields whose names no column of tokens has.
    """
    names = [column.name for column in (INPUT_IDS, LABELS, SEQ_LENGTHS, WEIGHTS)]
    keep = [name for name in source.manifest.get("keep", ()) if name not in names]
    if source.kind == "sft":
        return [DocumentRows(source, split, keep) for split in source.splits]
    return [rows_of(source, split, options, keep) for split in source.splits]


def _columns(source: ExportSource, options: ExportOptions, splits: Sequence[Rows]) -> list[Column]:
    if any(rows.packs is not None for rows in splits):
        return [INPUT_IDS, LABELS, SEQ_LENGTHS]
    columns = [INPUT_IDS, LABELS] if source.kind == "sft" else [INPUT_IDS]
    return [*columns, WEIGHTS] if source.has_weights and not options.drop_weights else columns


def loaded(output: Path, split: str) -> Any:
    """Return a split of a directory, loaded with `datasets`."""
    import datasets

    found = datasets.load_from_disk(str(output))
    return found[split] if isinstance(found, datasets.DatasetDict) else found


TRAINER = HfDatasets()
