"""`tokmill.audit`: what a trainer would train of a dataset, or of another trainer's rows of ids."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from tokmill.api.in_memory import GivenInputs, spilled_for_now
from tokmill.api.jobs import checked_path, given_text
from tokmill.errors import TokmillError, UsageError
from tokmill.settings.declare import parse_quantity
from tokmill.settings.names import keyword_errors
from tokmill.settings.rows import Rows, brief
from tokmill.settings.schema import TokenizerSettings
from tokmill.tokenizer.objects import tokenizer_path
from tokmill.urls import local_path, shown_place, store_url

if TYPE_CHECKING:
    from tokmill.api.dataset import Dataset
    from tokmill.dataset.manifest import Manifest
    from tokmill.inspect.audit import Auditor
    from tokmill.inspect.audit_result import Audit
    from tokmill.inspect.token_facts import TokenFacts
    from tokmill.recipes.row_columns import GivenColumns
    from tokmill.tokenizer.objects import TokenizerObject

_LEAST_ROW_BYTES = 64
"""Of a row in a file, about: hashes go to more files where there may be more rows."""


@keyword_errors()
def audit(
    source: str | Path | Dataset | Sequence[str | Path] | Rows,
    *,
    tokenizer: str | Path | TokenizerObject | None = None,
    max_tokens: int | str | None = None,
    val: str | Path | Sequence[str | Path] | None = None,
    eos_token: str | None = None,
    ids: str | Sequence[str] | None = None,
    labels: str | None = None,
    mask: str | Sequence[str] | None = None,
    weights: str | None = None,
    alignment: Literal["own", "next"] | None = None,
) -> Audit:
    """Return what a trainer would train of a dataset, or of rows of ids, that is likely a fault.

    Counts samples with nothing trained, with shifted labels, with an untrained end of turn and so
    on, and keeps one of each kind; `tokmill audit --kinds` lists them. Nothing is changed.

    Args:
        source: a finished dataset, open or by its directory; or files or directories of rows, as
            `import_dataset` reads them: Parquet, JSON Lines, `save_to_disk`; or rows in memory.
        tokenizer: which made the ids; a dataset keeps its own. Without it, some kinds are not
            looked for: see `not_checked`.
        max_tokens: also count samples with more tokens, such as 4096 or "32k".
        val: of rows, sources of the val split.
        eos_token: of rows, the token that ends a document, if the tokenizer's files do not tell.
        ids: of rows, the column of ids, or that of prompts and that of completions.
        labels: of rows, the column of labels, or `none`.
        mask: of rows, columns of 0 and 1, 1 = trained, or `none`.
        weights: of rows, the column of weights, or `none`.
        alignment: of rows, `next` if the trainer takes each label for the token behind it, as NeMo
            does; by default at its own token.

    Raises:
        TokmillError: there is no such source, it cannot be read, or its columns are not understood.

    Example:
        >>> found = tokmill.audit("out", max_tokens="128k")
        >>> found.counts, found.check("no-eos,two-bos")
    """
    from tokmill.recipes.row_columns import GivenColumns

    limit = 0 if max_tokens is None else parse_quantity(str(max_tokens), "context", "max_tokens")
    given = GivenColumns(
        _names(ids),
        given_text(labels, "labels"),
        _names(mask),
        given_text(weights, "weights"),
        given_text(alignment, "alignment"),
    )
    with tokenizer_path(tokenizer) as path:
        named = "" if path is None else str(checked_path(path, "tokenizer"))
        directory = _dataset_directory(source)
        if directory is not None:
            if given != GivenColumns() or val is not None or eos_token is not None:
                raise UsageError(
                    f"{directory}: a dataset says itself what its columns are: leave val, "
                    "eos_token, ids, labels, mask, weights and alignment out"
                )
            return _audit_dataset(directory, named, limit)
        inputs = GivenInputs(source)  # type: ignore[arg-type]
        with spilled_for_now(inputs) as (files, _):
            of_val = [] if val is None else _paths(val)
            settings = TokenizerSettings(named, given_text(eos_token, "eos_token"))
            return _audit_files(_paths(files), of_val, given, settings, limit)


class _Known(NamedTuple):
    """What is known of samples: their tokenizer, and what the run of a dataset was told to train.

    `is_chat`: None where what samples train says so. `alignment`: of labels; '' for the usual one.
    """

    facts: TokenFacts | None = None
    is_chat: bool | None = None
    meant: frozenset[str] = frozenset()
    alignment: str = ""
    notes: tuple[str, ...] = ()


def _known_of(directory: Path, manifest: Manifest, tokenizer: str) -> _Known:
    """Return what is known of a dataset; `tokenizer`: '' for the one that it keeps."""
    from tokmill.inspect.audit_rows import meant_kinds
    from tokmill.inspect.token_facts import token_facts
    from tokmill.tokenizer.kept import tokenizer_of

    known = _Known(is_chat=manifest.is_sft, meant=meant_kinds(manifest))
    try:
        return known._replace(facts=token_facts(tokenizer_of(directory, manifest, tokenizer)))
    except TokmillError as error:
        if tokenizer:
            raise
        return known._replace(notes=(str(error),))


def _audit_dataset(directory: Path, tokenizer: str, max_tokens: int) -> Audit:
    """Audit a finished dataset; `tokenizer`: '' for the one that it keeps."""
    from tokmill.dataset.reader import read_intact_manifest
    from tokmill.inspect.audit_rows import audit_shards

    manifest = read_intact_manifest(directory)
    known = _known_of(directory, manifest, tokenizer)
    with _auditor(known, max_tokens, manifest.totals.documents, are_rows=False) as auditor:
        audit_shards(auditor, directory, manifest)
        return auditor.result(shown_place(directory), known.notes, has_masks=manifest.is_sft)


def _audit_files(
    sources: Sequence[Path],
    val: Sequence[Path],
    columns: GivenColumns,
    named: TokenizerSettings,
    max_tokens: int,
) -> Audit:
    """Audit rows of ids in files or directories; `named`: a tokenizer, '' for none."""
    from tokmill.inspect.audit_rows import audit_rows
    from tokmill.inspect.token_facts import token_facts
    from tokmill.run.rows import find_rows, layout_of
    from tokmill.settings.schema import InputSettings
    from tokmill.tokenizer.tokenizer import load_tokenizer

    settings, known = InputSettings(), _known_of_export(sources)
    name = ", ".join(map(shown_place, sources))
    if len(sources) == 1 and not val:
        sources, val = _splits_of(sources[0])
    if known.alignment and not columns.alignment:
        columns = replace(columns, alignment=known.alignment)
    layout = layout_of(sources, settings)
    rows = find_rows(sources, val, layout, columns, settings, finds_alignment=False)
    notes = [*rows.warnings, *rows.notes, *known.notes]
    if named.path:
        loaded = load_tokenizer(named, for_chat=rows.rules.are_chats)
        known = known._replace(facts=token_facts(loaded))
        notes += loaded.notes
    files = [("train", file) for file in rows.files[0]] + [("val", file) for file in rows.files[1]]
    most_rows = sum(file.n_bytes for _, file in files) // _LEAST_ROW_BYTES
    with _auditor(known, max_tokens, most_rows, are_rows=True) as auditor:
        audit_rows(auditor, files, rows.rules, settings)
        return auditor.result(name, notes, has_masks=rows.rules.are_chats)


def _known_of_export(sources: Sequence[Path]) -> _Known:
    """Return what is known of an export of tokmill whose dataset is still there; else nothing."""
    from tokmill.dataset.identity import identity_of
    from tokmill.dataset.layout import EXPORT_RECORD
    from tokmill.dataset.reader import read_intact_manifest
    from tokmill.recipes.row_columns import NEXT
    from tokmill.trainers.export import read_record

    if len(sources) != 1 or not (sources[0] / EXPORT_RECORD).is_file():
        return _Known()
    record = read_record(sources[0])
    alignment = NEXT if record.get("mask_alignment") == "predictor" else ""
    try:
        directory = Path(record["dataset"]["directory"])
        manifest = read_intact_manifest(directory)
        if identity_of(manifest, directory) == record["dataset"]["identity"]:
            return _known_of(directory, manifest, "")._replace(alignment=alignment)
    except TokmillError:  # it was moved, removed, or is damaged
        pass
    return _Known(alignment=alignment)


def _splits_of(source: Path) -> tuple[list[Path], list[Path]]:
    """Return the files of train and of val in a directory that has one for each, as NeMo's has."""
    of_train, of_val = source / "train.idx.parquet", source / "val.idx.parquet"
    is_divided = of_train.is_file() and of_val.is_file()
    return ([of_train], [of_val]) if is_divided else ([source], [])


