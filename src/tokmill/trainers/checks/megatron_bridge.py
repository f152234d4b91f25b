"""Read packed Parquet with Megatron-Bridge's own dataset class, and compare all of it.

Its packed dataset and collator need torch and megatron-core alone, but the packages around them
import TransformerEngine, which needs a GPU build. `_only_modules` lets Python import the modules
without running the `__init__` of the packages.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tokmill.errors import UsageError
from tokmill.trainers.checks.compare_rows import (
    check_count,
    check_equal,
    compared,
    expected_rows,
)
from tokmill.trainers.trainer import Checked

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tokmill.trainers.checks.compare_rows import Sample
    from tokmill.trainers.layouts.rows import PackedRows
    from tokmill.trainers.options import ExportOptions
    from tokmill.trainers.source import ExportSource

_PARQUET_MODULES = (
    "megatron.bridge.data.packing.parquet",
    "megatron.bridge.data.datasets.packed_parquet",
)


def check_rows(
    source: ExportSource,
    splits: Sequence[PackedRows],
    capacity: int,
    options: ExportOptions,
    output: Path,
) -> Checked:
    """Compare the tokens, labels, masks and positions of every row with the dataset.

    Raises:
        UsageError: Megatron-Bridge cannot be imported.
        VerifyError: something differs.
    """
    with _only_modules():
        for rows in splits:
            path = output / f"{rows.split}.idx.parquet"
            found = _dataset(path, source, capacity, options.pad_samples_to)
            check_count(len(found), rows, str(path))
            for i, samples in enumerate(expected_rows(source, rows)):
                row, where = found[i], f"{path}: row {i}"
                padded = [
                    _padded(one, source.eos_id or 0, options.pad_samples_to) for one in samples
                ]
                _compare_row(row, padded, where)
                _compare_batch(found.collate_fn([row]), padded, source.eos_id or 0, where)
    version = importlib.metadata.version("megatron-bridge")
    return Checked(f"megatron-bridge {version}", compared(splits))


_Padded = tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]
"""The ids of a sample and what is trained of it, with its padding."""


def _compare_row(row: dict[str, Any], padded: Sequence[_Padded], where: str) -> None:
    """Compare what is stored: the mask stands one token before the target that it is about."""
    check_equal(row["input_ids"], np.concatenate([ids for ids, _ in padded]), where, "input_ids")
    mask = np.concatenate([np.append(is_trained[1:], False) for _, is_trained in padded])
    check_equal(row["loss_mask"], mask.astype(np.int64), where, "loss_mask")
    stops = np.cumsum([0, *(len(ids) for ids, _ in padded)])
    check_equal(row["seq_boundaries"], stops, where, "seq_boundaries")


def _compare_batch(
    batch: dict[str, Any], padded: Sequence[_Padded], eos_id: int, where: str
) -> None:
    """Compare what the collator returned: inputs `[:-1]` and labels `[1:]` of every sample."""
    tokens = np.concatenate([ids[:-1] for ids, _ in padded])
    labels = np.concatenate([ids[1:] for ids, _ in padded])
    mask = np.concatenate([is_trained[1:] for _, is_trained in padded])
    n = len(tokens)
    found = {name: batch[name][0].numpy() for name in ("tokens", "labels", "loss_mask")}
    check_equal(found["tokens"][:n], tokens, where, "tokens")
    check_equal(found["labels"][:n], labels, where, "labels")
    if not np.array_equal(found["loss_mask"][:n], mask):
        mask = mask & (tokens != eos_id)  # 0.3.1 trains nothing where the INPUT is eos
    check_equal(found["loss_mask"][:n], mask.astype(np.int64), where, "loss_mask")
    check_equal(found["loss_mask"][n:], np.zeros(len(found["loss_mask"]) - n), where, "padding")
    positions = np.concatenate([np.arange(len(ids) - 1) for ids, _ in padded])
    check_equal(batch["position_ids"][0].numpy()[:n], positions, where, "position_ids")
    ends = np.cumsum([0, *(len(ids) - 1 for ids, _ in padded)])
    name = next(name for name in _BOUNDARIES if name in batch)
    check_equal(batch[name].reshape(-1).numpy()[: len(ends)], ends, where, name)


def _padded(sample: Sample, eos_id: int, multiple: int) -> _Padded:
    n_pad = -(len(sample.ids) - 1) % multiple
    ids = np.concatenate([sample.ids, np.full(n_pad, eos_id, np.int64)])
    return ids, np.concatenate([sample.is_trained, np.zeros(n_pad, bool)])


_BOUNDARIES = ("cu_seqlens_q_padded", "cu_seqlens_q", "cu_seqlens")
"""Names of the ends of samples with their padding; the last is that of 0.5 and before."""


class _Tokenizer:
    """What the collator asks of a tokenizer: the id that it pads with."""

    def __init__(self, eos_id: int) -> None:
        self.eos_id = self.eod = eos_id


def _dataset(path: Path, source: ExportSource, capacity: int, multiple: int) -> Any:
    """Return Megatron-Bridge's dataset of a Parquet file.

    Versions without a Parquet reader have the collator: they get the rows from pyarrow.
    """
    settings = {
        "tokenizer": _Tokenizer(source.eos_id or 0),
        "max_seq_length": capacity,
        "pad_seq_to_mult": multiple,
        # Required and unused for packs; these are the values of Megatron-Bridge's own builder.
        "prompt_template": "{input} {output}",
        "label_key": "output",
        "truncation_field": "input",
    }
    for name in _PARQUET_MODULES:
        with contextlib.suppress(ModuleNotFoundError):
            kind = importlib.import_module(name).GPTSFTPackedParquetDataset
            return kind(file_path=str(path), **settings)
    try:
        base: Any = importlib.import_module("megatron.bridge.data.datasets.sft").GPTSFTPackedDataset
    except ImportError as error:
        raise UsageError(f"--check: Megatron-Bridge cannot be imported: {error}") from None

    def load(self: Any) -> None:
        self.indexed_dataset = _Rows(path)

    with_rows = type("WithRows", (base,), {"_load_dataset": load})
    found = with_rows(file_path=str(path), **settings)
    # This version looks for the length in the list of rows.
    with_rows.__len__ = lambda self: len(self.indexed_dataset)  # type: ignore[attr-defined]
    return found


class _Rows:
    """The rows of a Parquet file, one row group in memory."""

    def __init__(self, path: Path) -> None:
        import pyarrow.parquet as pq

        self._file = pq.ParquetFile(path)
        groups = range(self._file.num_row_groups)
        counts = [self._file.metadata.row_group(i).num_rows for i in groups]
        self._stops = np.cumsum(counts)
        self._group = -1
        self._rows: list[dict[str, list[int]]] = []

    def __len__(self) -> int:
        return int(self._stops[-1])

    def __getitem__(self, row: int) -> dict[str, list[int]]:
        group = int(np.searchsorted(self._stops, row, side="right"))
        if group != self._group:
            self._group, self._rows = group, self._file.read_row_group(group).to_pylist()
        return self._rows[row - int(self._stops[group]) + len(self._rows)]


class _Finder:
    """Finds the packages of Megatron-Bridge as folders of modules."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: Any = None) -> Any:
        """Return a package without code for a folder below megatron.bridge."""
        if not f"{name}.".startswith("megatron.bridge."):
            return None
        for folder in path or ():
            here = Path(folder) / name.rpartition(".")[2]
            if here.is_dir():
                spec = ModuleSpec(name, None, is_package=True)
                spec.submodule_search_locations = [str(here)]
                return spec
        return None


@contextlib.contextmanager
def _only_modules() -> Iterator[None]:
    """Import modules of Megatron-Bridge without its packages' own code, unless it was imported."""
    if "megatron.bridge" in sys.modules:
        yield
        return
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in [one for one in sys.modules if f"{one}.".startswith("megatron.bridge.")]:
            del sys.modules[name]
