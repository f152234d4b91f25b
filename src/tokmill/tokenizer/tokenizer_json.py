"""tokenizer.json as data: its steps, vocabulary, added tokens and bytes, read and written."""

from __future__ import annotations

import gc
import json
import re
from functools import cache
from typing import TYPE_CHECKING, Any

from tokmill.errors import TokenizerError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

Content = dict[str, Any]
"""A parsed tokenizer.json, or a part of one."""

SPACE_MARK = "▁"
"""Stands for a space in the tokens of SentencePiece."""

WHITE_SPACE = "\t\n\x0b\x0c\r \x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B)))
WHITE_SPACE += "\u2028\u2029\u202f\u205f\u3000"
"""Unicode's property White_Space, as the library uses it; Python's `isspace` has four more."""

_INNER = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "decoder": "decoders"}

UNUSED_PARTS = ("post_processor", "truncation", "padding")
"""Parts of a tokenizer.json that add tokens, truncate or pad."""


def steps(content: Mapping[str, Any], key: str) -> list[Content]:
    """Return the steps of the normalizer, pre-tokenizer or decoder, nested sequences flattened."""

    def flat(part: Any) -> list[Content]:
        if not isinstance(part, dict):
            return []
        if part.get("type") != "Sequence":
            return [part]
        return [step for child in part.get(_INNER[key]) or () for step in flat(child)]

    return flat(content.get(key))


