"""The jobs of tokmill, from settings to a result; the Python face and the command line share them.

Nothing here prints or reads an option.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from io import IOBase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokmill.errors import TokmillError, UsageError
from tokmill.settings.load import config_from_arguments, file_values
from tokmill.settings.names import by_keyword
from tokmill.settings.rows import Rows, brief
from tokmill.settings.schema import (
    PRETRAIN_SECTIONS,
    READ_SETTINGS,
    SFT_SECTIONS,
    RenderSettings,
    Source,
)
from tokmill.settings.sft import SftSettings
from tokmill.urls import is_store, local_path, shown, store_url

if TYPE_CHECKING:
    from tokmill.dataset.manifest import Manifest
    from tokmill.dataset.verify import Verification
    from tokmill.settings.schema import Config


Inputs = str | Path | Source | Sequence[str | Path | Source] | Rows

_OF_BOTH = ("fields", "template", "packing", "max_samples_per_row")
"""Settings that each recipe has, in its own section."""
_FILES_LOOKED_AT, _RECORDS, _BYTES = 3, 100, 1 << 20
"""What is read to find out the recipe of a plan."""
FUNCTIONS = ("renderer", "where")
"""Settings that may be functions, of a source too."""
_SECTIONS = {"pretrain": PRETRAIN_SECTIONS, "sft": SFT_SECTIONS}


def given_text(value: str | None, name: str) -> str:
    """Return a text that may be left out, '' for None; raises `UsageError` for no text and ''."""
    if value is None:
        return ""
    if not isinstance(value, str) or not value:
        raise UsageError(f"{name}: expected a text or None, found {value!r}")
    return value


def checked_path(value: str | os.PathLike[str], name: str) -> Path:
    """Return the path that the argument `name` gives.

    Raises:
        UsageError: it is none.
    """
    if not isinstance(value, str | os.PathLike) or not str(value) or "\0" in str(value):
        raise UsageError(f"{name}: expected a path, found {brief(value)}")
    return Path(value)


def place_of(output: str | Path) -> str:
    """Return the directory or the URL that an output names; raises `UsageError`."""
    path = checked_path(output, "output")
    return store_url(output) or str(path)


def pack(
    directory: str | Path,
    length: int | str,
    last: str,
    split: str,
    max_samples_per_row: int | str,
) -> Manifest:
    """Pack the documents of a dataset, and return its new manifest; see `pack_dataset`.

    Raises:
        UsageError: the dataset is in a store, whatever packages are installed.
    """
    from tokmill.dataset.packs import pack_dataset
    from tokmill.place import open_place

    place = place_of(directory)
    if is_store(local_path(place)):
        raise UsageError(
            f"{shown(place)}: only a dataset in a directory can be packed: copy it to a disk, or "
            "make it with --packing"
        )
    return pack_dataset(open_place(place), length, last, split, max_samples_per_row)


def finished_manifest(directory: Path) -> Manifest:
    """Return the manifest of a finished dataset, in a directory or in a store.

    Raises:
        TokmillError: there is no such dataset, or a run is writing it.
    """
    from tokmill.dataset.reader import read_manifest

    return read_manifest(directory)


def run_config(
    recipe: str | None,
    inputs: Inputs,
    config_file: str | Path | None,
    keywords: Mapping[str, Any],
    note: Callable[[str], None] = lambda _: None,
) -> Config:
    """Return the settings of a run, from arguments over variables over a file.

    `recipe`: `pretrain` or `sft`; None: by the settings that only one of them has, else by the
    first records, which `note` is told. `keywords`: settings by keyword argument.

    Raises:
        UsageError: another recipe, or a setting is wrong, also one of the bill.
    """
    arguments, file = _with_inputs(keywords, inputs), None
    if config_file is not None:
        file = checked_path(config_file, "config")
    if recipe is None:
        recipe = _recipe_of_settings(arguments, file) or _recipe_of_records(arguments, file, note)
    if recipe not in tuple(_SECTIONS):
        raise UsageError(f"recipe: expected one of {', '.join(_SECTIONS)}; found {recipe!r}")
    config = config_from_arguments(_SECTIONS[recipe], arguments, file)
    if recipe == "pretrain" and config.sft is not None:
        raise UsageError(f"{file}: [sft] is for tokmill sft, this is tokmill pretrain")
    if recipe == "sft" and config.render != RenderSettings():
        raise UsageError("[render] is for tokmill pretrain: what sft writes is set in [sft]")
    if config.output.packing == 1:
        raise UsageError("expected rows of at least 2 tokens, found 1", "output.packing")
    if recipe == "sft" and config.output.packing:
        raise UsageError("is for tokmill pretrain: set packing in [sft]", "output.packing")
    if config.output.max_samples_per_row and not config.output.packing:
        raise UsageError("needs --packing, the tokens of a row", "output.max_samples_per_row")
    if config.model is not None or config.training is not None:
        from tokmill.bill.bill_settings import BillSettings
        from tokmill.bill.full_bill import check

        check(BillSettings.of(config))
    return replace(config, sft=config.sft or SftSettings()) if recipe == "sft" else config


def read_config(
    inputs: Inputs, config_file: str | Path | None, keywords: Mapping[str, Any]
) -> Config:
    """Return the settings with which records are read, and nothing else is done.

    Raises:
        UsageError: a setting is wrong, or of something else.
    """
    file = None if config_file is None else checked_path(config_file, "config")
    return config_from_arguments(READ_SETTINGS, _with_inputs(keywords, inputs), file)


def _with_inputs(keywords: Mapping[str, Any], inputs: Inputs) -> dict[str, Any]:
    """Return keyword arguments with the inputs of a call, and names in place of functions."""
    kinds = (str, os.PathLike, Source)
    refused = (bytes, IOBase, set, frozenset, Mapping)  # a set has no order
    listed: list[Any] = [inputs]
    if isinstance(inputs, Iterable) and not isinstance(inputs, (*kinds, *refused)):
        listed = list(inputs)
    if not all(isinstance(item, kinds) for item in listed):
        raise UsageError(
            "inputs: expected a path, a Source, a sequence of these, or rows in memory; found "
            f"{brief(inputs)}"
        )
    paths = [item for item in listed if not isinstance(item, Source)]
    sources = [item for item in listed if isinstance(item, Source)]
    if paths and "paths" in keywords:
        raise UsageError("paths: the input is named twice: name it as inputs only")
    named = {"paths": paths, "source": sources}
    arguments = {**keywords, **{name: items for name, items in named.items() if items}}
    arguments = _with_names(arguments)
    if isinstance(arguments.get("source"), list | tuple):
        arguments["source"] = [_source_with_names(source) for source in arguments["source"]]
    if arguments.get("output"):
        checked_path(arguments["output"], "output")
    return arguments


def _with_names(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with names in place of functions."""
    changed = dict(settings)
    for name in FUNCTIONS:
        if callable(changed.get(name)):
            from tokmill.rendering.user_functions import function_setting

            changed[name] = function_setting(changed[name])
    return changed


