"""A few documents or samples, decoded and cut; samples with their mask in colour."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tokmill.errors import TokmillError
from tokmill.page.markup import label
from tokmill.page.report.section import Section, note
from tokmill.page.sample_page import legend, sample_card
from tokmill.page.samples import SampleReader
from tokmill.tokenizer.tokenizer import tokenizer_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tokmill.page.samples import Sample
    from tokmill.tokenizer.decode import TokenRun

_CHARACTERS, _SAMPLE_CHARACTERS = 500, 1500
_EDGE = 150
"""Characters of both ends of a long text that is not trained: what is trained is to be seen."""

_TOKENS = 2000
"""Tokens that are decoded of a document; it may have billions."""


def texts_section(
    directory: Path, manifest: Mapping[str, Any], tokenizer: str, numbers: Sequence[int]
) -> Section:
    """Return the section of some documents; without the tokenizer, it says why there is no text.

    `data` has the numbers of the documents that it shows.
    """
    is_sft = manifest.get("kind") == "sft"
    things = "samples" if is_sft else "documents"
    most = _SAMPLE_CHARACTERS if is_sft else _CHARACTERS
    try:
        loaded = tokenizer_of(dict(manifest), tokenizer)
    except TokmillError as error:
        return _without(things, error, ". Name the tokenizer with --tokenizer to see some.")
    try:
        reader = SampleReader(directory, manifest, loaded)
        cards = [
            sample_card(
                _shortened(reader.read(number, most_tokens=_TOKENS)), most, show_ids=False, more=""
            )
            for number in numbers
        ]
    except TokmillError as error:
        return _without(things, error)
    lead = f"{len(cards)} of {manifest['totals']['documents']:,} {things}. "
    if is_sft:
        lead += "Long text that is not trained is shortened."
    command = f"tokmill inspect {shlex.quote(str(directory))} --max-chars 0 --document 0"
    shows = f'<p class="remark">The whole text of one: <code>{label(command, 200)}</code></p>'
    html = f'{note(lead)}{shows}{legend(is_sft=is_sft)}<div class="cards">{"".join(cards)}</div>'
    return Section("texts", things.capitalize(), html, {"numbers": list(numbers)})


def _without(things: str, error: TokmillError, hint: str = "") -> Section:
    data = {"numbers": [], "problem": str(error)}
    return Section(
        "texts", things.capitalize(), note(f"No {things} are shown: {error}{hint}"), data
    )


def _shortened(sample: Sample) -> Sample:
    """Return a sample of SFT without the middle of long texts that are not trained."""
    if sample.mask is None:
        return sample
    return replace(sample, runs=tuple(map(_without_middle, sample.runs)))


def _without_middle(run: TokenRun) -> TokenRun:
    n_left_out = len(run.text) - 2 * _EDGE
    if run.is_trained or run.is_control or n_left_out < _EDGE:
        return run
    middle = f" […{n_left_out:,} characters…] "
    return replace(run, texts=(run.text[:_EDGE] + middle + run.text[-_EDGE:],))
