"""Compare engines with the reference under generated tokenizers, whose steps meet in every way.

    python -m bench.parity --tokenizers 300 --documents 10000
    python -m bench.parity --tokenizers 40 --tokenizer DIR --tokenizer DIR     also on real ones

A tokenizer has changed steps (patterns, normalizers, prefixes), another vocabulary, and added
tokens with all flags. Its documents are made of its added tokens, of what its normalizer makes into
them, and of neighbours of each class. Each engine is chosen as in a run, forced and by `auto`, with
a cold and with a warm cache, from a sample of plain words; then it is refused, or has the ids of
the reference. All tokenizers say that they have the same name and the same sha256.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bench.tokenizer_steps import BYTES, DIGITS, NFC, SPLITS, byte_level_steps, sentencepiece_steps
from tokmill.engines.added_tokens import for_engine
from tokmill.engines.choice import EngineChoice
from tokmill.engines.choose import LEAST_BYTES, EngineRequest, choose_engine
from tokmill.engines.engine import FAST_ENGINES, REFERENCE
from tokmill.engines.routing import RoutedEngine, ids_of_each
from tokmill.errors import TokmillError
from tokmill.settings.schema import TokenizerSettings
from tokmill.tokenizer.tokenizer import Tokenizer, load_tokenizer
from tokmill.tokenizer.tokenizer_json import (
    SPACE_MARK,
    byte_characters,
    byte_fallback_token,
    replace_step,
    sequence,
)

Content = dict[str, Any]

EOS = "<|end|>"

WORDS = (
    *("hello world", " the cat", "it's", "I'LL", "don't", "12345", "3.14", "x = f(y)", "中文文本"),
    *("café", "straße", "한국어", "ไทยน้ำ", "हिन्दी", "עִברִית", "👍🏽", "naïve", "ﬁne", "…!?", "a_b"),
)
SPACES = (
    " ",
    "  ",
    "   ",
    "\t",
    "\n",
    "\n\n",
    "\r\n",
    "\xa0",
    "\u3000",
    "\u2003",
    "\x85",
    "\u2028",
)
MARKS = ("\u0301", "\u0341", "\u0338", "\u0323", "\u0308", "\u3099", "\u0344", "\u0345", "\u1dce")
SIGNS = ("'", "'s", "!", "<", ">", "|", "_", "-", "▁", "\u200d", "\ufe0f", "ſ", "\u212a", "İ", "Ω")

TOKENS = (
    *("金", "é", "e\u0301", "\u0301", "\u0341", "\uf90a", "ﬁ", "Å", "\u212b", "가", "\u1100\u1161"),
    *(
        "<tool>",
        "</tool>",
        "<|fim|>",
        "<to",
        "ool>",
        "fim|>x",
        "word",
        "Word",
        "ord",
        " word",
        "word ",
    ),
    *(
        "  ",
        "    ",
        "\n\n",
        "\t\t",
        "\xa0",
        "\u3000\u3000",
        "▁",
        "▁▁",
        "▁word",
        "'s",
        "1",
        "12",
        "123",
    ),
    *(
        "K",
        "k",
        "\u212a",
        "ß",
        "İ",
        "ſ",
        "น้ำ",
        "हिन्",
        "か\u3099",
        "が",
        "👍",
        "\u0338",
        "=",
        "≠",
        ">",
    ),
    *(
        "hello world",
        "hello",
        "lo wo",
        "<a> ",
        " <a>",
        "!",
        "...",
        "中文",
        "文文",
        "日本",
        "x\u0323y",
    ),
)
"""Contents of added tokens: ones that a normalizer changes or makes, and that overlap."""

_NORMALIZERS: tuple[Any, ...] = (
    *(None, None, NFC, NFC, NFC, {"type": "Lowercase"}, {"type": "NFKC"}, {"type": "NFD"}),
    sequence("normalizer", [NFC, {"type": "Lowercase"}]),
    sequence("normalizer", [{"type": "Lowercase"}, NFC]),
    sequence("normalizer", [replace_step({"String": "a"}, "金"), NFC]),
    sequence("normalizer", [NFC, replace_step({"String": "é"}, "e")]),
    sequence("normalizer", [{"type": "Prepend", "prepend": "x"}, NFC]),
    replace_step({"String": "wo"}, "k"),
    replace_step({"Regex": r"\s+"}, " "),
    {"type": "StripAccents"},
)

_PIECES: tuple[Any, ...] = (
    *({"type": "Strip", "strip_left": True, "strip_right": True}, NFC, {"type": "Lowercase"}),
    *(replace_step({"Regex": " {2,}"}, " "), replace_step({"String": "lo"}, "x")),
)
"""Steps that are put before those of a tokenizer converted from SentencePiece."""


def made_tokenizer(number: int, seed: int, bases: Sequence[Content]) -> tuple[Tokenizer, bool]:
    """Return a tokenizer, the same at each call, and whether special tokens are parsed."""
    chance = random.Random(f"{seed}-{number}")
    content = json.loads(json.dumps(chance.choice(bases)))
    _change_steps(content, chance)
    if chance.random() < 0.5:
        _change_model(content, chance)
    first_id = 1 + max([*content["model"]["vocab"].values(), *_ids(content["added_tokens"])])
    contents = chance.sample(TOKENS, chance.randrange(0, 9))
    for id_, text in enumerate(dict.fromkeys(contents), first_id + 1):
        names = ("special", "normalized", "lstrip", "rstrip", "single_word")
        likely = (0.2, 0.4, 0.12, 0.12, 0.08)
        flags = {name: chance.random() < p for name, p in zip(names, likely, strict=True)}
        content["added_tokens"].append({"id": id_, "content": text, **flags})
    content["added_tokens"].append(_added(first_id, EOS))
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
        made = load_tokenizer(TokenizerSettings(path=folder, eos_token=EOS))
    return replace(made, name="gpt2", identity="0" * 64), chance.random() < 0.2


def _ids(added: Sequence[Content]) -> list[int]:
    return [token["id"] for token in added]


def _added(id_: int, content: str) -> Content:
    flags = dict.fromkeys(("normalized", "lstrip", "rstrip", "single_word"), False)
    return {"id": id_, "content": content, "special": True, **flags}


def _change_steps(content: Content, chance: random.Random) -> None:
    """Give a tokenizer other steps of its kind, sometimes changed ones."""
    if content["model"].get("byte_fallback"):
        normalizer, splits = chance.choice([*sentencepiece_steps().values()])
        if chance.random() < 0.3:
            found = [normalizer] if normalizer else []
            normalizer = sequence("normalizer", [chance.choice(_PIECES), *found])
    else:
        normalizer, splits = chance.choice([*byte_level_steps().values()])
        if chance.random() < 0.5:
            normalizer = chance.choice(_NORMALIZERS)
        splits = [_changed_split(step, chance) for step in splits]
        if chance.random() < 0.1:
            splits = [DIGITS, *splits]
    content["normalizer"] = normalizer
    content["pre_tokenizer"] = sequence("pre_tokenizer", splits) if splits else None


def _changed_split(step: Content, chance: random.Random) -> Content:
    if step in (SPLITS, BYTES):
        return {**step, "add_prefix_space": chance.random() < 0.2}
    regex = (step.get("pattern") or {}).get("Regex")
    if not regex or chance.random() < 0.8:
        return step
    parts = regex.split("|")
    changes = [
        regex.replace("{1,3}", "{1,2}"),
        regex.replace(r"\p{N}", r"\d"),
        regex.replace(" ?", r"\s?"),
        regex.replace(r"\r\n", r"\n"),
        regex.replace(r"\p{L}", r"\w"),
        f"wo|{regex}",
        f"^ +|{regex}",
        "|".join(parts[1:]),
        "|".join(parts[:-1]),
        "|".join(reversed(parts)),
    ]
    return {**step, "pattern": {"Regex": chance.choice(changes)}}


def _change_model(content: Content, chance: random.Random) -> None:
    """Change the vocabulary: ids in another order, merges left out, or an option."""
    model = content["model"]
    kind = chance.choice(("ids", "merges", "ignore_merges", "order"))
    if kind == "ids":
        ids = [*model["vocab"].values()]
        chance.shuffle(ids)
        model["vocab"] = dict(zip(model["vocab"], ids, strict=True))
        for token in content["added_tokens"]:
            token["id"] = model["vocab"].get(token["content"], token["id"])
    elif kind == "merges":
        model["merges"] = model["merges"][: chance.randrange(len(model["merges"]))]
    elif kind == "ignore_merges":
        model["ignore_merges"] = True
    else:
        chance.shuffle(model["merges"])


@cache
def own_bases() -> tuple[Content, ...]:
    """Return two small tokenizers: a byte-level BPE, and one with a fallback to bytes."""
    from tokenizers import Tokenizer as Library
    from tokenizers import models, normalizers, pre_tokenizers, trainers

    samples = Path(__file__).parents[1] / "data_samples"
    lines = (samples / "records.jsonl").read_text(encoding="utf-8").splitlines()
    lines += [*WORDS, *(f"a{space}b" for space in SPACES)] * 9
    trained = Library(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = sorted(byte_characters().values())
    trainer = trainers.BpeTrainer(vocab_size=2000, initial_alphabet=alphabet, show_progress=False)
    trained.train_from_iterator(lines, trainer)
    pieces = Library(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    pieces.normalizer = normalizers.Replace(" ", SPACE_MARK)
    pieces.pre_tokenizer = pre_tokenizers.Split(SPACE_MARK, "merged_with_next")
    special = ["<unk>", *map(byte_fallback_token, range(256))]
    trainer = trainers.BpeTrainer(
        vocab_size=2000, limit_alphabet=300, special_tokens=special, show_progress=False
    )
    pieces.train_from_iterator(lines, trainer)
    of_pieces = json.loads(pieces.to_str())
    of_pieces["added_tokens"] = [_added(0, "<unk>")]
    return json.loads(trained.to_str()), of_pieces


def documents(tokenizer: Tokenizer, count: int, chance: random.Random) -> list[str]:
    """Return texts of a tokenizer's added tokens, of what becomes them, and of their neighbours."""
    added = [token.content for token in tokenizer.added] or ["x"]
    plain = [*added, *added, *WORDS, *SPACES[:6], *SIGNS]
    odd = [*plain, *SPACES, *MARKS, *(image for text in added for image in _images(text))]
    return [
        "".join(chance.choices(odd if number % 2 else plain, k=chance.randrange(1, 14)))
        for number in range(count)
    ]


