"""Samples as a notebook shows them: every token with its border, its id, and whether it is trained.

The HTML has its style in itself, and no script: notebooks remove both from what they do not trust.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokmill.inspect.samples import cut_mark
from tokmill.page.markup import content, label
from tokmill.tokenizer.decode import escaped
from tokmill.words import printable_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokmill.inspect.samples import Sample
    from tokmill.tokenizer.decode import TokenRun

# Half transparent, so that text is read on light and dark pages.
_TRAINED = ("rgba(46,160,67,.38)", "rgba(46,160,67,.22)")
_OTHER = ("rgba(128,128,128,.26)", "rgba(128,128,128,.12)")
_CONTROL = "outline:1px solid rgba(128,128,128,.9);border-radius:2px;"
_TEXT = (
    "white-space:pre-wrap;overflow-wrap:anywhere;font-family:monospace;line-height:1.7;"
    "margin:.2em 0 1em 0"
)


def samples_html(samples: Sequence[Sample]) -> str:
    """Return samples, read by token, as HTML for a notebook."""
    return "".join(map(_sample_html, samples))


def _sample_html(sample: Sample) -> str:
    """Return a sample: its number and counts, then its tokens in alternating colours."""
    spans: list[str] = []
    for run in sample.runs:
        spans += _tokens_html(run, len(spans), has_mask=sample.mask is not None)
    about = ", ".join(sample.facts())
    cut = cut_mark(0, sample.n_unread)
    return (
        f"<div><b>{sample.kind} {sample.number:,}</b> <small>{label(about)}</small>"
        f'<div dir="auto" style="{_TEXT}">{"".join(spans)}</div>'
        f"{f'<small>{label(cut)}</small>' if cut else ''}</div>"
    )


def _tokens_html(run: TokenRun, first: int, *, has_mask: bool) -> list[str]:
    """Return the tokens of a run, of which the first is number `first` of its sample.

    `has_mask`: only some tokens are trained, so it is said of which.
    """
    colours, state = _OTHER, ", not trained" if has_mask else ""
    if has_mask and run.is_trained:
        colours = _TRAINED
        state = ", trained" if run.weight == 1 else f", trained, weight {run.weight:g}"
    control = _CONTROL if run.is_control else ""
    return [
        f'<span title="id {id_}{state}" style="background:{colours[number % 2]};{control}">'
        f"{content(text)}</span>"
        for number, (id_, text) in enumerate(zip(run.ids, run.texts, strict=False), start=first)
    ]


def samples_text(samples: Sequence[Sample]) -> str:
    """Return samples as text, for `print` and a terminal; what is trained stands between marks."""
    return "\n\n".join(map(_sample_text, samples))


def _sample_text(sample: Sample) -> str:
    parts: list[str] = []
    for run in sample.runs:
        is_marked = run.is_trained and sample.mask is not None
        parts.append(f"⟦{run.text}⟧" if is_marked else run.text)
    head = f"{sample.kind} {sample.number:,}: {', '.join(sample.facts())}"
    text = printable_lines(escaped("".join(parts).replace("⟧⟦", "")))
    return "\n".join(filter(None, (head, text, cut_mark(0, sample.n_unread))))
