"""The jobs of tokmill, from settings to a result; the Python face and the command line share them.

Nothing here prints or reads an option.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokmill.errors import TokmillError, UsageError, VerifyError
from tokmill.settings.load import argument_values, build_config, file_values, merged
from tokmill.settings.names import option_name
from tokmill.settings.plain import not_default
from tokmill.settings.schema import BILL_SECTIONS, RenderSettings
from tokmill.settings.sft import SftSettings
from tokmill.words.plural import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tokmill.api.bar import Bar, NotebookBar
    from tokmill.api.progress import Progress
    from tokmill.bill.full_bill import BillSettings, FullBill, OnDisk
    from tokmill.dataset.verify import Findings
    from tokmill.run.make_dataset import Observer
    from tokmill.settings.schema import Config


_OF_GPUS = {"gpu", "link_bandwidth"}
"""Settings of training that inference also uses."""


def checked_path(value: str | os.PathLike[str], name: str) -> Path:
    """Return the path that the argument `name` gives.

    Raises:
        UsageError: it is none.
    """
    if not isinstance(value, str | os.PathLike) or not str(value) or "\0" in str(value):
        raise UsageError(f"{name}: expected a path, found {value!r}")
    return Path(value)


def checked_recipe(config: Config, kind: str, config_file: Path | None = None) -> Config:
    """Return the settings of a run of `pretrain` or `sft`.

    Raises:
        UsageError: they hold settings of the other recipe.
    """
    if kind == "pretrain":
        if config.sft is not None:
            raise UsageError(f"{config_file}: [sft] is for tokmill sft, this is tokmill pretrain")
        return config
    if config.render != RenderSettings():
        raise UsageError("[render] is for tokmill pretrain: what sft writes is set in [sft]")
    return config if config.sft is not None else replace(config, sft=SftSettings())


def make_dataset(config: Config, observer: Observer, *, overwrite: bool = False) -> dict[str, Any]:
    """Make a dataset, or continue one, and return its manifest.

    Raises:
        TokmillError: what is committed stays, and the same settings continue it.
        KeyboardInterrupt: says what is kept.
    """
    from tokmill.executors.run import run

    if config.model is not None or config.training is not None:
        from tokmill.bill.full_bill import BillSettings, check

        check(BillSettings.of(config))
    return run(config, observer, overwrite=overwrite)


def make_observed(
    config: Config,
    *,
    overwrite: bool,
    note: Callable[[str], None] | None,
    warn: Callable[[str], None] | None,
    bar: Bar | NotebookBar | None,
    call: Callable[[Progress], object] | None = None,
) -> dict[str, Any]:
    """Make a dataset while a `RunObserver` with these receivers follows; return its manifest.

    Raises:
        TokmillError: see `make_dataset`.
    """
    from tokmill.api.progress import RunObserver
    from tokmill.bill.measuring.process_tree import Sampler

    with Sampler() as memory:
        observer = RunObserver(memory, note=note, warn=warn, bar=bar, call=call)
        try:
            manifest = make_dataset(config, observer, overwrite=overwrite)
        finally:
            observer.close()
        observer.ended()
    return manifest


def bill_of(settings: BillSettings, disk: OnDisk | None) -> FullBill:
    """Return the bill of a dataset, a model, or both.

    Host RAM is compared with `host_ram` if given, else with this machine where it holds the dataset
    and one GPU trains: several GPUs are those of other machines.

    Raises:
        UsageError: the model or the GPU is not known, or settings contradict each other.
    """
    from tokmill.bill.full_bill import full_bill
    from tokmill.bill.host_ram.machine import Machine
    from tokmill.bill.measuring.machine import this_machine

    is_here = disk is not None and settings.training.gpus == 1
    return full_bill(settings, disk, this_machine() if is_here else Machine())


def bill_settings(
    base: Mapping[str, Mapping[str, Any]],
    config_file: Path | None,
    files: Mapping[str, Path],
    values: Mapping[str, Mapping[str, Any]],
    named: Callable[[str, str], str],
) -> BillSettings:
    """Return the settings of a bill; a later source wins over an earlier one.

    Args:
        base: settings of the dataset's own run, by section.
        config_file: a TOML file.
        files: settings files of other programs, by kind: deepspeed, training_args, axolotl.
        values: what was given for this bill, by section.
        named: returns what messages call a setting.

    Raises:
        UsageError: a file cannot be read, or a value is wrong.
    """
    from tokmill.bill import settings_files
    from tokmill.bill.full_bill import BillSettings

    readers = {
        "deepspeed": settings_files.read_deepspeed,
        "training_args": settings_files.read_training_arguments,
        "axolotl": settings_files.read_axolotl,
    }
    read = [readers[kind](path) for kind, path in files.items()]
    every = merged(
        not_default(base, BILL_SECTIONS),
        file_values(config_file),
        *({"model": found.model, "training": found.training} for found in read),
        values,
    )
    own = {section: every[section] for section in BILL_SECTIONS if section in every}
    return replace(
        BillSettings.of(build_config(own, where="options", named=named)),
        notes=tuple(note for found in read for note in found.notes),
        not_read=tuple(key for found in read for key in found.not_read),
        trains="inference" not in own or bool(set(own.get("training", ())) - _OF_GPUS),
    )


def bill_of_dataset(
    directory: Path,
    manifest: dict[str, Any],
    config_file: str | Path | None,
    files: Mapping[str, str | Path | None],
    arguments: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the bill of a dataset as plain values; see `Dataset.bill`."""
    from tokmill.bill.full_bill import as_json, on_disk
    from tokmill.dataset.reader import check_complete

    check_complete(manifest, directory)
    path = None if config_file is None else checked_path(config_file, "config")
    given = {kind: checked_path(file, kind) for kind, file in files.items() if file is not None}
    values = argument_values(BILL_SECTIONS, arguments)
    settings = bill_settings(manifest["config"], path, given, values, option_name)
    return as_json(bill_of(settings, on_disk(directory, manifest)))


