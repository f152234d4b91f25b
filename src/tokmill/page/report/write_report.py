"""Write the report of a dataset as a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokmill.page.chosen import chosen_documents
from tokmill.page.page_file import check_page, write_page
from tokmill.page.report.report_page import report_page

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tokmill.bill.full_bill import FullBill


def write_report(
    path: Path,
    directory: Path,
    manifest: Mapping[str, Any],
    bill: FullBill,
    tokenizer: str,
    option: str,
    choice: Mapping[str, Any],
) -> int:
    """Write the page of a dataset, and return its bytes; see `report_page`.

    `option` names the path in messages. `choice` of documents: see `Choice`.

    Raises:
        UsageError: a directory stands at `path`, or it is inside the dataset.
        TokmillError: a file cannot be read or written.
    """
    check_page(path, directory, option)
    numbers = chosen_documents(directory, manifest, **choice)
    return write_page(path, report_page(directory, manifest, bill, numbers, tokenizer=tokenizer))
