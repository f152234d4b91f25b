"""The head of the page: the dataset in a sentence and in its most important numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.dataset.counts import CHECKED
from tokmill.engines.engine import REFERENCE
from tokmill.page.markup import label
from tokmill.page.report.section import Section, facts
from tokmill.words.plural import plural
from tokmill.words.units import count, size

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tokmill.bill.full_bill import FullBill
    from tokmill.page.summary import Rows


def head_section(directory: Path, manifest: Mapping[str, Any], bill: FullBill) -> Section:
    """Return the head; `data` has the totals of the manifest."""
    totals, is_sft = manifest["totals"], manifest.get("kind") == "sft"
    n_bytes = bill.disk.bill.n_bytes if bill.disk else 0
    things = "sample" if is_sft else "document"
    n_sources = plural(len(manifest["sources"]), "source")
    lead = (
        f"{count(totals['tokens'])} tokens in {plural(totals['documents'], things)} of {n_sources}"
    )
    data = {
        "documents": totals["documents"],
        "tokens": totals["tokens"],
        "records": totals["records"],
        "text_bytes": totals["text_bytes"],
        "trained_tokens": totals.get("trained_tokens", 0) if is_sft else totals["tokens"],
        "disk_bytes": n_bytes,
        "sha256": manifest["sha256"],
    }
    kind = "Fine-tuning dataset" if is_sft else "Pretraining dataset"
    html = (
        f'<p class="kind">{kind}</p><h1>{label(directory.resolve().name, 120)}</h1>'
        f'<p class="lead">{label(lead)}</p>'
        f"{facts(_numbers(manifest, n_bytes), 'numbers')}{facts(_programs(directory, manifest))}"
    )
    return Section("overview", "Overview", html, data)


def _numbers(manifest: Mapping[str, Any], n_bytes: int) -> Rows:
    totals = manifest["totals"]
    tokens = totals["tokens"]
    rows = [
        ("tokens", f"{tokens:,}"),
        ("samples" if manifest.get("kind") == "sft" else "documents", f"{totals['documents']:,}"),
        ("size on disk", size(n_bytes)),
    ]
    if tokens and totals["text_bytes"]:  # an import does not know its text
        rows.append(("text bytes per token", f"{totals['text_bytes'] / tokens:.2f}"))
    n_lost = sum(sum(totals[kind].values()) for kind in ("drops", "rejects"))
    if n_lost:
        share = n_lost / (totals["documents"] + n_lost)
        rows.append(("left out", f"{share:.2%}"))
    if manifest.get("kind") == "sft":
        share = totals.get("trained_tokens", 0) / max(1, tokens)
        rows.insert(2, ("trained tokens", f"{share:.1%}"))
    return rows


def _programs(directory: Path, manifest: Mapping[str, Any]) -> Rows:
    tokenizer, totals = manifest["tokenizer"], manifest["totals"]
    eos = tokenizer["eos"]
    named = (
        f"{tokenizer['name']}, {tokenizer['vocab_size']:,} ids, eos {eos['token']} = {eos['id']}"
    )
    return [
        ("directory", str(directory.resolve())),
        ("stored as", f"{manifest['dtype']}, {np.dtype(manifest['dtype']).itemsize} bytes a token"),
        *_splits(manifest),
        ("tokenizer", named),
        ("engine", _engine(manifest["engine"], totals.get("checks", {}))),
    ]


def _splits(manifest: Mapping[str, Any]) -> Rows:
    """Return the tokens of each split, if there are several."""
    tokens: dict[str, int] = {}
    for shard in manifest["shards"]:
        tokens[shard["split"]] = tokens.get(shard["split"], 0) + shard["tokens"]
    text = ", ".join(f"{split} {n:,} tokens" for split, n in tokens.items())
    return [("splits", text)] if len(tokens) > 1 else []


def _engine(engine: Mapping[str, Any], checks: Mapping[str, int]) -> str:
    """Return the engine, and whether its ids were compared; the section on the run says more."""
    name = f"{engine['name']} {engine['version']}"
    if engine["n_checked"] or engine.get("scan") or checks.get(CHECKED):
        return f"{name}; its ids are those of the reference tokenizer (see Check of the ids)"
    return f"{engine['version']}, the reference" if engine["name"] == REFERENCE else name
