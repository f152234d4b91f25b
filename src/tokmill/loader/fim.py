"""Fill-in-the-middle: documents whose middle stands at their end, for models of code.

A document is cut at two places into prefix, middle and suffix, and written in one of two orders.
Control tokens are in brackets; bos and eos stay at both ends:

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
from tokmill.loader.source import checked_count

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

NAMES = (
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


def fill_in_the_middle(
    manifest: Mapping[str, Any],
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
    if "mask" in manifest:
        raise UsageError("fim_rate: chats have no middle to fill in: expected documents")
    tokenizer = manifest["tokenizer"]
    bos = tokenizer["bos"]
    return FillInTheMiddle(
        rate, spm_rate, _ids(manifest, tokens), tokenizer["eos"]["id"], bos and bos["id"],
        operator.index(seed), operator.index(epoch),
    )  # fmt: skip


def _ids(manifest: Mapping[str, Any], tokens: Sequence[int | str] | None) -> tuple[int, int, int]:
    """Return the ids of three tokens, which are named by id or string, or found by `NAMES`."""
    n_ids = manifest["tokenizer"]["vocab_size"]
    by_name: dict[str, int] = {}
    if tokens is None or any(isinstance(token, str) for token in tokens):
        by_name = _ids_by_name(manifest)
    if tokens is None:
        tokens = next((names for names in NAMES if by_name.keys() >= {*names}), None)
    if tokens is None:
        raise UsageError(
            f"fim_rate: {manifest['tokenizer']['name']} has no tokens for it, such as "
            f"{' '.join(NAMES[0])}: name three of its tokens with fim_tokens"
        )
    ids = [by_name.get(token, -1) if isinstance(token, str) else token for token in tokens]
    if len({*ids}) != 3 or len(ids) != 3 or not all(0 <= id_ < n_ids for id_ in ids):
        raise UsageError(
            f"fim_tokens: expected three tokens of the tokenizer, of prefix, suffix and middle, as "
            f"strings or ids below {n_ids:,}; found {list(tokens)!r}"
        )
    return ids[0], ids[1], ids[2]


def _ids_by_name(manifest: Mapping[str, Any]) -> dict[str, int]:
    """Return all ids of the tokenizer of a dataset by their strings."""
    from tokmill.tokenizer.tokenizer import tokenizer_of  # not needed with ids

    try:
        tokenizer = tokenizer_of(dict(manifest), "")
    except TokmillError as error:
        raise UsageError(
            f"fim_rate: its tokens are those of the tokenizer, which does not load: {error}; or "
            "name their ids with fim_tokens"
        ) from None
    ids: dict[str, int] = tokenizer.library().get_vocab() if tokenizer.json else {}
    return ids | {token.content: token.id for token in tokenizer.added}
