"""The report of a dataset and its bill as a web page: a head, and a section for each question."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokmill.inspect.samples import chosen_documents
from tokmill.page.bill_section import bill_section, verdict
from tokmill.page.dataset_sections import (
    field_section,
    head_facts,
    head_tiles,
    lengths_section,
    losses_section,
    run_section,
    sources_section,
    statistics_for,
    to_look_at,
    training_section,
)
from tokmill.page.markup import facts, label
from tokmill.page.sample_page import MOST_EMBEDDED, samples_section
from tokmill.page.web_page import check_page, web_page, write_page

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tokmill.bill.full_bill import FullBill
    from tokmill.dataset.manifest import Manifest
    from tokmill.inspect.summary import Rows


def write_report(
    path: Path,
    directory: Path,
    manifest: Manifest,
    bill: FullBill,
    tokenizer: str,
    option: str,
    choice: Mapping[str, Any],
    by: str = "",
    of_ranks: Rows | None = None,
) -> int:
    """Write the page of a dataset, and return its bytes; see `report_page`.

    `option` names the path in messages. `choice` of documents: see `Choice`. `by`: a kept field, by
    which documents and tokens are counted. `of_ranks`: how even their batches are, in words.

    Raises:
        UsageError: a directory stands at `path`, or it is inside a dataset.
        TokmillError: a file cannot be read or written.
    """
    check_page(path, option)
    return write_page(
        path, chosen_report(directory, manifest, bill, tokenizer, choice, by, of_ranks)
    )


def chosen_report(
    directory: Path,
    manifest: Manifest,
    bill: FullBill,
    tokenizer: str,
    choice: Mapping[str, Any],
    by: str,
    of_ranks: Rows | None = None,
) -> str:
    """Return the page with the documents of a choice; see `write_report` and `report_page`."""
    numbers = chosen_documents(directory, manifest, MOST_EMBEDDED, **choice)
    return report_page(
        directory, manifest, bill, numbers, tokenizer=tokenizer, by=by, of_ranks=of_ranks
    )


def report_page(
    directory: Path,
    manifest: Manifest,
    bill: FullBill,
    numbers: Sequence[int],
    *,
    tokenizer: str = "",
    by: str = "",
    of_ranks: Rows | None = None,
) -> str:
    """Return the page of a finished dataset and its bill as HTML, below 2 MB.

    `numbers`: of the documents whose text it shows. `by`, `of_ranks`: see `write_report`.
    `tokenizer`: the tokenizer, if not the one that the dataset keeps; without one the page has no
    texts, and says so.

    Raises:
        TokmillError: a file of the dataset is damaged.
    """
    statistics = statistics_for(directory, manifest, tokenizer)
    name = directory.resolve().name
    warnings = [*to_look_at(manifest, statistics), *bill.settings.notes]
    listed = "".join(f"<li>{label(text, 400)}</li>" for text in warnings)
    kind = "Fine-tuning dataset" if manifest.is_sft else "Pretraining dataset"
    header = (
        f'<p class="kind">{kind}</p><h1>{label(name, 120)}</h1>'
        f"{head_tiles(manifest, bill.disk.bill.n_bytes if bill.disk else 0)}"
        f"{verdict(directory, bill)}{f'<ul class=look>{listed}</ul>' if listed else ''}"
        f"{facts(head_facts(directory, manifest))}"
    )
    sections = [
        lengths_section(directory, manifest),
        sources_section(manifest),
        field_section(directory, manifest, by),
        training_section(manifest, of_ranks),
        samples_section(directory, manifest, tokenizer, numbers),
        losses_section(directory, manifest, statistics),
        bill_section(directory, bill),
        run_section(manifest),
    ]
    return web_page(f"{name}: report", header, [part for part in sections if part is not None])
