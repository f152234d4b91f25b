"""What a trainer is: the files that it reads, made from a dataset, and its own reader.

A new trainer is one file with an object of this shape, and one row in `tables.TRAINERS`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from tokmill.trainers.source import ExportSource, Linked, Written

if TYPE_CHECKING:
    from tokmill.trainers.options import ExportOptions

__all__ = ["Checked", "Layout", "Linked", "Trainer", "Written", "padded"]

_Size = TypeVar("_Size", int, npt.NDArray[np.int64])


@dataclass(frozen=True, slots=True)
class Layout:
    """The files of an export, and how they are used.

    `usage`: what the user writes into the trainer's settings: code or options, one or more lines.
    `mask_alignment`: `target` or `predictor`, '' without masks. `notes`: what the user must know,
    such as tokens that the trainer's reader leaves out; one line each. `shards`: the datasets that
    are read, with the names of their shards; () is all of the exported dataset. `has_weights`:
    whether the weights of tokens in the loss are in the files, if the dataset has any.
    """

    files: Sequence[Linked | Written]
    usage: str
    mask_alignment: str = ""
    notes: Sequence[str] = field(default=())
    shards: Sequence[tuple[ExportSource, Collection[str]]] = field(default=())
    has_weights: bool = False


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of reading an export with the trainer's own reader: all of it was equal.

    `reader`: name and version. `compared`: how much was compared, such as `7,361 documents`.
    `left_out`: tokens at the ends of files that the reader never returns, by its own rule.
    """

    reader: str
    compared: str
    left_out: int = 0


class Trainer(Protocol):
    """One trainer, or several that read the same files.

    Attributes:
        title: its name as its users write it, such as `Megatron-LM`.
        kinds: the kinds of datasets that it takes: `pretrain`, `sft`.
        options: names of the fields of `ExportOptions` that it uses, without `copy`.
        reader: packages that `check` imports, as pip calls them; () if NumPy reads the files.
    """

    title: str
    kinds: frozenset[str]
    options: frozenset[str]
    reader: tuple[str, ...]

    def layout(self, source: ExportSource, options: ExportOptions, output: Path) -> Layout:
        """Return the files of an export to `output`; writes nothing.

        Raises:
            UsageError: the trainer cannot read such a dataset; the message says why.
        """

    def check(self, source: ExportSource, options: ExportOptions, output: Path) -> Checked:
        """Read an export with the trainer's own reader, and compare all of it with the dataset.

        Raises:
            VerifyError: something differs.
        """


def padded(n: _Size, multiple: int) -> _Size:
    """Return the next multiple, or `n` itself if it is one; of each number of an array."""
    return -(-n // multiple) * multiple
