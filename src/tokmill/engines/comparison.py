"""Which characters an engine treats otherwise than the reference, for a kind of tokenizer.

Only the steps of a tokenizer that normalize and split text decide that, not its vocabulary. So a
byte-level tokenizer is compared with a vocabulary that shows every place where a pretoken ends: in
it, two characters side by side share a token exactly if no split separates them. One result
holds for all tokenizers with the same steps, its `structure`.

`differences.json` has the results for the steps of common tokenizers, on all code points, per
version of the engine; `bench.character_scan` makes it. For other steps the common characters are
compared once, and the result is kept in a file of the user's cache directory. Documents with any
other character go to the reference.
"""

from __future__ import annotations

import json
import time
import unicodedata
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import xxhash

from tokmill.dataset.canonical import canonical_json
from tokmill.engines.choice import CharacterComparison
from tokmill.engines.engine import REFERENCE, engine_version, load_engine
from tokmill.engines.engine_child import EngineChild, fingerprints
from tokmill.engines.kept import keep, kept
from tokmill.engines.routing import COMMON, EVERY, RARE, CharacterSet
from tokmill.engines.texts import Context, character_texts, compositions, in_lines, sequences
from tokmill.tokenizer.equivalent_json import to_equivalent
from tokmill.tokenizer.tokenizer_json import (
    SPACE_MARK,
    Content,
    as_text,
    byte_characters,
    parsed,
    step_types,
    steps,
    vocabulary,
    without_merges,
)
from tokmill.words.plural import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from tokmill.engines.engine import Engine
    from tokmill.tokenizer.tokenizer import Tokenizer

    Fingerprints = npt.NDArray[np.uint64]

MOST_CHARACTERS = 20_000
"""An engine that differs on more characters is refused: newer tables cannot be the reason."""

_BATCH_TEXTS = 512
_NOTE_S = 2.0
_VERSION = 1
"""Of the method; what another one kept is not read."""

_OPTIONS = ("byte_fallback", "fuse_unk", "continuing_subword_prefix", "end_of_word_suffix")
"""Of a model that is not byte-level: what decides the ids of a character without a token."""


def known_comparison(tokenizer: Tokenizer, engine: str) -> CharacterComparison | None:
    """Return the result for an engine, from the shipped table or the cache; None if in neither."""
    versions = _versions(tokenizer, engine)
    row = _table().get(versions[0], {}).get(structure(tokenizer), {})
    known = row.get("engines", {}).get(versions[1])
    if known is not None:
        return CharacterComparison.from_json(known | row["compared"])
    cached = kept(_cache_key(tokenizer, versions))
    try:
        return None if cached is None else CharacterComparison.from_json(cached)
    except (ValueError, KeyError, TypeError):
        return None


def compare_engines(
    tokenizer: Tokenizer,
    engines: Sequence[str],
    n_threads: int,
    note: Callable[[str], None] = lambda _: None,
    *,
    every: bool = False,
) -> dict[str, CharacterComparison]:
    """Compare engines with the reference on characters and sequences, side by side.

    Each engine runs in a child process: one that crashes is refused. The results are kept, unless
    an engine did not answer in time. `note` gets lines on the progress. `every`: compare all code
    points, and keep nothing.
    """
    shown = showing(tokenizer)
    reference = load_engine(REFERENCE, shown, control_in_text="text", n_threads=n_threads)
    n_characters = len(EVERY if every else COMMON)
    note(
        f"comparing {' and '.join(engines)} with the reference on {n_characters:,} characters and "
        f"{len(sequences()):,} sequences of them, once for tokenizers of this kind"
    )
    with ExitStack() as stack:
        children = [stack.enter_context(EngineChild(e, shown, n_threads)) for e in engines]
        uncompared = CharacterSet() if every else RARE
        results = compared_with(reference, children, character_texts(every=every), uncompared, note)
        for child in children:
            if not every and not child.timed_out:
                key = _cache_key(tokenizer, _versions(tokenizer, child.name))
                keep(key, results[child.name].as_json())
    return results


def compared_with(
    reference: Engine,
    children: Sequence[Compared],
    characters: Sequence[tuple[Context, str]],
    uncompared: CharacterSet,
    note: Callable[[str], None] = lambda _: None,
) -> dict[str, CharacterComparison]:
    """Compare engines with the reference on characters in contexts, and on all sequences.

    `uncompared`: characters that explain every difference, since they are routed in any case.
    """
    lines = in_lines(sequences())
    texts = [context.text(some) for context, some in characters]
    texts += ["\n".join(some) for some in lines]
    expected, answers = _all_fingerprints(reference, children, texts, note)
    return {
        child.name: _Judge(reference, child, characters, lines, uncompared).result(
            expected, answered
        )
        for child, answered in zip(children, answers, strict=True)
    }


class Compared(Protocol):
    """An engine that answers with fingerprints; see `EngineChild`."""

    name: str
    refused: str

    def begin(self, texts: Sequence[str]) -> None:
        """Begin to encode texts."""

    def result(self) -> Fingerprints:
        """Return the fingerprints of these texts: (n,)."""


