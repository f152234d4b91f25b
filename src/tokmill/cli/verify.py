"""`tokmill verify`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from tokmill.errors import VerifyError


@click.command("verify")
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def command(directory: Path, as_json: bool) -> None:
    """Check a dataset against its manifest; exit 1 at a lie.

    Hashes every file again; checks each index against its shard, ids against the vocabulary, eos
    at every document's end, and all counts.
    """
    from tokmill.report.units import size
    from tokmill.shards.reader import read_manifest
    from tokmill.shards.verify import verify

    manifest = read_manifest(directory)
    findings = verify(directory, manifest)
    if as_json:
        click.echo(json.dumps(asdict(findings), ensure_ascii=False))
    else:
        for problem in findings.problems:
            click.echo(f"{click.style('lie:', fg='red', bold=True)} {problem}")
        click.echo(
            f"{findings.n_files:,} files ({size(findings.n_bytes)}) hashed, {findings.n_shards:,} "
            f"shards, {findings.n_documents:,} documents, {findings.n_tokens:,} tokens checked"
        )
    if findings.problems:
        raise VerifyError(f"{directory}: {len(findings.problems)} promises do not hold")
    if not as_json:
        click.echo(f"{directory}: every promise that its bytes can show holds")