def _images(text: str) -> Iterator[str]:
    """Yield texts that a normalizer may make into a text, or join to it."""
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        yield unicodedata.normalize(form, text)
    yield from (text.upper(), text.lower(), text.swapcase(), text.replace(SPACE_MARK, " "))
    yield from (text[:-1], text[1:], f"{text}\u0301", f"{text}\u0338", f"\u0301{text}")
    for character in text:
        for code in _made_into().get(character, ()):
            yield text.replace(character, chr(code))


@cache
def _made_into() -> dict[str, list[int]]:
    """Return, by character, those that a normal form or another case makes into it."""
    found: dict[str, list[int]] = {}
    for code in (*range(0x250, 0xD800), *range(0xF900, 0x10000), *range(0x2F800, 0x2FA20)):
        character = chr(code)
        images = {unicodedata.normalize("NFKC", character), character.lower(), character.upper()}
        for image in images - {character}:
            if len(image) == 1:
                found.setdefault(image, []).append(code)
    return found


def compare(number: int, *, seed: int, count: int, bases: Sequence[Content]) -> Counter[str]:
    """Return what came of one tokenizer: texts encoded, routed, different, and refusals."""
    counts: Counter[str] = Counter()
    try:
        tokenizer, parse = made_tokenizer(number, seed, bases)
    except TokmillError:
        return Counter({"not loaded": 1})
    texts = documents(tokenizer, count, random.Random(f"{seed}-{number}-texts"))
    control = "parse" if parse else "text"
    plain = [f"{word} {other}" for word in WORDS[:9] for other in WORDS[:9]]
    request = EngineRequest(tokenizer, "auto", control, 1, LEAST_BYTES, lambda _: plain)
    texts, expected = _expected(request, texts)
    counts["tokenizers"] += 1
    counts["the reference fails"] += count - len(texts)
    done: set[str] = set()
    before = os.environ.get("TOKMILL_CACHE_DIR", "")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TOKMILL_CACHE_DIR"] = folder
        for asked in (*FAST_ENGINES, "auto"):
            choices = [_choice(replace(request, asked=asked), counts) for _ in ("cold", "warm")]
            if len({json.dumps(_decided(choice)) for choice in choices}) > 1:
                counts["other choice with a warm cache"] += 1
            for choice in choices:
                key = json.dumps(_decided(choice))
                if choice and choice.name != REFERENCE and key not in done:
                    counts += _encoded(request, choice, texts, expected, number)
                    done.add(key)
    os.environ["TOKMILL_CACHE_DIR"] = before
    return counts


