"""Samples on web pages: cards with their text and mask, of `tokmill inspect` and of the report."""

from __future__ import annotations

import shlex
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

from tokmill.errors import TokmillError
from tokmill.inspect.samples import SampleReader, cut_mark, shown_runs
from tokmill.inspect.summary import detail_rows, things_of
from tokmill.page.markup import Section, content, details, facts, label, note
from tokmill.page.web_page import web_page
from tokmill.tokenizer.kept import tokenizer_of
from tokmill.urls import shown_place
from tokmill.words import plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from tokmill.dataset.manifest import Manifest
    from tokmill.inspect.samples import Sample, ShownRun
    from tokmill.tokenizer.decode import TokenRun

MOST_EMBEDDED = 24
"""Samples of a report: a few of them are shown at once, and all are searched."""
_AT_ONCE, _CHATS_AT_ONCE = 4, 2
_CHARACTERS = 1500
_LOW_CHARACTERS, _LOW_LINES = 360, 7
"""What a low card shows of a text; a chat has twice as much."""
_MOST_BYTES = 1_200_000
"""Bytes of the cards of a report, after which no other is added: the page has less than 2 MB."""
_EDGE = 150
"""Characters of both ends of a long text that is not trained: what is trained is to be seen."""
_TOKENS = 2000
"""Tokens that are decoded of a document; it may have billions."""
_FACTS = ("records", "tokens", "trained tokens", "mask", "tokenizer")


