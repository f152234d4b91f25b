"""Documents in which a renderer has placed control tokens: to ids, as chats are encoded.

The texts between control tokens are encoded as the reference encodes them there: some tokenizers
begin anew behind a control token, others go on, and some tokens strip the white space beside them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from tokmill.engines.choice import Continuation
from tokmill.engines.engine import REFERENCE
from tokmill.errors import TokenizerError, UsageError
from tokmill.offsets import offsets_of, select_documents
from tokmill.recipes.engines import make_engine
from tokmill.tokenizer.continuation import after_control, continuation_tokenizer
from tokmill.tokenizer.control_tokens import added_tokens
from tokmill.values import TEXT, ControlToken, SampleBatch, TokenBatch

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from tokmill.engines.loaded import EngineMemory, RenewableEngine
    from tokmill.masks.encoder import SampleEncoder
    from tokmill.recipes.spec import RunSpec
    from tokmill.timing import StageTimer
    from tokmill.values import Pieces


class EncodedTexts(NamedTuple):
    """The ids of n documents, and those of the texts in them.

    `texts`: what the run's engine encoded, with its `tokens`; `owner`: the document of each text.
    """

    batch: TokenBatch
    texts: pa.LargeStringArray
    tokens: TokenBatch
    owner: npt.NDArray[np.int64]

    def selected(self, keep: npt.NDArray[np.bool_]) -> EncodedTexts:
        """Return the documents whose `keep` (n,) is true."""
        if self.tokens is self.batch:  # each document is one text
            batch = select_documents(self.batch, keep)
            owner = np.arange(len(batch.offsets) - 1)
            return EncodedTexts(batch, self.texts.filter(keep), batch, owner)
        of_text = keep[self.owner]
        numbers = np.cumsum(keep) - 1
        return EncodedTexts(
            select_documents(self.batch, keep),
            self.texts.filter(of_text),
            select_documents(self.tokens, of_text),
            numbers[self.owner[of_text]],
        )


class PlacedTokens:
    """Encodes documents with control tokens; safe to call from several threads."""

    def __init__(self, spec: RunSpec, engine: RenewableEngine, memory: EngineMemory) -> None:
        self._spec, self._engine, self._memory = spec, engine, memory
        self._added = added_tokens(spec.tokenizer)
        self._encoders: dict[frozenset[str], SampleEncoder] = {}

    def encode(self, renderer: str, documents: Sequence[Pieces], timer: StageTimer) -> EncodedTexts:
        """Return the ids of documents of a renderer, none of them without a piece.

        Raises:
            UsageError: the tokenizer has no such control token, or it is not special.
            TokenizerError: the tokenizer cannot encode text behind its control tokens.
        """
        texts: list[str] = []
        control: list[int] = []
        n_pieces = []
        placed: set[str] = set()
        for pieces in documents:
            n_pieces.append(len(pieces))
            for piece in pieces:
                if isinstance(piece, ControlToken):
                    placed.add(piece.content)
                    control.append(self._id_of(piece.content, renderer))
                    texts.append(piece.content)
                else:
                    control.append(TEXT)
                    texts.append(piece)
        n = len(texts)
        samples = SampleBatch(
            pa.array(texts, pa.large_string()),
            offsets_of(np.array(n_pieces, np.int64)),
            np.array(control, np.int32),
            np.ones(n, np.float32),
            np.zeros(n, bool),
            np.arange(len(documents)),
            (),
            {},
        )
        encoded = self._encoder(frozenset(placed)).encode(samples, timer)
        if encoded.refused:
            _, message = next(iter(encoded.refused.values()))
            raise TokenizerError(f"renderer {renderer}: {message}")
        by_engine = ~encoded.by_continuation_engine  # that is the reference itself
        return EncodedTexts(
            TokenBatch(encoded.tokens.ids, encoded.tokens.offsets),
            encoded.texts.filter(by_engine),
            select_documents(encoded.text_tokens, by_engine),
            encoded.text_samples[by_engine],
        )

    def _id_of(self, content: str, renderer: str) -> int:
        """Return the id of a control token."""
        token = self._added.get(content)
        tokenizer = self._spec.tokenizer.name
        if token is None:
            raise UsageError(
                f"renderer {renderer} placed the control token {content!r}, which is no "
                f"added token of {tokenizer}: place one that it has, or return a string for text"
            )
        if not token.special:
            raise UsageError(
                f"renderer {renderer} placed the control token {content!r}, which is not "
                f"special in {tokenizer}, so that its string in a text would become it, too: name "
                f"it before the run: {renderer.rpartition(':')[2]}.control_tokens = "
                f"[{content!r}]"
            )
        return token.id

    def _encoder(self, placed: frozenset[str]) -> SampleEncoder:
        """Return the encoder of documents with some control tokens; made once for each set."""
        if placed not in self._encoders:
            self._encoders[placed] = self._made(placed)
        return self._encoders[placed]

    def _made(self, placed: frozenset[str]) -> SampleEncoder:
        from tokmill.masks.encoder import SampleEncoder  # few renderers place tokens
        from tokmill.masks.layout import SampleRules

        tokenizer = self._spec.tokenizer
        continuation = continuation_tokenizer(tokenizer)
        rest: RenewableEngine | None = self._engine
        encoded_as = "first"
        if continuation is not tokenizer:
            encoded_as = after_control(tokenizer, continuation, placed)
            rest = None
            if encoded_as == "continuation" and continuation is not None:
                rest = make_engine(self._spec, continuation, Continuation(REFERENCE), self._memory)
        rules = SampleRules(
            "split",
            after_control=encoded_as,
            strips_left=frozenset(token.id for token in self._added.values() if token.lstrip),
            strips_right=frozenset(token.id for token in self._added.values() if token.rstrip),
        )
        return SampleEncoder(self._engine, rest, rules)