def step_types(parts: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Return the type of each step."""
    return [step.get("type") for step in parts]


def sequence(key: str, parts: Sequence[Content]) -> Content:
    """Return a sequence of steps, for `normalizer`, `pre_tokenizer` or `decoder`."""
    return {"type": "Sequence", _INNER[key]: list(parts)}


def with_steps(content: Content, key: str, parts: Sequence[Content]) -> Content:
    """Return the content with other steps: null for none, no sequence for a single one."""
    if len(parts) < 2:
        return {**content, key: parts[0] if parts else None}
    return {**content, key: sequence(key, parts)}


def split_step(regex: str, behavior: str = "Isolated") -> Content:
    """Return a pre-tokenizer that splits at every match of a regex."""
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": behavior, "invert": False}


def replace_step(pattern: Mapping[str, str], content: str) -> Content:
    """Return a normalizer or decoder that replaces every match of a pattern."""
    return {"type": "Replace", "pattern": pattern, "content": content}


def adds_prefix(step: Mapping[str, Any]) -> bool:
    """Return whether a pre-tokenizer (or the decoder for it) has a space put before its input."""
    if step.get("type") == "ByteLevel":
        return bool(step.get("add_prefix_space", True))
    if step.get("type") == "Metaspace":
        scheme = step.get("prepend_scheme") or "always"
        return bool(step.get("add_prefix_space", True)) and scheme != "never"
    return False


def vocabulary(model: Mapping[str, Any]) -> Mapping[str, int]:
    """Return the ids of a model's tokens; a Unigram lists its tokens by id."""
    vocab = model["vocab"]
    return vocab if isinstance(vocab, dict) else {token: i for i, (token, _) in enumerate(vocab)}


def unknown_id(model: Mapping[str, Any], ids: Mapping[str, int]) -> int | None:
    """Return the id for text without a token; it can be the id of a special token."""
    if isinstance(model.get("unk_id"), int):
        return int(model["unk_id"])
    return ids.get(model.get("unk_token") or "")


@cache
def byte_characters() -> Mapping[int, str]:
    """Return GPT-2's character for every byte, as `ByteLevel` writes it.

    Printable bytes keep their own character; the others, in order, get those from U+0100 on.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = sorted(set(range(256)).difference(printable))
    characters = {byte: chr(byte) for byte in printable}
    return characters | {byte: chr(0x100 + i) for i, byte in enumerate(others)}


@cache
def character_bytes() -> Mapping[str, int]:
    """Return the byte of each of these characters."""
    return {character: byte for byte, character in byte_characters().items()}


def token_bytes(token: str) -> bytes:
    """Return the bytes that a byte-level token spells, or its own if it spells none."""
    try:
        return bytes(map(character_bytes().__getitem__, token))
    except KeyError:
        return token.encode()


def is_byte_level(content: Content) -> bool:
    """Return whether a tokenizer is a BPE on bytes, whose strings of tokens spell their bytes."""
    model = content["model"]
    affixes = model.get("continuing_subword_prefix") or model.get("end_of_word_suffix")
    is_bpe = model.get("type", "BPE") == "BPE" and "merges" in model and not affixes
    return is_bpe and "ByteLevel" in step_types(steps(content, "pre_tokenizer"))


def byte_fallback_token(byte: int) -> str:
    """Return SentencePiece's token for a byte of a character without a token."""
    return f"<0x{byte:02X}>"


def as_text(content: Any) -> str:
    """Return the text of a tokenizer.json, or of a part of one."""
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"))


def bpe_text(model: Content, tokens: Iterable[tuple[int, str, bool]], parts: Content) -> str:
    """Return the text of a tokenizer.json with a BPE model.

    `model`: its fields, but for the type. `tokens`: id and string of the added tokens, and whether
    they are special. `parts`: normalizer, pre-tokenizer and decoder.
    """
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    added = [
        {"id": id_, "content": content, **flags, "special": special}
        for id_, content, special in tokens
    ]
    content = {"version": "1.0", **dict.fromkeys(UNUSED_PARTS), "added_tokens": added, **parts}
    return as_text({**content, "model": {"type": "BPE", **model}})


def find_values(text: str, key: str) -> Iterator[tuple[Any, int, int]]:
    """Yield every value of a key of a tokenizer.json, with its start and stop in the text.

    Only objects, lists and null are values here, so a token with the key's name is not found: in
    the vocabulary its value is a number, and inside a string its quotes would be escaped. The rest
    is not parsed: to parse all takes 0.3 s for a vocabulary of 150,000.
    """
    for match in re.finditer(rf'"{key}"\s*:\s*(?=[{{\[n])', text):
        value, stop = json.JSONDecoder().raw_decode(text, match.end())
        yield value, match.end(), stop


def value_of(text: str, key: str) -> Any:
    """Return the first value of a key, see `find_values`; None if there is none."""
    return next((value for value, _, _ in find_values(text, key)), None)


def step_parts(text: str) -> Content:
    """Return the normalizer and the pre-tokenizer of a tokenizer.json, without parsing the rest."""
    return {key: value_of(text, key) for key in ("normalizer", "pre_tokenizer")}


def with_values(text: str, values: Mapping[str, Any]) -> str:
    """Return a tokenizer.json with other values of some keys.

    They are replaced in the text: to write 150,000 merges again takes 0.2 s. If a key is not found
    once, everything is written again.
    """
    whole = text
    for key, value in values.items():
        places = list(find_values(text, key))
        if len(places) != 1:
            return as_text({**json.loads(whole), **values})
        _, start, stop = places[0]
        text = f"{text[:start]}{as_text(value)}{text[stop:]}"
    return text


def without_special_tokens(text: str) -> str:
    """Return a tokenizer.json without special added tokens: their strings become plain text."""
    added = value_of(text, "added_tokens") or []
    kept = [token for token in added if not token.get("special")]
    return with_values(text, {"added_tokens": kept})


def decoded(data: bytes, *, where: str) -> str:
    """Return the text of a JSON file, as `json.loads` decodes it.

    Raises:
        TokenizerError: it is not in its encoding.
    """
    try:
        return data.decode(json.detect_encoding(data), "surrogatepass")
    except ValueError as error:
        raise TokenizerError(f"{where}: not valid JSON: {error}") from None


def outline(text: str, *, where: str) -> Content:
    """Parse a tokenizer.json without its merges; the result must not be changed.

    The last one is kept: a run asks several times, and 150,000 ids take 0.2 s.

    Raises:
        TokenizerError: it is no tokenizer.json, or it encodes at random (dropout).
    """
    return _last[text] if text in _last else keep_outline(text, parsed(text, where=where))


def parsed(text: str, *, where: str) -> Content:
    """Parse a tokenizer.json.

    Raises:
        TokenizerError: it is no tokenizer.json, or it encodes at random (dropout).
    """
    collects = gc.isenabled()
    gc.disable()  # 150,000 merges are 450,000 new objects, none of them garbage: 0.12 s, not 0.20
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TokenizerError(f"{where}: not valid JSON: {error}") from None
    finally:
        if collects:
            gc.enable()
    model = content.get("model") if isinstance(content, dict) else None
    if not isinstance(model, dict):
        raise TokenizerError(f"{where}: not a tokenizer.json: it has no object 'model'")
    if model.get("dropout"):
        raise TokenizerError(
            f"{where}: model.dropout is {model['dropout']}, which makes ids random; set it to null"
        )
    return dict(content)


def keep_outline(text: str, content: Content) -> Content:
    """Keep what `outline` returns for a text, and return it: the parsed text without merges."""
    model = content["model"]
    if model.get("merges"):
        content = {**content, "model": {**model, "merges": []}}
    _last.clear()
    _last[text] = content
    return content


_last: dict[str, Content] = {}

spare_libraries: dict[str, Any] = {}
"""By the text that it was made from, the `tokenizers` object that checked a file and that nobody
uses yet: to load a vocabulary of 150,000 again takes 0.5 s. Whoever uses it takes it out."""


def keep_spare(text: str, library: Any) -> None:
    """Keep an object for whoever asks first; the last one is forgotten."""
    spare_libraries.clear()
    spare_libraries[text] = library


def refusal(error: BaseException) -> str:
    """Return the reason that a library refuses a tokenizer for, on one line.

    A panic of native code is a BaseException without a public type.

    Raises:
        BaseException: the error itself, if it is neither an Exception nor a panic.
    """
    if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
        raise error
    reason = " ".join(str(error).split()) or type(error).__name__
    return reason.removeprefix("Cannot instantiate Tokenizer from buffer: ")
