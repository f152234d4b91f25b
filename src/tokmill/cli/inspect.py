"""`tokmill inspect`: samples in colour, between marks, as JSON or as a web page."""

from __future__ import annotations

import re
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tokmill.cli.options import choice_options, directory_argument, moved_tokenizer
from tokmill.cli.screen import show, show_json, show_styled
from tokmill.errors import UsageError
from tokmill.urls import shown_place
from tokmill.words import plural, printable, size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokmill.dataset.manifest import Manifest
    from tokmill.inspect.samples import Sample, SampleReader, ShownRun

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

_DOT_STYLES: dict[bool, dict[str, Any]] = {False: {"fg": 167}, True: {"fg": 124, "bg": 151}}
"""Of the dot between tokens, by whether they are trained."""


@click.command("inspect")
@directory_argument
@click.option("--document", "-n", type=int, help="Show this document or sample, counted from 0.")
@click.option("--sample", type=int, help="Show this many documents.  [default: 4 to 8]")
@choice_options
@click.option(
    "--noticed",
    metavar="NAME",
    help="Show samples behind this counter of what the run noticed, or a part of its name.",
)
@click.option(
    "--row",
    type=int,
    help="Show the samples of this packed row of the train split, counted from 0.",
)
@moved_tokenizer
@click.option("--max-chars", default=2000, show_default=True, help="Cut longer texts; 0: never.")
@click.option("--tokens", "by_token", is_flag=True, help="Show where each token ends.")
@click.option("--ids", "show_ids", is_flag=True, help="Show the ids too.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per document.")
@click.option("--html", type=click.Path(path_type=Path), help="Write a web page to this file.")
def command(
    directory: Path,
    document: int | None,
    sample: int | None,
    noticed: str | None,
    row: int | None,
    tokenizer: str,
    max_chars: int,
    by_token: bool,
    show_ids: bool,
    as_json: bool,
    html: Path | None,
    **choice: Any,
) -> None:
    """Show documents of a dataset, decoded: one of each source, then random ones.

    Control tokens stand out. For samples of SFT it also shows which tokens are trained.

    \b
    Examples:
      tokmill inspect out --sample 3
      tokmill inspect out --source wiki/a.jsonl --split val --seed 7
      tokmill inspect out --document 1234 --ids
      tokmill inspect out --noticed "empty replies"
      tokmill inspect out --row 0 --html row.html
    """
    from tokmill.dataset.reader import read_manifest
    from tokmill.inspect.samples import SampleReader, chosen_documents, noticed_documents
    from tokmill.page.web_page import check_page
    from tokmill.tokenizer.kept import tokenizer_of

    _check_options(
        document, sample, noticed, row, max_chars=max_chars, has_choice=any(choice.values())
    )
    if as_json and html is not None:
        raise UsageError("--json prints and --html writes a page: choose one")
    manifest = read_manifest(directory)
    manifest.check_complete()
    if html is not None:
        check_page(html, "--html")
    loaded = tokenizer_of(directory, manifest, tokenizer)
    reader = SampleReader(directory, manifest, loaded, by_token=by_token and not as_json)
    chosen = [] if document is None else [document]
    if noticed is not None:
        chosen = noticed_documents(directory, manifest, noticed, sample)
    elif document is None and row is None:
        chosen = chosen_documents(directory, manifest, sample, **choice)
    heading, samples = _chosen(reader, manifest, chosen, row)
    if html is not None:
        _write_page(html, directory, manifest, heading, list(samples), max_chars, show_ids)
    elif as_json:
        for shown in samples:
            show_json(_as_json(shown, reader, row))
    else:
        _print(heading, samples, Look(is_in_colour(), by_token, max_chars), manifest, show_ids)
        if (document, row, noticed) == (None, None, None):
            _print_rules(manifest)


def _check_options(
    document: int | None,
    sample: int | None,
    noticed: str | None,
    row: int | None,
    *,
    max_chars: int,
    has_choice: bool,
) -> None:
    """Check options that say the same in two ways, or nothing; raises `UsageError`.

    `has_choice`: whether the split, a source or a seed is given.
    """
    has_one = document is not None or row is not None
    if (sample or 0) < 0 or max_chars < 0:
        raise UsageError("--sample and --max-chars: expected 0 or more")
    if row is not None and (document is not None or sample is not None):
        raise UsageError("--row shows the samples of one row: leave --document and --sample out")
    if noticed is not None and (has_choice or has_one):
        raise UsageError("--noticed: leave --document, --row, --split, --source and --seed out")
    if has_choice and has_one:
        raise UsageError("--row and --document: leave --split, --source and --seed out")


def _write_page(
    html: Path,
    directory: Path,
    manifest: Manifest,
    heading: str,
    samples: list[Sample],
    max_chars: int,
    show_ids: bool,
) -> None:
    """Write samples as a web page, and say how large it is."""
    from tokmill.page.sample_page import sample_page
    from tokmill.page.web_page import write_page

    page = sample_page(
        shown_place(directory),
        manifest,
        samples,
        heading=heading,
        max_chars=max_chars,
        show_ids=show_ids,
    )
    kind = "sample" if manifest.is_sft else "document"
    show(f"{html}: {plural(len(samples), kind)}, {size(write_page(html, page))}")


def is_in_colour() -> bool:
    """Return whether text is printed in colour: as the user says, or to a terminal."""
    color = click.get_current_context().color
    if color is None:
        return bool(sys.stdout and sys.stdout.isatty())
    return color


