"""Input that could not be read to its end: a truncated .gz, an unclosed quote, a broken Parquet.

The formats in `sources` count such a break with its place and the bytes behind it. Here it becomes
an error of the run, or, with `on_unread = "skip"`, a count in the manifest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokmill.dataset.counts import unread_from_json
from tokmill.errors import UnreadInputError
from tokmill.words.plural import plural

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tokmill.settings.schema import LimitSettings
    from tokmill.values import UnreadInput

    Rows = Sequence[Mapping[str, Any]]


def check_read(limits: LimitSettings, sources: Rows) -> None:
    """Check that all input was read to its end; `sources` are rows of the manifest.

    Raises:
        UnreadInputError: a file breaks off, and `on_unread` is `error`.
    """
    unread = [row for row in sources if "unread" in row]
    if unread and limits.on_unread == "error":
        raise _unread_error(unread, len(sources))


def describe_unread(path: str, unread: UnreadInput) -> str:
    """Return a line: where a file breaks off, why, and how many bytes were not read."""
    where = f"byte {unread.stored_byte:,}"
    if unread.stored_byte < 0:
        where = f"record {unread.place.line:,}, byte {unread.place.byte_offset:,} of the text"
    return f"{path}: {where}: {unread.message}; not read: {_amount([unread])}"


def sum_unread(sources: Rows) -> dict[str, int]:
    """Return the number of files that break off, and the bytes not read; empty if none."""
    entries = [entry for row in sources for entry in row.get("unread", ())]
    if not entries:
        return {}
    sums = {name: sum(e[name] for e in entries) for name in ("text_bytes", "stored_bytes")}
    return {"files": sum("unread" in row for row in sources), **sums}


def _amount(breaks: Sequence[UnreadInput]) -> str:
    """Return the amount that was not read; of a truncated file it is unknown."""
    text_bytes = sum(unread.text_bytes for unread in breaks)
    stored_bytes = sum(unread.stored_bytes for unread in breaks)
    parts = [f"{plural(text_bytes, 'byte')} of text"] if text_bytes else []
    parts += [plural(stored_bytes, "stored byte")] if stored_bytes else []
    if any(unread.reason == "cut off" for unread in breaks):
        parts.append("what was cut off")
    return " and ".join(parts) or "nothing"


def _unread_error(unread: Rows, n_sources: int) -> UnreadInputError:
    breaks = [(row["path"], unread_from_json(e)) for row in unread for e in row["unread"]]
    lines = tuple(describe_unread(path, found) for path, found in breaks)
    again = "run the same command with --on-unread=skip"
    if any(row["path"] == "-" for row in unread):
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
        f"{_amount([found for _, found in breaks])}; {advice}",
        lines,
    )
