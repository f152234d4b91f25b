"""`tokmill doctor`."""

from __future__ import annotations

from dataclasses import asdict

import click

from tokmill.cli.completion import directories, files
from tokmill.cli.screen import show, show_json, show_rows
from tokmill.errors import VerifyError


@click.command("doctor")
@click.argument("directory", default="", shell_complete=directories)
@click.option(
    "--tokenizer", "-t", default="", shell_complete=files, help="Also load this tokenizer."
)
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@click.pass_context
def command(ctx: click.Context, directory: str, tokenizer: str, as_json: bool) -> None:
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
    from tokmill.api.doctor import BROKEN, OK, examine

    findings = examine(directory, tokenizer)
    broken = [finding.name for finding in findings if finding.state == BROKEN]
    if as_json:
        show_json({"works": not broken, "findings": [asdict(finding) for finding in findings]})
        ctx.exit(VerifyError.exit_code if broken else 0)
    show_rows(
        [
            (one.name, one.text if one.state == OK else f"{one.state}: {one.text}")
            for one in findings
        ]
    )
    show()
    if broken:
        raise VerifyError(f"tokmill cannot work here, see above: {', '.join(broken)}")
    show("tokmill works here")
