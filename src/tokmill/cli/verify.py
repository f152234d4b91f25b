"""`tokmill verify`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from tokmill.cli.options import directory_argument, moved_tokenizer
from tokmill.cli.screen import show, show_json, show_labelled
from tokmill.words.plural import plural
from tokmill.words.units import size

_MOST_NAMED = 5


@click.command("verify")
@directory_argument
@moved_tokenizer
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def command(directory: Path, tokenizer: str, as_json: bool) -> None:
    """Check a dataset against its manifest; exit 1 at a mismatch.

    Hashes every file, and checks each index, the ids, the eos of every document, and all counts.
    For chats it also checks the masks and, on some samples, the decoded trained text. The files of
    an export are compared with its record. In an object store (s3://bucket/name), names, sizes and
    checksums are compared.
    """
    from tokmill.api.jobs import verify_dataset
    from tokmill.urls import shown_place

    checked = verify_dataset(directory, tokenizer)
    if as_json:
        show_json(asdict(checked))
        checked.check(directory)
        return
    for problem in checked.problems:
        show_labelled("mismatch:", problem, colour="red")
    if checked.notes:
        names, n_more = sorted(checked.notes), len(checked.notes) - _MOST_NAMED
        listed = ", ".join(names[:_MOST_NAMED]) + (f" and {n_more} more" if n_more > 0 else "")
        show(f"note: outside the dataset, not checked: {listed}")
    decoded = f"; {plural(checked.n_decoded, 'sample')} decoded" if checked.n_decoded else ""
    if checked.not_decoded:
        decoded = f"; trained text not decoded: {checked.not_decoded}"
    counts = (
        f", {plural(checked.n_shards, 'shard')}, {plural(checked.n_documents, 'document')}, "
        f"{plural(checked.n_tokens, 'token')} checked{decoded}"
    )
    hashed = f"{plural(checked.n_files, 'file')} ({size(checked.n_bytes)}) hashed"
    show(hashed + (counts if checked.n_shards else ""))
    checked.check(directory)
    show(f"{shown_place(directory)}: no mismatch")
