"""Samples as a self-contained web page: no script, no network."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from tokmill.page.markup import content, plain
from tokmill.page.page_style import STYLE
from tokmill.page.samples import cut_mark, shown_runs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tokmill.page.samples import Sample, ShownRun

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""Content policy: nothing is loaded and no script runs, whatever a sample holds."""


def sample_page(
    title: str,
    manifest: Mapping[str, Any],
    samples: Sequence[Sample],
    *,
    heading: str = "",
    max_chars: int = 0,
    show_ids: bool = False,
) -> str:
    """Return the page of some samples of a dataset as HTML.

    `heading`: above them; '' for a default. `max_chars`: most characters shown of a sample; 0: all.
    `show_ids`: whether to add the ids, in a closed section.
    """
    is_sft = manifest.get("kind") == "sft"
    kind = "samples" if is_sft else "documents"
    cards = "\n".join(sample_card(sample, max_chars, show_ids) for sample in samples)
    facts = "".join(
        f"<div><dt>{escape(label)}</dt><dd>{plain(text)}</dd></div>"
        for label, text in page_facts(manifest)
    )
    heading = heading or f"{len(samples):,} of {manifest['totals']['documents']:,} {kind}"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{plain(title)}: {kind}</title>
<style>{STYLE}</style>
</head>
<body>
<header class="page">
<h1>{plain(title)}</h1>
<dl>{facts}</dl>
</header>
<main>
<div class="bar"><h2>{escape(heading)}</h2>{legend(is_sft=is_sft)}</div>
<div class="cards">
{cards or f'<p class="note">no {kind}</p>'}
</div>
</main>
</body>
</html>
"""


def page_facts(manifest: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the facts about the dataset at the top of the page, as (label, text)."""
    totals, tokenizer = manifest["totals"], manifest["tokenizer"]
    is_sft = manifest.get("kind") == "sft"
    facts = [
        ("samples" if is_sft else "documents", f"{totals['documents']:,}"),
        ("tokens", f"{totals['tokens']:,} as {manifest['dtype']}"),
    ]
    if is_sft:
        mask, trained = manifest["mask"], totals.get("trained_tokens", 0)
        share = trained / totals["tokens"] if totals["tokens"] else 0
        facts += [
            ("trained tokens", f"{trained:,} ({share:.1%})"),
            ("preset", str(mask.get("preset", ""))),
            ("boundary", str(mask.get("boundary", ""))),
            ("template", str(mask.get("template", ""))),
            ("trained parts", ", ".join(mask.get("trained", ()))),
            ("turns", str(mask.get("turns", ""))),
        ]
    facts += [(f"rows, {split}", _rows(p)) for split, p in manifest.get("packs", {}).items()]
    facts.append(("tokenizer", f"{tokenizer['name']}, {tokenizer['vocab_size']:,} ids"))
    return [fact for fact in facts if fact[1]]


def _rows(pack: Mapping[str, Any]) -> str:
    return f"{pack['rows']:,} of {pack['capacity']:,} tokens, {pack['fill']:.1%} full"


def legend(*, is_sft: bool) -> str:
    """Return the list of what the colours of samples mean, as HTML."""
    words = ["<span>text</span>", '<bdi class="c">control token</bdi>']
    if is_sft:
        words = [
            '<mark class="t">trained text</mark>',
            "<span>untrained text</span>",
            '<mark class="t"><bdi class="c">trained control token</bdi></mark>',
            '<bdi class="c">control token</bdi>',
            '<span class="nl"></span> <small>newline at a trained edge</small>',
            '<span class="x">\\xe7</span> <small>byte of a split character</small>',
        ]
    return f'<ul class="legend">{"".join(f"<li>{word}</li>" for word in words)}</ul>'


def sample_card(
    sample: Sample,
    max_chars: int,
    show_ids: bool,
    more: str = "<code>--max-chars 0</code> shows all",
) -> str:
    """Return a sample as HTML: its place, its counts, its mask as a strip, and its text.

    `more`: HTML that says how to see all of a text that is cut.
    """
    shown, n_cut = shown_runs(sample.runs, max_chars)
    text = "".join(_stretch(stretch) for stretch in shown)
    facts = "".join(f"<li>{plain(fact)}</li>" for fact in sample.facts())
    parts = [
        f'<article id="{sample.kind}-{sample.number}">',
        f"<header><h3>{sample.kind} {sample.number:,}</h3>",
        f'<ul class="facts">{facts}</ul></header>',
        "" if sample.mask is None else _strip(sample),
        f'<div class="text" dir="auto">{text}</div>',
    ]
    if mark := cut_mark(n_cut, sample.n_unread):
        parts.append(f'<p class="note">{mark}{"; " * bool(more)}{more}</p>')
    if show_ids:
        ids = " ".join(map(str, sample.ids))
        parts.append(f"<details><summary>ids</summary><code>{ids}</code></details>")
    return "\n".join(part for part in [*parts, "</article>"] if part)


def _strip(sample: Sample) -> str:
    """Return the mask of a sample as a strip of boxes, each as wide as its span of tokens."""
    spans: list[tuple[bool, int]] = []
    for run in sample.runs:
        if spans and spans[-1][0] == run.is_trained:
            spans[-1] = (run.is_trained, spans[-1][1] + len(run.ids))
        else:
            spans.append((run.is_trained, len(run.ids)))
    boxes = "".join(
        f'<i class="{"on" if is_trained else "off"}" style="flex-grow:{n}"></i>'
        for is_trained, n in spans
    )
    return f'<div class="strip" aria-hidden="true">{boxes}</div>'


def _stretch(stretch: ShownRun) -> str:
    """Return a run as HTML; without the tags it is the text of the run."""
    run = stretch.run
    texts = [
        "".join(content(text, is_edge=is_edge) for text, is_edge in parts)
        for parts in stretch.parts()
    ]
    if len(texts) > 1 and not run.is_control:
        texts = [
            f'<span class="k" title="{id_}">{text}</span>'
            for id_, text in zip(run.ids, texts, strict=False)
        ]
    if run.is_control:
        texts = [f'<bdi class="c" dir="ltr">{text}</bdi>' for text in texts]
    if not run.is_trained:
        return "".join(texts)
    is_whole = run.weight == 1 or not stretch.closes
    weight = "" if is_whole else f' data-weight="×{run.weight:g}"'
    return f'<mark class="t"{weight}>{"".join(texts)}</mark>'
