"""Compares engines with the reference on characters and sequences, each in a child process.

A panic of native code can end a process, and an engine can loop for ever on a text: then it is
refused, and the run goes on without it. The module is also the child.
"""

from __future__ import annotations

import contextlib
import select
import tempfile
from dataclasses import replace
from functools import partial
from typing import IO, TYPE_CHECKING

import numpy as np
import xxhash

from tokmill.children import Child, ChildEndedError, Parent
from tokmill.engines.choice import CharacterComparison
from tokmill.engines.engine import REFERENCE, load_engine, thread_variables
from tokmill.engines.routing import (
    COMMON,
    EVERY,
    RARE,
    CharacterSet,
    RoutedEngine,
    Routes,
    ids_of_each,
)
from tokmill.engines.texts import Context, character_texts, in_lines, sequences
from tokmill.errors import TokmillError
from tokmill.words import plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from tokmill.engines.engine import Engine
    from tokmill.tokenizer.tokenizer import Tokenizer

    Compared = tuple[CharacterSet, str]

MOST_CHARACTERS = 20_000
"""An engine that differs on more characters is refused: newer tables cannot be the reason."""

ANSWER_TIMEOUT_S = 300.0
"""For one engine, loading included: 2 s on two cores."""

TIMED_OUT = "did not finish within"
"""Begins a refusal that may not hold in another run."""

_DIFFER = "its ids differ from the reference's"


def compare_in_children(
    engines: Sequence[str],
    tokenizer: Tokenizer,
    n_threads: int,
    *,
    every: bool,
    timeout_s: float = ANSWER_TIMEOUT_S,
) -> dict[str, CharacterComparison]:
    """Return what `compare` finds for each engine, side by side; `every`: on all code points."""
    reference = load_engine(REFERENCE, tokenizer, control_in_text="text", n_threads=n_threads)
    expected = fingerprints(reference, compared_texts(character_texts(every=every)))
    asked = replace(tokenizer, name="the tokenizer"), n_threads, every, expected
    variables = thread_variables(n_threads)
    n_compared = len(EVERY if every else COMMON), len(sequences())
    with contextlib.ExitStack() as stack:
        children = []
        for name in engines:
            errors = stack.enter_context(tempfile.TemporaryFile())
            child = Child("tokmill.engines.engine_child", defaults=variables, errors=errors)
            children.append((stack.enter_context(child), errors))
            with contextlib.suppress(ChildEndedError):  # then there is no answer either
                child.send((name, *asked))
        answers = [_answer(child, errors, timeout_s) for child, errors in children]
    return {
        name: CharacterComparison(differs, refused, *n_compared, _uncompared(every=every))
        for name, (differs, refused) in zip(engines, answers, strict=True)
    }


def _uncompared(*, every: bool) -> CharacterSet:
    return CharacterSet() if every else RARE


def _answer(child: Child, errors: IO[bytes], timeout_s: float) -> Compared:
    if not select.select([child], [], [], timeout_s)[0]:
        return CharacterSet(), f"{TIMED_OUT} {timeout_s:g} s"
    try:
        answer: Compared = child.receive()
    except ChildEndedError as error:
        errors.seek(0)
        lines = errors.read().decode(errors="replace").strip().splitlines()
        last = lines[-1][:200] if lines else "no message"
        return CharacterSet(), f"died with status {error.status}: {last}"
    return answer


def main() -> None:
    """Compare the engine that the parent names."""
    parent = Parent()
    name, tokenizer, n_threads, every, expected = parent.receive()
    load = partial(load_engine, tokenizer=tokenizer, control_in_text="text", n_threads=n_threads)
    try:
        engine, reference = load(name), load(REFERENCE)
    except TokmillError as error:
        parent.send((CharacterSet(), str(error)))
        return
    # As in a run, the reference encodes a text on which the engine raises.
    routed = RoutedEngine(engine, lambda: reference, Routes())
    texts, uncompared = character_texts(every=every), _uncompared(every=every)
    parent.send(compare(reference, routed, texts, uncompared, expected))


def compared_texts(characters: Sequence[tuple[Context, str]]) -> list[str]:
    """Return the texts of characters in contexts, then those of all sequences."""
    texts = [context.text(chars) for context, chars in characters]
    return texts + ["\n".join(line) for line in in_lines(sequences())]


def compare(
    reference: Engine,
    engine: Engine,
    characters: Sequence[tuple[Context, str]],
    uncompared: CharacterSet,
    expected: npt.NDArray[np.uint64],
) -> Compared:
    """Return the characters on which an engine differs, and why it is refused, or ''.

    It is compared on characters in contexts and on all sequences; `expected`: the reference's
    fingerprints of `compared_texts(characters)`. A character that differs alone explains the
    sequences that contain it. So does one of `uncompared`, since it is routed in any case, and a
    rare one: pairs that compose only in newer tables contain one.
    """
    lines = in_lines(sequences())
    differing = np.flatnonzero(
        expected != fingerprints(engine, compared_texts(characters))
    ).tolist()
    in_contexts = [characters[i] for i in differing if i < len(characters)]
    in_sequences = [lines[i - len(characters)] for i in differing if i >= len(characters)]
    if len(in_contexts) > MOST_CHARACTERS:
        return CharacterSet(), f"{_DIFFER} on most characters"
    groups = [[(char, context.text(char)) for char in chars] for context, chars in in_contexts]
    singles, joint = _narrow(reference, engine, groups)
    groups = [[(sequence, sequence) for sequence in line] for line in in_sequences]
    alone, joint_lines = _narrow(reference, engine, groups)
    codes, unexplained = set(map(ord, singles)), []
    for sequence in (*alone, *joint, *joint_lines):
        own = set(map(ord, sequence))
        if codes.isdisjoint(own) and not any(code in uncompared for code in own):
            rare = {code for code in own if code in RARE}
            codes |= rare
            if not rare:
                unexplained.append(sequence)
    differs = CharacterSet.of(codes)
    if unexplained:
        many, shown = plural(len(unexplained), "sequence"), min(unexplained, key=len)
        return CharacterSet(), f"{_DIFFER} on {many} of characters, such as {ascii(shown)[:80]}"
    if len(differs) > MOST_CHARACTERS or min(codes, default=0x80) < 0x80:
        many, first = plural(len(differs), "character"), chr(min(codes))
        return CharacterSet(), f"{_DIFFER} on {many}, such as {first!a}"
    return differs, ""


def fingerprints(engine: Engine, texts: Sequence[str]) -> npt.NDArray[np.uint64]:
    """Return the xxh3-64 of the ids of each of n texts: (n,)."""
    sums = (xxhash.xxh3_64_intdigest(ids.tobytes()) for ids in ids_of_each(engine, texts))
    return np.fromiter(sums, np.uint64, len(texts))


def _narrow(
    reference: Engine, engine: Engine, groups: Sequence[Sequence[tuple[str, str]]]
) -> tuple[list[str], list[str]]:
    """Return names of (name, text) that differ alone, and groups that differ only jointly."""
    texts = [text for group in groups for _, text in group]
    differs = iter((fingerprints(reference, texts) != fingerprints(engine, texts)).tolist())
    alone, joint = [], []
    for group in groups:
        names = [name for name, _ in group if next(differs)]
        alone += names
        if not names:
            joint.append("".join(text for _, text in group))
    return alone, joint
