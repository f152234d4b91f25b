"""Import tokens of another trainer: a run whose recipe is that of tokens, or of rows of ids.

It is planned, made in parts, continued and finished like any run. Each file of tokens is a part;
files of rows are cut as those of text are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.dataset.layout import SHARD_BYTES, SPLITS, token_dtype
from tokmill.dataset.reader import surrounding_dataset
from tokmill.engines.choice import EngineChoice
from tokmill.engines.engine import IMPORT
from tokmill.errors import StateError, StorageError, UsageError
from tokmill.machine.limits import usable_cores, usable_memory
from tokmill.place import open_place
from tokmill.recipes.row_columns import NEXT, OWN, GivenColumns
from tokmill.recipes.rows import CUT_PADDING
from tokmill.recipes.spec import Part, ReadingSettings, RunSpec
from tokmill.recipes.tokens import ADDED_EOS, ENDED_BY_EOS, FORMAT, UNTRAINED_FIRST
from tokmill.run.plan import cut_into_parts, resolve
from tokmill.run.prepare import workers_and_threads
from tokmill.run.rows import ROW_FORMATS, find_rows
from tokmill.settings.load import checked_values
from tokmill.settings.names import schema
from tokmill.settings.schema import (
    Config,
    InputSettings,
    LimitSettings,
    OutputSettings,
    RenderSettings,
    RunSettings,
    TokenizerSettings,
)
from tokmill.settings.sft import SftSettings
from tokmill.sources.files import Discovery
from tokmill.sources.hub import is_hub
from tokmill.sources.slices import Slice, SourceFile
from tokmill.sources.token_layouts import IMPORTERS, TokenRules
from tokmill.storage import free_bytes, storage_errors
from tokmill.tokenizer.tokenizer import load_tokenizer
from tokmill.urls import refuse_store, store_url
from tokmill.version import __version__
from tokmill.words import plural, size

if TYPE_CHECKING:
    from tokmill.dataset.manifest import Manifest
    from tokmill.recipes.row_columns import RowRules
    from tokmill.sources.token_files import TokenFile
    from tokmill.tokenizer.tokenizer import Tokenizer

_MOST_WORKERS = 256

_LEAST_WORKER_BYTES = 1 << 30
"""Bytes of tokens that pay for one worker more."""


@dataclass(frozen=True, slots=True)
class ImportSettings:
    """What is imported, and how.

    Attributes:
        sources: files, prefixes or directories of the train split.
        trainer: a key of `IMPORTERS` or of `ROW_FORMATS`.
        output: the place of the dataset.
        tokenizer: which made the tokens, with its eos.
        val: files, prefixes or directories of the val split.
        add_eos: add eos to documents that do not end with it; else they are an error.
        dtype: `uint16` or `uint32` of a layout that does not record it; '' for its own.
        run: worker processes, by default by cores and input, and where they are.
        columns: of rows, what the user says of their columns.
        limits: of rows, what becomes of broken ones; by default the first one stops the run.
        packing: of rows that are chats, the tokens of packs; longer samples are left out; 0: none.
        max_samples_per_row: with packing, the samples of a row, at most; 0: any number.
    """

    sources: Sequence[Path]
    trainer: str
    output: str
    tokenizer: TokenizerSettings
    val: Sequence[Path] = ()
    add_eos: bool = False
    dtype: str = ""
    run: RunSettings = field(default_factory=RunSettings)
    columns: GivenColumns = field(default_factory=GivenColumns)
    limits: LimitSettings = field(default_factory=lambda: LimitSettings(on_error="fail"))
    packing: int = 0
    max_samples_per_row: int = 0


def row_settings(packing: Any, max_samples_per_row: Any, **limits: Any) -> dict[str, Any]:
    """Return `limits` and how rows are packed of `ImportSettings`, of values as a user gives them.

    `packing`, `max_samples_per_row`: None for none. `limits`: settings of that section; None for
    the default.

    Raises:
        UsageError: a value is of another type, or out of range.
    """
    given = {name: value for name, value in limits.items() if value is not None}
    checked = checked_values("limits", schema()["limits"], given)
    asked = {"packing": packing or 0, "max_samples_per_row": max_samples_per_row or 0}
    packs = checked_values("sft", schema()["sft"], asked)
    if packs["max_samples_per_row"] and not packs["packing"]:
        raise UsageError("needs --packing, the tokens of a row", "sft.max_samples_per_row")
    return {"limits": LimitSettings(**checked), **packs}


@dataclass(frozen=True, slots=True)
class PreparedImport:
    """Files, tokenizer and parts of an import; see `prepare.Prepared`."""

    config: Config
    discovery: Discovery
    tokenizer: Tokenizer
    parts: tuple[Part, ...]
    workers: int
    output_bytes: int
    threads: int
    tokens: TokenRules | None = None
    rows: RowRules | None = None
    row_notes: tuple[str, ...] = ()

    def notes(self, *, with_fields: bool) -> list[str]:
        """Return notes for the user."""
        return [*self.tokenizer.notes, *self.row_notes]

    def spec(self, engine: EngineChoice) -> RunSpec:
        """Return the run."""
        files = plural(len(self.discovery.files), "file")
        reading = ReadingSettings("", files, self.config.input, RenderSettings(), self.config.sft)
        return RunSpec(
            self.config,
            self.tokenizer,
            engine,
            self.threads,
            memory_bytes=usable_memory() // self.workers,
            readings=(reading,),
            tokens=self.tokens,
            rows=self.rows,
        )

    @property
    def command(self) -> str:
        """Return the command of the run."""
        return "import"

    def engine(self) -> EngineChoice:
        """Return the engine that stands for none."""
        of_whom = "rows of ids"
        if self.tokens is not None:
            of_whom = f"tokens of {IMPORTERS[self.tokens.trainer].title}"
        return EngineChoice(IMPORT, __version__, f"{of_whom}, not encoded by tokmill")

    def check_space(self, directory: Path) -> None:
        """Check that the dataset has room, where parts of it may stand; raises `StorageError`."""
        held = open_place(str(directory)).entries().values()
        room = sum(filter(None, held)) + free_bytes(directory)
        if self.output_bytes > room:
            raise StorageError(
                f"{directory}: no room for the import: {size(self.output_bytes)} are needed, and "
                f"there is room for {size(room)}: make room, or choose another --output"
            )


def prepare_import(
    settings: ImportSettings, commits: Mapping[str, str] | None = None
) -> PreparedImport:
    """Find the files, load the tokenizer, make the parts; nothing is written.

    `commits`: of Hub datasets, by path, from the plan of an earlier attempt.

    Raises:
        UsageError: the sources, the trainer or the tokenizer are not what they should be.
        StateError: the output is inside a dataset.
        TokmillError: a file is damaged.
    """
    if not 0 <= settings.run.workers <= _MOST_WORKERS:
        raise UsageError(f"workers: expected 0 to {_MOST_WORKERS}, found {settings.run.workers}")
    is_directory = not store_url(settings.output)
    if is_directory and (outer := surrounding_dataset(Path(settings.output).resolve())):
        raise StateError(f"{settings.output}: is inside the dataset {outer}: name another output")
    if settings.trainer in ROW_FORMATS:
        return _prepare_rows(settings, commits)
    if settings.columns != GivenColumns() or settings.packing:
        raise UsageError(
            "--ids, --labels, --mask, --weights, --alignment and --packing are for rows (--from "
            f"{', '.join(ROW_FORMATS)}): leave them out"
        )
    files = _find(settings)
    has_masks = files[0].mask is not None
    tokenizer = load_tokenizer(settings.tokenizer, for_chat=has_masks)
    dtype = np.dtype("<u4" if any(file.dtype.itemsize > 2 for file in files) else "<u2")
    paths = tuple(str(path) for path in (*settings.sources, *settings.val))
    output = OutputSettings(
        dir=settings.output, dtype=dtype.name, shard_tokens=SHARD_BYTES // dtype.itemsize
    )
    config = Config(
        InputSettings(paths=paths),
        settings.tokenizer,
        output=output,
        run=settings.run,
        sft=SftSettings() if has_masks else None,
    )
    slices = [Slice(_source_of(file), 0, -1, file.n_bytes) for file in files]
    rules = TokenRules(
        settings.trainer,
        settings.add_eos,
        settings.dtype,
        tuple(str(file.path) for file in files if file.split == "val"),
    )
    parts = tuple(Part(number, (piece,)) for number, piece in enumerate(slices))
    n_bytes = sum(file.n_bytes for file in files)
    by_size = min(usable_cores(), 1 + n_bytes // _LEAST_WORKER_BYTES)
    workers = min(settings.run.workers or by_size, len(parts))
    token_bytes = dtype.itemsize + int(has_masks)
    return PreparedImport(
        config,
        Discovery([piece.file for piece in slices], [], [], []),
        tokenizer,
        parts,
        workers,
        token_bytes * sum(file.n_tokens for file in files),
        max(1, usable_cores() // workers),
        rules,
    )


def _prepare_rows(settings: ImportSettings, commits: Mapping[str, str] | None) -> PreparedImport:
    """Prepare an import of rows of ids; see `prepare_import`."""
    if settings.dtype:
        raise UsageError("--dtype: the tokenizer decides how ids of rows are stored: leave it out")
    if settings.columns.alignment not in ("", OWN, NEXT):
        found = settings.columns.alignment
        raise UsageError(f"alignment: expected {OWN} or {NEXT}, found {found!r}")
    paths = tuple(store_url(path) or str(path) for path in (*settings.sources, *settings.val))
    reading = InputSettings(paths=paths)
    rows = find_rows(
        settings.sources, settings.val, settings.trainer, settings.columns, reading, commits
    )
    rules = replace(rows.rules, adds_eos=settings.add_eos)
    if settings.add_eos and rules.are_chats:
        raise UsageError("--add-eos: samples with masks may end with any token: leave it out")
    tokenizer = load_tokenizer(settings.tokenizer, for_chat=rules.are_chats)
    dtype = token_dtype("auto", max(tokenizer.vocab_size - 1, tokenizer.eos.id))
    if settings.packing and not rules.are_chats:
        raise UsageError(
            "--packing: for documents, run tokmill pack after the import: leave it out"
        )
    sft = SftSettings(packing=settings.packing, max_samples_per_row=settings.max_samples_per_row)
    sft = replace(sft, weights="file") if rules.weights else sft
    files = [file for of_split in rows.files for file in of_split]
    config = resolve(
        Config(
            reading,
            settings.tokenizer,
            output=OutputSettings(dir=settings.output, dtype=dtype.name),
            limits=settings.limits,
            run=settings.run,
            sft=sft if rules.are_chats else None,
        ),
        tokenizer,
        sum(file.n_bytes for file in files),
    )
    # A part is of one split, and all of them are read in one way.
    of_splits = cut_into_parts(filter(None, rows.files), config.output.part_bytes)
    parts = tuple(replace(part, reading=0) for part in of_splits)
    workers, threads = workers_and_threads(config, parts)
    return PreparedImport(
        config,
        Discovery(files, [], list(rows.warnings), []),
        tokenizer,
        parts,
        workers,
        0,
        threads,
        rows=rules,
        row_notes=rows.notes,
    )


def _find(settings: ImportSettings) -> list[TokenFile]:
    if settings.dtype not in ("", "uint16", "uint32"):
        raise UsageError(f"dtype: expected uint16 or uint32, found {settings.dtype!r}")
    if settings.dtype and not IMPORTERS[settings.trainer].takes_dtype:
        raise UsageError("--dtype: the files name the type of ids: leave it out")
    named = [one for path in settings.sources for one in _splits(path)]
    named += [(path, "val") for path in settings.val]
    for path, _ in named:
        _refuse_remote(path)
    find = IMPORTERS[settings.trainer].find
    files = [file for path, split in named for file in find(path, split, settings.dtype)]
    if not files:
        raise UsageError("no source: name the files, prefixes or directories to import")
    _check_together(files, settings)
    return files


def _check_together(files: Sequence[TokenFile], settings: ImportSettings) -> None:
    """Check that files can be one dataset: each named once, all with masks or none."""
    paths = [file.path.resolve() for file in files]
    if twice := [str(path) for path, n in Counter(paths).items() if n > 1]:
        raise UsageError(f"{twice[0]}: named twice")
    without = [file.path for file in files if file.mask is None]
    if without and len(without) < len(files):
        raise UsageError(f"{without[0]}: has no mask beside it, and other files have one")
    if settings.add_eos and not without:
        raise UsageError("--add-eos: samples with masks may end with any token: leave it out")


def _refuse_remote(path: Path) -> None:
    """Refuse a source in a store or on the Hub: documents are read at any place of such files."""
    refuse_store(path)
    if is_hub(str(path)):
        raise UsageError(
            f"{path}: files of tokens are read from a disk: download the dataset first (hf "
            "download), and name its directory"
        )


def _splits(path: Path) -> list[tuple[Path, str]]:
    """Return the folders of the splits of a directory, as exports have them, or the path itself."""
    found = [(path / split, split) for split in SPLITS if (path / split).is_dir()]
    return found or [(path, "train")]


def _source_of(file: TokenFile) -> SourceFile:
    """Return the row of a file in the plan."""
    with storage_errors(file.path):
        status = file.path.stat()
    return SourceFile(str(file.path), FORMAT, "", status.st_size, status.st_mtime_ns, file.stamp)


def import_notes(settings: ImportSettings, manifest: Manifest) -> list[str]:
    """Return notes on what was lost or changed, for the user."""
    notes = []
    importer = IMPORTERS.get(settings.trainer)
    for source in manifest.sources if importer and not importer.runs_on else ():
        path = Path(source.path)
        n_left = path.stat().st_size - source.counts.input_bytes if path.exists() else 0
        if n_left > 0:
            notes.append(f"{source.path}: its index leaves {plural(n_left, 'byte')} out")
    totals = manifest.totals
    counters = totals.counters
    if counters.get(ENDED_BY_EOS, 0):
        notes.append(
            "boundaries are those of eos: a document with an eos inside becomes two, and documents "
            "that were written without eos become one"
        )
    if n := counters.get(ADDED_EOS, 0):
        notes.append(f"eos was added to {plural(n, 'document')} that did not end with it")
    if n := counters.get(UNTRAINED_FIRST, 0):
        notes.append(
            f"{plural(n, 'sample')} had a target at the first token, which nothing predicts: the "
            "mask there is now 0"
        )
    if n := counters.get(CUT_PADDING, 0):
        notes.append(f"{plural(n, 'token')} of padding left out")
    notes += [f"{plural(n, 'row')} rejected: {why}" for why, n in totals.rejects.items()]
    drops = totals.drops.items()
    return notes + [f"{plural(n, 'document')} left out: {reason}" for reason, n in drops]