def _print_rules(manifest: Manifest) -> None:
    """Print the rules under which the texts were made."""
    from tokmill.inspect.summary import rules_line

    if rules := rules_line(manifest):
        show(rules)


def _chosen(
    reader: SampleReader, manifest: Manifest, chosen: list[int], row: int | None
) -> tuple[str, Iterator[Sample]]:
    """Return the samples asked for, read as they are needed, and what they are."""
    if row is not None:
        samples = reader.read_row(row)
        capacity = manifest.packs["train"].capacity
        n_tokens = sum(len(sample.ids) for sample in samples)
        kind = "piece" if manifest.packs["train"].last else "sample"
        heading = (
            f"row {row} of train: {plural(len(samples), kind)}, {n_tokens:,} of "
            f"{plural(capacity, 'token')} ({n_tokens / capacity:.1%})"
        )
        return heading, iter(samples)
    return "", map(reader.read, chosen)


def _as_json(sample: Sample, reader: SampleReader, row: int | None) -> dict[str, Any]:
    """Return a document or a sample as the object that --json prints."""
    in_row: dict[str, Any] = {} if row is None else {"row": row, "row_start": sample.row_start}
    if sample.mask is None:
        if sample.piece is not None:
            in_row["piece"] = [sample.piece.start, sample.piece.stop]
        where = {"document": sample.number, "shard": sample.shard, "tokens": len(sample.ids)}
        origin = sample.origin and asdict(sample.origin)
        return {
            **in_row,
            **where,
            "origin": origin,
            **({"meta": sample.meta} if sample.meta else {}),
            "ids": sample.ids,
            "text": reader.decoder.decode(sample.ids),
        }
    return {**in_row, **sample.as_json()}


def _print(
    heading: str, samples: Iterator[Sample], look: Look, manifest: Manifest, show_ids: bool
) -> None:
    """Print samples, below a heading and the legend of their marks."""
    if heading:
        show(heading, bold=True)
    if manifest.is_sft:
        show_styled(legend(look) + "\n")
    for sample in samples:
        show(f"{sample.kind} {sample.number} ({', '.join(sample.facts())})", bold=True)
        if show_ids:
            show(" ".join(map(str, sample.ids)))
        show_styled(sample_text(sample, look) + "\n")


@dataclass(frozen=True, slots=True)
class Look:
    """How samples are shown: in colours or between marks, with or without a dot between tokens.

    `max_chars`: most characters of text; 0: all.
    """

    in_colour: bool
    by_token: bool
    max_chars: int


def legend(look: Look) -> str:
    """Return what each mark or colour means, one line."""
    trained = _kind("trained", look, is_trained=True)
    control = _kind("trained control", look, is_trained=True, is_control=True)
    words = [
        trained if look.in_colour else f"«{trained}»",
        "untrained",
        _kind("control", look, is_control=True),
        control if look.in_colour else f"«{control}»",
        "⏎ newline at a trained edge",
        r"\x.. byte of a split character",
        *(["· between tokens"] if look.by_token else ()),
    ]
    return "  ".join(words)


def sample_text(sample: Sample, look: Look) -> str:
    """Return the text of a sample; a character of it that is a mark is written by its number."""
    from tokmill.inspect.samples import cut_mark, shown_runs

    has_marks = sample.mask is not None and not look.in_colour
    marks = ("«»‹›" if has_marks else "") + ("·" if look.by_token and not look.in_colour else "")
    numbers = {ord(mark): mark.encode("unicode_escape").decode() for mark in marks}
    shown, n_cut = shown_runs(sample.runs, look.max_chars)
    out: list[str] = []
    is_open = False
    for stretch in shown:
        run = stretch.run
        out += [_dot(look, is_trained=is_open)] if out else []
        out += ["«"] if stretch.opens and has_marks else []
        texts = _texts(stretch, look, numbers, has_marks=has_marks)
        out.append(_dot(look, is_trained=run.is_trained).join(texts))
        is_open = run.is_trained and not stretch.closes
        if stretch.closes:
            out += ["»"] if has_marks else []
            out += [] if run.weight == 1 else [f"×{run.weight:g}"]
    out += ["»"] if is_open and has_marks else []
    return "".join(out) + cut_mark(n_cut)


def _texts(
    stretch: ShownRun, look: Look, numbers: dict[int, str], *, has_marks: bool
) -> Iterator[str]:
    """Yield each text of a run as it is shown."""
    from tokmill.tokenizer.decode import escaped

    run = stretch.run
    for parts in stretch.parts():
        edged = "".join(text.translate(_EDGES) if is_edge else text for text, is_edge in parts)
        text = _UNSHOWN.sub(_code, escaped(edged).translate(numbers))
        is_control = run.is_control and (has_marks or look.in_colour)
        yield _kind(text, look, is_trained=run.is_trained, is_control=is_control)


def _kind(text: str, look: Look, *, is_trained: bool = False, is_control: bool = False) -> str:
    """Return a text in the style of its kind, without the marks of trained text.

    Each line is styled separately: a colour that crosses a line end would fill the next line.
    """
    style = _STYLES[is_trained, is_control]
    if look.in_colour and style:
        return "\n".join(click.style(line, **style) if line else "" for line in text.split("\n"))
    return f"‹{text}›" if is_control else text


def _dot(look: Look, *, is_trained: bool) -> str:
    """Return what stands between two tokens."""
    if not look.by_token:
        return ""
    return click.style("·", **_DOT_STYLES[is_trained]) if look.in_colour else "·"


def _code(match: re.Match[str]) -> str:
    """Return an invisible character as its number."""
    return "␍" if match[0] == "\r" else printable(match[0])
