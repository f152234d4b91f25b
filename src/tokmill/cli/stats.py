"""`tokmill stats`: what a dataset holds, from all of its tokens."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tokmill.cli.by_field import field_option, field_table
from tokmill.cli.options import directory_argument, moved_tokenizer
from tokmill.cli.screen import print_tables, show, show_json, show_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rich.console import RenderableType

    from tokmill.dataset.statistics import Statistics

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
    from tokmill.page.samples import statistics_of
    from tokmill.page.summary import detail_rows, statistics_rows

    manifest = read_intact_manifest(directory)
    statistics = statistics_of(directory, manifest, tokenizer, field)
    if as_json:
        show_json(statistics.as_json())
        return
    told = dict(detail_rows(manifest, str(directory)))
    names = ("tokens", "trained tokens", "records", "drops", "rejects", "unread")
    show_rows([
        *((name, told[name]) for name in names if name in told),
        *statistics_rows(statistics),
    ])  # fmt: skip
    if field:
        show()
        print_tables([field_table(field, statistics.by[field], statistics.totals)])
    for table in _tables(manifest, statistics):
        show()
        print_tables([table])


def _tables(manifest: Mapping[str, Any], statistics: Statistics) -> Iterator[RenderableType]:
    """Yield the tables of sources, of lengths, and of the most frequent ids."""
    from tokmill.bill.text.tables import rows_table
    from tokmill.page.dataset_sections import grouped
    from tokmill.page.markup import shortened
    from tokmill.page.summary import quoted

    totals = statistics.totals
    n_documents, n_tokens = max(1, totals["documents"]), max(1, totals["tokens"])

    def counted(row: Mapping[str, Any]) -> list[str]:
        shares = (row["documents"] / n_documents, row["tokens"] / n_tokens)
        bytes_per_token = row["text_bytes"] / max(1, row["tokens"])
        trained = f"{row['trained_tokens'] / max(1, row['tokens']):.1%}"
        return [
            shortened(row["name"], _NAME_COLUMNS),
            f"{row['documents']:,}", f"{shares[0]:.1%}", f"{row['tokens']:,}", f"{shares[1]:.1%}",
            trained if "trained_tokens" in totals else f"{bytes_per_token:.2f}",
        ]  # fmt: skip

    last = "trained" if "trained_tokens" in totals else "bytes/token"
    heads = ("documents", "share", "tokens", "share", last)
    yield rows_table("source", heads, map(counted, grouped(manifest["sources"])[0]))
    by_length = statistics.lengths.documents
    lengths = [
        (f"{1 << i:,} to {(2 << i) - 1:,}", f"{n:,}", f"{n / n_documents:.1%}",
         "#" * round(_BAR_COLUMNS * n / by_length.max()))
        for i, n in enumerate(by_length.tolist()) if n
    ]  # fmt: skip
    yield rows_table("length in tokens", ("documents", "share", ""), lengths, words=("",))
    ids = [
        (str(named.id), quoted(shortened(named.text, _NAME_COLUMNS)), f"{named.count:,}",
         f"{named.count / n_tokens:.2%}")
        for named in statistics.frequent
    ]  # fmt: skip
    yield rows_table("most frequent ids", ("text", "times", "share"), ids, words=("text",))
