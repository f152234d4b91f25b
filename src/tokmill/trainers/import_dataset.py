"""Import tokens of another trainer: a dataset that appears whole, its manifest written last.

Each file of tokens is a part.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from tokmill.dataset.checked import CheckedFiles
from tokmill.dataset.checksum import (
    canonical_json,
    digest_of_chunks,
    json_chunks,
    sha256_hex,
)
from tokmill.dataset.finish import Statement, plan_entry, usage, write_manifest
from tokmill.dataset.layout import (
    EXPORT_RECORD,
    FORMAT_VERSION,
    KEPT_TOKENIZER,
    PLAN,
    SHARD_BYTES,
    SPLITS,
)
from tokmill.dataset.made_by import IMPORT_ENGINE
from tokmill.dataset.part_record import Sums
from tokmill.dataset.part_writer import EncodedDocuments, PartWriter
from tokmill.dataset.plan_file import PLAN_FORMAT, plan_fingerprint
from tokmill.dataset.reader import read_intact_manifest, surrounding_dataset
from tokmill.engines.engine import REFERENCE, load_engine
from tokmill.errors import RecordError, StateError, TokenizerError, UsageError, VerifyError
from tokmill.masks.truncation import UNTRAINED
from tokmill.place import open_place
from tokmill.recipes.spec import Increments
from tokmill.settings.names import output_settings, plain
from tokmill.settings.schema import Config, InputSettings, OutputSettings, TokenizerSettings
from tokmill.settings.sft import SftSettings
from tokmill.storage import storage_errors
from tokmill.tokenizer.kept import packed_tokenizer
from tokmill.tokenizer.tokenizer import PROBE_TEXT, load_tokenizer, tokenizer_entry
from tokmill.trainers.export import read_record
from tokmill.trainers.import_sources import DATATROVE, MEGATRON, NANOGPT
from tokmill.trainers.private_directory import (
    check_outside_datasets,
    check_replaceable,
    check_room,
    private_directory,
)
from tokmill.version import __version__
from tokmill.words import plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from tokmill.dataset.counts import Counts
    from tokmill.dataset.part_record import PartRecord
    from tokmill.dataset.place import Place
    from tokmill.tokenizer.tokenizer import Tokenizer
    from tokmill.trainers.import_sources import Batch, Importer, TokenFile

    Ids = npt.NDArray[np.unsignedinteger]
    Lengths = npt.NDArray[np.int64]
    Mask = npt.NDArray[np.uint8]

IMPORTERS: dict[str, Importer] = {"megatron": MEGATRON, "datatrove": DATATROVE, "nanogpt": NANOGPT}
"""The trainers whose files can be imported, by the name in `tokmill import --from`."""

EMPTY = "no token"
"""Reason of a drop: a document without tokens."""

ADDED_EOS, UNTRAINED_FIRST = "eos added", "first token of a sample no longer trained"
"""Counters of a part: documents that got an eos, and samples whose mask began with 1."""


_MASK_ENTRY = {
    "preset": "imported",
    "boundary": "split",
    "alignment": "target",
    "trained": [],
    "turns": "",
    "template": "imported",
    "template_sha256": sha256_hex(b""),
    "ends": {"rule": "imported", "last_ids": []},
    "cut": 0,
}
"""In the manifest, about masks that came with the tokens: their rule is unknown."""


class Watcher(Protocol):
    """Follows an import."""

    def begin(self, total_bytes: int) -> None:
        """Receive the bytes of all tokens, before the first is read."""

    def progressed(self, progress: Increments) -> None:
        """Receive what was written since the last call."""


@dataclass(frozen=True, slots=True)
class ImportSettings:
    """What is imported, and how.

    Attributes:
        sources: files, prefixes or directories of the train split.
        trainer: a key of `IMPORTERS`.
        output: the directory of the dataset.
        tokenizer: which made the tokens, with its eos.
        val: files, prefixes or directories of the val split.
        add_eos: add eos to documents that do not end with it; else they are an error.
        dtype: `uint16` or `uint32` of a layout that does not record it; '' for its own.
        overwrite: replace a dataset or an export that stands at `output`.
    """

    sources: Sequence[Path]
    trainer: str
    output: Path
    tokenizer: TokenizerSettings
    val: Sequence[Path] = ()
    add_eos: bool = False
    dtype: str = ""
    overwrite: bool = False


def import_tokens(settings: ImportSettings, watcher: Watcher) -> list[str]:
    """Write a dataset from the tokens of another trainer; return notes for the user.

    The sources are read once, in bounded memory, and are not changed.

    Raises:
        UsageError: the sources, the trainer or the tokenizer are not what they should be.
        TokenizerError: an id is not of the tokenizer.
        VerifyError: a source is damaged, or a document does not end with eos.
        RecordError: there is no document.
        StateError: something stands at the output.
        StorageError: no space, no permission.
    """
    started_s = time.perf_counter()
    output = settings.output
    inputs = [*settings.sources, *settings.val, Path(settings.tokenizer.path)]
    check_replaceable(output, inputs, overwrite=settings.overwrite)
    check_outside_datasets(output)
    files = _find(settings)
    is_sft = files[0].mask is not None
    tokenizer = load_tokenizer(settings.tokenizer, for_chat=is_sft)
    config = _config(settings, files, is_sft=is_sft)
    token_bytes = np.dtype(config.output.dtype).itemsize + is_sft
    check_room(output, token_bytes * sum(file.n_tokens for file in files), "the import")
    with private_directory(output, replace=settings.overwrite) as directory:
        place = open_place(str(directory))
        place.make_folders()
        watcher.begin(sum(file.n_bytes for file in files))
        sums = _write_parts(place, config, tokenizer, files, settings, watcher)
        if not sums.totals.documents:
            raise RecordError(f"{settings.sources[0]}: no document to import")
        wall_s = time.perf_counter() - started_s
        write_manifest(place, _statement(place, config, tokenizer, settings, sums, wall_s))
    return _notes(settings, files, sums.totals)


def _find(settings: ImportSettings) -> list[TokenFile]:
    if settings.dtype not in ("", "uint16", "uint32"):
        raise UsageError(f"dtype: expected uint16 or uint32, found {settings.dtype!r}")
    if settings.dtype and settings.trainer != "nanogpt":
        raise UsageError("--dtype: the index names the type of ids: leave it out")
    named = [one for path in settings.sources for one in _splits(path)]
    named += [(path, "val") for path in settings.val]
    find = IMPORTERS[settings.trainer].find
    files = [file for path, split in named for file in find(path, split, settings.dtype)]
    if not files:
        raise UsageError("no source: name the files, prefixes or directories to import")
    paths = [file.path.resolve() for file in files]
    if twice := [str(path) for path, n in Counter(paths).items() if n > 1]:
        raise UsageError(f"{twice[0]}: named twice")
    without = [file.path for file in files if file.mask is None]
    if without and len(without) < len(files):
        raise UsageError(f"{without[0]}: has no mask beside it, and other files have one")
    if settings.add_eos and not without:
        raise UsageError("--add-eos: samples with masks may end with any token: leave it out")
    place = settings.output.absolute().resolve()
    for file in files:  # what is replaced cannot be read
        if place in file.path.absolute().resolve().parents:
            raise StateError(f"{file.path}: is inside {settings.output}: name another output")
    return files


def _checked_files(file: TokenFile) -> CheckedFiles:
    """Return what a file is read from, with the sums of the export or dataset that it is in."""
    path = file.path.resolve()
    directory = next(
        (p for p in path.parents if (p / EXPORT_RECORD).is_file()), surrounding_dataset(path)
    )
    if directory is None:
        return CheckedFiles(None, {})
    is_export = (directory / EXPORT_RECORD).is_file()
    listing = read_record(directory) if is_export else read_intact_manifest(directory)
    listed = CheckedFiles.of(directory, listing).entries
    found = {one: listed[one.resolve()] for one in file.paths if one.resolve() in listed}
    return CheckedFiles(directory, found)


def _splits(path: Path) -> list[tuple[Path, str]]:
    """Return the folders of the splits of a directory, as exports have them, or the path itself."""
    found = [(path / split, split) for split in SPLITS if (path / split).is_dir()]
    return found or [(path, "train")]


def _config(settings: ImportSettings, files: Sequence[TokenFile], *, is_sft: bool) -> Config:
    """Return the settings that the manifest records."""
    is_wide = any(file.dtype.itemsize > 2 for file in files)
    dtype = np.dtype("<u4" if is_wide else "<u2")
    paths = tuple(str(path) for path in (*settings.sources, *settings.val))
    output = OutputSettings(
        dir=str(settings.output), dtype=dtype.name, shard_tokens=SHARD_BYTES // dtype.itemsize
    )
    config = Config(InputSettings(paths=paths), settings.tokenizer, output=output)
    return replace(config, sft=SftSettings()) if is_sft else config


def _write_parts(
    place: Place,
    config: Config,
    tokenizer: Tokenizer,
    files: Sequence[TokenFile],
    settings: ImportSettings,
    watcher: Watcher,
) -> Sums:
    """Write the plan, and a part for each file; return their sums."""
    algorithm = config.output.checksum
    identity = {
        "bos_id": None,
        "checksum": algorithm,
        "engine": _engine(settings),
        "eos_id": tokenizer.eos.id,
        "format_version": FORMAT_VERSION,
        "rules": {},  # no text is read
        "settings": output_settings(config),
        "tokenizer_identity": tokenizer.identity,
        "tokmill_version": __version__,
    }
    if config.sft is not None:
        identity["template_sha256"] = sha256_hex(b"")
    rows = [_row(file) for file in files]
    slices = [[[i, 0, -1, file.n_bytes]] for i, file in enumerate(files)]
    plan: dict[str, Any] = {**identity, "files": rows, "format": PLAN_FORMAT, "parts": slices}
    packed = packed_tokenizer(tokenizer, template="")
    kept = digest_of_chunks([packed], algorithm).entry(KEPT_TOKENIZER).as_json()
    plan["tokenizer"] = kept
    plan["fingerprint"] = plan_fingerprint(plan)
    place.create(PLAN, json_chunks(plan))
    place.write(KEPT_TOKENIZER, packed)
    sums = Sums(algorithm)
    sums.files.append(kept)
    for number, file in enumerate(files):
        checked = _checked_files(file)
        checked.check(file.paths)
        fingerprint = sha256_hex(canonical_json([identity, rows[number]]))
        writer = PartWriter(place, number, fingerprint, config.output)
        part = ImportedPart(writer, file, tokenizer, config.output, settings.add_eos)
        try:
            for batch in IMPORTERS[settings.trainer].read(file, tokenizer.eos.id):
                part.add(batch)
                n_bytes = batch.tokens.nbytes
                watcher.progressed(
                    Increments(n_bytes, n_bytes, 0, len(batch.lengths), len(batch.tokens))
                )
            record = part.finish()
            checked.finish()
        except BaseException:
            part.discard()
            raise
        sums.add(record, [(str(file.path), True)])
    return sums


class ImportedPart:
    """The documents of one file, which become a part of a dataset.

    `output`: of the dataset. `adds_eos`: eos is added to documents of
    pretraining without it, else they are an error. A file without an index may end without one.

    Raises:
        TokenizerError: ids of the dataset are too narrow for the eos that documents end with.
    """

    def __init__(
        self,
        writer: PartWriter,
        file: TokenFile,
        tokenizer: Tokenizer,
        output: OutputSettings,
        adds_eos: bool,
    ) -> None:
        self._writer, self._file = writer, file
        self._tokenizer, self._adds_eos = tokenizer, adds_eos
        self._dtype = np.dtype(output.dtype).newbyteorder("<")
        self._n_read = 0  # tokens so far
        self._counts = writer.counts_of(0)
        self._counts.input_bytes = file.n_bytes
        if file.mask is None and tokenizer.eos.id > np.iinfo(self._dtype).max:
            raise TokenizerError(
                f"{file.path}: its ids are {output.dtype}, and the tokenizer's eos is "
                f"{tokenizer.eos.id:,}: name the tokenizer that made these tokens"
            )

    def add(self, batch: Batch) -> None:
        """Write documents.

        Raises:
            TokenizerError: an id is not of the tokenizer.
            VerifyError: a document does not end with eos.
            StorageError: the files cannot be written.
        """
        self._check_ids(batch.tokens)
        counts, lengths = self._counts, batch.lengths[batch.lengths > 0]
        _count(counts.drops, EMPTY, len(batch.lengths) - len(lengths))
        if not len(lengths):
            return
        tokens, mask = batch.tokens.astype(self._dtype), batch.mask
        if mask is None:
            tokens, lengths = self._with_eos(tokens, lengths)
        else:
            tokens, lengths, mask = self._trained(tokens, lengths, mask)
            counts.trained_tokens += int(mask.sum())
        counts.documents += len(lengths)
        counts.tokens += len(tokens)
        offsets, sidecars = np.append(0, np.cumsum(lengths)), {} if mask is None else {"mask": mask}
        self._writer.append(self._file.split, EncodedDocuments(tokens, offsets, sidecars))

    def _check_ids(self, tokens: npt.NDArray[Any]) -> None:
        n_ids = self._tokenizer.vocab_size
        for place in (tokens.argmin(), tokens.argmax()) if len(tokens) else ():
            if not 0 <= int(tokens[place]) < n_ids:
                raise TokenizerError(
                    f"{self._file.path}: token {self._n_read + int(place):,} is "
                    f"{int(tokens[place])}, and the tokenizer has ids from 0 to {n_ids - 1:,}: "
                    "name the tokenizer that made these tokens"
                )
        self._n_read += len(tokens)

    def _trained(self, tokens: Ids, lengths: Lengths, mask: Mask) -> tuple[Ids, Lengths, Mask]:
        """Return the samples that train a token; the first token of a sample is no target."""
        mask, starts = mask.copy(), np.cumsum(lengths) - lengths
        _count(self._counts.counters, UNTRAINED_FIRST, int(mask[starts].sum()))
        mask[starts] = 0
        is_kept = np.maximum.reduceat(mask, starts) > 0
        _count(self._counts.drops, UNTRAINED, int((~is_kept).sum()))
        chosen = np.repeat(is_kept, lengths)
        return tokens[chosen], lengths[is_kept], mask[chosen]

    def _with_eos(self, tokens: Ids, lengths: Lengths) -> tuple[Ids, Lengths]:
        """Return documents of pretraining with eos at their ends; samples may end otherwise."""
        ends, eos_id = np.cumsum(lengths), self._tokenizer.eos.id
        missing = tokens[ends - 1] != eos_id
        if not missing.any():
            return tokens, lengths
        if not self._adds_eos and self._file.index is not None:
            at = self._counts.documents + int(np.argmax(missing))
            raise VerifyError(
                f"{self._file.path}: document {at:,} does not end with eos {eos_id}: "
                "--add-eos adds it, or name the right one with --eos-token"
            )
        _count(self._counts.counters, ADDED_EOS, int(missing.sum()))
        return np.insert(tokens, ends[missing], self._dtype.type(eos_id)), lengths + missing

    def finish(self) -> PartRecord:
        """Write the part's record, and return it."""
        counts = self._counts
        counts.records = counts.documents + sum(counts.drops.values())
        self._writer.end()
        return self._writer.finish()

    def discard(self) -> None:
        """Remove the open shard."""
        self._writer.close()


