"""`tokmill mix`: documents of finished datasets in another order."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tokmill.cli.completion import directories
from tokmill.cli.options import setting_option, with_options
from tokmill.cli.screen import (
    log_dataset,
    log_option,
    log_result,
    observer,
    show,
    show_json,
    show_rows,
)
from tokmill.interrupts import CONTINUES
from tokmill.mixing.settings import DROP, MixSettings, mix_settings
from tokmill.settings.names import settings_of
from tokmill.words import plural, seconds, size

if TYPE_CHECKING:
    from tokmill.dataset.manifest import Manifest

_SETTINGS = settings_of("mix", MixSettings)


@click.command("mix")
@click.argument("inputs", nargs=-1, metavar="[DIR[=SHARE|=EPOCHSx]]...", shell_complete=directories)
@with_options(
    *(
        setting_option(setting)
        for name, setting in _SETTINGS.items()
        if name not in ("inputs", "dedup")
    )
)
@click.option(
    "--dedup",
    is_flag=False,
    flag_value=DROP,
    metavar="[drop|mark]",
    help=f"{_SETTINGS['dedup'].metadata['help']}  [drop, if it is given alone]",
)
@click.option(
    "--config",
    "-c",
    "config_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Settings in TOML, in a table [mix]; options win.",
)
@click.option("--plan", "is_plan", is_flag=True, help="Show what would be written; write nothing.")
@click.option("--overwrite", is_flag=True, help="Replace the dataset or export in --output.")
@click.option("--json", "as_json", is_flag=True, help="Print the manifest as JSON.")
@click.option("--quiet", "-q", is_flag=True, help="Print errors only, and --json's object.")
@log_option
def mix_command(
    inputs: tuple[str, ...],
    config_file: Path | None,
    is_plan: bool,
    overwrite: bool,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Write a dataset of the documents of finished datasets.

    Without options the datasets are merged: their files are linked, and take no space. A share is a
    part of the tokens, whatever the sum of all shares is; 2.5x writes a dataset two and a half
    times. DIR#SOURCE is one source of a dataset. The same command continues a mix that was stopped.

    \b
    Examples:
      tokmill mix wiki/ baike/ -o all
      tokmill mix baike=0.4 code=0.6 --tokens 60B --shuffle 7 --dedup -o mixed
      tokmill mix wiki=2.5x math=4x -o mixed
    """
    given = {name: value for name, value in options.items() if value not in (None, ())}
    settings = mix_settings(inputs, config_file, **given)
    with observer(quiet=quiet, as_json=as_json, stopped=CONTINUES) as events:
        if is_plan:
            from tokmill.mixing.forecast import plan_mix

            forecast = plan_mix(settings, events)
            log_result(f"{settings.output}: {plural(forecast['tokens'], 'token')}", **forecast)
            show_json(forecast) if as_json else show_rows(forecast_rows(forecast))
            return
        from tokmill.mixing.make import mix

        manifest = mix(settings, events, overwrite=overwrite)
    if not quiet:
        log_dataset(settings.output, manifest)
    if as_json:
        show_json(manifest.plain)
    elif not quiet:
        show_mix(manifest, Path(settings.output))


def show_mix(manifest: Manifest, output: Path) -> None:
    """Print what was written, and what each source gave."""
    from tokmill.inspect.summary import mix_rows

    totals = manifest.totals
    n_bytes = sum(file.n_bytes for file in manifest.files)
    show(
        f"{output}: {plural(totals.documents, 'document')}, {plural(totals.tokens, 'token')} "
        f"as {manifest.dtype} in {plural(len(manifest.shards), 'shard')}, {size(n_bytes)}"
    )
    show_rows(mix_rows(manifest.mix.sources if manifest.mix else ()))


def forecast_rows(forecast: dict[str, Any]) -> list[tuple[str, str]]:
    """Return a forecast as rows: what each source gives, tokens, disk and time."""
    from tokmill.dataset.manifest import MixSource
    from tokmill.dataset.typed_json import from_json
    from tokmill.inspect.summary import mix_rows

    before = ", before documents are left out" if forecast["before_filters"] else ""
    disk, peak = (size(forecast[name]) for name in ("disk_bytes", "peak_disk_bytes"))
    low, high = map(seconds, forecast["time_s"])
    found = []
    if "contaminated" in forecast:
        found = [("held-out", f"{plural(forecast['contaminated'], 'document')} with shared text")]
    return [
        *found,
        *mix_rows([from_json(MixSource, source) for source in forecast["sources"]]),
        ("tokens", f"{forecast['tokens']:,}{before}"),
        ("disk", f"{disk}; {peak} while it is made"),
        ("checked", f"{size(forecast['checked_bytes'])} of the inputs are summed before the mix"),
        ("time", f"{low} to {high}"),
    ]
