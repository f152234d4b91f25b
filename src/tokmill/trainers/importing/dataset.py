"""Import tokens of another trainer: a dataset that appears whole, its manifest written last."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tokmill.dataset.canonical import canonical_json, json_chunks, manifest_sha256, sha256_hex
from tokmill.dataset.checksum import digest_of
from tokmill.dataset.layout import (
    FOLDERS,
    FORMAT_VERSION,
    MANIFEST,
    PARTS,
    PLAN,
    SHARD_BYTES,
    SPLITS,
    part_name,
)
from tokmill.dataset.part_record import Sums
from tokmill.dataset.plan_file import PLAN_FORMAT, plan_fingerprint
from tokmill.engines.engine import REFERENCE, load_engine
from tokmill.errors import RecordError, UsageError
from tokmill.settings.names import output_settings, plain
from tokmill.settings.schema import Config, InputSettings, OutputSettings, TokenizerSettings
from tokmill.settings.sft import SftSettings
from tokmill.storage import make_directory, storage_errors, write_chunks, write_file
from tokmill.tokenizer.tokenizer import PROBE_TEXT, load_tokenizer, tokenizer_entry
from tokmill.trainers.importing import datatrove, megatron, nanogpt
from tokmill.trainers.importing.blocks import watched
from tokmill.trainers.importing.output import ENGINE, check_output, check_sources
from tokmill.trainers.importing.part import ADDED_EOS, UNTRAINED_FIRST, PartImport, Rules
from tokmill.trainers.private_directory import check_room, private_directory
from tokmill.version import __version__
from tokmill.words.plural import plural

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tokmill.tokenizer.tokenizer import Tokenizer
    from tokmill.trainers.importing.blocks import Importer, TokenFile, Watcher

IMPORTERS: dict[str, Importer] = {
    "megatron": megatron.IMPORTER,
    "datatrove": datatrove.IMPORTER,
    "nanogpt": nanogpt.IMPORTER,
}
"""The trainers whose files can be imported, by the name in `tokmill import --from`."""


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
        overwrite: replace an imported dataset that stands at `output`.
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
    importer = IMPORTERS[settings.trainer]
    check_output(settings.output, overwrite=settings.overwrite)
    files = _find(settings, importer)
    check_sources((file.path for file in files), settings.output)
    is_sft = files[0].mask is not None
    tokenizer = load_tokenizer(settings.tokenizer, for_chat=is_sft)
    config = _config(settings, files, is_sft=is_sft)
    token_bytes = np.dtype(config.output.dtype).itemsize + is_sft
    check_room(settings.output, token_bytes * sum(file.n_tokens for file in files), "the import")
    with private_directory(settings.output, replace=settings.overwrite) as directory:
        for folder in FOLDERS:
            make_directory(directory / folder)
        run = _Import(directory, config, tokenizer, files, importer, add_eos=settings.add_eos)
        watcher.begin(sum(file.n_bytes for file in files))
        manifest = run.manifest(run.write_parts(watcher), started_s)
        if not manifest["totals"]["documents"]:
            raise RecordError(f"{settings.sources[0]}: no document to import")
        write_chunks(directory / MANIFEST, json_chunks(manifest))
    return _notes(importer, Counter(manifest["totals"].get("counters", {})), manifest)


def _find(settings: ImportSettings, importer: Importer) -> list[TokenFile]:
    if settings.dtype not in ("", "uint16", "uint32"):
        raise UsageError(f"dtype: expected uint16 or uint32, found {settings.dtype!r}")
    named = [one for path in settings.sources for one in _splits(path)]
    named += [(path, "val") for path in settings.val]
    files = [file for path, split in named for file in importer.find(path, split, settings.dtype)]
    if not files:
        raise UsageError("no source: name the files, prefixes or directories to import")
    paths = [file.path.resolve() for file in files]
    if twice := [str(path) for path, n in Counter(paths).items() if n > 1]:
        raise UsageError(f"{twice[0]}: named twice")
    without = [file.path for file in files if file.mask is None]
    if without and len(without) < len(files):
        raise UsageError(f"{without[0]}: has no mask beside it, and other files have one")
    return files


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


class _Import:
    """An import into its private directory."""

    def __init__(
        self,
        directory: Path,
        config: Config,
        tokenizer: Tokenizer,
        files: Sequence[TokenFile],
        importer: Importer,
        *,
        add_eos: bool,
    ) -> None:
        self._directory = directory
        self._config, self._tokenizer = config, tokenizer
        self._files, self._importer = files, importer
        dtype: np.dtype[np.unsignedinteger] = np.dtype(config.output.dtype).newbyteorder("<")
        self._rules = Rules(
            tokenizer.vocab_size,
            tokenizer.eos.id,
            add_eos,
            dtype,
            config.output.shard_tokens,
            config.output.checksum,
        )
        self._engine = {
            "name": ENGINE,
            "version": __version__,
            "reason": f"tokens of {importer.title}, not encoded by tokmill",
            "mb_per_s": {},
            "n_checked": 0,
            "refused": {},
        }

    def write_parts(self, watcher: Watcher) -> Sums:
        """Write the plan, and a part for each file; return their sums."""
        identity = {
            "bos_id": None,
            "checksum": self._config.output.checksum,
            "engine": self._engine,
            "eos_id": self._tokenizer.eos.id,
            "format_version": FORMAT_VERSION,
            "settings": output_settings(self._config),
            "tokenizer_sha256": self._tokenizer.sha256,
            "tokmill_version": __version__,
        }
        rows = [_row(file) for file in self._files]
        slices = [[[i, 0, -1, file.n_bytes]] for i, file in enumerate(self._files)]
        if self._config.sft is not None:
            identity["template_sha256"] = sha256_hex(b"")
        plan = {**identity, "files": rows, "format": PLAN_FORMAT, "parts": slices}
        plan["fingerprint"] = plan_fingerprint(plan)
        write_chunks(self._directory / PLAN, json_chunks(plan))
        sums = Sums(self._config.output.checksum)
        for number, file in enumerate(self._files):
            fingerprint = sha256_hex(canonical_json([identity, rows[number]]))
            ends_by_eos = file.index is None
            part = PartImport(self._directory, number, file, self._rules, ends_by_eos)
            blocks = watched(self._importer.read(file, self._tokenizer.eos.id), watcher)
            record = part.write(blocks, fingerprint)
            write_file(self._directory / PARTS / part_name(number), record.as_bytes())
            sums.add(record, [(str(file.path), True)])
        return sums

    def manifest(self, sums: Sums, started_s: float) -> dict[str, Any]:
        """Return the manifest."""
        reference = load_engine(REFERENCE, self._tokenizer, control_in_text="text", n_threads=1)
        probe_ids = reference.encode(pa.array([PROBE_TEXT], pa.large_string())).ids
        with (self._directory / PLAN).open("rb") as file:
            plan = digest_of(file, self._config.output.checksum).entry(PLAN)
        is_sft = self._config.sft is not None
        manifest: dict[str, Any] = {
            "format_version": FORMAT_VERSION,
            "tokmill_version": __version__,
            "kind": "sft" if is_sft else "pretrain",
            "config": plain(self._config),
            "tokenizer": tokenizer_entry(self._tokenizer, probe_ids.tolist()),
            **({"mask": _mask_entry()} if is_sft else {}),
            "engine": self._engine,
            "dtype": self._config.output.dtype,
            "totals": sums.totals.as_json(),
            "length_histogram": sums.length_histogram(),
            "sources": list(sums.sources.values()),
            "shards": sums.shards,
            "files": [plan.as_json(), *sums.files],
            "run": {
                "wall_s": round(time.perf_counter() - started_s, 3),
                "text_bytes_per_s": 0,
                "peak_memory_bytes": 0,
                "resumed_parts": 0,
            },
        }
        manifest["sha256"] = manifest_sha256(manifest)
        return manifest


def _row(file: TokenFile) -> list[Any]:
    with storage_errors(file.path):
        status = file.path.stat()
    return [str(file.path), "tokens", "", status.st_size, status.st_mtime_ns, ""]


def _mask_entry() -> dict[str, Any]:
    """Return the entry about masks that came with the tokens: their rule is unknown."""
    return {
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


def _notes(importer: Importer, counters: Counter[str], manifest: Mapping[str, Any]) -> list[str]:
    notes = []
    if importer is nanogpt.IMPORTER:
        notes.append(
            "boundaries are those of eos: a document with an eos inside becomes two, and documents "
            "that were written without eos become one"
        )
    if n := counters[ADDED_EOS]:
        notes.append(f"eos was added to {plural(n, 'document')} that did not end with it")
    if n := counters[UNTRAINED_FIRST]:
        notes.append(
            f"{plural(n, 'sample')} had a target at the first token, which nothing predicts: the "
            "mask there is now 0"
        )
    notes += [
        f"{plural(n, 'document')} left out: {reason}"
        for reason, n in manifest["totals"]["drops"].items()
    ]
    return notes
