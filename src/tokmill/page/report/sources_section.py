"""Tokens, documents and bytes per token by source: the largest sources, and the others as one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokmill.page.markup import shortened
from tokmill.page.report.charts import Chart, Line, Row, bars
from tokmill.page.report.section import Cell, Section, note, table
from tokmill.words.plural import plural
from tokmill.words.units import count

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MOST_SOURCES = 20
_SUMMED = ("records", "documents", "tokens", "text_bytes", "trained_tokens")


def sources_section(manifest: Mapping[str, Any]) -> Section:
    """Return the section; `data` has the counts of the sources that it shows."""
    things = "samples" if manifest.get("kind") == "sft" else "documents"
    rows, folder = grouped(manifest["sources"])
    totals = manifest["totals"]
    lead = plural(len(manifest["sources"]), "source")
    lead += f" in {shortened(folder, 100)}" if folder else ""
    if len(manifest["sources"]) > MOST_SOURCES + 1:
        lead += f"; the {MOST_SOURCES} with most tokens are shown, the others as one"
    html = note(f"{lead}.") + _amounts(rows, totals, things) + _densities(rows, totals)
    if len(rows) == 1:  # a chart of one bar says nothing
        html = note(f"All {things} come from {shortened(folder + rows[0]['name'], 200)}.")
    html += _shares(manifest.get("mix", {}).get("sources", ()))
    return Section("sources", "Sources", html, {"sources": rows, "folder": folder})


def _shares(sources: Sequence[Mapping[str, Any]]) -> str:
    """Return what each source gave to train of a mix; '' for no mix."""
    rows = (
        (
            source["name"],
            *(Cell(f"{source[key]:,}", source[key]) for key in ("wanted", "tokens", "documents")),
            Cell(f"{source['epochs']:.4g}", source["epochs"]),
        )
        for source in sources
    )
    head = ("source", "wanted tokens", "tokens", "documents", "epochs")
    return table(head, rows, "What each source of the mix gave to train") if sources else ""


def grouped(sources: Sequence[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], str]:
    """Return the counts of sources, those with most tokens first, and their common folder.

    Names are without that folder. Sources after the first `MOST_SOURCES` are summed up in one row.
    """
    folder = _common_folder([source["path"] for source in sources])
    ordered = sorted(sources, key=lambda source: (-source["tokens"], source["path"]))
    shown = ordered if len(ordered) <= MOST_SOURCES + 1 else ordered[:MOST_SOURCES]
    rows = [_counts(shortened(one["path"][len(folder) :], 120), [one]) for one in shown]
    if len(shown) < len(ordered):
        others = ordered[len(shown) :]
        rows.append(_counts(plural(len(others), "other source"), others))
    return rows, folder


def _common_folder(paths: Sequence[str]) -> str:
    """Return the folder of all paths with its slash; '' if they have none."""
    first, last = min(paths, default=""), max(paths, default="")
    n_same = next((i for i, c in enumerate(first) if last[i] != c), len(first))
    return first[: first.rfind("/", 0, n_same) + 1]


def _counts(name: str, sources: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {"name": name, **{key: sum(one.get(key, 0) for one in sources) for key in _SUMMED}}


def _amounts(rows: Sequence[Mapping[str, Any]], totals: Mapping[str, Any], things: str) -> str:
    n_tokens, n_documents = totals["tokens"] or 1, totals["documents"] or 1
    largest = max(
        (max(row["tokens"] / n_tokens, row["documents"] / n_documents) for row in rows), default=1
    )
    chart = Chart(
        "sources-amounts",
        f"Tokens and {things} by source",
        f"For each source, its share of all tokens and below it its share of all {things}.",
        ("tokens", things),
    )
    drawn = [
        Row(
            row["name"],
            (row["tokens"], row["documents"]),
            f"{count(row['tokens'])} tokens, {row['tokens'] / n_tokens:.1%}",
        )
        for row in rows
    ]
    return bars(chart, drawn, full=(largest * n_tokens, largest * n_documents))


def _densities(rows: Sequence[Mapping[str, Any]], totals: Mapping[str, Any]) -> str:
    if not totals["tokens"] or not totals["text_bytes"]:  # an import does not know its text
        return ""
    mean = totals["text_bytes"] / totals["tokens"]
    chart = Chart(
        "sources-density",
        "Text bytes per token by source",
        f"Bytes of UTF-8 text for each token; {mean:.2f} over all sources.",
        ("text bytes per token",),
        written="{:.2f}".format,
    )
    found = [(row["name"], row["text_bytes"] / row["tokens"]) for row in rows if row["tokens"]]
    drawn = [Row(name, (density,), f"{density:.2f}") for name, density in found]
    line = Line(mean, f"all sources {mean:.2f}", is_limit=False) if drawn[1:] else None
    return bars(chart, drawn, line=line)
