"""What a finished run says: the manifest as (label, text) rows, for the command line to print."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from tokmill.report.units import plural, seconds, size

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Rows = list[tuple[str, str]]

_MOST_SOURCES = 12
_KINDS = ("bin", "idx", "mask", "weight")


def summary_rows(manifest: Mapping[str, Any], directory: str) -> Rows:
    """Give the summary of a dataset, one row a fact; what it takes on disk is in the budgets."""
    totals, run = manifest["totals"], manifest["run"]
    is_sft = manifest.get("kind") == "sft"
    return [
        ("samples" if is_sft else "documents", _documents(totals)),
        ("tokens", _tokens(manifest)),
        *(_mask_rows(manifest) if is_sft else ()),
        ("bytes per token", _ratio(manifest)),
        ("drops", _by_reason(totals["drops"])),
        ("rejects", _by_reason(totals["rejects"], f"{directory}/rejects")),
        (
            "sample length" if is_sft else "document length",
            _lengths(manifest["length_histogram"], "samples" if is_sft else "documents"),
        ),
        ("tokenizer", _tokenizer(manifest["tokenizer"])),
        ("engine", describe_engine(manifest["engine"])),
        ("files", _files(manifest)),
        ("time", _time(run)),
        ("peak memory", size(run["peak_memory_bytes"]) if run["peak_memory_bytes"] else "unknown"),
    ]


def _documents(totals: Mapping[str, Any]) -> str:
    text = f"{totals['documents']:,} of {totals['records']:,} records"
    if totals.get("extra"):
        drops = ", drops included" if totals["drops"] else ""
        text += f" ({totals['extra']:,} more than one each{drops})"
    return text


def _mask_rows(manifest: Mapping[str, Any]) -> Rows:
    """Say of an SFT dataset what is trained, what was noticed, how it is packed."""
    mask, totals = manifest["mask"], manifest["totals"]
    trained = totals.get("trained_tokens", 0)
    share = trained / totals["tokens"] if totals["tokens"] else 0
    counters = totals.get("counters", {})
    rows = [
        ("trained tokens", f"{trained:,} ({share:.1%})"),
        ("by source", _shares(manifest["sources"])),
        ("mask", f"preset {mask['preset']}, boundary {mask['boundary']}, {mask['template']}"),
        ("noticed", ", ".join(f"{n:,} {name}" for name, n in counters.items() if n) or "nothing"),
    ]
    packs = manifest.get("packs", {})
    rows += [(f"packs, {split}", _pack(pack)) for split, pack in packs.items()]
    return rows if len(manifest["sources"]) > 1 else [row for row in rows if row[0] != "by source"]


def _pack(pack: Mapping[str, Any]) -> str:
    return (
        f"{pack['samples']:,} samples in {pack['rows']:,} rows of {pack['capacity']:,} tokens, "
        f"{pack['fill']:.2%} full; {pack['bytes_per_sample']} bytes of memory a sample"
    )


def _shares(sources: Sequence[Mapping[str, Any]]) -> str:
    """Give the trained share of the first sources, one a line."""
    lines = [
        f"{source['path']}: {source.get('trained_tokens', 0) / max(1, source['tokens']):.1%}"
        for source in sources[:_MOST_SOURCES]
    ]
    return "\n".join(lines + ["…"] * (len(sources) > _MOST_SOURCES))


def describe_engine(engine: Mapping[str, Any]) -> str:
    """Say which engine encoded, how it was checked, and why the others did not."""
    text = f"{engine['name']} {engine['version'].split()[-1]} ({engine['reason']}"
    speeds = engine["mb_per_s"]
    if speeds:
        text += ": " + ", ".join(f"{name} {speed:.0f} MB/s" for name, speed in speeds.items())
    if engine["n_checked"]:
        text += f"; ids equal to the reference's on {engine['n_checked']:,} texts"
    text += ")"
    for name, reason in engine["refused"].items():
        text += f"\n{name} not used: {reason}"
    return text


def _tokens(manifest: Mapping[str, Any]) -> str:
    by_split: dict[str, int] = {}
    for shard in manifest["shards"]:
        by_split[shard["split"]] = by_split.get(shard["split"], 0) + shard["tokens"]
    ends = "" if manifest.get("kind") == "sft" else ", eos included,"
    text = f"{manifest['totals']['tokens']:,}{ends} as {manifest['dtype']}"
    if "val" in by_split:
        text += f" (train {by_split.get('train', 0):,}, val {by_split['val']:,})"
    return text


def _ratio(manifest: Mapping[str, Any]) -> str:
    totals = manifest["totals"]
    if not totals["tokens"]:
        return "no tokens"
    return f"{totals['text_bytes'] / totals['tokens']:.2f} bytes of text"


def _by_reason(reasons: Mapping[str, int], where: str = "") -> str:
    if not reasons:
        return "none"
    listed = ", ".join(f"{n:,} {reason}" for reason, n in sorted(reasons.items()))
    return f"{sum(reasons.values()):,}: {listed}" + (f" (see {where})" if where else "")


def _lengths(histogram: list[int], what: str) -> str:
    total = sum(histogram)
    if not total:
        return f"no {what}"
    texts = []
    for name, fraction in (("median", 0.5), ("99 %", 0.99), ("longest", 1.0)):
        running = itertools.accumulate(histogram)
        reached = next(i for i, seen in enumerate(running) if seen >= fraction * total)
        texts.append(f"{name} below {2 << reached:,}")
    return ", ".join(texts) + " tokens"


def _tokenizer(tokenizer: Mapping[str, Any]) -> str:
    eos = tokenizer["eos"]
    text = f"{tokenizer['name']}, {tokenizer['vocab_size']:,} ids, eos {eos['token']} = {eos['id']}"
    if tokenizer["bos"] is not None:
        text += f", bos {tokenizer['bos']['token']} = {tokenizer['bos']['id']}"
    return text


def _files(manifest: Mapping[str, Any]) -> str:
    kinds: dict[str, int] = {}
    for entry in manifest["files"]:
        kind = "rejects" if entry["name"].startswith("rejects/") else entry["name"].split(".")[-1]
        kinds[kind] = kinds.get(kind, 0) + 1
    listed = [f"{n} .{kind}" for kind, n in sorted(kinds.items()) if kind in _KINDS]
    return ", ".join([*listed, "manifest.json", "plan.json"])


def _time(run: Mapping[str, Any]) -> str:
    text = f"{seconds(run['wall_s'])}, {size(run['text_bytes_per_s'])} of text per second"
    if run["resumed_parts"]:
        text += f" (already there: {plural(run['resumed_parts'], 'part')})"
    return text
