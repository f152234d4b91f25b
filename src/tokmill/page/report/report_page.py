"""The report of a dataset as a self-contained web page."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import TYPE_CHECKING, Any

from tokmill.page.markup import label
from tokmill.page.report.bill_section import bill_section
from tokmill.page.report.head import head_section
from tokmill.page.report.ids_section import ids_section
from tokmill.page.report.lengths_section import lengths_section
from tokmill.page.report.losses_section import losses_section
from tokmill.page.report.page_script import PAGE_SCRIPT
from tokmill.page.report.report_style import report_style
from tokmill.page.report.run_section import run_section
from tokmill.page.report.sources_section import sources_section
from tokmill.page.report.texts_section import texts_section
from tokmill.page.report.trained_section import packing_section, trained_section

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from tokmill.bill.full_bill import FullBill
    from tokmill.page.report.section import Section


def report_page(
    directory: Path,
    manifest: Mapping[str, Any],
    bill: FullBill,
    numbers: Sequence[int],
    *,
    tokenizer: str = "",
) -> str:
    """Return the page of a finished dataset and its bill as HTML, below 2 MB.

    `numbers`: of the documents whose text it shows.
    `tokenizer`: where the tokenizer is, if it has moved; without it the page has no texts, and
    says so.

    Raises:
        TokmillError: a file of the dataset is damaged.
    """
    texts = texts_section(directory, manifest, tokenizer, numbers)
    ids = ids_section(directory, manifest, tokenizer)
    return assembled(directory.resolve().name, _sections(directory, manifest, bill, ids, texts))


def _sections(
    directory: Path, manifest: Mapping[str, Any], bill: FullBill, ids: Section, texts: Section
) -> Iterable[Section]:
    yield head_section(directory, manifest, bill)
    yield sources_section(manifest)
    yield lengths_section(directory, manifest)
    yield ids
    yield losses_section(directory, manifest)
    if manifest.get("kind") == "sft":
        yield trained_section(directory, manifest)
    elif manifest.get("packs"):
        yield packing_section(directory, manifest)
    yield texts
    yield bill_section(directory, bill)
    yield run_section(manifest)


def assembled(title: str, sections: Iterable[Section]) -> str:
    """Return the page of some sections: the first is the head."""
    head, *others = sections
    parts = (head, *others)
    menu = "".join(
        f'<li><a href="#{part.id}">{label(part.menu or part.title)}</a></li>' for part in parts
    )
    bodies = "".join(
        f'<section id="{part.id}" aria-labelledby="{part.id}-heading">'
        f'<h2 id="{part.id}-heading">{label(part.title)}</h2>{part.html}</section>'
        for part in others
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_policy()}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>{label(title, 120)}: report</title>
<style>{report_style()}</style>
</head>
<body>
<a class="skip" href="#content">Skip to the content</a>
<nav aria-label="Contents"><ul>{menu}</ul>
<button id="theme" type="button" aria-pressed="false" hidden>Dark</button></nav>
<main id="content" tabindex="-1">
<header id="{head.id}">{head.html}</header>
{bodies}
<footer>Made by tokmill. This page loads no other file, and works without a network.</footer>
</main>
<script type="application/json" id="data">{_data(parts)}</script>
<script>{PAGE_SCRIPT}</script>
</body>
</html>
"""


def _policy() -> str:
    """Return the content policy: nothing is loaded, and no script runs but ours."""
    digest = base64.b64encode(hashlib.sha256(PAGE_SCRIPT.encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _data(sections: Sequence[Section]) -> str:
    """Return the numbers of all sections as JSON that ends no script element."""
    text = json.dumps({part.id: part.data for part in sections if part.data}, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
