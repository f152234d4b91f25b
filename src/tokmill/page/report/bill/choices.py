"""Controls that choose a case: lists to select from, and rows of buttons. The script shows them."""

from __future__ import annotations

from collections.abc import Iterable

from tokmill.page.markup import label

NAME = 60
"""Columns of an entry; the middle of a longer one is left out."""


def choices(name: str, controls: Iterable[str]) -> str:
    """Return a group of controls, hidden until the script runs; `name` is for screen readers."""
    return (
        f'<div class="choices" role="group" aria-label="{label(name)}" hidden>'
        f"{''.join(controls)}</div>"
    )


def selection(key: str, title: str, entries: Iterable[str], chosen: int) -> str:
    """Return a list to select from; the value of an entry is its place."""
    options = "".join(
        f'<option value="{i}"{" selected" if i == chosen else ""}>{label(entry, NAME)}</option>'
        for i, entry in enumerate(entries)
    )
    return (
        f'<div class="choice"><label for="bill-{key}">{label(title)}</label>'
        f'<select id="bill-{key}" data-key="{key}" autocomplete="off">{options}</select></div>'
    )


def segments(key: str, title: str, entries: Iterable[str], chosen: int) -> str:
    """Return a row of buttons of which one is pressed; the value of a button is its place."""
    buttons = "".join(
        f'<label><input type="radio" name="bill-{key}" data-key="{key}" value="{i}" '
        f'autocomplete="off"{" checked" if i == chosen else ""}><span>{label(entry, NAME)}</span>'
        "</label>"
        for i, entry in enumerate(entries)
    )
    return (
        f'<fieldset class="choice"><legend>{label(title)}</legend>'
        f'<div class="segments">{buttons}</div></fieldset>'
    )
