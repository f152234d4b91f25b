"""Decodes ids to text for people to read, run by run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tokmill.errors import TokenizerError
from tokmill.tokenizer.continuation import after_control, continuation_tokenizer
from tokmill.tokenizer.control_tokens import added_tokens
from tokmill.tokenizer.sentencepiece_model import read_model
from tokmill.tokenizer.tokenizer_json import (
    SPACE_MARK,
    adds_prefix,
    byte_characters,
    find_values,
    replace_step,
    step_types,
    steps,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from tokmill.tokenizer.tokenizer import Tokenizer

_BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")
_AS_BYTES = ("utf-8", "surrogateescape")
_MARK_DECODERS = ("Replace", "Metaspace", "ByteFallback", "Fuse", "Strip")


def load_decoder(tokenizer: Tokenizer) -> Callable[[Sequence[int]], str]:
    """Return the decoder of the reference library."""
    if tokenizer.kind == "sentencepiece":
        from sentencepiece import SentencePieceProcessor

        processor = SentencePieceProcessor(model_proto=tokenizer.data)
        return lambda ids: str(processor.decode(list(ids)))
    return _decoder_of(tokenizer.library())


def _decoder_of(library: Any) -> Callable[[Sequence[int]], str]:
    return lambda ids: str(library.decode(list(ids), skip_special_tokens=False))


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


def runs(
    ids: Sequence[int], weights: Sequence[float], control: Collection[int]
) -> Iterator[tuple[bool, float, tuple[int, ...]]]:
    """Yield runs of ids of one kind and weight: (is control, weight, ids), none empty."""
    kinds = [(id_ in control, weight) for id_, weight in zip(ids, weights, strict=True)]
    start = 0
    for stop in range(1, len(kinds) + 1):
        if stop == len(kinds) or kinds[stop] != kinds[start]:
            yield (*kinds[start], tuple(ids[start:stop]))
            start = stop


class TokenDecoder:
    """Decodes runs, each from the bytes of its own tokens where they are known.

    Then the texts of runs concatenate to the text of all. The library's decoder cannot do that: it
    drops a space before each text, and writes U+FFFD for a character that continues in the next
    run. It is used for tokens without bytes of their own (WordPiece).
    """

    def __init__(self, tokenizer: Tokenizer, control: Collection[int], *, is_sft: bool) -> None:
        self._control = frozenset(control)
        self._added = {token.id: token.content for token in added_tokens(tokenizer).values()}
        if tokenizer.kind == "sentencepiece":
            self.decode = load_decoder(tokenizer)
            self._bytes, self._drops_first = _sentencepiece_bytes(tokenizer, self._added)
        else:
            library = tokenizer.library()
            self.decode = _decoder_of(library)
            self._bytes, self._drops_first = _json_bytes(tokenizer, self._added, library)
        is_first = self._drops_first and (not is_sft or _is_first_after_control(tokenizer))
        self._drops_after_control = is_first

    @property
    def has_bytes(self) -> bool:
        """Return whether the bytes of tokens are known, so that texts of runs are exact."""
        return self._bytes is not None

    def runs(
        self, ids: Sequence[int], weights: Sequence[float], *, by_token: bool = False
    ) -> list[TokenRun]:
        """Return the runs of a sample; `weights` are 0 for tokens that are no target.

        `by_token`: whether every token has its own text; control tokens always have.
        """
        decoded: list[TokenRun] = []
        drops = self._drops_first
        for is_control, weight, run in runs(ids, weights, self._control):
            if is_control:
                texts = [self._added.get(id_) or self.decode([id_]) or f"[id {id_}]" for id_ in run]
                drops = self._drops_after_control
            else:
                texts = self._texts(run, by_token=by_token, drops=drops)
                drops = False
            decoded.append(TokenRun(run, is_control, weight, tuple(texts)))
        return decoded

    def _texts(self, ids: Sequence[int], *, by_token: bool, drops: bool) -> list[str]:
        if self._bytes is None:
            return [self.decode([id_]) for id_ in ids] if by_token else [self.decode(ids)]
        spelled = [self._bytes(id_) for id_ in ids]
        if drops:
            spelled[0] = spelled[0].removeprefix(b" ")
        parts = spelled if by_token else [b"".join(spelled)]
        return [part.decode(*_AS_BYTES) for part in parts]


def _is_first_after_control(tokenizer: Tokenizer) -> bool:
    """Return whether text after a control token is encoded with the prefix of a first text."""
    strings = {token.content for token in added_tokens(tokenizer).values() if token.special}
    try:
        return after_control(tokenizer, continuation_tokenizer(tokenizer), strings) == "first"
    except TokenizerError:
        return False


def _sentencepiece_bytes(
    tokenizer: Tokenizer, added: Mapping[int, str]
) -> tuple[Callable[[int], bytes] | None, bool]:
    """Return a function from id to bytes, and whether every text begins with an extra space."""
    model = read_model(tokenizer.data, where=tokenizer.name)
    contents = {id_: piece.content for id_, piece in enumerate(model.pieces)}
    return _marked(added, contents.get, has_bytes=model.byte_fallback), model.dummy_prefix


def _json_bytes(
    tokenizer: Tokenizer, added: Mapping[int, str], library: Any
) -> tuple[Callable[[int], bytes] | None, bool]:
    """Return the same for a tokenizer.json; None if its tokens have no bytes of their own."""
    decoder = next((part for part, _, _ in find_values(tokenizer.json, "decoder") if part), None)
    decoders = steps({"decoder": decoder}, "decoder")
    types = step_types(decoders)
    if types == ["ByteLevel"]:
        return _byte_level(added, library.id_to_token), False
    if types and set(types).issubset(_MARK_DECODERS) and _replaces_only_marks(decoders):
        drops = any(map(_drops_space, decoders))
        return _marked(added, library.id_to_token, has_bytes="ByteFallback" in types), drops
    return None, False


def _replaces_only_marks(decoders: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the decoder replaces the mark for a space and nothing else."""
    replaced = [step for step in decoders if step.get("type") in ("Replace", "Metaspace")]
    to_space = replace_step({"String": SPACE_MARK}, " ")
    return len(replaced) == 1 and (
        replaced[0] == to_space or replaced[0].get("replacement") == SPACE_MARK
    )


def _drops_space(step: Mapping[str, Any]) -> bool:
    strips = step.get("type") == "Strip" and step.get("content") == " " and step.get("start") == 1
    return strips or adds_prefix(step)


def _byte_level(
    added: Mapping[int, str], content: Callable[[int], str | None]
) -> Callable[[int], bytes]:
    """Return the bytes of tokens whose characters stand for one byte each."""
    byte_of = {character: byte for byte, character in byte_characters().items()}

    def find(id_: int) -> bytes:
        token = _content(id_, added, content)
        if id_ in added or not all(character in byte_of for character in token):
            return token.encode()
        return bytes(byte_of[character] for character in token)

    return find


def _marked(
    added: Mapping[int, str], content: Callable[[int], str | None], *, has_bytes: bool
) -> Callable[[int], bytes]:
    """Return the bytes of tokens with a mark for each space; some tokens may be a single byte."""

    def find(id_: int) -> bytes:
        token = _content(id_, added, content)
        byte = _BYTE_TOKEN.fullmatch(token) if has_bytes else None
        if byte is not None:
            return bytes([int(byte[1], 16)])
        return (token if id_ in added else token.replace(SPACE_MARK, " ")).encode()

    return find


def _content(id_: int, added: Mapping[int, str], content: Callable[[int], str | None]) -> str:
    return added.get(id_) or content(id_) or f"[id {id_}]"
