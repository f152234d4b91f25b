"""What a run must have come to: input read to its end, a document, something from every source."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tokmill.dataset.counts import unread_from_json
from tokmill.errors import RecordError, UnreadInputError
from tokmill.masks.truncation import TOO_LONG, UNTRAINED
from tokmill.words.plural import plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from tokmill.dataset.counts import Counts
    from tokmill.settings.schema import LimitSettings
    from tokmill.values import UnreadInput

    Rows = Sequence[Mapping[str, Any]]

_ONE_RECORD_FILES = 10
"""Where more files than this hold one record, and most do, a file is judged as a record: as many
as `max_reject_fraction` of them may be rejected."""

_NAMED = 3

_ADVICE = {
    UNTRAINED: "a sample needs a turn of a trained role (--roles, --turns) that has no weight of 0",
    TOO_LONG: "raise --max-tokens",
    "fewer than min_tokens": "lower --min-tokens",
}
"""What helps if everything was dropped, most of it for this reason."""


def check_outcome(
    limits: LimitSettings, totals: Counts, sources: Rows, rejects: Sequence[Path]
) -> None:
    """Make sure that a run has come to something.

    Args:
        limits: its limits.
        totals: counts of the whole run.
        sources: counts of every input file, as the manifest has them.
        rejects: the files of rejects, in order.

    Raises:
        UnreadInputError: input was not read to its end, and `on_unread` is `error`.
        RecordError: there is no document, or every record of one of several sources was rejected
            or has no trained token.
    """
    check_read(limits, sources)
    if not totals.documents:
        raise RecordError(_no_document(totals, sources, rejects))
    if len(sources) > 1 and limits.max_reject_fraction < 1:
        _check_sources(limits.max_reject_fraction, sources, rejects)


def check_read(limits: LimitSettings, sources: Rows) -> None:
    """Make sure that input was read to its end; raises `UnreadInputError` as `check_outcome`."""
    unread = [row for row in sources if "unread" in row]
    if unread and limits.on_unread == "error":
        raise _unread_error(unread, len(sources))


def describe_unread(path: str, unread: UnreadInput) -> str:
    """Return a line: where a file breaks off, why, and how much of it was not read."""
    where = f"byte {unread.stored_byte:,}"
    if unread.stored_byte < 0:
        where = f"record {unread.place.line:,}, byte {unread.place.byte_offset:,} of the text"
    return f"{path}: {where}: {unread.message}; not read: {_amount([unread])}"


def summed_unread(sources: Rows) -> dict[str, int]:
    """Return how many files were not read to their end, and the bytes not read; empty if none."""
    entries = [entry for row in sources for entry in row.get("unread", ())]
    if not entries:
        return {}
    sums = {name: sum(e[name] for e in entries) for name in ("text_bytes", "stored_bytes")}
    return {"files": sum("unread" in row for row in sources), **sums}


def _amount(found: Sequence[UnreadInput]) -> str:
    """Return how much was not read; of a file that was cut off, nobody knows."""
    text_bytes = sum(unread.text_bytes for unread in found)
    stored_bytes = sum(unread.stored_bytes for unread in found)
    parts = [f"{plural(text_bytes, 'byte')} of text"] if text_bytes else []
    parts += [plural(stored_bytes, "stored byte")] if stored_bytes else []
    if any(unread.reason == "cut off" for unread in found):
        parts.append("what was cut off")
    return " and ".join(parts) or "nothing"


def _unread_error(unread: Rows, n_sources: int) -> UnreadInputError:
    breaks = [(row["path"], unread_from_json(e)) for row in unread for e in row["unread"]]
    lines = tuple(describe_unread(path, found) for path, found in breaks)
    again = "run the same command with --on-unread skip"
    if any(row["path"] == "-" for row in unread):
        again = "read it again with --on-unread skip and --overwrite"
    advice = (
        f"to do without what is lost, {again}; to have it, replace what is broken and run with "
        "--overwrite"
    )
    if len(lines) == 1:
        return UnreadInputError(f"input breaks off: {lines[0]}; {advice}", lines)
    return UnreadInputError(
        f"{len(unread):,} of {_files(n_sources)} break{'s' * (len(unread) == 1)} off, not read: "
        f"{_amount([found for _, found in breaks])}; {advice}",
        lines,
    )


def _no_document(totals: Counts, sources: Rows, rejects: Sequence[Path]) -> str:
    made = "the run made no document"
    lost = summed_unread(sources)
    if lost:
        made += f" ({lost['files']:,} of {_files(len(sources))} could not be read to the end)"
    if not totals.records:
        return f"{made}: {_files(len(sources))} without a record ({_named(sources)})"
    losses = [f"{n:,} rejected: {reason}" for reason, n in totals.rejects.most_common()]
    losses += [f"{n:,} dropped: {reason}" for reason, n in totals.drops.most_common()]
    records = plural(totals.records, "record")
    advice = ""
    if totals.drops and not totals.rejects:
        advice = _ADVICE.get(totals.drops.most_common(1)[0][0], "")
    return f"{made} of {records} ({'; '.join(losses)}){_first(rejects)}{advice and f'; {advice}'}"


def _check_sources(fraction: float, sources: Rows, rejects: Sequence[Path]) -> None:
    """Refuse sources of which every record was rejected, or has nothing to train.

    Too long or too short are the user's own choice; a chat without a target is seldom one.
    """
    lost = [
        row
        for row in sources
        if row["records"] and not row["documents"] and set(row["drops"]) <= {UNTRAINED}
    ]
    n_single = sum(row["records"] == 1 for row in sources)
    if n_single > max(_ONE_RECORD_FILES, len(sources) // 2):
        n_lost_single = sum(row["records"] == 1 for row in lost)
        if n_lost_single <= fraction * len(sources):
            lost = [row for row in lost if row["records"] > 1]
    if lost:
        found = {**lost[0]["rejects"], **lost[0]["drops"]}
        reasons = ", ".join(f"{n:,} {reason}" for reason, n in found.items())
        became = "rejected" if any(row["rejects"] for row in lost) else "dropped"
        raise RecordError(
            f"every record of {len(lost):,} of {_files(len(sources))} was {became} "
            f"({_named(lost)}): {reasons}{_first(rejects, lost[0]['path'])}; take such files out "
            "of the input, or accept them with --max-reject-fraction 1"
        )


def _files(n: int) -> str:
    return plural(n, "input file")


def _named(rows: Rows) -> str:
    names = [row["path"] for row in rows[:_NAMED]]
    return ", ".join([*names, "…"] if len(rows) > _NAMED else names)


def _first(rejects: Sequence[Path], source: str = "") -> str:
    """Describe the first reject, of a source if one is named."""
    for entry in _entries(rejects):
        if source in ("", entry["source"]):
            where = f"{entry['source']}:{entry['line']}"
            if entry["byte_offset"] >= 0:
                where += f" (byte {entry['byte_offset']})"
            return f"; the first: {where}: {entry['reason']}: {entry['message']}"
    return ""


def _entries(rejects: Sequence[Path]) -> Iterator[Mapping[str, Any]]:
    for path in rejects:
        with suppress(OSError, ValueError), path.open("rb") as file:
            yield from map(json.loads, file)
