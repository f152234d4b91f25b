"""The documents of a split as samples, each with its own length; or with the middle at their end.

Fill-in-the-middle is for models of code. A document is cut at two places into prefix, middle and
suffix, and written in one of two orders. Control tokens are in brackets; bos and eos stay at both
ends:

    prefix-suffix-middle: bos [prefix] prefix [suffix] suffix [middle] middle eos
    suffix-prefix-middle: bos [prefix] [suffix] suffix [middle] prefix middle eos

The idea is that of Bavarian et al., "Efficient Training of Language Models to Fill in the Middle"
(arXiv 2207.14255). The second order is their variant 2, and both are those of `permute` in
StarCoder's code (bigcode-project/Megatron-LM). That code cuts between characters, and encodes the
three parts anew; a dataset has tokens, so here the cuts are between tokens.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.errors import TokmillError, UsageError
from tokmill.loader.order import mix
from tokmill.loader.source import Source, cache_options, checked_count

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from tokmill.dataset.manifest import Manifest
    from tokmill.loader.source import AnyDataset, Arrays, Numbers, OpenDataset

NAMES: dict[str, tuple[str, Any]] = {
    "bin": ("input_ids", np.int64),
    "mask": ("mask", np.uint8),
    "weight": ("weights", np.float32),
}

FIM_NAMES = (
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),  # StarCoder 2, Granite
    ("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),  # SantaCoder
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),  # Qwen2.5-Coder, CodeGemma
    ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),  # DeepSeek
    ("▁<PRE>", "▁<SUF>", "▁<MID>"),  # Code Llama
    ("[PREFIX]", "[SUFFIX]", "[MIDDLE]"),  # Mistral
)
"""Tokens of prefix, suffix and middle, as tokenizers name them."""

_STREAM = np.uint64(0x46494D)
"""Keeps these random numbers apart from those of the order of samples."""


class DocumentSource(Source):
    """The documents of a split by number, in the order of the dataset; see `documents`."""

    def __init__(self, dataset: AnyDataset, split: str, options: Mapping[str, Any]) -> None:
        super().__init__(dataset, split, options, ("fim",) if "fim" in options else ())
        self._fim: FillInTheMiddle | None = options.get("fim")

    def __len__(self) -> int:
        """Return the number of documents."""
        return len(self._documents)

    def _shards_of(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the shard of each document."""
        return np.searchsorted(self._documents.stops, self.numbers(numbers), side="right")

    def __getitems__(self, numbers: Numbers) -> list[Arrays]:
        """Return several documents, read together; see `documents`."""
        asked = self.numbers(numbers)
        spans = self._files.document_spans(asked)
        samples: list[Arrays] = [{} for _ in range(len(spans.lengths))]
        ends = np.cumsum(spans.lengths)[:-1]
        for ending, dtype in self._files.dtypes.items():
            read = np.empty(int(spans.lengths.sum()), dtype)
            self._files.read(spans, ending, read)
            name, given = NAMES[ending]
            for sample, values in zip(samples, np.split(read.astype(given), ends), strict=False):
                sample[name] = values
        if self._fim is not None:
            for sample, chances in zip(samples, self._fim.chances(asked), strict=True):
                sample["input_ids"] = self._fim.permuted(sample["input_ids"], chances)
        return samples


def documents(
    dataset: str | os.PathLike[str] | OpenDataset,
    split: str = "train",
    *,
    fim_rate: float = 0.0,
    fim_spm_rate: float = 0.5,
    fim_tokens: Sequence[int | str] | None = None,
    seed: int = 0,
    epoch: int = 0,
    cache: str | os.PathLike[str] | None = None,
    cache_bytes: int | str | None = None,
) -> DocumentSource:
    """Return the documents of a split as samples for a training loop.

    A sample has `input_ids`: (n,) int64, eos included. In SFT also `mask`: (n,) uint8, 1 for a
    token that is trained; and `weights`: (n,) float32, if the dataset has them.

    Args:
        dataset: a directory, the URL of a store, or an open `tokmill.Dataset`.
        split: `train` or `val`.
        fim_rate: share of the documents, from 0 to 1, whose middle is moved to their end behind
            three control tokens, for a model that fills in the middle of code.
        fim_spm_rate: share of these, from 0 to 1, in the order suffix-prefix-middle; the others are
            in the order prefix-suffix-middle.
        fim_tokens: the control tokens of prefix, suffix and middle, as ids or strings; None: those
            of the tokenizer, such as `<fim_prefix>`, `<fim_suffix>` and `<fim_middle>`.
        seed: 0 to 2^64 - 1; with the epoch and the number of a document, it decides whether the
            document is permuted, its order, and its cuts.
        epoch: from 0; each has other choices and cuts.
        cache: of a dataset in a store: a directory on a local disk, in which whole shards are kept
            as they are needed; processes of a machine share it.
        cache_bytes: the most that it holds, such as `200GB`; None: nine tenths of what is free.

    Raises:
        UsageError: there is no dataset, the split has no documents, or an argument is wrong.
        TokmillError: the manifest is damaged or cannot be read.

    Example:
        >>> source = tokmill.loader.documents("out")
        >>> len(source), source[0]["input_ids"]
    """
    options = cache_options(cache, cache_bytes)
    source = DocumentSource(dataset, split, options)
    if not fim_rate:
        return source
    fim = _fill_in_the_middle(
        source.directory,
        source._manifest,
        fim_rate,
        fim_spm_rate,
        fim_tokens,
        seed=seed,
        epoch=epoch,
    )
    return DocumentSource(dataset, split, {"fim": fim, **options})


