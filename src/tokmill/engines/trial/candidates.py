"""Decides which engines are tried for a corpus, in which order, and whether they are timed.

The first engine of a tokenizer has to be compared with the reference on characters, which takes
seconds. Then all fast engines are compared and timed, side by side: it hardly takes longer. Later
runs take the engine that is expected to be fastest (`speeds`), and time engines only where that is
in doubt and the input is large.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import TYPE_CHECKING

from tokmill.engines.characters import RARE
from tokmill.engines.choice import EngineChoice
from tokmill.engines.engine import FAST_ENGINES, is_installed
from tokmill.engines.store import EngineStore
from tokmill.engines.trial.compare import PARITY_BYTES, routed_share
from tokmill.engines.trial.remembered import KeptScans, choice_key, remembered
from tokmill.engines.trial.speeds import MEASURED, KeptSpeeds, unspaced_share

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tokmill.engines.engine import Engine
    from tokmill.engines.trial.compare import CorpusSample
    from tokmill.tokenizer.tokenizer import Tokenizer

TIMED_FROM_BYTES = 256 << 20
"""With less input, engines that were compared before are not timed: it costs more than it saves."""

TIMED_FROM_BYTES_PER_ID = 2 << 10
"""The same per id of the vocabulary, whose size decides how long engines take to load."""

TIMED_SAMPLE_BYTES = 4 << 20

TRIED_FROM_BYTES = 2 << 20
"""With less text the reference is done before another engine has loaded."""

TRIED_FROM_BYTES_PER_ID = 24
"""The same per id of the vocabulary."""

SCANNED_FROM_BYTES = 8 << 20
"""With less text the reference is done before another engine has been compared with it on the
common characters. An engine that was compared before can be taken."""

SCANNED_FROM_BYTES_PER_ID = 160
"""The same per id of the vocabulary: each token is compared too, and engines take time to load."""

FULLY_SCANNED_FROM_BYTES = 32 << 20
"""The same for all characters."""

OTHERS_SCANNED_FROM_BYTES = 128 << 20
"""With less text a faster engine does not make up for comparing it, if another was compared."""

ALL_CHARACTERS_FROM_BYTES = 1 << 30
"""With less input engines are compared on the common characters only: on all it takes six times as
long, and hardly a document has others."""

MOST_RARE = 0.005
"""With a larger share of the text in documents with rare characters, all are compared: the
reference is some 20 times as slow as an engine."""

_STREAM_BYTES = 1 << 30
"""Assumed for standard input."""

FASTEST = "fastest on a sample"
ONLY_ONE = "the only fast one known to be exact"


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """The settings that decide about the engine of a run.

    `reference`: loads the reference engine of the tokenizer. `asked`: `auto`, or the name of an
    engine, which then must be exact or the run fails. `control_in_text`: see `load_engine`.
    `n_threads`: threads that the engine will have. `engines`: keeps those that this process loads.
    `note` gets a line before a comparison that takes long.
    """

    tokenizer: Tokenizer
    reference: Callable[[], Engine]
    asked: str
    control_in_text: str
    n_threads: int
    engines: EngineStore = field(default_factory=EngineStore)
    note: Callable[[str], None] | None = None


@dataclass(frozen=True, slots=True)
class Corpus:
    """The input of a run.

    `n_bytes`: as it is stored. `is_stream`: standard input, of unknown size. `sample`: reads about
    so many bytes of documents, at random places if its second argument says so. `is_packed`: the
    text can be much larger than `n_bytes`, as in compressed files and in Parquet.
    """

    n_bytes: int
    is_stream: bool
    sample: Callable[[int, bool], CorpusSample]
    is_packed: bool = False

    @property
    def text_bytes(self) -> int:
        """Return about how many bytes of text there are; reads a sample of packed input."""
        if self.is_stream:
            return _STREAM_BYTES
        return self.sample(PARITY_BYTES, False).corpus_bytes if self.is_packed else self.n_bytes


@dataclass(frozen=True, slots=True)
class Candidates:
    """Engines to try for a corpus.

    `timed`: all are compared with the reference and timed on the sample, side by side; the fastest
    is taken. Else they are compared one after the other, and the first exact one is taken, for
    `reason`. `mb_per_s`: their speeds, if they were measured before. `refused`: of the reference,
    reasons against the others that an earlier run found. `all_characters`: they are compared on
    all, not only on the common ones.
    """

    names: Sequence[str]
    sample: Callable[[], CorpusSample]
    reason: str = FASTEST
    timed: bool = False
    mb_per_s: Mapping[str, float] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    all_characters: bool = True


def candidates(request: EngineRequest, corpus: Corpus) -> Candidates:
    """Return the engines to try, and loads none of them: the one asked for, or those of `auto`."""
    sample = cache(partial(corpus.sample, PARITY_BYTES, False))
    all_characters = needs_all_characters(corpus)
    if request.asked != "auto":
        return Candidates([request.asked], sample, "asked for", all_characters=all_characters)
    timed_sample = cache(partial(corpus.sample, TIMED_SAMPLE_BYTES, True))
    all_timed = Candidates(FAST_ENGINES, timed_sample, timed=True, all_characters=all_characters)
    compared, others = compared_engines(request, all_characters=all_characters)
    if not compared:
        return _remembered_reference(request, sample) or all_timed
    if others and not corpus.is_stream and corpus.text_bytes >= OTHERS_SCANNED_FROM_BYTES:
        return all_timed
    if len(compared) == 1:
        return Candidates(compared, sample, ONLY_ONE, all_characters=all_characters)
    n_bytes = _STREAM_BYTES if corpus.is_stream else sample().corpus_bytes
    ranking = KeptSpeeds(request.tokenizer, request.control_in_text).rank(
        compared, unspaced_share(sample().texts), n_bytes, request.n_threads
    )
    per_id = TIMED_FROM_BYTES_PER_ID * request.tokenizer.vocab_size
    is_timed = not corpus.is_stream and corpus.text_bytes >= max(TIMED_FROM_BYTES, per_id)
    if is_timed and not ranking.is_sure:
        return replace(all_timed, names=compared)
    speeds = {name: cost.mb_per_s(request.n_threads) for name, cost in ranking.costs.items()}
    known = speeds if ranking.basis == MEASURED else {}
    return Candidates(
        ranking.names, sample, ranking.basis, mb_per_s=known, all_characters=all_characters
    )


def needs_all_characters(corpus: Corpus) -> bool:
    """Return whether engines have to be compared on all characters, not only on the common ones.

    Documents with others go to the reference, so a corpus needs all if many of its have some. Of
    standard input that is not known.
    """
    if corpus.text_bytes >= ALL_CHARACTERS_FROM_BYTES:
        return True
    return routed_share(RARE, corpus.sample(PARITY_BYTES, False).texts) > MOST_RARE


def _remembered_reference(
    request: EngineRequest, sample: Callable[[], CorpusSample]
) -> Candidates | None:
    """Return the reference, if no fast engine could be used in an earlier run."""
    try:
        known = EngineChoice.from_json(remembered(key_of(request)) or {})
    except TypeError:  # none, or kept by another version
        return None
    return Candidates(
        [known.name], sample, known.reason, mb_per_s=known.mb_per_s, refused=known.refused
    )


def key_of(request: EngineRequest) -> str:
    """Return the key of the remembered choice where no fast engine can be used."""
    return choice_key(request.tokenizer, request.control_in_text)


def too_little(request: EngineRequest, corpus: Corpus) -> str:
    """Return why a corpus is too small to try an engine for it, or ''."""
    n_bytes, n_ids = corpus.text_bytes, request.tokenizer.vocab_size
    if n_bytes >= max(TRIED_FROM_BYTES, TRIED_FROM_BYTES_PER_ID * n_ids):
        all_characters = needs_all_characters(corpus)
        common_from = max(SCANNED_FROM_BYTES, SCANNED_FROM_BYTES_PER_ID * n_ids)
        if n_bytes >= (FULLY_SCANNED_FROM_BYTES if all_characters else common_from):
            return ""
        if compared_engines(request, all_characters=all_characters)[0]:
            return ""
    return "quicker than proving another engine for so little text"


def compared_engines(
    request: EngineRequest, *, all_characters: bool
) -> tuple[list[str], list[str]]:
    """Return the fast engines that an earlier run compared on characters, and those it did not.

    Neither has an engine that was refused for its comparison.
    """
    kept = KeptScans(request.tokenizer, request.control_in_text)
    scans = {
        name: kept.find(name, all_characters=all_characters)
        for name in FAST_ENGINES
        if is_installed(name)
    }
    compared = [name for name, scan in scans.items() if scan is not None and not scan.refused]
    return compared, [name for name, scan in scans.items() if scan is None]