def sample_page(
    title: str,
    manifest: Manifest,
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
    is_sft = manifest.is_sft
    heading = heading or f"{len(samples):,} of {manifest.totals.documents:,} {things_of(manifest)}"
    more = "<code>--max-chars 0</code> shows all"
    cards = [sample_card(sample, max_chars, show_ids=show_ids, more=more) for sample in samples]
    rows = [row for row in detail_rows(manifest, title) if row[0] in _FACTS or "packs" in row[0]]
    section = Section("samples", heading, f"{_legend(is_sft=is_sft)}{_list(cards, len(cards))}")
    header = f"<h1>{label(title, 200)}</h1>{facts(rows)}"
    return web_page(f"{title}: {things_of(manifest)}", header, [section])


def samples_section(
    directory: Path, manifest: Manifest, tokenizer: str, numbers: Iterable[int]
) -> Section:
    """Return the section of some documents; without the tokenizer, it says why there is no text."""
    things, is_sft = things_of(manifest), manifest.is_sft
    try:
        loaded = tokenizer_of(directory, manifest, tokenizer)
        reader = SampleReader(directory, manifest, loaded)
        cards: list[str] = []
        n_bytes = 0
        for number in numbers:
            sample = _shortened(reader.read(number, most_tokens=_TOKENS))
            cards.append(sample_card(sample, _CHARACTERS, is_low=True))
            n_bytes += len(cards[-1].encode())
            if n_bytes > _MOST_BYTES:
                break
    except TokmillError as error:
        return Section("samples", things.capitalize(), note(f"No {things} are shown: {error}"))
    lead = f"{len(cards)} of {plural(manifest.totals.documents, things[:-1])}"
    if len(cards) < manifest.totals.documents:
        has_origins = manifest.shards[0].first_slice is not None
        lead += ": one of each source, then random ones" if has_origins else ", drawn at random"
        lead += "; --split, --source and --seed choose others" if has_origins else ""
    lead += ". Long text that is not trained is shortened." if is_sft else "."
    command = f"tokmill inspect {shlex.quote(shown_place(directory))} --max-chars 0 --document 0"
    shows = f" The whole text of one: <code>{label(command, 200)}</code>"
    at_once = _CHATS_AT_ONCE if is_sft else _AT_ONCE
    about = f'<p class="remark">{label(lead)}{shows}</p>{_legend(is_sft=is_sft)}'
    return Section("samples", things.capitalize(), about + _list(cards, at_once))


def _list(cards: Sequence[str], at_once: int) -> str:
    """Return cards, those after the first `at_once` closed, and what the script turns them by."""
    pager = (
        '<div class="pager" hidden><input type="search" aria-label="Search in these texts" '
        'placeholder="Search in these texts"><button type="button">Previous</button>'
        '<button type="button">Next</button><output></output></div>'
    )
    first = f'<div class="cards list" data-page="{at_once}">{"".join(cards[:at_once])}</div>'
    rest = f'<div class="cards">{"".join(cards[at_once:])}</div>'
    more = f'<div class="rest">{details(f"{len(cards) - at_once} more", rest)}</div>'
    return (pager if cards[1:] else "") + first + (more if cards[at_once:] else "")


def _legend(*, is_sft: bool) -> str:
    """Return the list of what the colours of samples mean, as HTML."""
    words = ["<span>text</span>", '<bdi class="c">control token</bdi>']
    if is_sft:
        words = [
            '<mark class="t">trained text</mark>',
            "<span>untrained text</span>",
            '<mark class="t"><bdi class="c">trained control token</bdi></mark>',
            '<bdi class="c">control token</bdi>',
            '<span><span class="nl"></span> <small>newline at a trained edge</small></span>',
            '<span><span class="x">\\xe7</span> <small>byte of a split character</small></span>',
        ]
    return f'<ul class="legend">{"".join(f"<li>{word}</li>" for word in words)}</ul>'


def sample_card(
    sample: Sample, max_chars: int, *, show_ids: bool = False, is_low: bool = False, more: str = ""
) -> str:
    """Return a sample as HTML: its place, its counts, its mask as a strip, and its text.

    `is_low`: a long text is opened to be seen down to its end. `more`: HTML that says how to see
    all of a text that is cut.
    """
    shown, n_cut = shown_runs(sample.runs, max_chars)
    text = "".join(_stretch(stretch) for stretch in shown)
    about = "".join(f"<li>{label(fact)}</li>" for fact in sample.facts())
    split = sample.shard.partition("-")[0]
    parts = [
        f'<article id="{sample.kind}-{sample.number}"{" class=low" if is_low else ""}>',
        f"<header><h3>{sample.kind} {sample.number:,}</h3>",
        f'<span class="chip">{label(split)}</span><ul class="about">{about}</ul></header>',
        "" if sample.mask is None else _strip(sample),
        f'<div class="text" dir="auto">{text}</div>',
    ]
    cut = cut_mark(n_cut, sample.n_unread)
    remark = f'<p class="remark">{cut}{"; " * bool(more)}{more}</p>' if cut else ""
    times = 1 if sample.mask is None else 2
    said = "".join(stretch.run.text for stretch in shown)
    is_long = len(said) > times * _LOW_CHARACTERS or said.count("\n") >= times * _LOW_LINES
    parts.append(details("More", remark) if is_low and is_long else remark)
    if show_ids:
        parts.append(details("ids", f"<code>{' '.join(map(str, sample.ids))}</code>"))
    return "".join([*parts, "</article>\n"])


def _strip(sample: Sample) -> str:
    """Return the mask of a sample as a strip of boxes, each as wide as its span of tokens."""
    boxes = []
    for is_trained, runs in groupby(sample.runs, lambda run: run.is_trained):
        kind, n = "on" if is_trained else "off", sum(len(run.ids) for run in runs)
        boxes.append(f'<i class="{kind}" style="flex-grow:{n}"></i>')
    return f'<div class="strip" aria-hidden="true">{"".join(boxes)}</div>'


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


def _shortened(sample: Sample) -> Sample:
    """Return a sample of SFT without the middle of long texts that are not trained."""
    if sample.mask is None:
        return sample
    return replace(sample, runs=tuple(map(_without_middle, sample.runs)))


def _without_middle(run: TokenRun) -> TokenRun:
    n_left_out = len(run.text) - 2 * _EDGE
    if run.is_trained or run.is_control or n_left_out < _EDGE:
        return run
    middle = f" […{plural(n_left_out, 'character')}…] "
    return replace(run, texts=(run.text[:_EDGE] + middle + run.text[-_EDGE:],))
