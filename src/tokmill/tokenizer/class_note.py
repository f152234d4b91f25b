"""Says where transformers 5 would give other ids than the tokenizer.json that it finds.

It makes some tokenizers from the vocabulary alone: the class that tokenizer_config.json names, with
its options, decides how text is normalized and split, whatever tokenizer.json says of it. tokmill
follows tokenizer.json. Each row of `_CLASSES` is what transformers 5.23 makes.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tokmill.tokenizer.hostile_texts import hostile_texts
from tokmill.tokenizer.identity import library_steps
from tokmill.tokenizer.tiktoken_file import encodings
from tokmill.tokenizer.tokenizer_json import Content, sequence, split_step, with_values

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_MOST_IDS, _MOST_CHARACTERS = 6, 40


def _gpt2(config: Mapping[str, Any]) -> Content:
    return {"normalizer": None, "pre_tokenizer": _byte_level(config, use_regex=True)}


def _qwen2(config: Mapping[str, Any]) -> Content:
    splits = [split_step(encodings()["qwen2"].pattern), _byte_level(config, use_regex=False)]
    return {"normalizer": {"type": "NFC"}, "pre_tokenizer": sequence("pre_tokenizer", splits)}


def _bert(config: Mapping[str, Any]) -> Content:
    normalizer = {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": bool(config.get("tokenize_chinese_chars", True)),
        "strip_accents": config.get("strip_accents"),
        "lowercase": bool(config.get("do_lower_case", True)),
    }
    return {"normalizer": normalizer, "pre_tokenizer": {"type": "BertPreTokenizer"}}


def _byte_level(config: Mapping[str, Any], *, use_regex: bool) -> Content:
    prefix = bool(config.get("add_prefix_space", False))
    options = {"add_prefix_space": prefix, "trim_offsets": True, "use_regex": use_regex}
    return {"type": "ByteLevel", **options}


_CLASSES: Mapping[str, Callable[[Mapping[str, Any]], Content]] = {
    "GPT2Tokenizer": _gpt2,
    "Qwen2Tokenizer": _qwen2,
    "BertTokenizer": _bert,
}


def class_note(text: str, library: Any, config: Mapping[str, Any], where: str) -> str:
    """Return a note with an example where the class of a configuration gives other ids, or ''.

    `text`: the tokenizer.json. `library`: loaded from it. `config`: tokenizer_config.json.
    """
    name = str(config.get("tokenizer_class") or "").removesuffix("Fast")
    if name not in _CLASSES:
        return ""
    from tokenizers import Tokenizer as Library

    steps = _CLASSES[name](config)
    try:
        # Without a vocabulary, which takes 0.5 s: the usual file has the steps of its class.
        empty = {"type": "WordLevel", "vocab": {}, "unk_token": ""}
        made = Library.from_str(json.dumps({"model": empty, **steps}))
        keys = [key for key in steps if library_steps(made, key) != library_steps(library, key)]
        theirs = Library.from_str(with_values(text, steps)) if keys else None
    except Exception:  # the library's own, for options of a wrong kind: transformers refuses them
        return ""
    if theirs is None:
        return ""
    for example in filter(lambda one: len(one) <= _MOST_CHARACTERS, hostile_texts([])):
        here, there = (
            one.encode(example, add_special_tokens=False).ids for one in (library, theirs)
        )
        if here != there:
            shown = json.dumps(example, ensure_ascii=False)
            return (
                f"{where}: the ids are those of tokenizer.json; transformers 5 takes the "
                f"{' and '.join(keys)} of {name} (tokenizer_config.json) and gives others: "
                f"{shown} is {_shown(here)} here, {_shown(there)} there"
            )
    return ""


def _shown(ids: list[int]) -> str:
    more = ", …" if len(ids) > _MOST_IDS else ""
    return f"[{', '.join(map(str, ids[:_MOST_IDS]))}{more}]"