def is_encoded_by_bpe(tokenizer: Tokenizer) -> bool:
    """Return whether a tokenizer is a BPE; no fast engine encodes others."""
    model = _content(tokenizer)["model"]
    return bool(model.get("type", "BPE" if "merges" in model else "") == "BPE")


def token_texts(tokenizer: Tokenizer, most: int) -> list[str]:
    """Return the texts of up to `most` tokens, evenly spread, if they are valid text."""
    content = _content(tokenizer)
    tokens = list(vocabulary(content["model"]))
    some = tokens[:: max(1, -(-len(tokens) // most))]
    byte_of = {name: byte for byte, name in byte_characters().items()}
    if _is_byte_level(content):
        codes = ([byte_of.get(name, -1) for name in token] for token in some)
        texts = [bytes(one).decode(errors="replace") for one in codes if -1 not in one]
    else:
        texts = [token.replace(SPACE_MARK, " ") for token in some]
    return list(dict.fromkeys(text for text in texts if len(text) > 1 and "\ufffd" not in text))


def structure(tokenizer: Tokenizer) -> str:
    """Return a hash of the steps of a tokenizer that normalize and split text."""
    return _hash(_outline(tokenizer))


def showing(tokenizer: Tokenizer) -> Tokenizer:
    """Return a tokenizer with the same steps and a vocabulary that shows where pretokens end.

    Its merges are all pairs of a byte that ends a character and one that begins a character.
    A tokenizer that is not a byte-level BPE is returned itself.
    """
    content = _content(tokenizer)
    if not _is_byte_level(content):
        return tokenizer
    names = byte_characters()
    first = [names[byte] for byte in (*range(0x80), *range(0xC2, 0xF5))]
    last = [names[byte] for byte in (*range(0x80), *range(0x80, 0xC0))]
    merges = [(left, right) for left in last for right in first]
    tokens = [*(names[byte] for byte in range(256)), *map("".join, merges)]
    vocab = {token: id_ for id_, token in enumerate(tokens)}
    model = {**content["model"], "unk_token": None, "vocab": vocab, "merges": merges}
    unused = dict.fromkeys(("post_processor", "decoder", "truncation", "padding"))
    changed = {**content, **unused, "added_tokens": [], "model": model}
    rewritten, rewrites = to_equivalent(changed)
    return replace(
        tokenizer,
        json=as_text(changed),
        rewritten_json=as_text(rewritten) if rewrites else "",
        rewrites=rewrites,
        vocab_size=len(vocab),
        special_ids=(),
        spare=[],
    )


@cache
def _table() -> dict[str, Any]:
    """Return the shipped results: by version of the reference, then by structure."""
    table: dict[str, Any] = json.loads(Path(__file__).with_name("differences.json").read_bytes())
    return table


def _versions(tokenizer: Tokenizer, engine: str) -> tuple[str, str]:
    return (
        engine_version(REFERENCE, tokenizer),
        f"{engine} {engine_version(engine, tokenizer)}",
    )


def _cache_key(tokenizer: Tokenizer, versions: Sequence[str]) -> str:
    """Return the key of a kept result; without a vocabulary of ours, that of the file counts."""
    own = "" if _is_byte_level(_content(tokenizer)) else tokenizer.sha256 + tokenizer.json
    return _hash([_VERSION, *versions, _outline(tokenizer), own, unicodedata.unidata_version])


def _hash(value: Any) -> str:
    return xxhash.xxh3_128_hexdigest(canonical_json(value))


def _content(tokenizer: Tokenizer) -> Content:
    """Return the content of a tokenizer.json without its merges; an empty model without one."""
    if not tokenizer.json:
        return {"model": {"type": ""}}
    key = (tokenizer.json, tokenizer.name)
    if _last.key != key:
        _last.key, _last.content = key, parsed(without_merges(key[0]), where=key[1])
    return _last.content


@dataclass(slots=True)
class _Last:
    """The content that was parsed last: a run asks several times, and 150,000 ids take 60 ms."""

    key: tuple[str, str] = ("", "")
    content: Content = field(default_factory=dict)


_last = _Last()


def _is_byte_level(content: Content) -> bool:
    model = content["model"]
    affixes = model.get("continuing_subword_prefix") or model.get("end_of_word_suffix")
    is_bpe = model.get("type", "BPE") == "BPE" and "merges" in model and not affixes
    return is_bpe and "ByteLevel" in step_types(steps(content, "pre_tokenizer"))


def _outline(tokenizer: Tokenizer) -> dict[str, Any]:
    """Return what decides how a tokenizer normalizes and splits text, without its vocabulary."""
    content = _content(tokenizer)
    names = () if _is_byte_level(content) else _OPTIONS
    options = {key: content["model"].get(key) or None for key in names}
    splits = [
        {"use_regex": True, **step} if step.get("type") == "ByteLevel" else step
        for step in steps(content, "pre_tokenizer")
    ]
    return {
        "kind": tokenizer.kind,
        "model": {"type": content["model"].get("type", "BPE"), **options},
        "normalizer": steps(content, "normalizer"),
        "pre_tokenizer": [
            {key: value for key, value in step.items() if key != "trim_offsets"} for step in splits
        ],
    }


def _all_fingerprints(
    reference: Engine,
    children: Sequence[Compared],
    texts: Sequence[str],
    note: Callable[[str], None],
) -> tuple[Fingerprints, list[Fingerprints]]:
    """Return the fingerprints of texts by the reference, and by each child, which work beside it.

    Those of a child that is refused are incomplete.
    """
    expected: list[Fingerprints] = []
    answers: list[list[Fingerprints]] = [[] for _ in children]
    said_s = time.monotonic()
    for start in range(0, len(texts), _BATCH_TEXTS):
        some = texts[start : start + _BATCH_TEXTS]
        for child in children:
            child.begin(some)
        expected.append(fingerprints(reference, some))
        for child, answered in zip(children, answers, strict=True):
            answered.append(child.result())
        if time.monotonic() - said_s > _NOTE_S:
            said_s = time.monotonic()
            note(f"compared {(start + len(some)) / len(texts):.0%}")
    return np.concatenate(expected), [np.concatenate(answered) for answered in answers]


class _Judge:
    """Finds the characters that explain the texts on which an engine differs."""

    def __init__(
        self,
        reference: Engine,
        child: Compared,
        characters: Sequence[tuple[Context, str]],
        lines: Sequence[Sequence[str]],
        uncompared: CharacterSet,
    ) -> None:
        self._reference, self._child = reference, child
        self._characters, self._lines = characters, lines
        self._uncompared = uncompared
        self._n_characters = len(set().union(*(some for _, some in characters)))

    def result(self, expected: Fingerprints, answered: Fingerprints) -> CharacterComparison:
        """Return the result for the fingerprints of contexts with characters, then of lines."""
        if self._child.refused:
            return self._comparison(refused=self._child.refused)
        differing = np.flatnonzero(expected != answered).tolist()
        n_first = len(self._characters)
        if sum(i < n_first for i in differing) > MOST_CHARACTERS:
            return self._comparison(
                refused="its ids differ from the reference's on most characters"
            )
        in_contexts = [
            [(one, context.text(one)) for one in some]
            for context, some in (self._characters[i] for i in differing if i < n_first)
        ]
        in_lines = [
            [(one, one) for one in self._lines[i - n_first]] for i in differing if i >= n_first
        ]
        singles, joint = self._narrow(in_contexts)
        alone, joint_lines = self._narrow(in_lines)
        codes, unexplained = self._explain([*alone, *joint, *joint_lines], set(map(ord, singles)))
        if self._child.refused:
            return self._comparison(refused=self._child.refused)
        return self._verdict(CharacterSet.of(codes), unexplained)

    def _narrow(self, groups: Sequence[Sequence[tuple[str, str]]]) -> tuple[list[str], list[str]]:
        """Return names of (name, text) that differ alone, and groups that differ only jointly."""
        texts = [text for group in groups for _, text in group]
        if not texts:
            return [], []
        self._child.begin(texts)
        expected, answered = fingerprints(self._reference, texts), self._child.result()
        if self._child.refused:
            return [], []
        differs = iter((expected != answered).tolist())
        alone, joint = [], []
        for group in groups:
            names = [name for name, _ in group if next(differs)]
            alone += names
            if not names:
                joint.append("".join(text for _, text in group))
        return alone, joint

    def _explain(self, differing: Sequence[str], codes: set[int]) -> tuple[set[int], list[str]]:
        """Return the characters that explain differing sequences, and the unexplained sequences.

        A character that differs alone, or that was not compared, explains its sequences. A pair
        that composes only in newer tables is explained by its characters beyond the first plane;
        all such pairs have one.
        """
        pairs = frozenset(compositions())
        unexplained = []
        for sequence in differing:
            own = set(map(ord, sequence))
            if codes.isdisjoint(own) and not any(code in self._uncompared for code in own):
                late = {code for code in own if code > 0xFFFF} if sequence in pairs else set()
                codes |= late
                if not late:
                    unexplained.append(sequence)
        return codes, unexplained

    def _verdict(self, differs: CharacterSet, unexplained: Sequence[str]) -> CharacterComparison:
        """Return the result; refuse an engine that routing single characters cannot make exact."""
        if unexplained:
            shown = min(unexplained, key=lambda text: (len(text), text))
            return self._comparison(
                refused="its ids differ from the reference's on "
                f"{plural(len(unexplained), 'sequence')} of characters, such as {ascii(shown)[:80]}"
            )
        if len(differs) > MOST_CHARACTERS or any(first < 0x80 for first, _ in differs.ranges):
            first = next(iter(differs.codes()))
            many = plural(len(differs), "character")
            return self._comparison(
                refused=f"its ids differ from the reference's on {many}, such as {chr(first)!a}"
            )
        return self._comparison(differs)

    def _comparison(
        self, differs: CharacterSet | None = None, *, refused: str = ""
    ) -> CharacterComparison:
        return CharacterComparison(
            differs or CharacterSet(),
            refused,
            self._n_characters,
            len(sequences()),
            self._uncompared,
        )