def _source_with_names(source: Any) -> Any:
    """Return a source, given as an object or a table, with names in place of functions.

    Raises:
        UsageError: a setting of an object is '' in place of None.
    """
    if isinstance(source, Source):
        known = by_keyword(("input", "render", "sft"))
        for name, value in source.settings.items():
            if name in known:
                known[name].refuse_empty(value)
        return Source(source.name, source.paths, **_with_names(source.settings))
    return _with_names(source) if isinstance(source, Mapping) else source


def _recipe_of_settings(arguments: Mapping[str, Any], file: Path | None) -> str | None:
    """Return the recipe that alone has some of the settings that are given."""
    sections = set(file_values(file))
    for recipe, own in (("sft", "sft"), ("pretrain", "render")):
        names = {name for name, value in arguments.items() if value is not None}
        if own in sections or names & (by_keyword([own]).keys() - {*_OF_BOTH}):
            return recipe
    return None


def _recipe_of_records(
    arguments: Mapping[str, Any], file: Path | None, note: Callable[[str], None]
) -> str:
    """Return the recipe that fits the first records of the input; `note` gets it, with why."""
    from tokmill.rendering.detect import chats_in
    from tokmill.rendering.fields import FieldSample
    from tokmill.sources.files import discover
    from tokmill.sources.first_records import first_of_file

    keywords = by_keyword(("input",)).keys()
    of_input = {name: value for name, value in arguments.items() if name in keywords}
    settings = config_from_arguments(("input",), of_input, file).input
    sources = [replace(settings, paths=source.path_list) for source in settings.sources]
    for inputs in filter(lambda inputs: inputs.paths, (settings, *sources)):
        for first in discover(inputs).files[:_FILES_LOOKED_AT]:
            sample = FieldSample()
            for record in first_of_file(first, inputs, _RECORDS, _BYTES, whole=False):
                sample.add(record)
            if sample.n_records:
                chats = chats_in(RenderSettings(), sample)
                note(
                    f"recipe: {'sft' if chats else 'pretrain'}: {first.path} has {chats or 'text'}"
                )
                return "sft" if chats else "pretrain"
    return "pretrain"


def verify_dataset(directory: Path, tokenizer: str = "") -> Verification:
    """Check every file of a dataset against its manifest; see `Verification.problems`.

    Of an export, the files are compared with its record. In a store, only sizes and checksums are
    compared. `tokenizer`: if not the one that it keeps.

    Raises:
        TokmillError: there is no finished dataset, or `tokenizer` is not its own.
    """
    from tokmill.dataset.layout import EXPORT_RECORD
    from tokmill.dataset.manifest import Manifest
    from tokmill.dataset.reader import plain_manifest, plain_manifest_in
    from tokmill.dataset.verify import Verification, verify
    from tokmill.place import open_place

    url = store_url(directory)
    place = open_place(url or str(directory))
    if url:
        return verify(place, plain_manifest_in(place))
    if (directory / EXPORT_RECORD).is_file():
        from tokmill.trainers.export import file_problems, read_record

        record = read_record(directory)
        n_bytes = sum(file["bytes"] for file in record["files"])
        problems = tuple(file_problems(directory, record))
        return Verification(len(record["files"]), n_bytes, 0, 0, 0, problems=problems)
    data = plain_manifest(directory, follow_links=False)
    verified = verify(place, data)
    if data.get("kind") != "sft" or verified.problems:
        return verified
    manifest = Manifest.of(data, directory)
    n_decoded, reason, problems = _check_text(directory, manifest, tokenizer)
    return replace(verified, n_decoded=n_decoded, not_decoded=reason, problems=problems)


def _check_text(
    directory: Path, manifest: Manifest, moved: str
) -> tuple[int, str, tuple[str, ...]]:
    """Check the trained text of some samples; return how many, or why none, and the problems."""
    from tokmill.inspect.samples import evenly_spread
    from tokmill.inspect.trained_text import MOST_SAMPLES, check_trained_text
    from tokmill.tokenizer.kept import tokenizer_of

    try:
        loaded = tokenizer_of(directory, manifest, moved)
    except TokmillError as error:
        if moved:
            raise
        return 0, str(error), ()
    numbers = evenly_spread(manifest.totals.documents, MOST_SAMPLES)
    problems = check_trained_text(directory, manifest, loaded, numbers)
    return len(numbers), "", tuple(problems)
