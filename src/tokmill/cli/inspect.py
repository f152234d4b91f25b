"""`tokmill inspect`."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tokmill.cli.options import choice_options, directory_argument, moved_tokenizer
from tokmill.cli.screen import show, show_json, show_styled
from tokmill.errors import UsageError
from tokmill.words.plural import plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokmill.cli.sample_text import Look
    from tokmill.page.samples import Sample, SampleReader


@click.command("inspect")
@directory_argument
@click.option("--document", "-n", type=int, help="Show this document or sample, counted from 0.")
@click.option("--sample", type=int, help="Show this many documents.  [default: 4 to 8]")
@choice_options
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
      tokmill inspect out --row 0 --html row.html
    """
    from tokmill.cli.sample_text import Look
    from tokmill.dataset.reader import check_complete, read_manifest
    from tokmill.page.chosen import chosen_documents
    from tokmill.page.page_file import check_page
    from tokmill.page.samples import SampleReader, tokenizer_of

    if row is not None and (document is not None or sample is not None):
        raise UsageError("--row shows the samples of one row: leave --document and --sample out")
    if any(choice.values()) and (row is not None or document is not None):
        raise UsageError("--row and --document: leave --split, --source and --seed out")
    if as_json and html is not None:
        raise UsageError("--json prints and --html writes a page: choose one")
    manifest = read_manifest(directory)
    check_complete(manifest, directory)
    if html is not None:
        check_page(html, directory, "--html")
    loaded = tokenizer_of(manifest, tokenizer)
    reader = SampleReader(directory, manifest, loaded, by_token=by_token and not as_json)
    chosen = [] if document is None else [document]
    if document is None and row is None:
        chosen = chosen_documents(directory, manifest, sample, **choice)
    heading, samples = _chosen(reader, manifest, chosen, row)
    if html is not None:
        _write_page(html, directory, manifest, heading, list(samples), max_chars, show_ids)
    elif as_json:
        for shown in samples:
            show_json(_as_json(shown, reader, row))
    else:
        color = click.get_current_context().color
        in_colour = sys.stdout.isatty() if color is None else color
        _print(heading, samples, Look(in_colour, by_token, max_chars), manifest, show_ids)


def _chosen(
    reader: SampleReader, manifest: dict[str, Any], chosen: list[int], row: int | None
) -> tuple[str, Iterator[Sample]]:
    """Return the samples asked for, read as they are needed, and what they are."""
    if row is not None:
        samples = reader.read_row(row)
        capacity = manifest["packs"]["train"]["capacity"]
        n_tokens = sum(len(sample.ids) for sample in samples)
        heading = (
            f"row {row} of train: {plural(len(samples), 'sample')}, {n_tokens:,} of "
            f"{plural(capacity, 'token')} ({n_tokens / capacity:.1%})"
        )
        return heading, iter(samples)
    return "", map(reader.read, chosen)


def _as_json(sample: Sample, reader: SampleReader, row: int | None) -> dict[str, Any]:
    """Return a document or a sample as the object that --json prints."""
    if sample.mask is None:
        where = {"document": sample.number, "shard": sample.shard, "tokens": len(sample.ids)}
        origin = sample.origin and asdict(sample.origin)
        return {
            **where,
            "origin": origin,
            "ids": sample.ids,
            "text": reader.decoder.decode(sample.ids),
        }
    in_row = {} if row is None else {"row": row, "row_start": sample.row_start}
    return {**in_row, **sample.as_json()}


def _print(
    heading: str, samples: Iterator[Sample], look: Look, manifest: dict[str, Any], show_ids: bool
) -> None:
    """Print samples, below a heading and the legend of their marks."""
    from tokmill.cli.sample_text import legend, sample_text

    if heading:
        show(heading, bold=True)
    if manifest.get("kind") == "sft":
        show_styled(legend(look) + "\n")
    for sample in samples:
        show(f"{sample.kind} {sample.number} ({', '.join(sample.facts())})", bold=True)
        if show_ids:
            show(" ".join(map(str, sample.ids)))
        show_styled(sample_text(sample, look) + "\n")


def _write_page(
    path: Path,
    directory: Path,
    manifest: dict[str, Any],
    heading: str,
    samples: list[Sample],
    max_chars: int,
    show_ids: bool,
) -> None:
    """Write samples as a web page, and print where."""
    from tokmill.page.page_file import write_page
    from tokmill.page.sample_page import sample_page
    from tokmill.words.units import size

    page = sample_page(
        str(directory), manifest, samples, heading=heading, max_chars=max_chars, show_ids=show_ids
    )
    n_bytes = write_page(path, page)
    kind = "sample" if manifest.get("kind") == "sft" else "document"
    show(f"{path}: {plural(len(samples), kind)}, {size(n_bytes)}")
