"""A tokenizer's added tokens, and the variant in which a template's own are control tokens."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tokmill.errors import TokenizerError
from tokmill.tokenizer.sentencepiece_model import control_pieces, read_model

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from tokmill.tokenizer.tokenizer import Tokenizer

_Entries = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class AddedToken:
    """An added token as a tokenizer.json describes it.

    `lstrip`, `rstrip`: its match swallows the white space before it, behind it. `normalized`: it is
    looked for in normalized text.
    """

    id: int
    content: str
    special: bool
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool = False
    normalized: bool = False


def added_tokens(tokenizer: Tokenizer) -> dict[str, AddedToken]:
    """Give all added tokens by their strings, in the order of their ids.

    Those of a SentencePiece model are its control pieces and the unknown one, all special.
    """
    if tokenizer.kind == "sentencepiece":
        pieces = control_pieces(read_model(tokenizer.data, where=tokenizer.name))
        return {content: AddedToken(id_, content, special=True) for id_, content in pieces}
    entries, _, _ = added_tokens_part(tokenizer.json)
    ids = _ids(tokenizer, entries)
    found = [
        AddedToken(
            id=ids[entry["content"]],
            content=str(entry["content"]),
            special=bool(entry.get("special")),
            lstrip=bool(entry.get("lstrip")),
            rstrip=bool(entry.get("rstrip")),
            single_word=bool(entry.get("single_word")),
            normalized=bool(entry.get("normalized")),
        )
        for entry in entries
    ]
    return {token.content: token for token in sorted(found, key=lambda token: token.id)}


def _ids(tokenizer: Tokenizer, entries: _Entries) -> dict[str, int]:
    """Give the ids of added tokens by string.

    The library numbers them on from the vocabulary, and ignores a file that leaves ids out. Then
    the largest one that the file names is none of the library's, which takes 0.5 s to ask.
    """
    ids = {str(entry["content"]): int(entry["id"]) for entry in entries}
    special = {ids[entry["content"]] for entry in entries if entry.get("special")}
    largest = max(ids.values(), default=0)
    if special.issubset(tokenizer.special_ids) and largest < tokenizer.vocab_size:
        return ids
    from tokenizers import Tokenizer as Library

    found = Library.from_str(tokenizer.json).get_added_tokens_decoder()
    return {token.content: id_ for id_, token in found.items()}


def with_control_tokens(tokenizer: Tokenizer, strings: Collection[str]) -> Tokenizer:
    """Give the tokenizer with the added tokens named in `strings` marked special.

    Engines take the strings of special tokens in a text as text; a chat template's `<think>` is
    one of them only then. The ids of all of them may now be written, so they count for
    `max_emittable_id`; every other field stays.

    Raises:
        TokenizerError: a string is no added token.
    """
    known = added_tokens(tokenizer)
    for string in strings:
        if string not in known:
            raise TokenizerError(
                f"{tokenizer.name}: {string!r} is not among its added tokens, so its string in a "
                "text cannot be told from a control token; choose another template or tokenizer"
            )
    ids = {known[string].id for string in strings}
    special_ids = tuple(sorted(ids.union(tokenizer.special_ids)))
    marked = {string for string in strings if not known[string].special}
    text = _marked(tokenizer.json, marked)
    if tokenizer.spare and tokenizer.spare[-1][0] is tokenizer.json:
        tokenizer.spare[-1] = (text, _with_special(tokenizer.spare[-1][1], marked, known))
    return replace(
        tokenizer,
        json=text,
        rewritten_json=_marked(tokenizer.rewritten_json, marked),
        special_ids=special_ids,
        max_emittable_id=max(ids | {tokenizer.max_emittable_id}),
    )


def _with_special(library: Any, marked: Collection[str], known: Mapping[str, AddedToken]) -> Any:
    """Mark added tokens of a library as special: to load 150,000 tokens anew takes 0.5 s."""
    from tokenizers import AddedToken as LibraryToken

    names = ("lstrip", "rstrip", "single_word", "normalized")
    library.add_special_tokens(
        [
            LibraryToken(
                string, special=True, **{name: getattr(known[string], name) for name in names}
            )
            for string in sorted(marked, key=lambda string: known[string].id)
        ]
    )
    return library


def replace_added_tokens(tokenizer_json: str, change: Callable[[_Entries], _Entries]) -> str:
    """Give a tokenizer.json with another list of added tokens; the rest is not even parsed."""
    entries, start, stop = added_tokens_part(tokenizer_json)
    written = json.dumps(change(entries), ensure_ascii=False)
    if start == stop:
        return f'{{"added_tokens":{written},' + tokenizer_json.lstrip()[1:]
    return tokenizer_json[:start] + written + tokenizer_json[stop:]


def _marked(tokenizer_json: str, strings: Collection[str]) -> str:
    """Mark added tokens as special; the very same text where there is nothing to mark."""
    if not strings or not tokenizer_json:
        return tokenizer_json

    def mark(entries: _Entries) -> _Entries:
        return [
            {**entry, "special": True} if entry["content"] in strings else entry
            for entry in entries
        ]

    return replace_added_tokens(tokenizer_json, mark)


def added_tokens_part(tokenizer_json: str) -> tuple[_Entries, int, int]:
    """Return the list of added tokens and where it stands; (0, 0) where there is none.

    Only the list is parsed: the whole file takes 0.3 s for a vocabulary of 150,000. The key cannot
    stand inside a string, where its quotes would be escaped.
    """
    found = re.search(r'"added_tokens"\s*:\s*', tokenizer_json)
    if found is None:
        return [], 0, 0
    entries, stop = json.JSONDecoder().raw_decode(tokenizer_json, found.end())
    return entries or [], found.end(), stop
