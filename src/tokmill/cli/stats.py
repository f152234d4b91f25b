"""`tokmill stats`: what a dataset holds, from all of its tokens."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tokmill.cli.by_field import field_option, field_table
from tokmill.cli.options import directory_argument, moved_tokenizer
from tokmill.cli.screen import print_tables, show, show_json, show_rows
from tokmill.urls import shown_place

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from rich.console import RenderableType

    from tokmill.dataset.manifest import Manifest
    from tokmill.inspect.statistics import Statistics
    from tokmill.page.dataset_sections import SourceGroup

_NAME_COLUMNS, _BAR_COLUMNS = 28, 20


@click.command("stats")
@directory_argument
@moved_tokenizer
@field_option()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(directory: Path, tokenizer: str, field: str, as_json: bool) -> None:
    """Show what a dataset holds: lengths, sources, duplicates, frequent and unused ids.

    Reads all tokens. Texts of ids need the tokenizer; without it, only the ids are shown.

    \b
    Examples:
      tokmill stats out
      tokmill stats out --by language
      tokmill stats out --json
    """
    from tokmill.dataset.reader import read_intact_manifest
    from tokmill.inspect.samples import statistics_of
    from tokmill.inspect.summary import detail_rows, statistics_rows

    manifest = read_intact_manifest(directory)
    statistics = statistics_of(directory, manifest, tokenizer, field)
    if as_json:
        show_json(statistics.as_json())
        return
    told = dict(detail_rows(manifest, shown_place(directory)))
    names = ("tokens", "trained tokens", "records", "drops", "rejects", "unread")
    show_rows([
        *((name, told[name]) for name in names if name in told),
        *statistics_rows(statistics),
    ])  # fmt: skip
    if field:
        n_documents, n_tokens = (max(1, statistics.totals[key]) for key in ("documents", "tokens"))
        show()
        print_tables([field_table(field, statistics.by[field], n_documents, n_tokens)])
    for table in _tables(manifest, statistics):
        show()
        print_tables([table])


def _tables(manifest: Manifest, statistics: Statistics) -> Iterator[RenderableType]:
    """Yield the tables of sources, of lengths, and of the most frequent ids."""
    from tokmill.page.dataset_sections import grouped

    sources, _ = grouped(manifest.sources)
    yield _table_of_sources(sources, statistics.totals)
    yield _table_of_lengths(statistics)
    yield _table_of_ids(statistics)


def _table_of_sources(sources: Iterable[SourceGroup], totals: Mapping[str, Any]) -> RenderableType:
    """Return the documents and tokens of each source, with their shares of the dataset."""
    from tokmill.page.markup import shortened
    from tokmill.terminal_tables import rows_table

    n_documents, n_tokens = max(1, totals["documents"]), max(1, totals["tokens"])
    has_masks = "trained_tokens" in totals
    rows = []
    for source in sources:
        tokens = source.tokens
        if has_masks:
            last = f"{source.trained_tokens / max(1, tokens):.1%}"
        else:
            last = f"{source.text_bytes / max(1, tokens):.2f}"
        rows.append([
            shortened(source.name, _NAME_COLUMNS),
            f"{source.documents:,}",
            f"{source.documents / n_documents:.1%}",
            f"{tokens:,}",
            f"{tokens / n_tokens:.1%}",
            last,
        ])  # fmt: skip
    heads = ("documents", "share", "tokens", "share", "trained" if has_masks else "bytes/token")
    return rows_table("source", heads, rows)


def _table_of_lengths(statistics: Statistics) -> RenderableType:
    """Return the documents by their length, with bars."""
    from tokmill.terminal_tables import rows_table

    n_documents = max(1, statistics.totals["documents"])
    counts = statistics.lengths.documents.tolist()
    rows = []
    for power, count in enumerate(counts):
        if count:
            length = f"{1 << power:,} to {(2 << power) - 1:,}"
            bar = "#" * round(_BAR_COLUMNS * count / max(counts))
            rows.append((length, f"{count:,}", f"{count / n_documents:.1%}", bar))
    return rows_table("length in tokens", ("documents", "share", ""), rows, words=("",))


def _table_of_ids(statistics: Statistics) -> RenderableType:
    """Return the most frequent ids, with their text."""
    from tokmill.inspect.summary import quoted
    from tokmill.page.markup import shortened
    from tokmill.terminal_tables import rows_table

    n_tokens = max(1, statistics.totals["tokens"])
    rows = []
    for named in statistics.frequent:
        text = quoted(shortened(named.text, _NAME_COLUMNS))
        rows.append((str(named.id), text, f"{named.count:,}", f"{named.count / n_tokens:.2%}"))
    return rows_table("most frequent ids", ("text", "times", "share"), rows, words=("text",))
