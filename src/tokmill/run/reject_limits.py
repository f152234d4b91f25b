"""Stop a run of the wrong input: too many rejects, no document, a file that breaks off.

The share of rejects is checked while the run goes on (`RejectLimit`), and everything at the end
(`check_outcome`). The formats in `sources` count a break of the input, such as a truncated .gz or
an unclosed quote, with its place and the bytes behind it; it is an error of the run, unless
`on_unread` is `skip`.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from tokmill.dataset.counts import LONG_PROMPT, TOO_LONG, TRAINED_TURNS, UNTRAINED
from tokmill.dataset.manifest import UnreadTotals
from tokmill.dataset.writer import describe_entry, read_rejects
from tokmill.errors import RecordError, UnreadInputError
from tokmill.timing import add_seconds
from tokmill.tokenizer.unknown_text import LOST_BYTES, UNKNOWN_TOKENS
from tokmill.values import EMPTY
from tokmill.words import counted, plural

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from tokmill.dataset.counts import Counts, Increments
    from tokmill.dataset.manifest import SourceEntry
    from tokmill.settings.schema import LimitSettings
    from tokmill.timing import StageSeconds
    from tokmill.values import UnreadInput

FRACTION_CHECKED_FROM = 1000
"""Records of a run before its share of rejects can stop it."""

REJECTS_ALLOWED = 10
"""Up to this many rejects never stop a run of fewer records by their share."""

_ONE_RECORD_FILES = 10
"""If more files than this, and most files, hold one record each, a file counts as a record: the
share `max_reject_fraction` of the files may be rejected."""

_MOST_NAMED = 3

_ADVICE = {
    EMPTY: "name the field that holds the text (--fields)",
    UNTRAINED: "a sample needs a trained part (--train) of a turn (--roles, --turns) with a weight",
    TOO_LONG: "raise --max-tokens",
    LONG_PROMPT: "raise --max-prompt-tokens",
    "fewer than min_tokens": "lower --min-tokens",
}
"""Advice if every record was dropped, by the most frequent reason."""


class RejectLimit:
    """Sums progress, and stops a run with too large a share of rejects or of endless replies.

    `text_bytes`: rendered by this attempt. `stage_s`: seconds of all its threads, by stage.
    """

    def __init__(self, limits: LimitSettings, forward: Callable[[Increments], None]) -> None:
        self._limits, self._forward = limits, forward
        self._n_records = self._n_documents = self._n_empty = 0
        self._n_tokens = self._all_text_bytes = 0
        self._reasons: Counter[str] = Counter()
        self._counters: Counter[str] = Counter()
        self._first = ""
        self.text_bytes = 0
        self.stage_s: dict[str, StageSeconds] = {}

    def progressed(self, progress: Increments) -> None:
        """Add increments; raises `RecordError` from `FRACTION_CHECKED_FROM` records on."""
        self._n_records += progress.records
        self._n_documents += progress.documents
        self._reasons.update(progress.rejects)
        self._n_empty += progress.drops.get(EMPTY, 0)
        if not progress.resumed:  # their counters are known at the end
            self._counters.update(progress.counters)
            self._n_tokens += progress.tokens
            self._all_text_bytes += progress.text_bytes
        self._first = self._first or progress.first_reject
        self.text_bytes += 0 if progress.resumed else progress.text_bytes
        add_seconds(self.stage_s, progress.stage_s)
        self._forward(progress)
        if self._n_records >= FRACTION_CHECKED_FROM:
            _check_share(self._limits, self._reasons, self._n_records, self._first)
            check_empty(self._limits, self._n_empty, self._n_records)
            check_chats(self._limits, self._counters, self._n_documents)
            check_unknown(self._limits, self._counters, self._n_tokens, self._all_text_bytes)


def are_too_many(limits: LimitSettings, n_rejects: float, n_records: float) -> bool:
    """Return whether a run of so many records, or one that has come so far, stops."""
    is_checked = n_records >= FRACTION_CHECKED_FROM or n_rejects > REJECTS_ALLOWED
    return is_checked and n_rejects > limits.max_reject_fraction * n_records


def _check_share(limits: LimitSettings, reasons: Counter[str], n_records: int, first: str) -> None:
    if are_too_many(limits, reasons.total(), n_records):
        records = plural(n_records, "record")
        raise RecordError(too_many(reasons, records, limits.max_reject_fraction, first))


def check_empty(limits: LimitSettings, n_empty: int, n_records: int) -> None:
    """Check that few records have no text; raises `RecordError`."""
    if n_empty > limits.max_empty_fraction * n_records:
        raise RecordError(
            f"{n_empty:,} of {plural(n_records, 'record')} have no text, more than "
            f"--max-empty-fraction={limits.max_empty_fraction:g} allows: name other fields or "
            "files, or raise the limit"
        )


def check_unknown(
    limits: LimitSettings, counters: Mapping[str, int], n_tokens: int, text_bytes: int
) -> None:
    """Check that the tokenizer can write most of the text; raises `RecordError`."""
    unknown, lost = counters.get(UNKNOWN_TOKENS, 0), counters.get(LOST_BYTES, 0)
    allowed = limits.max_unknown_fraction
    if unknown > allowed * n_tokens:
        found = f"{unknown / n_tokens:.1%} of the tokens are the unknown token"
    elif lost > allowed * text_bytes:
        found = f"{lost / text_bytes:.1%} of the text vanishes, as no token writes its characters"
    else:
        return
    raise RecordError(
        f"the tokenizer cannot write this text: {found}, more than --max-unknown-fraction="
        f"{allowed:g} allows: choose a tokenizer of this language; a higher limit accepts the loss"
    )


def too_many(reasons: Counter[str], records: str, allowed: float, first: str) -> str:
    """Return a message: how many of some records were rejected, why, and what to do."""
    named = ", ".join(f"{n:,} {reason}" for reason, n in reasons.most_common(3))
    return (
        f"{reasons.total():,} of {records} {'was' if reasons.total() == 1 else 'were'} rejected "
        f"({named}), more than --max-reject-fraction={allowed:g} allows{_the_first(first)}; "
        "mend the records, or name other fields or files; a higher limit accepts the loss"
    )


def check_chats(limits: LimitSettings, counters: Mapping[str, int], n_samples: int) -> None:
    """Check that few replies lack a trained end, and that a template leaves little out.

    Raises:
        RecordError: a larger share than `max_reject_fraction` of the replies has no trained end,
            though the mask rule trains ends: such a model does not stop. Or more messages or fields
            than this share of the samples are not written.
    """
    if TRAINED_TURNS not in counters:  # pretraining, which must not import the room of chats
        return
    from tokmill.chat.noticed import LOST, UNENDED_REPLIES

    n, n_turns = counters.get(UNENDED_REPLIES, 0), counters.get(TRAINED_TURNS, 0)
    if n > limits.max_reject_fraction * n_turns:
        raise RecordError(
            f"{n:,} of {plural(n_turns, 'trained turn')} have no trained end, "
            f"more than --max-reject-fraction={limits.max_reject_fraction:g} allows: a model "
            "trained on them does not stop; --train=+eos ends replies with eos where the template "
            "writes no end, --train=+eot trains an end outside a generation block, "
            "--train=+next-role the token of the next role, --train=-eot trains no ends"
        )
    lost = {name: counters[name] for name in sorted(LOST) if counters.get(name)}
    most_samples = min(sum(lost.values()), n_samples)  # one sample may lose several fields
    if most_samples > limits.max_reject_fraction * n_samples:
        raise RecordError(
            f"{', '.join(counted(n, name) for name, n in lost.items())}: more in "
            f"{plural(n_samples, 'sample')} than --max-reject-fraction="
            f"{limits.max_reject_fraction:g} allows; {_advice_on_lost(counters)}, or leave a field "
            "out on purpose, as with --ignore-keys=tool_calls"
        )


def _advice_on_lost(counters: Mapping[str, int]) -> str:
    """Return what to do about fields that a template leaves out."""
    from tokmill.chat.noticed import LOST_BLOCKS, WRITTEN_BY

    advice = [
        f"--template={name.removeprefix(WRITTEN_BY).strip()} writes them"
        for name in sorted(counters)
        if name.startswith(WRITTEN_BY) and counters[name]
    ]
    if counters.get(LOST_BLOCKS):
        advice.append("--inline-tags=fields reads think blocks as fields, which it writes")
    if not advice:
        advice = [
            "no training template of this model's family writes them: choose a --template that "
            "does, such as a copy of its own that you change (chatml does, for a tokenizer that "
            "has its tokens)"
        ]
    return ", ".join(advice)


def check_outcome(
    limits: LimitSettings,
    totals: Counts,
    sources: Sequence[SourceEntry],
    rejects: Sequence[Path],
    *,
    is_import: bool = False,
) -> None:
    """Check that a run made documents without too many rejects, and used every input file.

    `sources`: the counts of every input file. `rejects`: the files of rejects, in order.
    `is_import`: nothing was rendered, so advice on rendering says nothing.

    Raises:
        UnreadInputError: input was not read to its end, and `on_unread` is `error`.
        RecordError: too many records were rejected; see `check_chats`; there is no document; or
            every record of one of several files was rejected or has no trained token.
    """
    # A file that breaks off explains its rejects better than their share does. But where most
    # records are rejected, the input is of another kind, and its last one is no whole one either.
    if totals.rejects.total() > totals.documents:
        _check_share(limits, totals.rejects, totals.records, _first(rejects))
    unread = [source for source in sources if source.counts.unread]
    if unread and limits.on_unread == "error":
        raise _unread_error(unread, len(sources))
    check_totals(limits, totals, _first(rejects))
    if not totals.documents:
        made = "the run made no document"
        if broken := sum_unread(sources):
            files = _files(len(sources))
            made += f" ({broken.files:,} of {files} could not be read to the end)"
        if not totals.records:
            files = f"{_files(len(sources))} without a record ({_named(sources)})"
            raise RecordError(f"{made}: {files}")
        advice = {} if is_import else _ADVICE
        raise RecordError(no_document(made, totals, "record", _first(rejects), advice))
    check_sources(limits, sources, partial(_first, rejects))


def check_totals(limits: LimitSettings, totals: Counts, first: str) -> None:
    """Check the shares of rejects, empty texts, endless replies and unknown text.

    `first`: describes the first reject. Raises `RecordError`.
    """
    _check_share(limits, totals.rejects, totals.records, first)
    check_empty(limits, totals.drops[EMPTY], totals.records)
    check_chats(limits, totals.counters, totals.documents)
    check_unknown(limits, totals.counters, totals.tokens, totals.text_bytes)


def no_document(
    made: str,
    totals: Counts,
    record: str,
    first: str,
    advices: Mapping[str, str] = _ADVICE,
) -> str:
    """Return a message: `made`, what became of all records, the first reject, and what to do."""
    losses = [f"{n:,} rejected: {reason}" for reason, n in totals.rejects.most_common()]
    losses += [f"{n:,} dropped: {reason}" for reason, n in totals.drops.most_common()]
    records, advice = plural(totals.records, record), ""
    if totals.drops and not totals.rejects:
        advice = advices.get(totals.drops.most_common(1)[0][0], "")
    return f"{made} of {records} ({'; '.join(losses)}){_the_first(first)}{advice and f'; {advice}'}"


def check_sources(
    limits: LimitSettings,
    sources: Sequence[SourceEntry],
    first: Callable[[str], str],
    *,
    least_records: int = 1,
) -> None:
    """Refuse files of which every record was rejected, or has no text or no trained token.

    The limits of length are the user's choice; a file without text, or a chat without a trained
    token, is seldom intended.
    `first` describes the first reject of a file. A file of fewer than `least_records` records is
    not judged: in a sample, all of them may be rejected by chance.

    Raises:
        RecordError: there are several files, and some of them are such.
    """
    fraction = limits.max_reject_fraction
    if len(sources) < 2 or fraction >= 1:
        return
    lost = [
        source
        for source in sources
        if source.counts.records >= least_records
        if not source.counts.documents and set(source.counts.drops) <= {UNTRAINED, EMPTY}
    ]
    n_single = sum(source.counts.records == 1 for source in sources)
    if n_single > max(_ONE_RECORD_FILES, len(sources) // 2):
        n_lost_single = sum(source.counts.records == 1 for source in lost)
        if n_lost_single <= fraction * len(sources):
            lost = [source for source in lost if source.counts.records > 1]
    if lost:
        counts = {**lost[0].counts.rejects, **lost[0].counts.drops}
        reasons = ", ".join(f"{n:,} {reason}" for reason, n in counts.items())
        became = "rejected" if any(source.counts.rejects for source in lost) else "dropped"
        raise RecordError(
            f"every record of {len(lost):,} of {_files(len(sources))} was {became} "
            f"({_named(lost)}): {reasons}{_the_first(first(lost[0].path))}; take such files out "
            "of the input, or accept them with --max-reject-fraction=1"
        )


def _files(n: int) -> str:
    return plural(n, "input file")


def _named(sources: Sequence[SourceEntry]) -> str:
    names = [source.path for source in sources[:_MOST_NAMED]]
    return ", ".join([*names, "…"] if len(sources) > _MOST_NAMED else names)


def _first(rejects: Sequence[Path], source: str = "") -> str:
    """Describe the first reject, of one input file if `source` names it."""
    for entry in read_rejects(rejects):
        if source in ("", entry["source"]):
            return describe_entry(entry)
    return ""


def _the_first(reject: str) -> str:
    return f"; the first: {reject}" if reject else ""


def describe_unread(path: str, unread: UnreadInput) -> str:
    """Return a line: where a file breaks off, why, and how many bytes were not read."""
    where = f"byte {unread.stored_byte:,}"
    if unread.stored_byte < 0:
        where = f"record {unread.place.line:,}, byte {unread.place.byte_offset:,} of the text"
    return f"{path}: {where}: {unread.message}; not read: {_amount([unread])}"


def sum_unread(sources: Sequence[SourceEntry]) -> UnreadTotals | None:
    """Return the number of files that break off, and the bytes not read; None if all were read."""
    broken = [source.counts.unread for source in sources if source.counts.unread]
    if not broken:
        return None
    breaks = [unread for of_source in broken for unread in of_source]
    text_bytes = sum(unread.text_bytes for unread in breaks)
    return UnreadTotals(len(broken), text_bytes, sum(unread.stored_bytes for unread in breaks))


def _amount(breaks: Sequence[UnreadInput]) -> str:
    """Return the amount that was not read; of a truncated file it is unknown."""
    text_bytes = sum(unread.text_bytes for unread in breaks)
    stored_bytes = sum(unread.stored_bytes for unread in breaks)
    parts = [f"{plural(text_bytes, 'byte')} of text"] if text_bytes else []
    parts += [plural(stored_bytes, "stored byte")] if stored_bytes else []
    if any(unread.reason == "cut off" for unread in breaks):
        parts.append("what was cut off")
    return " and ".join(parts) or "nothing"


def _unread_error(unread: Sequence[SourceEntry], n_sources: int) -> UnreadInputError:
    breaks = [(source.path, lost) for source in unread for lost in source.counts.unread]
    lines = tuple(describe_unread(path, lost) for path, lost in breaks)
    again = "run the same command with --on-unread=skip"
    if any(source.path == "-" for source in unread):
        again = "read it again with --on-unread=skip and --overwrite"
    advice = (
        f"to continue without the lost input, {again}; to get it, replace the broken files and run "
        "with --overwrite"
    )
    if len(lines) == 1:
        return UnreadInputError(f"input breaks off: {lines[0]}; {advice}", lines)
    return UnreadInputError(
        f"{len(unread):,} of {plural(n_sources, 'input file')} "
        f"break{'s' * (len(unread) == 1)} off, not read: "
        f"{_amount([lost for _, lost in breaks])}; {advice}",
        lines,
    )
