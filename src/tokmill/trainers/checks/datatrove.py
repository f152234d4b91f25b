"""An export to datatrove, read with its own datasets and compared with tokmill's dataset."""

from __future__ import annotations

import warnings
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.errors import VerifyError
from tokmill.trainers.trainer import Checked
from tokmill.words.plural import plural

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

    from tokmill.dataset.reader import Shard
    from tokmill.trainers.source import ExportSource

SEQ_LEN = 1023
"""Of the windows that are compared; they hold one token more."""


def check(source: ExportSource, output: Path) -> Checked:
    """Compare every window with its positions, every document, and every loss byte.

    Raises:
        VerifyError: something differs.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of packages that datatrove can do without
        from datatrove.utils.dataset import DatatroveFolderDataset

    n_windows = n_documents = left_out = 0
    for split in source.splits:
        folder = output / split
        theirs = None
        if any(entry["tokens"] > SEQ_LEN for entry in source.entries(split)):
            theirs = DatatroveFolderDataset(
                str(folder.absolute()),
                seq_len=SEQ_LEN,
                filename_pattern="*.ds",
                recursive=False,
                token_size=source.dtype.itemsize,
                return_positions=True,
            )
        first = n_windows
        for shard in source.shards(split):
            _compare_documents(folder / f"{shard.name}.ds", shard)
            n_documents += len(shard.lengths)
            n = len(shard.tokens) // (SEQ_LEN + 1)
            for window in range(n):
                _compare_window(theirs, n_windows - first + window, shard, window)
            n_windows += n
            left_out += len(shard.tokens) - n * (SEQ_LEN + 1)
        if (0 if theirs is None else len(theirs)) != n_windows - first:
            raise VerifyError(f"{folder}: expected {plural(n_windows - first, 'window')}")
    masks = ", loss" if source.kind == "sft" else ""
    compared = (
        f"{plural(n_documents, 'document')}{masks}, {plural(n_windows, 'window')} of "
        f"{SEQ_LEN + 1:,} tokens"
    )
    return Checked(f"datatrove {version('datatrove')}", compared, left_out)


def _compare_window(theirs: Any, number: int, shard: Shard, window: int) -> None:
    start = window * (SEQ_LEN + 1)
    found = theirs[number]
    tokens = shard.tokens[start : start + SEQ_LEN + 1]
    positions = positions_of(shard, start, start + SEQ_LEN + 1)
    for key, expected in (("input_ids", tokens), ("positions", positions)):
        if not np.array_equal(found[key].numpy(), expected):
            raise VerifyError(f"{shard.name}.ds: {key} of window {window} differ")


def positions_of(shard: Shard, start: int, stop: int) -> npt.NDArray[np.int64]:
    """Return the position of each token in its document; 0 again at the start of the window."""
    item = shard.tokens.itemsize
    low, high = (
        int(np.searchsorted(shard.offsets, at * item, "right")) for at in (start, stop - 1)
    )
    starts = np.concatenate([[start], shard.offsets[low:high] // item])
    places = np.arange(start, stop)
    found: npt.NDArray[np.int64] = places - starts[np.searchsorted(starts, places, "right") - 1]
    return found


def _compare_documents(path: Path, shard: Shard) -> None:
    """Compare every document and its loss bytes, read as datatrove's check_dataset reads."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from datatrove.tools.check_dataset import load_dataset_bytes, load_doc_ends

    ends = load_doc_ends(path.with_name(f"{path.name}.index").open("rb"))
    if len(ends) != len(shard.lengths):
        raise VerifyError(f"{path}.index: {plural(len(ends), 'document')}")
    bodies: list[tuple[str, Any, int]] = [("", shard.tokens, shard.tokens.itemsize)]
    if shard.mask is not None:
        bodies.append((".loss", shard.mask, 1))
    for ending, body, item in bodies:
        file = path.with_name(path.name + ending).open("rb")
        try:
            for number, data in enumerate(load_dataset_bytes(file, ends, item)):
                if not np.array_equal(np.frombuffer(data, body.dtype), body[shard.span(number)]):
                    raise VerifyError(f"{path}{ending}: document {number} differs")
        except AssertionError as error:  # the file is shorter or longer than its index says
            raise VerifyError(f"{path}{ending}: {error}") from None