def _expected(request: EngineRequest, texts: list[str]) -> tuple[list[str], list[Any]]:
    """Return the texts on which the reference does not fail, and its ids of each."""
    reference = request.load_reference()
    kept, expected = [], []
    for start in range(0, len(texts), 500):
        some = texts[start : start + 500]
        try:
            ids = list(ids_of_each(reference, some))
        except TokmillError:
            some, ids = [], []
            for text in texts[start : start + 500]:
                with suppress(TokmillError):
                    ids += ids_of_each(reference, [text])
                    some.append(text)
        kept += some
        expected += ids
    return kept, expected


def _decided(choice: EngineChoice | None) -> list[Any]:
    """Return what decides the ids; a comparison is of another place if it was kept."""
    return [choice.name, choice.routes.as_json(), choice.added.as_json()] if choice else []


def _choice(request: EngineRequest, counts: Counter[str]) -> EngineChoice | None:
    try:
        choice = choose_engine(request, has_continuations=False)
    except TokmillError:
        counts[f"refused {request.asked}"] += 1
        return None
    if choice.name == REFERENCE:
        counts[f"refused {request.asked}"] += 1
    return choice


def _encoded(
    request: EngineRequest,
    choice: EngineChoice,
    texts: Sequence[str],
    expected: Sequence[Any],
    number: int,
) -> Counter[str]:
    """Return how many texts were encoded as a run would, how many routed, and how many differ."""
    loaded = request.engines.load(
        choice.name,
        for_engine(request.tokenizer, choice.added),
        control_in_text=request.control_in_text,
    )
    engine = RoutedEngine(loaded, request.load_reference, choice.routes)
    found = list(ids_of_each(engine, texts))
    routed = int(engine.is_routed(pa.array(texts, pa.large_string())).sum())
    wrong = [i for i, ids in enumerate(found) if not np.array_equal(ids, expected[i])]
    for i in wrong[:3]:
        where = f"tokenizer {number}, {choice.name}, {request.control_in_text}"
        print(f"{where}: {texts[i]!a}: {found[i].tolist()} {expected[i].tolist()}", flush=True)
    return Counter(
        {"engines": 1, "documents": len(texts), "routed": routed, "different": len(wrong)}
    )


def main() -> None:
    """Compare generated tokenizers, and print what came of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--tokenizers", type=int, default=300)
    parser.add_argument("--first", type=int, default=0, help="number of the first one")
    parser.add_argument("--documents", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tokenizer", action="append", default=[], metavar="FILE")
    options = parser.parse_args()
    os.environ.setdefault("RAYON_NUM_THREADS", "1")
    os.environ["RUST_BACKTRACE"] = "0"
    given = [json.loads(Path(path).read_bytes()) for path in options.tokenizer]
    one = partial(compare, seed=options.seed, count=options.documents, bases=[*own_bases(), *given])
    counts: Counter[str] = Counter()
    numbers = range(options.first, options.first + options.tokenizers)
    with get_context("spawn").Pool(options.workers, maxtasksperchild=20) as pool:
        for found in pool.imap_unordered(one, numbers):
            counts += found
    for name, n in sorted(counts.items()):
        print(f"{name:40} {n:>12,}")
    sys.exit(1 if counts["different"] or counts["other choice with a warm cache"] else 0)


if __name__ == "__main__":
    main()
