"""Records that are not in the dataset: drops and rejects by reason, with examples of rejects."""

from __future__ import annotations

import base64
import binascii
from itertools import islice
from typing import TYPE_CHECKING, Any

from tokmill.dataset.layout import DATASET_FILE, REJECTS
from tokmill.dataset.rejects import read_rejects
from tokmill.page.markup import content, label
from tokmill.page.report.charts import Chart, Row, bars, stacks
from tokmill.page.report.section import Section, facts, note
from tokmill.page.summary import detail_rows
from tokmill.words.plural import plural

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_MOST_REASONS = 20
_MOST_READ = 20_000
"""Entries of the files of rejects that are read; each is a few kB."""

_EXAMPLES_OF_REASON, _MOST_EXAMPLES = 2, 8
_RAW_CHARACTERS = 300
_SHOWN_ROWS = {
    "drops": "drops",
    "unread": "unread",
    "unread keys": "unread keys",
    "fields": "text by field",
}
"""Rows of `tokmill inspect` that the section has, and their names there."""


def losses_section(directory: Path, manifest: Mapping[str, Any]) -> Section:
    """Return the section; `data` has the counts of the manifest and the number of examples."""
    totals = manifest["totals"]
    n_drops, n_rejects = sum(totals["drops"].values()), sum(totals["rejects"].values())
    examples = reject_examples(directory, manifest) if n_rejects else []
    parts = [note(_sentence(manifest, n_drops, n_rejects))]
    if n_drops or n_rejects:
        parts.append(_records(manifest, n_drops, n_rejects))
    parts += [_reasons(kind, totals[kind]) for kind in ("drops", "rejects") if totals[kind]]
    if examples:
        cards = "".join(map(_example, examples))
        parts.append(f'<h3>Examples of rejects</h3><div class="pairs">{cards}</div>')
    rows = [
        (_SHOWN_ROWS[name], text)
        for name, text in detail_rows(manifest, str(directory))
        if name in _SHOWN_ROWS and (name != "drops" or "lost_tokens" in totals)
    ]
    parts.append(facts(rows) if rows else "")
    data = {key: totals[key] for key in ("records", "documents")}
    data |= {"extra": totals.get("extra", 0), "examples": len(examples)}
    data |= {kind: dict(_largest(totals[kind])) for kind in ("drops", "rejects")}
    return Section("losses", "Left out", "".join(parts), data)


def _sentence(manifest: Mapping[str, Any], n_drops: int, n_rejects: int) -> str:
    records = plural(manifest["totals"]["records"], "record")
    if not n_drops and not n_rejects:
        return f"Nothing was left out: none of {records} was dropped or rejected."
    drops, rejects = plural(n_drops, "drop"), plural(n_rejects, "reject")
    return (
        f"{drops} and {rejects} of {records}. A drop is left out by a setting; a reject is broken, "
        "and is kept in the folder rejects."
    )


def _records(manifest: Mapping[str, Any], n_drops: int, n_rejects: int) -> str:
    is_sft, totals = manifest.get("kind") == "sft", manifest["totals"]
    things = "samples" if is_sft else "documents"
    chart = Chart(
        "losses-records",
        "What became of the records",
        f"Records that became {things}, drops and rejects, as one bar.",
        (things, "drops", "rejects"),
        key="records",
        tones=(1, 2, 6),
    )
    share = (n_drops + n_rejects) / (totals["documents"] + n_drops + n_rejects)
    row = Row("all records", (totals["documents"], n_drops, n_rejects), f"{share:.2%} left out")
    return stacks(chart, [row])


def _largest(reasons: Mapping[str, int]) -> list[tuple[str, int]]:
    """Return the reasons with most records, and the others as one."""
    ordered = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    if len(ordered) <= _MOST_REASONS + 1:
        return ordered
    others = ordered[_MOST_REASONS:]
    name = plural(len(others), "other reason")
    return [*ordered[:_MOST_REASONS], (name, sum(n for _, n in others))]


def _reasons(kind: str, reasons: Mapping[str, int]) -> str:
    chart = Chart(
        f"losses-{kind}",
        f"{kind.capitalize()} by reason",
        f"Number of {kind} for each reason, the most frequent first.",
        (kind,),
        key="reason",
        tones=(2 if kind == "drops" else 6,),
    )
    return bars(chart, [Row(reason, (n,), f"{n:,}") for reason, n in _largest(reasons)])


def reject_examples(directory: Path, manifest: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return rejects of the most frequent reasons, from the files that the manifest lists.

    Every reason has one before any has two.
    """
    names = [entry["name"] for entry in manifest["files"]]
    paths = [
        directory / name
        for name in names
        if name.startswith(f"{REJECTS}/") and DATASET_FILE.fullmatch(name)
    ]
    counts: Mapping[str, int] = manifest["totals"]["rejects"]
    wanted = sum(min(n, _EXAMPLES_OF_REASON) for n in counts.values())
    found: dict[str, list[Mapping[str, Any]]] = {}
    for entry in islice(read_rejects(paths), _MOST_READ):
        if isinstance(entry, dict):
            kept = found.setdefault(str(entry.get("reason", "")), [])
            if len(kept) < _EXAMPLES_OF_REASON:
                kept.append(entry)
        if sum(map(len, found.values())) >= wanted:
            break
    frequent = [
        found[reason] for reason in sorted(found, key=lambda one: (-counts.get(one, 0), one))
    ]
    n_shown = [0] * len(frequent)
    for n in range(1, _EXAMPLES_OF_REASON + 1):
        for i, kept in enumerate(frequent):
            if sum(n_shown) < _MOST_EXAMPLES and len(kept) >= n:
                n_shown[i] = n
    return [entry for kept, n in zip(frequent, n_shown, strict=True) for entry in kept[:n]]


def _example(entry: Mapping[str, Any]) -> str:
    place = f"{entry.get('source', '')}:{entry.get('line', '')}"
    raw = _raw(entry)
    cut = "…" if len(raw) > _RAW_CHARACTERS else ""
    return (
        f'<article class="reject"><header><h3>{label(str(entry.get("reason", "")), 120)}</h3>'
        f'<span class="place">{label(place, 160)}</span></header>'
        f'<p class="remark">{label(str(entry.get("message", "")), 300)}</p>'
        f'<pre dir="auto">{content(raw[:_RAW_CHARACTERS])}{cut}</pre></article>'
    )


def _raw(entry: Mapping[str, Any]) -> str:
    """Return the beginning of a record; bytes that are not UTF-8 are surrogates."""
    if "raw" in entry:
        return str(entry["raw"])
    try:
        data = base64.b64decode(str(entry.get("raw_base64", "")))
    except (binascii.Error, ValueError):
        return ""
    return data.decode("utf-8", "surrogateescape")
