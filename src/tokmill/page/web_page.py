"""A web page in one file: style, script and content policy, and where the file may stand."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tokmill.dataset.reader import surrounding_dataset
from tokmill.errors import UsageError
from tokmill.opening import begins_with
from tokmill.page.markup import label
from tokmill.storage import storage_errors, write_file

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokmill.page.markup import Section


_BEGINNING = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="generator" content="tokmill">"""
"""Of every page: a file that begins otherwise is of others, and never replaced."""


def web_page(title: str, header: str, sections: Sequence[Section]) -> str:
    """Return a page as HTML: it loads nothing, and no script runs but its own.

    `header`: HTML above the sections, which the menu calls Overview.
    """
    style, script = _beside("page.css"), _beside("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
        "base-uri 'none'; form-action 'none'"
    )
    named = [("overview", "Overview"), *((part.id, part.title) for part in sections)]
    menu = "".join(f'<li><a href="#{id_}">{label(name)}</a></li>' for id_, name in named)
    bodies = "".join(
        f'<section id="{part.id}" aria-labelledby="{part.id}-heading">'
        f'<h2 id="{part.id}-heading">{label(part.title)}</h2>{part.html}</section>\n'
        for part in sections
    )
    return f"""{_BEGINNING}
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>{label(title, 120)}</title>
<style>{style}</style>
</head>
<body>
<a class="skip" href="#content">Skip to the content</a>
<nav aria-label="Contents"><ul>{menu}</ul>
<button id="theme" type="button" aria-pressed="false" hidden>Dark</button></nav>
<main id="content" tabindex="-1">
<header id="overview">{header}</header>
{bodies}<footer>Made by tokmill. This page loads nothing, and works without a network.</footer>
</main>
<script>{script}</script>
</body>
</html>
"""


@cache
def _beside(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def check_page(path: Path, option: str) -> None:
    """Check that a page may be written: not into a dataset, or over what is no page of tokmill.

    `option` names the path in messages. Raises `UsageError`.
    """
    if path.exists() and not path.is_file():
        raise UsageError(f"{path}: not a file: {option} wants the name of a file to write")
    if dataset := surrounding_dataset(path):
        raise UsageError(f"{path}: is inside the dataset {dataset}: name a file beside it")
    is_empty = not path.exists() or not path.stat().st_size
    if not is_empty and not begins_with(path.resolve(), _BEGINNING.encode()):
        raise UsageError(
            f"{path}: is there, and no page of tokmill: name another file for {option}"
        )


def write_page(path: Path, page: str) -> int:
    """Write a page atomically, and return its bytes.

    Raises:
        StorageError: it cannot be written.
    """
    data = page.encode()
    target = path.resolve()
    write_file(target.parent, target.name, data, replace=True)
    with storage_errors(path):
        target.chmod(0o644)  # no file of a dataset: its owner may change it
    return len(data)
