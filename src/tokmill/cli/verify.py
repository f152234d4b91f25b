"""`tokmill verify`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from tokmill.cli.dataset import spread, tokenizer_of
from tokmill.cli.screen import show, show_json, show_labelled
from tokmill.errors import TokmillError, VerifyError
from tokmill.words.plural import plural

_MOST_NAMED = 5


@click.command("verify")
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--tokenizer", "-t", default="", help="The tokenizer, if it has moved.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def command(directory: Path, tokenizer: str, as_json: bool) -> None:
    """Check a dataset against its manifest; exit 1 at a mismatch.

    Hashes every file again; checks each index against its shard, ids against the vocabulary, eos
    at every document's end, and all counts; of chats the masks, and on samples spread over them
    the trained text, decoded.
    """
    from tokmill.dataset.reader import read_manifest
    from tokmill.dataset.verify import verify
    from tokmill.words.units import size

    manifest = read_manifest(directory, follow_links=False)
    findings = verify(directory, manifest)
    note = ""
    if manifest.get("kind") == "sft" and not findings.problems:
        note = _check_text(directory, manifest, tokenizer, findings.problems)
    if as_json:
        show_json(asdict(findings))
    else:
        for problem in findings.problems:
            show_labelled("mismatch:", problem, colour="red")
        if findings.notes:
            show(f"note: outside the dataset, not checked: {_listed(findings.notes)}")
        show(
            f"{plural(findings.n_files, 'file')} ({size(findings.n_bytes)}) hashed, "
            f"{plural(findings.n_shards, 'shard')}, {plural(findings.n_documents, 'document')}, "
            f"{plural(findings.n_tokens, 'token')} checked{note}"
        )
    if findings.problems:
        raise VerifyError(
            f"{directory}: verification failed, {plural(len(findings.problems), 'problem')}"
        )
    if not as_json:
        show(f"{directory}: no mismatch")


def _listed(names: list[str]) -> str:
    """Return the first names, and how many more there are."""
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(sorted(names)[:_MOST_NAMED]) + more


def _check_text(directory: Path, manifest: dict[str, Any], moved: str, problems: list[str]) -> str:
    """Look at the trained text of some samples; say how many, or why none."""
    from tokmill.page.trained_text import MOST_SAMPLES, check_trained_text

    try:
        loaded = tokenizer_of(manifest, moved)
    except TokmillError as error:
        if moved:
            raise
        return f"; trained text not decoded: {error}"
    numbers = spread(manifest["totals"]["documents"], MOST_SAMPLES)
    problems += check_trained_text(directory, manifest, loaded, numbers)
    return f"; {plural(len(numbers), 'sample')} decoded"