@dataclass(frozen=True, slots=True)
class FillInTheMiddle:
    """How documents are permuted; see `tokmill.loader.documents`.

    Attributes:
        rate: share of the documents that are permuted.
        spm_rate: share of these in the order suffix-prefix-middle.
        tokens: ids of the control tokens of prefix, suffix and middle.
        eos_id: the id that stays last.
        bos_id: the id that stays first; None without one.
        seed: of the choices and cuts.
        epoch: which epoch; each has other choices and cuts.
    """

    rate: float
    spm_rate: float
    tokens: tuple[int, int, int]
    eos_id: int
    bos_id: int | None
    seed: int
    epoch: int

    def chances(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Return four random numbers in [0, 1) for each document of a split: (n, 4).

        They depend on seed, epoch and number alone.
        """
        of_seed = mix(mix(np.array([self.seed], np.uint64)) ^ _STREAM)
        of_documents = mix(mix(of_seed ^ np.uint64(self.epoch)) ^ numbers.astype(np.uint64))
        words = mix(of_documents[:, None] ^ np.arange(4, dtype=np.uint64))
        return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def permuted(
        self, ids: npt.NDArray[np.int64], chances: npt.NDArray[np.float64]
    ) -> npt.NDArray[np.int64]:
        """Return a document in the order that its random numbers choose, or as it is.

        One that is permuted has three tokens more.
        """
        start = int(self.bos_id is not None and ids[0] == self.bos_id)
        stop = len(ids) - int(ids[-1] == self.eos_id)
        if chances[0] >= self.rate or stop <= start:
            return ids
        first, second = np.sort((chances[2:] * (stop - start + 1)).astype(np.int64)) + start
        prefix, middle, suffix = ids[start:first], ids[first:second], ids[second:stop]
        to_prefix, to_suffix, to_middle = ([token] for token in self.tokens)
        if chances[1] < self.spm_rate:
            body = [to_prefix, to_suffix, suffix, to_middle, prefix, middle]
        else:
            body = [to_prefix, prefix, to_suffix, suffix, to_middle, middle]
        return np.concatenate([ids[:start], *body, ids[stop:]])


def _fill_in_the_middle(
    directory: Path,
    manifest: Manifest,
    rate: float,
    spm_rate: float,
    tokens: Sequence[int | str] | None,
    seed: int,
    epoch: int,
) -> FillInTheMiddle:
    """Return how documents of a dataset are permuted; see `tokmill.loader.documents`.

    Raises:
        UsageError: an argument is wrong, or the tokenizer has no such tokens.
    """
    for name, value in (("fim_rate", rate), ("fim_spm_rate", spm_rate)):
        if not isinstance(value, int | float) or not 0 <= value <= 1:
            raise UsageError(f"{name}: expected a number from 0 to 1, found {value!r}")
    for name, number in (("seed", seed), ("epoch", epoch)):
        if checked_count(name, number, least=0) >= 1 << 64:
            raise UsageError(f"{name}: expected less than 2^64, found {number}")
    if manifest.mask is not None:
        raise UsageError("fim_rate: chats have no middle to fill in: expected documents")
    eos, bos = manifest.tokenizer.eos, manifest.tokenizer.bos
    ids = _ids(directory, manifest, tokens)
    return FillInTheMiddle(
        rate, spm_rate, ids, eos.id, None if bos is None else bos.id,
        operator.index(seed), operator.index(epoch),
    )  # fmt: skip


def _ids(
    directory: Path, manifest: Manifest, tokens: Sequence[int | str] | None
) -> tuple[int, int, int]:
    """Return the ids of three tokens, which are named by id or string, or found by `FIM_NAMES`."""
    n_ids = manifest.tokenizer.vocab_size
    by_name: dict[str, int] = {}
    if tokens is None or any(isinstance(token, str) for token in tokens):
        by_name = _ids_by_name(directory, manifest)
    if tokens is None:
        tokens = next((names for names in FIM_NAMES if by_name.keys() >= {*names}), None)
    if tokens is None:
        raise UsageError(
            f"fim_rate: {manifest.tokenizer.name} has no tokens for it, such as "
            f"{' '.join(FIM_NAMES[0])}: name three of its tokens with fim_tokens"
        )
    try:
        ids = [by_name.get(t, -1) if isinstance(t, str) else operator.index(t) for t in tokens]
    except TypeError:  # such as a fraction
        ids = []
    if len({*ids}) != 3 or len(ids) != 3 or not all(0 <= id_ < n_ids for id_ in ids):
        raise UsageError(
            f"fim_tokens: expected three tokens of the tokenizer, of prefix, suffix and middle, as "
            f"strings or ids below {n_ids:,}; found {list(tokens)!r}"
        )
    return ids[0], ids[1], ids[2]


def _ids_by_name(directory: Path, manifest: Manifest) -> dict[str, int]:
    """Return all ids of the tokenizer of a dataset by their strings."""
    from tokmill.tokenizer.kept import tokenizer_of  # not needed with ids

    try:
        tokenizer = tokenizer_of(directory, manifest, "")
    except TokmillError as error:
        raise UsageError(
            f"fim_rate: its tokens are those of the tokenizer, which does not load: {error}; or "
            "name their ids with fim_tokens"
        ) from None
    ids: dict[str, int] = tokenizer.library().get_vocab() if tokenizer.json else {}
    return ids | {token.content: token.id for token in tokenizer.added}