def _count(counter: Counter[str], name: str, n: int) -> None:
    """Add to a counter, whose names appear in the record of a part: not those of nothing."""
    if n:
        counter[name] += n


def _engine(settings: ImportSettings) -> dict[str, Any]:
    title = IMPORTERS[settings.trainer].title
    return {
        "name": IMPORT_ENGINE,
        "version": __version__,
        "reason": f"tokens of {title}, not encoded by tokmill",
        "mb_per_s": {},
        "n_checked": 0,
        "refused": {},
    }


def _statement(
    place: Place,
    config: Config,
    tokenizer: Tokenizer,
    settings: ImportSettings,
    sums: Sums,
    wall_s: float,
) -> Statement:
    """Return what the manifest states."""
    reference = load_engine(REFERENCE, tokenizer, control_in_text="text", n_threads=1)
    probe_ids = reference.encode(pa.array([PROBE_TEXT], pa.large_string())).ids
    is_sft = config.sft is not None
    return Statement(
        kind="sft" if is_sft else "pretrain",
        rules={},  # no text is read
        config=plain(config),
        tokenizer=tokenizer_entry(tokenizer, probe_ids.tolist()),
        engine=_engine(settings),
        totals=sums.totals.as_json(),
        length_histogram=sums.length_histogram(),
        sources=list(sums.sources.values()),
        shards=sums.shards,
        files=[plan_entry(place, config.output.checksum).as_json(), *sums.files],
        run=usage(wall_s),
        own={"mask": _MASK_ENTRY} if is_sft else {},
    )


def _row(file: TokenFile) -> list[Any]:
    with storage_errors(file.path):
        status = file.path.stat()
    return [str(file.path), "tokens", "", status.st_size, status.st_mtime_ns, ""]


def _notes(settings: ImportSettings, files: Sequence[TokenFile], totals: Counts) -> list[str]:
    left_out = [(file.path, file.path.stat().st_size - file.n_bytes) for file in files]
    notes = [f"{path}: its index leaves {plural(n, 'byte')} out" for path, n in left_out if n > 0]
    if settings.trainer == "nanogpt":
        notes.append(
            "boundaries are those of eos: a document with an eos inside becomes two, and documents "
            "that were written without eos become one"
        )
    if n := totals.counters[ADDED_EOS]:
        notes.append(f"eos was added to {plural(n, 'document')} that did not end with it")
    if n := totals.counters[UNTRAINED_FIRST]:
        notes.append(
            f"{plural(n, 'sample')} had a target at the first token, which nothing predicts: the "
            "mask there is now 0"
        )
    drops = totals.as_json()["drops"].items()
    return notes + [f"{plural(n, 'document')} left out: {reason}" for reason, n in drops]
