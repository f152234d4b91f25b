"""Tokens of other trainers as a dataset: `tokmill.import_dataset`."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tokmill.api.dataset import Dataset, open_dataset
from tokmill.api.jobs import checked_path
from tokmill.errors import UsageError
from tokmill.settings.names import keyword_errors

if TYPE_CHECKING:
    from tokmill.api.functions import Paths, ProgressCall
    from tokmill.api.progress import RunObserver
    from tokmill.trainers.importing.dataset import ImportSettings

_LOG = logging.getLogger("tokmill")


def import_dataset(
    sources: Paths,
    *,
    trainer: Literal["megatron", "datatrove", "nanogpt"],
    output: str | Path,
    tokenizer: str | Path,
    val: Paths = (),
    eos_token: str = "",
    add_eos: bool = False,
    dtype: Literal["", "uint16", "uint32"] = "",
    overwrite: bool = False,
    progress: bool | ProgressCall | None = None,
) -> Dataset:
    """Read the tokens of another trainer into a dataset, and return it.

    The sources are copied, not changed; the dataset appears whole or not at all. Notes on what was
    lost or changed go to the logger `tokmill` as warnings.

    Args:
        sources: files, prefixes of Megatron, or directories: one, or a sequence whose order is the
            order of the dataset.
        trainer: whose layout it is.
        output: the directory of the dataset.
        tokenizer: which made the tokens.
        val: sources of the val split.
        eos_token: the token that ends a document, if the tokenizer's files do not tell.
        add_eos: add eos to documents that do not end with it; else they are an error.
        dtype: of the ids of nanoGPT, by default uint16; the others record theirs.
        overwrite: replace an imported dataset that stands at `output`.
        progress: see `pretrain`; bytes are those of tokens.

    Returns:
        The dataset, open for reading.

    Raises:
        TokmillError: a source is damaged, an id is not of the tokenizer, a document lacks eos, or
            files cannot be written.

    Example:
        >>> tokmill.import_dataset("old", trainer="megatron", output="new", tokenizer="gpt2/")
    """
    from tokmill.api.functions import receivers
    from tokmill.api.progress import RunObserver
    from tokmill.bill.measuring.process_tree import Sampler
    from tokmill.settings.schema import TokenizerSettings
    from tokmill.trainers.importing.dataset import ImportSettings

    with keyword_errors():
        call, bar = receivers(progress)
        named = TokenizerSettings(str(checked_path(tokenizer, "tokenizer")), eos_token)
        settings = ImportSettings(
            _paths(sources, "sources"), trainer, checked_path(output, "output"), named,
            _paths(val, "val"), add_eos, dtype, overwrite,
        )  # fmt: skip
        observer = RunObserver(Sampler(), note=_LOG.info, bar=bar, call=call)
        dataset, notes = import_noted(settings, observer)
    for note in notes:
        _LOG.warning(note)
    return dataset


def import_noted(settings: ImportSettings, observer: RunObserver) -> tuple[Dataset, list[str]]:
    """Import a dataset; return it with the notes on it; see `import_dataset`."""
    from tokmill.trainers.importing.dataset import IMPORTERS, import_tokens

    if settings.trainer not in IMPORTERS:
        expected = f"expected one of {', '.join(IMPORTERS)}"
        raise UsageError(f"trainer: {expected}; found {settings.trainer!r}")
    try:
        notes = import_tokens(settings, observer)
    finally:
        observer.close()
    observer.ended()
    return open_dataset(settings.output), notes


def _paths(given: Paths, name: str) -> list[Path]:
    """Return the paths of an argument that takes one or several."""
    if isinstance(given, str | os.PathLike):
        given = [given]
    return [checked_path(path, name) for path in given]
