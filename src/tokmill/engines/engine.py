"""The engine protocol, and the table of engines.

An engine turns documents into flat token ids. `tokenizers` (with SentencePiece's own library for a
`.model`) is the reference: the others are used only where they proved to give the same ids.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import re
from typing import TYPE_CHECKING, Protocol

from tokmill.errors import TokenizerError

if TYPE_CHECKING:
    import pyarrow as pa

    from tokmill.tokenizer.tokenizer import Tokenizer
    from tokmill.values import TokenBatch

REFERENCE = "tokenizers"
FAST_ENGINES = ("gigatoken", "fastokens")
"""In the order in which they are tried when there is too little text to time them."""

CACHED = "tokenizers+cache"
FALLBACK_ENGINES = (CACHED,)
"""Tried where no fast engine can be used; slower than those, and faster than the reference."""

_PACKAGES = {REFERENCE: "tokenizers", CACHED: "tokenizers"} | {name: name for name in FAST_ENGINES}


class Engine(Protocol):
    """Encodes documents without any token placed around them; safe to call from several threads."""

    name: str
    renewable: bool
    """Whether loading it again gives the memory of its caches back."""
    concurrent: bool
    """Whether several calls side by side are faster than one at a time."""

    def encode(self, text: pa.LargeStringArray) -> TokenBatch:
        """Encode n documents of valid UTF-8, no nulls."""


def load_engine(name: str, tokenizer: Tokenizer, *, control_in_text: str, n_threads: int) -> Engine:
    """Load an engine for a tokenizer.

    Args:
        name: one of `ENGINES` without `auto`.
        tokenizer: what to encode with.
        control_in_text: `parse` gives a control token's id to its string in a text; `text` and
            `reject` encode the string as ordinary text.
        n_threads: threads that the engine may use inside one call.

    Raises:
        TokenizerError: the package is missing, or the engine refuses this tokenizer.
    """
    parse = control_in_text == "parse"
    if name == REFERENCE:
        if tokenizer.kind == "sentencepiece":
            from tokmill.engines.reference import SentencePieceReference

            return SentencePieceReference(tokenizer, parse=parse, n_threads=n_threads)
        from tokmill.engines.reference import TokenizersReference

        return TokenizersReference(tokenizer, parse=parse)
    if not tokenizer.json:
        raise TokenizerError(
            f"engine {name} cannot take {tokenizer.name}: no tokenizer.json says the same"
        )
    try:
        if name == CACHED:
            from tokmill.engines.cached import CachedReference

            return CachedReference(tokenizer, parse=parse)
        if name == "gigatoken":
            from tokmill.engines.gigatoken import Gigatoken

            return Gigatoken(tokenizer, parse=parse, n_threads=n_threads)
        from tokmill.engines.fastokens import Fastokens

        return Fastokens(tokenizer, parse=parse)
    except ImportError as error:
        raise TokenizerError(f"engine {name} is not installed here: {error}") from None
    except (ValueError, RuntimeError, KeyError, TypeError, NotImplementedError) as error:
        cause = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise TokenizerError(f"engine {name} refuses {tokenizer.name}: {cause}") from None


def is_installed(name: str) -> bool:
    """Say whether an engine's package is importable, without importing it."""
    needed = ("gigatoken", "awkward") if name == "gigatoken" else (_PACKAGES[name],)
    return all(importlib.util.find_spec(package) is not None for package in needed)


def engine_version(name: str, tokenizer: Tokenizer) -> str:
    """Give the installed version of the library that an engine runs."""
    if name == REFERENCE and tokenizer.kind == "sentencepiece":
        return "sentencepiece " + importlib.metadata.version("sentencepiece")
    return importlib.metadata.version(_PACKAGES[name])


def without_special_tokens(tokenizer_json: str) -> str:
    """Drop the special added tokens from a tokenizer.json, so that their strings are plain text.

    Only their list is parsed: the whole file takes 0.1 s for a vocabulary of 50,000. The key cannot
    stand inside a string, where its quotes would be escaped.
    """
    found = re.search(r'"added_tokens":\s*', tokenizer_json)
    if found is None:
        return '{"added_tokens":[],' + tokenizer_json.lstrip()[1:]
    tokens, stop = json.JSONDecoder().raw_decode(tokenizer_json, found.end())
    kept = [token for token in tokens or () if not token.get("special")]
    return tokenizer_json[: found.end()] + json.dumps(kept) + tokenizer_json[stop:]
