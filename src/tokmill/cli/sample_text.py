"""Samples as text for the terminal: in colour, or with marks instead."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from tokmill.page.samples import cut_mark, shown_runs
from tokmill.tokenizer.decode import escaped
from tokmill.words.printable import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokmill.page.samples import Sample, ShownRun

_TRAINED = ("«»", "⟦⟧", "⟪⟫")
_CONTROL = ("‹›", "⟨⟩", "⦅⦆")
_SEPARATORS = ("·", "|", "¦", "╎")
"""Choices of marks: the first that do not occur in the text are used."""

_EDGES = str.maketrans({"\n": "⏎\n", "\t": "⇥\t", "\r": "␍"})
_UNSHOWN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\U000e0001-\U000e007f]"
    r"|\r(?!\n)"
)
"""Characters that control a terminal, reverse text, or are invisible."""

_STYLES: dict[tuple[bool, bool], dict[str, Any]] = {
    (False, False): {},
    (False, True): {"fg": "magenta", "bold": True},
    (True, False): {"fg": 16, "bg": 151},
    (True, True): {"fg": 16, "bg": 222},
}
"""By (trained, control). Black on pale green and on pale orange, from the 256 fixed colours: themes
do not change them, so they are readable on any background."""

_SEPARATOR_STYLES: dict[bool, dict[str, Any]] = {False: {"fg": 167}, True: {"fg": 124, "bg": 151}}
"""By whether the separator is between trained tokens."""


@dataclass(frozen=True, slots=True)
class Look:
    """How samples are shown: in colours or with marks, with or without separators between tokens.

    `max_chars`: most characters of text; 0: all.
    """

    in_colour: bool
    by_token: bool
    max_chars: int


@dataclass(frozen=True, slots=True)
class TextMarks:
    """Marks before and after trained text and control tokens: two characters, or none.

    `separator`: between tokens, or ''.
    """

    trained: str
    control: str
    separator: str


def legend(look: Look) -> str:
    """Return the legend of SFT samples, one line."""
    return _legend(look, _marks("", look))


def sample_text(sample: Sample, look: Look) -> str:
    """Return the text of a sample; after a legend of its own if it needs other marks."""
    marks = _marks(escaped("".join(run.text for run in sample.runs)), look)
    if sample.mask is None:
        marks = TextMarks("", "", marks.separator)
    shown, n_cut = shown_runs(sample.runs, look.max_chars)
    text = _joined(shown, look, marks) + cut_mark(n_cut)
    if sample.mask is not None and marks != _marks("", look):
        text = f"here: {_legend(look, marks)}\n{text}"
    return text


def _legend(look: Look, marks: TextMarks) -> str:
    """Return what each mark or colour means, one line."""
    words = [
        _around(_kind("trained", look, marks, is_trained=True), marks.trained),
        "untrained",
        _kind("control", look, marks, is_control=True),
        _around(
            _kind("trained control", look, marks, is_trained=True, is_control=True), marks.trained
        ),
        "⏎ newline at a trained edge",
        r"\x.. byte of a split character",
        *([f"{marks.separator} between tokens"] if look.by_token else ()),
    ]
    return "  ".join(words)


def _marks(text: str, look: Look) -> TextMarks:
    """Return marks that do not occur in a text."""

    def first_free(choices: Sequence[str]) -> str:
        return next((c for c in choices if not set(c).intersection(text)), choices[0])

    separator = first_free(_SEPARATORS) if look.by_token else ""
    if look.in_colour:
        return TextMarks("", "", separator)
    return TextMarks(first_free(_TRAINED), first_free(_CONTROL), separator)


def _joined(shown: Sequence[ShownRun], look: Look, marks: TextMarks) -> str:
    """Return stretches of a sample as one text, with marks where trained text begins and ends."""
    out: list[str] = []
    is_open = False
    for stretch in shown:
        if out:
            out.append(_separator(look, marks, is_trained=is_open))
        if stretch.opens:
            out.append(marks.trained[:1])
        separator = _separator(look, marks, is_trained=stretch.run.is_trained)
        out.append(separator.join(_texts(stretch, look, marks)))
        is_open = stretch.run.is_trained and not stretch.closes
        if stretch.closes:
            weight = stretch.run.weight
            out.append(marks.trained[1:] + ("" if weight == 1 else f"×{weight:g}"))
    return "".join(out) + (marks.trained[1:] if is_open else "")


def _texts(stretch: ShownRun, look: Look, marks: TextMarks) -> list[str]:
    run, texts = stretch.run, []
    for parts in stretch.parts():
        plain = [text.translate(_EDGES) if is_edge else text for text, is_edge in parts]
        text = _UNSHOWN.sub(_code, escaped("".join(plain)))
        texts.append(_kind(text, look, marks, is_trained=run.is_trained, is_control=run.is_control))
    return texts


def _kind(
    text: str, look: Look, marks: TextMarks, *, is_trained: bool = False, is_control: bool = False
) -> str:
    """Return a text in the style of its kind, without the marks of trained text.

    Each line is styled separately: a colour that crosses a line end would fill the next line.
    """
    style = _STYLES[is_trained, is_control]
    if look.in_colour and style:
        return "\n".join(click.style(line, **style) if line else "" for line in text.split("\n"))
    return _around(text, marks.control) if is_control else text


def _separator(look: Look, marks: TextMarks, *, is_trained: bool) -> str:
    if not look.in_colour or not marks.separator:
        return marks.separator
    return click.style(marks.separator, **_SEPARATOR_STYLES[is_trained])


def _around(text: str, marks: str) -> str:
    return marks[:1] + text + marks[1:]


def _code(found: re.Match[str]) -> str:
    """Return an invisible character as its number."""
    return "␍" if found[0] == "\r" else printable(found[0])
