"""From ids back to text, for people to look at."""

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
    """Give the reference library's decoder."""
    if tokenizer.kind == "sentencepiece":
        from sentencepiece import SentencePieceProcessor

        processor = SentencePieceProcessor(model_proto=tokenizer.data)
        return lambda ids: str(processor.decode(list(ids)))
    return _decoder_of(tokenizer.library())


def _decoder_of(library: Any) -> Callable[[Sequence[int]], str]:
    return lambda ids: str(library.decode(list(ids), skip_special_tokens=False))


@dataclass(frozen=True, slots=True)
class Run:
    """Neighbouring tokens of a sample that are alike: control tokens or text, of one weight.

    `weight`: of each in the loss; 0 for what is not trained. `texts`: token by token, or one for
    the whole run. A byte that belongs to no whole character there is a lone surrogate, U+DC80 to
    U+DCFF, as `surrogateescape` has it; `escaped` makes it plain.
    """

    ids: tuple[int, ...]
    is_control: bool
    weight: float
    texts: tuple[str, ...]

    @property
    def is_trained(self) -> bool:
        """Say whether the tokens are targets."""
        return self.weight > 0

    @property
    def text(self) -> str:
        """Give the text of all tokens, characters whole that are whole in the run."""
        return "".join(self.texts).encode(*_AS_BYTES).decode(*_AS_BYTES)


def escaped(text: str) -> str:
    r"""Write bytes that are no whole character as `\x..`, so that any output can take the text."""
    return text.encode(*_AS_BYTES).decode("utf-8", "backslashreplace")


def runs(
    ids: Sequence[int], weights: Sequence[float], control: Collection[int]
) -> Iterator[tuple[bool, float, tuple[int, ...]]]:
    """Split ids into runs of one kind and weight: (is control, weight, ids), none empty."""
    kinds = [(id_ in control, weight) for id_, weight in zip(ids, weights, strict=True)]
    start = 0
    for stop in range(1, len(kinds) + 1):
        if stop == len(kinds) or kinds[stop] != kinds[start]:
            yield (*kinds[start], tuple(ids[start:stop]))
            start = stop


class TokenDecoder:
    """Gives the text of runs, each from its own bytes where the tokenizer's tokens have bytes.

    Texts of runs are then what they are in the whole, and end to end they give the whole: a
    library's decoder drops a space before each text it is asked for, and writes U+FFFD for a
    character whose other bytes are in the next run. It is asked where tokens have no bytes of
    their own (WordPiece).
    """

    def __init__(self, tokenizer: Tokenizer, control: Collection[int], *, is_sft: bool) -> None:
        self._control = frozenset(control)
        self._added = {token.id: token.content for token in added_tokens(tokenizer).values()}
        if tokenizer.kind == "sentencepiece":
            self.decode = load_decoder(tokenizer)
            self._bytes, self._drops_first = _piece_bytes(tokenizer, self._added)
        else:
            library = tokenizer.library()
            self.decode = _decoder_of(library)
            self._bytes, self._drops_first = _token_bytes(tokenizer, self._added, library)
        is_first = self._drops_first and (not is_sft or _is_first_behind(tokenizer))
        self._drops_behind_control = is_first

    @property
    def has_bytes(self) -> bool:
        """Say whether tokens have bytes of their own, so that texts of runs are exact."""
        return self._bytes is not None

    def runs(
        self, ids: Sequence[int], weights: Sequence[float], *, by_token: bool = False
    ) -> list[Run]:
        """Give the runs of a sample.

        Args:
            ids: of its tokens.
            weights: of its tokens, 0 for those that are no target.
            by_token: whether each token has its own text; control tokens always have.
        """
        found: list[Run] = []
        drops = self._drops_first
        for is_control, weight, run in runs(ids, weights, self._control):
            if is_control:
                texts = [self._control_text(id_) for id_ in run]
                drops = self._drops_behind_control
            else:
                texts = self._texts(run, by_token=by_token, drops=drops)
                drops = False
            found.append(Run(run, is_control, weight, tuple(texts)))
        return found

    def _control_text(self, id_: int) -> str:
        return self._added.get(id_) or self.decode([id_]) or f"[id {id_}]"

    def _texts(self, ids: Sequence[int], *, by_token: bool, drops: bool) -> list[str]:
        if self._bytes is None:
            return [self.decode([id_]) for id_ in ids] if by_token else [self.decode(ids)]
        found = [self._bytes(id_) for id_ in ids]
        if drops:
            found[0] = found[0].removeprefix(b" ")
        parts = found if by_token else [b"".join(found)]
        return [part.decode(*_AS_BYTES) for part in parts]


def _is_first_behind(tokenizer: Tokenizer) -> bool:
    """Say whether text behind a control token is encoded with the prefix of a text."""
    strings = {token.content for token in added_tokens(tokenizer).values() if token.special}
    try:
        return after_control(tokenizer, continuation_tokenizer(tokenizer), strings) == "first"
    except TokenizerError:
        return False


def _piece_bytes(
    tokenizer: Tokenizer, added: Mapping[int, str]
) -> tuple[Callable[[int], bytes] | None, bool]:
    """Give what maps an id to its bytes, and whether a text begins with a space too many."""
    model = read_model(tokenizer.data, where=tokenizer.name)
    contents = {id_: piece.content for id_, piece in enumerate(model.pieces)}
    return _marked(added, contents.get, has_bytes=model.byte_fallback), model.dummy_prefix


def _token_bytes(
    tokenizer: Tokenizer, added: Mapping[int, str], library: Any
) -> tuple[Callable[[int], bytes] | None, bool]:
    """Give the same for a tokenizer.json; None where its tokens have no bytes of their own."""
    decoder = next((part for part, _, _ in find_values(tokenizer.json, "decoder") if part), None)
    found = steps({"decoder": decoder}, "decoder")
    types = step_types(found)
    if types == ["ByteLevel"]:
        return _byte_level(added, library.id_to_token), False
    if types and set(types).issubset(_MARK_DECODERS) and _writes_marks(found):
        drops = any(map(_drops_space, found))
        return _marked(added, library.id_to_token, has_bytes="ByteFallback" in types), drops
    return None, False


def _writes_marks(found: Sequence[Mapping[str, Any]]) -> bool:
    """Say whether all that is replaced is the mark for a space."""
    replaced = [step for step in found if step.get("type") in ("Replace", "Metaspace")]
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
    """Give the bytes of tokens whose characters stand for one byte each.

    Printable bytes stand for themselves, the others, in order, have the characters from U+0100.
    """
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
    """Give the bytes of tokens in which a mark stands for a space, and some are one byte."""

    def find(id_: int) -> bytes:
        token = _content(id_, added, content)
        byte = _BYTE_TOKEN.fullmatch(token) if has_bytes else None
        if byte is not None:
            return bytes([int(byte[1], 16)])
        return (token if id_ in added else token.replace(SPACE_MARK, " ")).encode()

    return find


def _content(id_: int, added: Mapping[int, str], content: Callable[[int], str | None]) -> str:
    return added.get(id_) or content(id_) or f"[id {id_}]"
