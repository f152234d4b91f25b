"""Exports datasets to every trainer, and compares all of each with the trainer's own reader.

    python -m bench.readers out sft

A trainer whose reader is not installed, or that cannot read such a dataset, has the reason in its
row. `left out` counts tokens at the end of files that the reader never returns, by its own rule;
each page of docs/trainers explains it.
"""

from __future__ import annotations

import platform
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bench.machine import cores
from tokmill.api.dataset import open_dataset
from tokmill.errors import TokmillError, VerifyError
from tokmill.tables import TRAINERS
from tokmill.trainers.exporting.export import export
from tokmill.trainers.options import ExportOptions

if TYPE_CHECKING:
    from collections.abc import Iterable

HEAD = (
    "| dataset | trainer | reader | compared | left out | differences | new disk | linked in |\n"
    "|---|---|---|---|---|---|---|---|"
)


@dataclass(frozen=True, slots=True)
class Row:
    """What one reader returned. `share`: bytes written, of the dataset's. `seconds`: of the export.

    `refused`: why there is nothing to read; '' else.
    """

    dataset: str
    trainer: str
    reader: str = ""
    compared: str = ""
    left_out: int = 0
    differs: str = ""
    share: float = 0.0
    seconds: float = 0.0
    refused: str = ""

    def line(self) -> str:
        """Return the row of the table."""
        if self.refused:
            return f"| {self.dataset} | {self.trainer} | – | {self.refused} | | | | |"
        found = self.differs or "0"
        return (
            f"| {self.dataset} | {self.trainer} | {self.reader} | {self.compared} | "
            f"{self.left_out:,} | {found} | {self.share:.1%} | {self.seconds:.2f} s |"
        )


def rows_of(directory: Path) -> Iterable[Row]:
    """Yield a row for every trainer."""
    for trainer in TRAINERS.rows:
        yield _row(directory, trainer)


def _row(directory: Path, trainer: str) -> Row:
    n_bytes = sum(file["bytes"] for file in open_dataset(directory).manifest["files"])
    with tempfile.TemporaryDirectory(dir=directory.absolute().parent) as folder:
        try:
            start = time.monotonic()
            made = export(directory, trainer, Path(folder) / "export", ExportOptions())
            seconds = time.monotonic() - start
            checked = export(
                directory, trainer, made.output, ExportOptions(), check=True, overwrite=True
            ).checked
        except VerifyError as error:
            return Row(directory.name, trainer, differs=str(error))
        except TokmillError as error:
            return Row(directory.name, trainer, refused=str(error).replace(folder, "…"))
    assert checked is not None
    share = made.new_bytes / n_bytes
    names = (directory.name, f"{made.title} (`{trainer}`)", checked.reader, checked.compared)
    return Row(*names, checked.left_out, share=share, seconds=seconds)


@click.command()
@click.argument("directories", nargs=-1, required=True, type=click.Path(path_type=Path))
def main(directories: tuple[Path, ...]) -> None:
    """Print the table; exit 1 if a reader returned something else."""
    print(f"{platform.machine()}, {cores()} cores, {date.today()}", end="\n\n")
    print(HEAD)
    differs = False
    for directory in directories:
        for row in rows_of(directory):
            print(row.line(), flush=True)
            differs = differs or bool(row.differs)
    sys.exit(differs)


if __name__ == "__main__":
    main()
