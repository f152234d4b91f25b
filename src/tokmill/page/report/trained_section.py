"""Which tokens of SFT are trained, by source, and how full packed rows are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokmill.page.report.charts import Chart, Line, Row, bars
from tokmill.page.report.section import Section, facts, note
from tokmill.page.report.sources_section import grouped
from tokmill.page.summary import detail_rows
from tokmill.words.plural import plural
from tokmill.words.units import count

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def trained_section(directory: Path, manifest: Mapping[str, Any]) -> Section:
    """Return the section of an SFT dataset; `data` has the counts behind the shares."""
    totals, packs = manifest["totals"], manifest.get("packs", {})
    rows = [row for row in detail_rows(manifest, str(directory)) if row[0] in ("mask", "noticed")]
    html = note(
        f"{totals.get('trained_tokens', 0):,} of {totals['tokens']:,} tokens are targets of the "
        "loss; the others are context."
    )
    html += _shares(manifest) + (_packing(packs) if packs else "") + facts(rows)
    keys = ("capacity", "rows", "samples", "tokens", "fill")
    data = {
        "trained_tokens": totals.get("trained_tokens", 0),
        "tokens": totals["tokens"],
        "packs": {split: {key: pack.get(key) for key in keys} for split, pack in packs.items()},
    }
    return Section("trained", "Trained tokens", html, data)


def packing_section(directory: Path, manifest: Mapping[str, Any]) -> Section:
    """Return the section of a dataset for pretraining that is packed."""
    packs = manifest["packs"]
    rows = [row for row in detail_rows(manifest, str(directory)) if row[0].startswith("packs, ")]
    return Section("packing", "Packed rows", _packing(packs) + facts(rows), {"packs": packs})


def _shares(manifest: Mapping[str, Any]) -> str:
    totals = manifest["totals"]
    mean = totals.get("trained_tokens", 0) / max(1, totals["tokens"])
    chart = Chart(
        "trained-shares",
        "Trained share of the tokens by source",
        f"The share of each source's tokens that is trained; {mean:.1%} over all sources.",
        ("trained share",),
        written="{:.1%}".format,
    )
    rows = []
    for one in grouped(manifest["sources"])[0]:
        share = one["trained_tokens"] / max(1, one["tokens"])
        rows.append(Row(one["name"], (share,), f"{share:.1%} of {count(one['tokens'])}"))
    line = Line(mean, f"all sources {mean:.1%}", is_limit=False) if rows[1:] else None
    return bars(chart, rows, full=(1,), line=line)


def _packing(packs: Mapping[str, Any]) -> str:
    chart = Chart(
        "trained-packing",
        "Packed rows: share of tokens that are not padding",
        "For each split, how full its rows are.",
        ("fill",),
        key="split",
        written="{:.2%}".format,
    )
    rows = [
        Row(
            split,
            (pack["fill"],),
            f"{plural(pack['rows'], 'row')} of {pack['capacity']:,}, {pack['fill']:.2%} full",
        )
        for split, pack in packs.items()
    ]
    return bars(chart, rows, full=(1,))
