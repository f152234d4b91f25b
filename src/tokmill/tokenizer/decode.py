"""Decodes ids to text for people to read, run by run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from tokmill.errors import TokenizerError
from tokmill.tokenizer.continuation import after_control, continuation_tokenizer
from tokmill.tokenizer.sentencepiece_model import load_processor, read_model
from tokmill.tokenizer.tokenizer_json import (
    SPACE_MARK,
    adds_prefix,
    replace_step,
    step_types,
    steps,
    token_bytes,
    value_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from tokmill.tokenizer.tokenizer import Tokenizer

_BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")
_AS_BYTES = ("utf-8", "surrogateescape")
_MARK_DECODERS = ("Replace", "Metaspace", "ByteFallback", "Fuse", "Strip")


@dataclass(frozen=True, slots=True)
class TokenRun:
    """Consecutive tokens of a sample of one kind, control or text, and of one weight.

    `weight`: of each token in the loss; 0 if not trained. `texts`: one per token, or one for all. A
    byte of an incomplete character is a lone surrogate, U+DC80 to U+DCFF, as `surrogateescape`
    writes it; see `escaped`.
    """

    ids: tuple[int, ...]
    is_control: bool
    weight: float
    texts: tuple[str, ...]

    @property
    def is_trained(self) -> bool:
        """Return whether the tokens are targets."""
        return self.weight > 0

    @property
    def text(self) -> str:
        """Return the text of all tokens; bytes of several tokens are joined to characters."""
        return "".join(self.texts).encode(*_AS_BYTES).decode(*_AS_BYTES)


def escaped(text: str) -> str:
    r"""Return text with bytes of incomplete characters as `\x..`, so that it can be printed."""
    return text.encode(*_AS_BYTES).decode("utf-8", "backslashreplace")


class _Spelling(NamedTuple):
    """How the strings of a vocabulary spell text.

    `decode`: the reference library's. `content`: returns the string of an id. `kind`: `bytes`, a
    character for each byte; `marks`, text with a mark for each space; or '', unknown. `has_bytes`:
    some tokens of the second kind are a single byte. `drops_first`: the space before a text is not
    of the text.
    """

    decode: Callable[[Sequence[int]], str]
    content: Callable[[int], str | None]
    kind: str = ""
    has_bytes: bool = False
    drops_first: bool = False


class TokenDecoder:
    """Decodes runs, each from the bytes of its own tokens where they are known.

    Then the texts of runs concatenate to the text of all. The library's decoder cannot do that: it
    drops a space before each text, and writes U+FFFD for a character that continues in the next
    run. It is used for tokens without bytes of their own (WordPiece).
    """

    def __init__(self, tokenizer: Tokenizer, control: Collection[int], *, is_sft: bool) -> None:
        self._control = frozenset(control)
        self._added = {token.id: token.content for token in tokenizer.added}
        self._spelling = _read_spelling(tokenizer)
        self.decode = self._spelling.decode
        self._drops_first = self._spelling.drops_first
        self._drops_after_control = self._drops_first and (
            not is_sft or _is_first_after_control(tokenizer)
        )

    @property
    def has_bytes(self) -> bool:
        """Return whether the bytes of tokens are known, so that texts of runs are exact."""
        return bool(self._spelling.kind)

    def runs(
        self, ids: Sequence[int], weights: Sequence[float], *, by_token: bool = False
    ) -> list[TokenRun]:
        """Return the runs of a sample; `weights` are 0 for tokens that are no target.

        `by_token`: whether every token has its own text; control tokens always have.
        """
        decoded: list[TokenRun] = []
        drops = self._drops_first
        kinds = [(id_ in self._control, weight) for id_, weight in zip(ids, weights, strict=True)]
        start = 0
        for (is_control, weight), group in groupby(kinds):
            run = tuple(ids[start : start + len(list(group))])
            start += len(run)
            if is_control:
                texts = [self._added.get(id_) or self.decode([id_]) or f"[id {id_}]" for id_ in run]
                drops = self._drops_after_control
            else:
                texts = self._texts(run, by_token=by_token, drops=drops)
                drops = False
            decoded.append(TokenRun(run, is_control, weight, tuple(texts)))
        return decoded

    def _texts(self, ids: Sequence[int], *, by_token: bool, drops: bool) -> list[str]:
        if not self.has_bytes:
            return [self.decode([id_]) for id_ in ids] if by_token else [self.decode(ids)]
        spelled = [self.bytes_of(id_) for id_ in ids]
        if drops:
            spelled[0] = spelled[0].removeprefix(b" ")
        parts = spelled if by_token else [b"".join(spelled)]
        return [part.decode(*_AS_BYTES) for part in parts]

    def bytes_of(self, id_: int) -> bytes:
        """Return the bytes of a token, if `has_bytes`."""
        spelling = self._spelling
        token = self._added.get(id_) or spelling.content(id_) or f"[id {id_}]"
        byte = _BYTE_TOKEN.fullmatch(token) if spelling.has_bytes else None
        if byte is not None:
            return bytes([int(byte[1], 16)])
        if id_ in self._added:
            return token.encode()
        is_marked = spelling.kind == "marks"
        return token.replace(SPACE_MARK, " ").encode() if is_marked else token_bytes(token)


def _is_first_after_control(tokenizer: Tokenizer) -> bool:
    """Return whether text after a control token is encoded with the prefix of a first text."""
    strings = {token.content for token in tokenizer.added if token.special}
    try:
        return after_control(tokenizer, continuation_tokenizer(tokenizer), strings) == "first"
    except TokenizerError:
        return False


def _read_spelling(tokenizer: Tokenizer) -> _Spelling:
    """Return how the tokens of a tokenizer spell text; see `_Spelling`."""
    if tokenizer.kind == "sentencepiece":
        processor = load_processor(tokenizer.data, where=tokenizer.name)
        model = read_model(tokenizer.data, where=tokenizer.name)
        contents = {id_: piece.content for id_, piece in enumerate(model.pieces)}
        return _Spelling(
            lambda ids: str(processor.decode(list(ids))),
            contents.get,
            "marks",
            model.byte_fallback,
            model.dummy_prefix,
        )
    library = tokenizer.library()
    decoders = steps({"decoder": value_of(tokenizer.json, "decoder")}, "decoder")
    types = step_types(decoders)
    spelling = _Spelling(
        lambda ids: str(library.decode(list(ids), skip_special_tokens=False)), library.id_to_token
    )
    if types == ["ByteLevel"]:
        return spelling._replace(kind="bytes")
    replaced = [step for step in decoders if step.get("type") in ("Replace", "Metaspace")]
    to_space = replace_step({"String": SPACE_MARK}, " ")
    if (
        len(replaced) != 1
        or not set(types).issubset(_MARK_DECODERS)
        or (replaced[0] != to_space and replaced[0].get("replacement") != SPACE_MARK)
    ):
        return spelling
    strips = {"type": "Strip", "content": " ", "start": 1}
    drops = any(strips.items() <= step.items() or adds_prefix(step) for step in decoders)
    return spelling._replace(kind="marks", has_bytes="ByteFallback" in types, drops_first=drops)
