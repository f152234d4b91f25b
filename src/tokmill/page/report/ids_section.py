"""Frequent and unused ids, and equal documents: what `tokmill stats` shows of the tokens."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from tokmill.errors import TokmillError
from tokmill.page.report.section import Cell, Section, facts, note, table
from tokmill.page.samples import statistics_of
from tokmill.page.summary import quoted, statistics_rows
from tokmill.words.plural import plural

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MOST_TOKENS = 1 << 30
"""Tokens that are read for a page, which takes 5 to 10 s, or 50 if documents have 40 tokens each;
of more, the section names the command."""


def ids_section(directory: Path, manifest: Mapping[str, Any], tokenizer: str) -> Section:
    """Return the section; `data` is that of `tokmill stats --json`."""
    title, n_tokens = "Ids and duplicates", manifest["totals"]["tokens"]
    if n_tokens > MOST_TOKENS:
        command = f"tokmill stats {shlex.quote(str(directory))}"
        return Section("ids", title, note(f"Reads {plural(n_tokens, 'token')}: {command}"))
    try:
        statistics = statistics_of(directory, dict(manifest), tokenizer)
    except TokmillError as error:
        return Section("ids", title, note(f"The tokens cannot be read: {error}"))
    rows = [row for row in statistics_rows(statistics) if row[0] != "lengths"]
    listed: list[list[str | Cell]] = [
        [f"{named.id} {quoted(named.text)}", Cell(f"{named.count:,}", named.count),
         Cell(f"{named.count / n_tokens:.2%}", named.count / n_tokens)]
        for named in statistics.frequent
    ]  # fmt: skip
    html = facts(rows) + table(("most frequent ids", "times", "share"), listed)
    data = {key: statistics.as_json()[key] for key in ("ids", "duplicates")}
    return Section("ids", title, html, data)
