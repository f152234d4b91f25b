"""What an audit must know of a tokenizer's ids: which end or begin something, or are of no use."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tokmill.chat.control_strings import REASONING_TAGS
from tokmill.tokenizer.control_tokens import kept_as_text
from tokmill.tokenizer.decode import TokenDecoder
from tokmill.tokenizer.end_of_text import ends_something
from tokmill.tokenizer.sentencepiece_model import PieceType, read_model
from tokmill.tokenizer.tokenizer_json import outline, vocabulary

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy.typing as npt

    from tokmill.tokenizer.tokenizer import Tokenizer

    Flags = npt.NDArray[np.bool_]
    Numbers = npt.NDArray[np.int64]

_OF_NO_USE = re.compile(
    r"[<\[]\W*(\w+_)?(reserved|unused|placeholder|dummy)\w*\W*[>\]]", re.IGNORECASE
)
"""Names of tokens that stand for nothing: they fill up a vocabulary."""

_ROLE = re.compile(
    r"[<\[]\W*(im_start|start_header_id|start_of_turn|turn|header_start|system|user|assistant|model|INST"
    r"|sep|bot|message|role_start)\W*[>\]]",
    re.IGNORECASE,
)
"""Names of tokens that begin a turn."""

_ENDS = ("<|call|>", "<|assistant_end|>", "<|python_end|>")
"""Ends of turns whose strings look like something else: of gpt-oss, and of nanochat."""


@dataclass(frozen=True, slots=True)
class TokenFacts:
    """The ids of a tokenizer, by what they are; flags are (n_ids,).

    `is_token`: some string has the id. `is_spare`: a token that fills up the vocabulary.
    `is_end`: ends a turn or a text. `is_special`: a control token of the file, or an end; no tag of
    reasoning.
    `marks_turn`: of chats alone. `eos`, `bos`, `pad`: None where the files name none. `thinking`:
    the ids before and behind reasoning, for each pair of tags that are tokens.
    """

    n_ids: int
    is_token: Flags
    is_spare: Flags
    is_end: Flags
    is_special: Flags
    marks_turn: Flags
    eos: int
    bos: int | None
    pad: int | None
    thinking: tuple[tuple[int, int], ...]
    decoder: TokenDecoder

    def are(self, flags: Flags, ids: npt.NDArray[np.integer]) -> Flags:
        """Return one of the flags of each id: (n,); False for ids outside of the vocabulary."""
        inside = (ids >= 0) & (ids < self.n_ids)
        return inside & flags[np.where(inside, ids, 0)]

    def begin_inside(self, ids: npt.NDArray[np.integer]) -> Flags:
        """Return whether each id begins inside a character: (n,)."""
        unique, inverse = np.unique(ids, return_inverse=True)
        begins = [self._byte(id_) & 0xC0 == 0x80 for id_ in unique.tolist()]
        return np.array(begins, bool)[inverse]

    def _byte(self, id_: int) -> int:
        """Return the first byte of a token, 0 for none."""
        if not 0 <= id_ < self.n_ids or self.is_special[id_]:
            return 0
        return (self.decoder.bytes_of(id_) or b"\0")[0]

    def are_blank(self, ids: npt.NDArray[np.integer]) -> Flags:
        """Return whether each id is white space: (n,)."""
        unique, inverse = np.unique(ids, return_inverse=True)
        inside = self.are(np.ones(self.n_ids, bool), unique) & ~self.are(self.is_special, unique)
        blank = [
            is_text and not self.decoder.decode([id_]).strip()
            for id_, is_text in zip(unique.tolist(), inside.tolist(), strict=True)
        ]
        return np.array(blank, bool)[inverse]


def token_facts(tokenizer: Tokenizer) -> TokenFacts:
    """Return the facts about a tokenizer.

    Raises:
        TokenizerError: its files cannot be read.
    """
    n_ids, ids = tokenizer.vocab_size, dict(_ids(tokenizer))
    added = {token.content: token.id for token in tokenizer.added}
    ids |= added
    named, eos = dict(tokenizer.named), tokenizer.eos.id
    tags = {text for pair in REASONING_TAGS for text in pair}
    special = {token.content for token in tokenizer.added if token.special} - tags

    def flags(is_one: Callable[[str], object], *more: int) -> Flags:
        """Return the added tokens whose strings are of a kind, and more ids."""
        found = np.zeros(n_ids, bool)
        found[[*(id_ for text, id_ in added.items() if is_one(text)), *more]] = True
        return found

    is_end = flags(_is_end, eos)
    marks_turn = flags(_ROLE.fullmatch) | is_end
    marks_turn[eos] = False
    is_token = np.zeros(n_ids, bool)
    is_token[np.fromiter(ids.values(), np.int64)] = True
    return TokenFacts(
        n_ids,
        is_token=is_token,
        is_spare=flags(_OF_NO_USE.fullmatch),
        is_end=is_end,
        is_special=flags(special.__contains__) | is_end,
        marks_turn=marks_turn,
        eos=eos,
        bos=tokenizer.bos.id if tokenizer.bos else ids.get(named.get("bos_token", "")),
        pad=ids.get(named.get("pad_token", "")),
        thinking=tuple(
            (added[opens], added[closes])
            for opens, closes in REASONING_TAGS
            if opens in added and closes in added
        ),
        decoder=TokenDecoder(
            tokenizer, [added[text] for text in kept_as_text(tokenizer)], is_sft=True
        ),
    )


def _ids(tokenizer: Tokenizer) -> Mapping[str, int]:
    """Return the ids of a model's tokens, but those of SentencePiece that are not used."""
    if tokenizer.data:
        pieces = read_model(tokenizer.data, where=tokenizer.name).pieces
        return {
            piece.content: id_
            for id_, piece in enumerate(pieces)
            if piece.type is not PieceType.UNUSED
        }
    return vocabulary(outline(tokenizer.json, where=tokenizer.name)["model"])


def _is_end(text: str) -> bool:
    return ends_something(text) or text in _ENDS