@contextmanager
def _auditor(
    known: _Known, max_tokens: int, most_samples: int, *, are_rows: bool
) -> Iterator[Auditor]:
    """Yield what audits samples; hashes of them are in a temporary directory meanwhile."""
    from tokmill.inspect.audit import Auditor
    from tokmill.inspect.document_hashes import DocumentHashes

    with tempfile.TemporaryDirectory(prefix="tokmill-audit-") as folder:
        yield Auditor(
            DocumentHashes(Path(folder), most_samples),
            known.facts,
            max_tokens=max_tokens,
            is_chat=known.is_chat,
            are_rows=are_rows,
            meant=known.meant,
        )


def _dataset_directory(source: Any) -> Path | None:
    """Return the place of a dataset of tokmill, finished or not; None for rows."""
    from tokmill.dataset.layout import EXPORT_RECORD, MANIFEST, PLAN, PLAN_BEGINNING
    from tokmill.opening import begins_with
    from tokmill.stores.objects import located

    directory = getattr(source, "directory", source)
    if not isinstance(directory, str | Path):
        return None
    path = Path(local_path(str(checked_path(directory, "source"))))
    if url := store_url(path):
        store, name = located(f"{url.rstrip('/')}/{MANIFEST}")
        return None if store.entry(name) is None else path
    if not path.is_dir() or (path / EXPORT_RECORD).is_file():
        return None
    is_run = begins_with(path / PLAN, PLAN_BEGINNING)
    return path if is_run or (path / MANIFEST).is_file() else None


def _names(names: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the names of an argument that takes one or several, or None for none."""
    return (names,) if isinstance(names, str) else tuple(names or ())


def _paths(paths: Any) -> list[Path]:
    """Return the paths of an argument that takes one or several."""
    if not isinstance(paths, str | Path | Sequence) or isinstance(paths, bytes):
        raise UsageError(
            f"source: expected a dataset, paths, or rows in memory; found {brief(paths)}"
        )
    listed = [paths] if isinstance(paths, str | Path) else paths
    return [checked_path(path, "source") for path in listed]
