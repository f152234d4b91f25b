"""What decides the ids of a tokenizer, in one form whoever has written its file.

`save_pretrained` of transformers and `Tokenizer.save` write a file again with other bytes: default
flags, null or '' for no affix, merges as pairs, other parts that add tokens, truncate, pad or
decode. None of it changes the id of a text. What remains is summed up, and compared by key.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from operator import lt
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.tokenizer.tokenizer_json import Content, steps, vocabulary

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tokmill.tokenizer.files import AddedToken
    from tokmill.tokenizer.sentencepiece_model import SentencePieceModel

Deciding = dict[str, Any]
"""What decides ids, by key as a message names it; the values are JSON."""

_FLAGS: Mapping[str, Mapping[str, Any]] = {
    "BPE": {
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
    },
    "Unigram": {"unk_id": None, "byte_fallback": False},
    "WordPiece": {
        "unk_token": "[UNK]",
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100,
    },
    "WordLevel": {"unk_token": "<unk>"},
}
"""Flags of each model that decide ids, with what the library takes where the file has none.

`dropout` makes ids random, and is refused.
"""

_AFFIXES = ("continuing_subword_prefix", "end_of_word_suffix")
"""Of a BPE, '' is the same as none."""

_BEHIND = "\udbff"
"""Between the strings of a list: half a character, as above."""

_OF_PLACES = ("trim_offsets",)
"""Options of steps that change places in the text, not ids."""

_BETWEEN = "\ud800"
"""Between the two tokens of a merge: half a character, which no token can have. Old files write a
space there, others a pair; a list of strings takes a third of the time of a list of pairs."""

_TOKEN_FLAGS = ("special", "lstrip", "rstrip", "single_word", "normalized")

_MOST_NAMED = 3
_LONGEST = 60


def deciding_of_json(content: Content, library: Any, added: Sequence[AddedToken]) -> Deciding:
    """Return what decides the ids of a tokenizer.json.

    `content`: the parsed file. `library`: loaded from it; its steps have all their options.
    `added`: the added tokens with the ids that the library gives.
    """
    model = content["model"]
    kind = type(library.model).__name__
    deciding: Deciding = {"model.type": kind}
    for name, default in _FLAGS[kind].items():
        value = model.get(name, default)
        deciding[f"model.{name}"] = None if kind == "BPE" and name in _AFFIXES else value
        if kind == "BPE" and name in _AFFIXES and value:
            deciding[f"model.{name}"] = value
    deciding["added_tokens"] = {
        token.content: {"id": token.id, **{flag: getattr(token, flag) for flag in _TOKEN_FLAGS}}
        for token in added
    }
    deciding["vocab"] = _by_id(vocabulary(model))
    if kind == "Unigram":
        deciding["scores"] = _scores(score for _, score in model["vocab"])
    deciding["merges"] = [
        merge.replace(" ", _BETWEEN) if isinstance(merge, str) else _BETWEEN.join(merge)
        for merge in model.get("merges") or ()
        if not (isinstance(merge, str) and merge.startswith("#version"))  # of old files
    ]
    for key in ("normalizer", "pre_tokenizer"):
        deciding[key] = library_steps(library, key)
    return deciding


def deciding_of_model(model: SentencePieceModel) -> Deciding:
    """Return what decides the ids of a SentencePiece model."""
    return {
        "model.type": f"SentencePiece's {model.model_type}",
        "model.byte_fallback": model.byte_fallback,
        "model.treat_whitespace_as_suffix": model.whitespace_as_suffix,
        "normalizer.precompiled_charsmap": hashlib.sha256(model.charsmap).hexdigest(),
        "normalizer.add_dummy_prefix": model.dummy_prefix,
        "normalizer.remove_extra_whitespaces": model.remove_extra_whitespaces,
        "normalizer.escape_whitespaces": model.escape_whitespaces,
        "vocab": {
            f"{id_} {piece.content}": piece.type.name for id_, piece in enumerate(model.pieces)
        },
        "scores": _scores(piece.score for piece in model.pieces),
    }


def identity_of(deciding: Deciding) -> str:
    """Return the identity of a tokenizer: a sha256 over what decides its ids."""
    digest = hashlib.sha256()
    for key in sorted(deciding):
        # The order of a vocabulary is that of its ids, not that of the file.
        line = f"{key}\n{_canonical(deciding[key])}\n"
        digest.update(line.encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _canonical(value: Any) -> str:
    """Return a value as text that no other value has.

    Long lists of strings are joined, which takes a fifth of the time of JSON.
    """
    if isinstance(value, Mapping):
        return f"{_canonical(list(value))}\n{json.dumps(list(value.values()))}"
    if isinstance(value, list) and {*map(type, value)} == {str}:
        return f"{len(value)}\n{_BEHIND.join(value)}"
    return json.dumps(value)


def differences(there: Deciding, here: Deciding) -> list[str]:
    """Return lines on the keys in which two tokenizers differ: what is there, and what is here.

    The first line of a key names the first difference, and how many there are.
    """
    if there["model.type"] != here["model.type"]:
        return [_line("model.type", there["model.type"], here["model.type"])]
    lines = []
    for key in sorted({**there, **here}, key=list({**there, **here}).index):
        mine, other = here.get(key), there.get(key)
        if mine == other:
            continue
        if key in ("merges", "scores") and there["vocab"] != here["vocab"]:
            continue  # they follow the vocabulary
        if isinstance(mine, Mapping) and isinstance(other, Mapping):
            lines.append(f"{key}: {_of_names(other, mine)}")
        elif key in ("normalizer", "pre_tokenizer"):
            lines.append(_of_steps(key, other or [], mine or []))
        elif isinstance(mine, list) and isinstance(other, list):
            lines.append(f"{key}: {_of_rows(other, mine)}")
        else:
            lines.append(_line(key, other, mine))
    return lines


def in_words(lines: Sequence[str]) -> str:
    """Return the first differences in one line."""
    more = f"; and {len(lines) - _MOST_NAMED} more" if len(lines) > _MOST_NAMED else ""
    return "; ".join(lines[:_MOST_NAMED]) + more


def _by_id(vocab: Mapping[str, int]) -> Mapping[str, int]:
    """Return a vocabulary in the order of its ids, as most files have it."""
    ids = list(vocab.values())
    if all(map(lt, ids, ids[1:])):
        return vocab
    return dict(sorted(vocab.items(), key=lambda entry: (entry[1], entry[0])))


def _scores(scores: Iterator[float]) -> list[str]:
    """Return scores as float32, as SentencePiece has them.

    The library reads a float64 of JSON with an error in its last bit, so files that it has saved
    again differ there.
    """
    return [value.hex() for value in np.fromiter(scores, np.float32).astype(float).tolist()]


def library_steps(library: Any, key: str) -> list[Content]:
    """Return the steps of `normalizer` or `pre_tokenizer`, without options that change no id."""
    part = getattr(library, key)
    if part is None:
        return []
    found = steps({key: json.loads(part.__getstate__())}, key)
    return [{k: v for k, v in step.items() if k not in _OF_PLACES} for step in found]


# Differences in words


def _of_names(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """Return the first name whose value differs, in the order of the ids, and how many do."""
    differing = [name for name in {**there, **here} if there.get(name) != here.get(name)]
    first = differing[0]
    mine, other = here.get(first), there.get(first)
    if isinstance(mine, Mapping) and isinstance(other, Mapping):
        flag = next(name for name in mine if mine[name] != other[name])
        text = f"{_shown(first)}: {_line(flag, other[flag], mine[flag])}"
        if flag == "id":
            text = f"{_shown(first)} is {other['id']} there, {mine['id']} here"
    else:
        text = f"{_shown(first)} is {_id(other)} there, {_id(mine)} here"
    return text + _and_more(len(differing) - 1)


def _id(value: Any) -> str:
    if value is None:
        return "absent"
    return str(value["id"] if isinstance(value, Mapping) else value)


def _of_rows(there: Sequence[Any], here: Sequence[Any]) -> str:
    """Return the first row that differs."""
    both = min(len(there), len(here))
    at = next((i for i in range(both) if there[i] != here[i]), both)
    if at == both:
        return f"{len(there):,} there, {len(here):,} here"
    return f"number {at:,} is {_shown(there[at])} there, {_shown(here[at])} here"


def _of_steps(key: str, there: Sequence[Content], here: Sequence[Content]) -> str:
    """Return the types of the steps, or the first option that differs if the types are equal."""
    types, others = ([step.get("type") for step in found] for found in (here, there))
    if types != others:
        return _line(key, " and ".join(map(str, others)), " and ".join(map(str, types)))
    for mine, other in zip(here, there, strict=True):
        for option in {**other, **mine}:
            if mine.get(option) != other.get(option):
                name = f"{key}: {option} of {mine['type']}"
                return _line(name, other.get(option), mine.get(option))
    return key


def _line(key: str, there: Any, here: Any) -> str:
    verb = "is " if ":" not in key and "." in key else ""
    separator = " " if verb else ": "
    return f"{key}{separator}{verb}{_shown(there)} there, {_shown(here)} here"


def _shown(value: Any) -> str:
    if value is None or value == "":
        return "none"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = text.replace(_BETWEEN, " + ")
    text = json.dumps(text, ensure_ascii=False)[1:-1] if not text.isprintable() else text
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _and_more(n: int) -> str:
    return f" (and {n:,} more)" if n else ""
