"""The jobs of tokmill, from settings to a result; the Python face and the command line share them.

Nothing here prints or reads an option.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokmill.errors import StateError, TokmillError, UsageError, VerifyError
from tokmill.settings.schema import RenderSettings
from tokmill.settings.sft import SftSettings
from tokmill.words.plural import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tokmill.api.bar import Bar, NotebookBar
    from tokmill.api.progress import Progress, RunObserver
    from tokmill.dataset.verify import Findings
    from tokmill.run.begin import Observer
    from tokmill.settings.schema import Config


def checked_path(value: str | os.PathLike[str], name: str) -> Path:
    """Return the path that the argument `name` gives.

    Raises:
        UsageError: it is none.
    """
    if not isinstance(value, str | os.PathLike) or not str(value) or "\0" in str(value):
        raise UsageError(f"{name}: expected a path, found {value!r}")
    return Path(value)


def finished_manifest(directory: Path) -> dict[str, Any]:
    """Return the manifest of a finished dataset, with all keys that reading documents needs.

    Raises:
        TokmillError: there is no such dataset, or a run is writing it.
    """
    from tokmill.dataset.reader import check_complete, manifest_in, read_manifest
    from tokmill.place import open_place
    from tokmill.place.lock import is_locked
    from tokmill.urls import store_url

    if url := store_url(directory):
        return manifest_in(open_place(url))
    try:
        manifest = read_manifest(directory)
    except (StateError, UsageError):
        if is_locked(directory):
            raise StateError(f"{directory}: a run is writing here: wait for its end") from None
        raise
    # Nothing but the bill reads these lists, which are the longest ones, and it checks them itself.
    check_complete({**manifest, "files": [], "sources": []}, directory)
    return manifest


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
        from tokmill.bill.bill_settings import BillSettings
        from tokmill.bill.full_bill import check

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
    with observing(note=note, warn=warn, bar=bar, call=call) as observer:
        return make_dataset(config, observer, overwrite=overwrite)


@contextmanager
def observing(
    *,
    note: Callable[[str], None] | None,
    warn: Callable[[str], None] | None,
    bar: Bar | NotebookBar | None,
    call: Callable[[Progress], object] | None = None,
) -> Iterator[RunObserver]:
    """Yield a `RunObserver` with these receivers; `call` is called once more after the block."""
    from tokmill.api.progress import RunObserver
    from tokmill.bill.measuring.process_tree import Sampler

    with Sampler() as memory:
        observer = RunObserver(memory, note=note, warn=warn, bar=bar, call=call)
        try:
            yield observer
        finally:
            observer.close()
        observer.ended()


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
        from tokmill.urls import shown_place

        if self.problems:
            n = plural(len(self.problems), "problem")
            raise VerifyError(f"{shown_place(directory)}: verification failed, {n}", self.problems)


def verify_dataset(directory: Path, tokenizer: str = "") -> Verification:
    """Check every file of a dataset against its manifest; see `Verification.problems`.

    Of an export, the files are compared with its record. In a store, only sizes and checksums are
    compared. `tokenizer`: the tokenizer, if it has moved.

    Raises:
        TokmillError: there is no finished dataset, or `tokenizer` is not its own.
    """
    from tokmill.dataset.reader import manifest_in, read_manifest
    from tokmill.dataset.verify import verify
    from tokmill.place import open_place
    from tokmill.trainers.exporting.record import RECORD, file_problems, read_record
    from tokmill.urls import store_url

    url = store_url(directory)
    place = open_place(url or str(directory))
    if url:
        found = verify(place, manifest_in(place))
        notes, problems = tuple(found.notes), tuple(found.problems)
        return Verification(found.n_files, found.n_bytes, 0, 0, 0, notes=notes, problems=problems)
    if (directory / RECORD).is_file():
        record = read_record(directory)
        n_bytes = sum(file["bytes"] for file in record["files"])
        problems = tuple(file_problems(directory, record))
        return Verification(len(record["files"]), n_bytes, 0, 0, 0, problems=problems)
    manifest = read_manifest(directory, follow_links=False)
    found = verify(place, manifest)
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
