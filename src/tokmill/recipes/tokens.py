"""The recipe of an import: documents that another program encoded; no text is read or encoded.

A slice is a whole file of tokens. A document without tokens is dropped; one that lacks eos gets it
where that was asked for, and else is an error; a sample that trains no token is dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.dataset.checksum import sha256_hex
from tokmill.dataset.counts import UNTRAINED
from tokmill.dataset.manifest import MaskEnds, MaskEntry
from tokmill.errors import TokenizerError, VerifyError
from tokmill.recipes.encoded import EncodedBlock
from tokmill.sources.token_files import checked_files
from tokmill.sources.token_layouts import IMPORTERS
from tokmill.values import RecordPlace

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from tokmill.dataset.counts import SliceLength
    from tokmill.recipes.spec import RunSpec
    from tokmill.sources.slices import Slice
    from tokmill.sources.token_files import Batch, TokenFile

    Numbers = npt.NDArray[np.int64]

FORMAT = "tokens"
"""The format of a file of tokens, in a plan."""

EMPTY = "no token"
"""Reason of a drop: a document without tokens."""

ADDED_EOS, UNTRAINED_FIRST = "eos added", "first token of a sample no longer trained"
"""Counters of a part: documents that got an eos, and samples whose mask began with 1."""

ENDED_BY_EOS = "ended by eos alone"
"""A counter of a part: documents whose ends no index names."""


def imported_mask() -> MaskEntry:
    """Return the manifest's `mask` about masks that came with the tokens: nobody knows the rule."""
    return MaskEntry(
        preset="imported",
        boundary="imported",
        alignment="target",
        trained=(),
        turns="",
        template="imported",
        template_sha256=sha256_hex(b""),
        ends=MaskEnds("imported", ()),
        cut=0,
    )


@dataclass(frozen=True, slots=True)
class TokenBlock:
    """Documents of a file.

    `first_token`, `first_document`: tokens, and documents with a token, that stand before them.
    """

    file: TokenFile
    batch: Batch
    first_token: int
    first_document: int

    @property
    def n_bytes(self) -> int:
        """Return the bytes of the ids."""
        return self.batch.tokens.nbytes


class TokenReader:
    """Reads the documents of a slice in order."""

    def __init__(self, file: TokenFile, trainer: str, eos_id: int) -> None:
        self._file, self._trainer, self._eos_id = file, trainer, eos_id

    def blocks(self) -> Iterator[TokenBlock]:
        """Yield all documents; raises `VerifyError` for a damaged file."""
        n_tokens = n_documents = 0
        for batch in IMPORTERS[self._trainer].read(self._file, self._eos_id):
            n_tokens += batch.n_skipped
            yield TokenBlock(self._file, batch, n_tokens, n_documents)
            n_tokens += len(batch.tokens)
            n_documents += int(np.count_nonzero(batch.lengths))

    def origin(self) -> RecordPlace:
        """Return the place where the slice begins."""
        return RecordPlace(0, 0)

    def length(self) -> SliceLength | None:
        """Return None: a slice is a whole file."""
        return None


