"""The engine that a run will probably take, known before it is compared with the reference.

So a run may begin to encode while it is compared.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tokmill.engines.choice import Continuation
from tokmill.engines.engine import REFERENCE
from tokmill.engines.trial.candidates import candidates, too_little
from tokmill.engines.trial.choose import choose_engine, exact_choice
from tokmill.engines.trial.compare import MOST_ROUTED, routed_share
from tokmill.engines.trial.remembered import KeptScans
from tokmill.errors import TokenizerError
from tokmill.tokenizer.continuation import continuation_tokenizer

if TYPE_CHECKING:
    from tokmill.engines.choice import EngineChoice, ScanResult
    from tokmill.engines.trial.candidates import Candidates, Corpus, EngineRequest


def expected_choice(
    request: EngineRequest, corpus: Corpus, *, has_continuations: bool
) -> EngineChoice | None:
    """Return the choice for a corpus if the ids of that engine are the reference's there.

    None if engines will be timed, if it was never compared on the characters of the corpus, or if
    much of the corpus would go to the reference.
    `has_continuations`: see `choose_engine`.
    """
    if request.asked == "auto" and too_little(request, corpus):
        return None
    found = candidates(request, corpus)
    name = found.names[0]
    if found.timed or name == REFERENCE:
        return None
    kept = KeptScans(request.tokenizer, request.control_in_text)
    scan = kept.find(name, all_characters=found.all_characters)
    if scan is None or scan.refused:
        return None
    if request.asked == "auto" and _is_slow(scan, found):
        return None
    choice = exact_choice(request, name, found.reason, scan)
    choice = replace(choice, mb_per_s=found.mb_per_s, refused=found.refused)
    variant = continuation_tokenizer(request.tokenizer) if has_continuations else None
    if variant is None or variant is request.tokenizer:
        return choice
    kept = KeptScans(variant, request.control_in_text)
    scan = kept.find(name, all_characters=found.all_characters)
    if scan is None:
        return None
    if scan.refused:
        return replace(choice, continuation=Continuation(REFERENCE))
    return replace(choice, continuation=Continuation(name, scan.routed))


def compared_choice(
    expected: EngineChoice, request: EngineRequest, corpus: Corpus, *, has_continuations: bool
) -> EngineChoice | None:
    """Compare an expected engine with the reference on a corpus.

    Returns:
        The choice, with what was compared; None if the engine has to be chosen anew.
    """
    asked = replace(request, asked=expected.name)
    try:
        found = choose_engine(asked, corpus, has_continuations=has_continuations)
    except TokenizerError:  # other ids on this corpus
        return None
    if _encoding(found) != _encoding(expected):
        return None
    known = expected.reason, expected.mb_per_s, expected.refused
    return replace(found, reason=known[0], mb_per_s=known[1], refused=known[2])


def _is_slow(scan: ScanResult, found: Candidates) -> bool:
    """Return whether much of the corpus would go to the reference; see `choose_engine`."""
    return routed_share(scan.differs, found.sample().texts) > MOST_ROUTED


def _encoding(choice: EngineChoice) -> tuple[object, ...]:
    """Return all that decides how documents are encoded and checked."""
    return choice.name, choice.routed, choice.continuation, choice.spot_share