@dataclass(frozen=True, slots=True)
class Verification:
    """What a verification of a dataset looked at.

    `notes`: names in the directory that are not of the dataset, and were not checked.
    `n_decoded`: samples whose trained text was decoded and encoded again. `not_decoded`: why none
    were, of a dataset with masks; '' otherwise.
    """

    n_files: int
    n_bytes: int
    n_shards: int
    n_documents: int
    n_tokens: int
    n_decoded: int = 0
    not_decoded: str = ""
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = field(default=(), repr=False)

    def check(self, directory: Path) -> None:
        """Raise `VerifyError` with the problems, if there are any."""
        if self.problems:
            n = plural(len(self.problems), "problem")
            raise VerifyError(f"{directory}: verification failed, {n}", self.problems)


def verify_dataset(directory: Path, tokenizer: str = "") -> Verification:
    """Check every file of a dataset against its manifest; see `Verification.problems`.

    `tokenizer`: the tokenizer, if it has moved.

    Raises:
        TokmillError: there is no finished dataset, or `tokenizer` is not its own.
    """
    from tokmill.dataset.reader import read_manifest
    from tokmill.dataset.verify import verify

    manifest = read_manifest(directory, follow_links=False)
    found = verify(directory, manifest)
    n_decoded, reason = 0, ""
    if manifest.get("kind") == "sft" and not found.problems:
        n_decoded, reason = _check_text(directory, manifest, tokenizer, found)
    return Verification(
        found.n_files,
        found.n_bytes,
        found.n_shards,
        found.n_documents,
        found.n_tokens,
        n_decoded,
        reason,
        tuple(found.notes),
        tuple(found.problems),
    )


def _check_text(
    directory: Path, manifest: dict[str, Any], moved: str, found: Findings
) -> tuple[int, str]:
    """Check the trained text of some samples; return how many, or why none."""
    from tokmill.page.samples import evenly_spread, tokenizer_of
    from tokmill.page.trained_text import MOST_SAMPLES, check_trained_text

    try:
        loaded = tokenizer_of(manifest, moved)
    except TokmillError as error:
        if moved:
            raise
        return 0, str(error)
    numbers = evenly_spread(manifest["totals"]["documents"], MOST_SAMPLES)
    found.problems += check_trained_text(directory, manifest, loaded, numbers)
    return len(numbers), ""
