"""The head of the page: the dataset in a sentence and in its most important numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokmill.page.engine_text import engine_line
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
        ("stored as", manifest["dtype"]),
    ]
    if tokens and totals["text_bytes"]:  # an import does not know its text
        rows.insert(3, ("text bytes per token", f"{totals['text_bytes'] / tokens:.2f}"))
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
        ("directory", str(directory)),
        ("tokenizer", named),
        ("engine", engine_line(manifest["engine"], totals.get("checks"))),
    ]
