"""`tokmill verify` checks a dataset, `tokmill doctor` this machine."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from tokmill.cli.completion import directories, files
from tokmill.cli.options import directory_argument, moved_tokenizer
from tokmill.cli.screen import log_option, log_result, show, show_json, show_labelled, show_rows
from tokmill.errors import VerifyError
from tokmill.words import plural, size

_MOST_NAMED = 5


@click.command("verify")
@directory_argument
@moved_tokenizer
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@log_option
def verify(directory: Path, tokenizer: str, as_json: bool) -> None:
    """Check a dataset against its manifest; exit 1 at a mismatch.

    Hashes every file, and checks each index, the ids, the eos of every document, and all counts.
    For chats it also checks the masks and, on some samples, the decoded trained text. The files of
    an export are compared with its record. In an object store (s3://bucket/name), names, sizes and
    checksums are compared.
    """
    from tokmill.api.jobs import verify_dataset
    from tokmill.urls import shown_place

    checked = verify_dataset(directory, tokenizer)
    found = plural(len(checked.problems), "problem")
    log_result(f"{shown_place(directory)}: {found}", **asdict(checked))
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


@click.command("doctor")
@click.argument("directory", default="", shell_complete=directories)
@click.option(
    "--tokenizer", "-t", default="", shell_complete=files, help="Also load this tokenizer."
)
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@click.pass_context
def doctor(ctx: click.Context, directory: str, tokenizer: str, as_json: bool) -> None:
    """Check this installation and machine; exit 1 if something essential is broken.

    Imports the packages that tokmill needs and the engines, shows the cores and the memory that the
    cgroup grants, and tries what a run does on the disk of DIRECTORY: an output, by default the
    current directory. Leaves nothing behind.

    \b
    Examples:
      tokmill doctor
      tokmill doctor /data/tokens --tokenizer qwen2.5/
      tokmill doctor --json
    """
    from tokmill.api.doctor import BROKEN, examine

    findings = examine(directory, tokenizer)
    broken = [finding.name for finding in findings if finding.state == BROKEN]
    if as_json:
        show_json({"works": not broken, "findings": [asdict(finding) for finding in findings]})
        ctx.exit(VerifyError.exit_code if broken else 0)
    show_rows([(finding.name, finding.shown) for finding in findings])
    show()
    if broken:
        raise VerifyError(f"tokmill cannot work here, see above: {', '.join(broken)}")
    show("tokmill works here")
