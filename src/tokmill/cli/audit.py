"""`tokmill audit`: what a trainer would train by mistake, with one sample of each kind."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tokmill.cli.completion import files
from tokmill.cli.inspect import Look, is_in_colour, legend, sample_text
from tokmill.cli.options import PATH, with_options
from tokmill.cli.screen import (
    log_option,
    log_result,
    print_tables,
    show,
    show_json,
    show_labelled,
    show_rows,
    show_styled,
)
from tokmill.cli.trainers import COLUMN_OPTIONS
from tokmill.words import plural, printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tokmill.inspect.audit_result import Audit, Finding

_MAX_CHARS = 600
"""Characters of an example."""


@click.command("audit")
@click.argument("sources", nargs=-1, type=PATH, metavar="SOURCE...")
@click.option(
    "--tokenizer",
    "-t",
    default="",
    metavar="TOKENIZER",
    shell_complete=files,
    help="The tokenizer that made the ids; a dataset keeps its own.",
)
@click.option(
    "--fail-on",
    default="",
    metavar="KIND,…",
    help="Exit 1 if a sample is of one of these kinds; any: of any kind.",
)
@click.option(
    "--max-tokens", default="", metavar="N", help="Also count samples with more tokens: 4096, 32k."
)
@click.option(
    "--val",
    multiple=True,
    type=PATH,
    metavar="SOURCE",
    help="rows: source of the val split; once for each.",
)
@click.option(
    "--eos-token",
    default="",
    metavar="TOKEN",
    help="rows: token that ends documents, if the tokenizer's files do not say it.",
)
@with_options(*COLUMN_OPTIONS)
@click.option(
    "--alignment",
    type=click.Choice(["own", "next"]),
    help="rows: whether the trainer takes labels and masks at their own token, or for the token "
    "behind.  [default: own]",
)
@click.option("--kinds", "lists_kinds", is_flag=True, help="Print all kinds, and read nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@log_option
def command(
    sources: tuple[Path, ...],
    fail_on: str,
    masks: tuple[str, ...],
    lists_kinds: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Find what a trainer would train by mistake, in a dataset or in another trainer's rows.

    SOURCE: a finished dataset, or files and directories of rows of ids: Parquet, JSON Lines, what
    `save_to_disk` wrote, such as the prepared sets of axolotl, LLaMA-Factory or TRL. Each kind of
    fault is counted, and one sample of it is shown. Nothing is changed.

    \b
    Examples:
      tokmill audit out
      tokmill audit last_run_prepared/3f9a/ -t qwen2.5/
      tokmill audit rows.parquet -t gpt2/ --max-tokens 4096 --fail-on any
      tokmill audit --kinds
    """
    from tokmill.api.audit import audit
    from tokmill.inspect.audit_kinds import KINDS, checked_kinds

    if lists_kinds:
        _show_kinds(as_json=as_json)
        return
    checked_kinds(fail_on)
    source = sources[0] if len(sources) == 1 else list(sources)
    given = {name: value or None for name, value in {**options, "mask": masks}.items()}
    found = audit(source, **given)
    counts = plural(len(found.findings), "kind")
    log_result(f"{found.source}: {counts} of {len(KINDS)} found", **found.counts)
    if as_json:
        show_json(found.as_json())
    else:
        _show(found)
    if fail_on:
        found.check(fail_on)


def _show(found: Audit) -> None:
    """Print what was found, and what was not looked for."""
    share = found.trained_tokens / max(1, found.tokens)
    show(
        f"{printable(found.source)}: {plural(found.samples, 'sample')}, "
        f"{plural(found.tokens, 'token')}, {share:.1%} trained"
    )
    for note in found.notes:
        show_labelled("note:", note, colour="cyan", err=True)
    if found.findings:
        show()
        _show_table(found)
        look = Look(is_in_colour(), by_token=False, max_chars=_MAX_CHARS)
        if any(one.example and one.example.sample for one in found.findings):
            show()
            show_styled(legend(look))
        for finding in found.findings:
            _show_example(finding, look)
    show()
    if found.meant:
        told = ", ".join(f"{kind} ({n:,})" for kind, n in found.meant.items())
        show(f"no fault, since the run was told to train so: {told}")
    for needs, kinds in _by_need(found.not_checked).items():
        show(f"not looked for, without {needs}: {', '.join(kinds)}")
    if not found.findings:
        show("no fault found")


def _by_need(not_checked: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the kinds that were not looked for, by what they need."""
    by_need: dict[str, list[str]] = {}
    for kind, needs in not_checked.items():
        by_need.setdefault(needs, []).append(kind)
    return by_need


def _show_table(found: Audit) -> None:
    """Print the kinds that were found, with the samples of each."""
    from tokmill.terminal_tables import rows_table

    rows = [(one.kind, f"{one.count:,}", f"{one.share:.1%}", one.means) for one in found.findings]
    heads = ("samples", "share", "what is so")
    print_tables([rows_table("kind", heads, rows, words=("what is so",))])


def _show_example(finding: Finding, look: Look) -> None:
    """Print a sample of a kind, with what to do."""
    show()
    example = finding.example
    place = "" if example is None else f": {printable(example.where)}"
    if example is not None and example.token is not None:
        place += f", token {example.token:,} of {example.tokens:,}"
    show(f"{finding.kind}{place}", bold=True)
    show(f"why: {finding.hurts}")
    show(f"to do: {finding.remedy}")
    if example is None:
        return
    if example.message:
        show(printable(example.message))
    if example.raw:
        show(f"the row begins with {printable(example.raw)}")
    if example.sample is not None:
        before = f"… {plural(example.first, 'more token')} … " if example.first else ""
        show_styled(before + sample_text(example.sample, look))


def _show_kinds(*, as_json: bool) -> None:
    """Print the table of kinds."""
    from tokmill.inspect.audit_kinds import KINDS

    if as_json:
        show_json({name: kind._asdict() for name, kind in KINDS.items()})
        return
    for name, kind in KINDS.items():
        needs = f"; needs {kind.needs}" if kind.needs else ""
        show(f"{name} (in {kind.of}{needs})", bold=True)
        show_rows([("what is so", kind.means), ("why", kind.hurts), ("to do", kind.remedy)])