class TokenRecipe:
    """Checks the ids of documents, and completes them."""

    def __init__(self, spec: RunSpec) -> None:
        if spec.tokens is None:
            raise ValueError("no import")
        self._rules, self._tokenizer = spec.tokens, spec.tokenizer
        self._eos_id = spec.tokenizer.eos.id
        self.dtype = np.dtype(spec.config.output.dtype).newbyteorder("<")

    def read_by(self, spec: RunSpec) -> None:
        """Change nothing: all files of an import are read in one way."""

    @contextmanager
    def open(self, piece: Slice) -> Iterator[TokenReader]:
        """Open a slice while the context is open, and check that it is what its writer wrote.

        Raises:
            TokmillError: see `TokenRules.open`; or the file is damaged, or was written to.
            TokenizerError: ids of the dataset are too narrow for the eos that documents end with.
        """
        file = self._rules.open(piece.file)
        if file.mask is None and self._eos_id > np.iinfo(self.dtype).max:
            raise TokenizerError(
                f"{file.path}: its ids are {self.dtype.name}, and the tokenizer's eos is "
                f"{self._eos_id:,}: name the tokenizer that made these tokens"
            )
        checked = checked_files(file.paths)
        checked.check(file.paths)
        yield TokenReader(file, self._rules.trainer, self._eos_id)
        checked.finish()

    def process(self, blocks: Sequence[Any]) -> list[EncodedBlock]:
        """Return the documents of each `TokenBlock`.

        Raises:
            TokenizerError: an id is not of the tokenizer.
            VerifyError: a document does not end with eos.
        """
        return [self._encoded(block) for block in blocks]

    def _encoded(self, block: TokenBlock) -> EncodedBlock:
        self._check_ids(block)
        mask = block.batch.mask
        return self._documents(block) if mask is None else self._samples(block, mask)

    def _documents(self, block: TokenBlock) -> EncodedBlock:
        """Return documents of pretraining, each with eos at its end."""
        rows = np.flatnonzero(block.batch.lengths)
        lengths, tokens = (
            block.batch.lengths[rows],
            block.batch.tokens.astype(self.dtype, copy=False),
        )
        ends = np.cumsum(lengths)
        lacks_eos = tokens[ends - 1] != self._eos_id
        if lacks_eos.any():
            self._check_eos_may_lack(block, lacks_eos)
            tokens = np.insert(tokens, ends[lacks_eos], self.dtype.type(self._eos_id))
        counters = {ADDED_EOS: lacks_eos.astype(np.int64)}
        return _result(block, rows, tokens, lengths + lacks_eos, counters)

    def _samples(self, block: TokenBlock, mask: npt.NDArray[np.uint8]) -> EncodedBlock:
        """Return the samples that train a token; nothing predicts the first token of a sample."""
        rows = np.flatnonzero(block.batch.lengths)
        lengths, tokens = (
            block.batch.lengths[rows],
            block.batch.tokens.astype(self.dtype, copy=False),
        )
        if not len(rows):
            return _result(block, rows, tokens, lengths, {}, {"mask": mask})
        starts = np.cumsum(lengths) - lengths
        began_trained = mask[starts].astype(np.int64)
        mask = mask.copy()
        mask[starts] = 0
        is_trained = np.maximum.reduceat(mask, starts) > 0
        of_trained = np.repeat(is_trained, lengths)
        return _result(
            block,
            rows[is_trained],
            tokens[of_trained],
            lengths[is_trained],
            {UNTRAINED_FIRST: began_trained[is_trained]},
            {"mask": mask[of_trained]},
            untrained=rows[~is_trained],
        )

    def _check_ids(self, block: TokenBlock) -> None:
        """Check that all ids are those of the tokenizer."""
        tokens, n_ids = block.batch.tokens, self._tokenizer.vocab_size
        for place in (tokens.argmin(), tokens.argmax()) if len(tokens) else ():
            if not 0 <= int(tokens[place]) < n_ids:
                raise TokenizerError(
                    f"{block.file.path}: token {block.first_token + int(place):,} is "
                    f"{int(tokens[place])}, and the tokenizer has ids from 0 to {n_ids - 1:,}: "
                    "name the tokenizer that made these tokens"
                )

    def _check_eos_may_lack(self, block: TokenBlock, is_missing: npt.NDArray[np.bool_]) -> None:
        """Check that documents may end without eos: the last of a stream without index does."""
        if not self._rules.adds_eos and block.file.index is not None:
            number = block.first_document + int(np.argmax(is_missing))
            raise VerifyError(
                f"{block.file.path}: document {number:,} does not end with eos {self._eos_id}: "
                "--add-eos adds it, or name the right one with --eos-token"
            )


def _result(
    block: TokenBlock,
    rows: Numbers,
    tokens: npt.NDArray[np.unsignedinteger],
    lengths: Numbers,
    counters: Mapping[str, Numbers],
    sidecars: Mapping[str, npt.NDArray[Any]] | None = None,
    *,
    untrained: Numbers | None = None,
) -> EncodedBlock:
    """Return documents as a block; arguments: see `EncodedBlock`.

    `lengths`: (n,) tokens of each. `untrained`: rows of the samples that are left out.
    """
    is_empty = block.batch.lengths == 0
    drops = {EMPTY: np.flatnonzero(is_empty)} if is_empty.any() else {}
    if untrained is not None and len(untrained):
        drops[UNTRAINED] = untrained
    if block.file.index is None:
        counters = {**counters, ENDED_BY_EOS: np.ones(len(rows), np.int64)}
    return EncodedBlock(
        tokens=tokens,
        offsets=np.append(0, np.cumsum(lengths)),
        rows=rows,
        text_bytes=np.zeros(len(rows), np.int64),
        is_val=np.full(len(rows), block.file.split == "val"),
        drops=drops,
        input_bytes=block.n_bytes,
        sidecars=sidecars or {},
        counters=counters,
    )
