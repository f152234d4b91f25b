"""Verify a dataset: its files against the manifest, then index, ids, ends, masks, packs, counts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.dataset.checksum import Digest, FileEntry
from tokmill.dataset.layout import LOCK_NAME, MANIFEST, ORIGIN, pack_names
from tokmill.dataset.manifest_shape import shape_problem
from tokmill.dataset.origins import origins_problem
from tokmill.dataset.reader import is_canonical, is_intact, open_shard, sidecars_of
from tokmill.dataset.verify_masks import MaskTally, check_mask_totals, check_masks
from tokmill.dataset.verify_packs import check_packs
from tokmill.errors import VerifyError
from tokmill.words.plural import plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from tokmill.dataset.place import Place
    from tokmill.dataset.reader import Shard

_CHUNK_BYTES = 8 << 20


@dataclass(slots=True)
class Findings:
    """The result of a verification. `problems` is empty for a correct dataset.

    `notes`: names in the directory that do not belong to the dataset; they were not opened.
    """

    n_files: int = 0
    n_bytes: int = 0
    n_shards: int = 0
    n_documents: int = 0
    n_tokens: int = 0
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def verify(place: Place, manifest: dict[str, Any]) -> Findings:
    """Check a dataset against its manifest; a forger who recomputes all checksums is not found.

    Opens only regular files of the place, and follows no link in it. In an object store, sizes and
    checksums of all objects are compared: equal ones mean that every byte is the one that was
    written. Indexes, ids and masks are checked where the dataset was copied to a disk.
    """
    findings = Findings()
    if not is_intact(manifest):
        findings.problems.append(f"{MANIFEST}: its own sha256 does not match: it was changed")
    elif not is_canonical(place.chunks(MANIFEST), manifest):
        findings.problems.append(
            f"{MANIFEST}: its bytes are not the ones that were written: it was changed"
        )
    if problem := shape_problem(manifest):
        findings.problems.append(f"{MANIFEST}: cannot be checked further: {problem}")
        return findings
    present = _check_files(place, manifest, findings)
    if place.mapped is not None:
        _check_shards(place.mapped, manifest, present, findings)
    return findings


def _check_files(place: Place, manifest: Mapping[str, Any], findings: Findings) -> set[str]:
    """Check every file against the manifest; return the names of those that are there.

    Names that begin with a dot are noted and not opened.
    """
    listed = Counter(entry["name"] for entry in manifest["files"])
    entries = place.entries()
    for name, n_bytes in entries.items():
        if any(part.startswith(".") for part in name.split("/")):
            findings.notes += [] if name == LOCK_NAME else [name]
        elif n_bytes is None:
            findings.problems.append(f"{name}: a link or a directory, not a file of the dataset")
        elif name not in listed and name != MANIFEST:
            findings.problems.append(f"{name}: not listed in the manifest")
    findings.problems += [
        f"{MANIFEST}: does not list {name}"
        for name in _files_of_shards(manifest)
        if name not in listed
    ]
    findings.problems += [f"{MANIFEST}: lists {name} twice" for name, n in listed.items() if n > 1]
    for said in map(FileEntry.from_json, manifest["files"]):
        if entries.get(said.name) is not None:
            _check_file(place, said, findings)
        elif said.name not in entries:
            findings.problems.append(f"{said.name}: missing")
    return {name for name in listed if entries.get(name) is not None}


def _files_of_shards(manifest: Mapping[str, Any]) -> Iterator[str]:
    yield from _files_of(manifest["shards"], manifest)
    yield from _files_of_packs(manifest)


def _files_of_packs(manifest: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of all files of packs: the index, and the shards of packed rows."""
    for split, pack in manifest.get("packs", {}).items():
        yield from pack_names(split)
        yield from _files_of(pack.get("shards", ()), manifest)


def _files_of(shards: Iterable[Mapping[str, Any]], manifest: Mapping[str, Any]) -> Iterator[str]:
    for entry in shards:
        origin = (ORIGIN,) if "first_slice" in entry else ()
        for ending in ("bin", "idx", *sidecars_of(manifest), *origin):
            yield f"{entry['name']}.{ending}"


def _check_file(place: Place, said: FileEntry, findings: Findings) -> None:
    digest = Digest(said.checksum.algorithm)
    for chunk in place.chunks(said.name):
        digest.update(chunk)
    findings.n_files += 1
    findings.n_bytes += digest.n_bytes
    if digest.n_bytes != said.n_bytes:
        findings.problems.append(
            f"{said.name}: {plural(digest.n_bytes, 'byte')}, the manifest says {said.n_bytes:,}"
        )
    elif digest.checksum() != said.checksum:
        algorithm = said.checksum.algorithm
        findings.problems.append(f"{said.name}: its bytes have changed ({algorithm})")


def _check_shards(
    directory: Path, manifest: dict[str, Any], present: set[str], findings: Findings
) -> None:
    rule, tally, n_before = manifest.get("mask"), MaskTally(), len(findings.problems)
    n_slices = sum(len(source.get("slices", (0,))) for source in manifest["sources"])
    n_read = 0
    for entry in manifest["shards"]:
        if not present.issuperset(_files_of([entry], manifest)):
            continue  # a problem already
        if "first_slice" in entry:
            name, n_left = f"{entry['name']}.{ORIGIN}", n_slices - entry["first_slice"]
            if problem := origins_problem(directory / name, entry["documents"], n_left):
                findings.problems.append(f"{name}: {problem}")
        try:
            shard = open_shard(directory, manifest, entry["name"], entry["split"])
        except VerifyError as error:
            findings.problems.append(str(error))
            continue
        if _check_index(shard, entry, findings.problems):
            _check_tokens(shard, manifest, tally, findings.problems)
        findings.n_documents += len(shard.lengths)
        findings.n_tokens += len(shard.tokens)
        n_read += 1
    findings.n_shards = n_read
    if n_read < len(manifest["shards"]):
        return
    is_sound = len(findings.problems) == n_before
    totals = {"documents": findings.n_documents, "tokens": findings.n_tokens}
    if rule is not None:
        totals["trained_tokens"] = tally.n_trained
        check_mask_totals(rule, tally, findings.problems)
    _check_totals(manifest, totals, findings.problems)
    if "packs" in manifest and is_sound and present.issuperset(_files_of_packs(manifest)):
        check_packs(directory, manifest, findings.problems)


def _check_index(shard: Shard, entry: dict[str, Any], problems: list[str]) -> bool:
    """Check an index against its shard; return whether its lengths sum up to the tokens."""
    name, item_bytes = shard.name, shard.tokens.itemsize
    lengths = shard.lengths.astype(np.int64)
    ends = np.cumsum(lengths)
    if len(lengths) != entry["documents"] or len(shard.tokens) != entry["tokens"]:
        problems.append(
            f"{name}: {plural(len(lengths), 'document')} and {plural(len(shard.tokens), 'token')}, "
            f"the manifest says "
            f"{entry['documents']} and {entry['tokens']}"
        )
    if not len(lengths) or int(ends[-1]) != len(shard.tokens) or int(lengths.min()) < 1:
        problems.append(
            f"{name}.idx: its lengths do not add up to the {plural(len(shard.tokens), 'token')}"
        )
        return False
    if not np.array_equal(shard.offsets, (ends - lengths) * item_bytes):
        problems.append(f"{name}.idx: its byte offsets are not those of its lengths")
    return True


def _check_tokens(
    shard: Shard, manifest: dict[str, Any], tally: MaskTally, problems: list[str]
) -> None:
    tokenizer = manifest["tokenizer"]
    _check_ids(shard, tokenizer["vocab_size"], problems)
    if "mask" in manifest:
        check_masks(shard, manifest["mask"], tally, problems)
    else:
        _check_ends(shard, tokenizer, problems)


def _check_ends(shard: Shard, tokenizer: dict[str, Any], problems: list[str]) -> None:
    name, lengths = shard.name, shard.lengths.astype(np.int64)
    ends = np.cumsum(lengths)
    wrong = np.flatnonzero(shard.tokens[ends - 1] != tokenizer["eos"]["id"])
    if len(wrong):
        problems.append(
            f"{name}: document {wrong[0]} does not end in eos {tokenizer['eos']['id']} "
            f"({len(wrong)} such)"
        )
    if tokenizer["bos"] is not None:
        wrong = np.flatnonzero(shard.tokens[ends - lengths] != tokenizer["bos"]["id"])
        if len(wrong):
            problems.append(f"{name}: document {wrong[0]} does not begin with bos")


def _check_ids(shard: Shard, vocab_size: int, problems: list[str]) -> None:
    step = _CHUNK_BYTES // shard.tokens.itemsize
    for start in range(0, len(shard.tokens), step):
        largest = int(shard.tokens[start : start + step].max())
        if largest >= vocab_size:
            problems.append(f"{shard.name}: id {largest} is outside the vocabulary of {vocab_size}")
            return


def _check_totals(manifest: dict[str, Any], totals: dict[str, int], problems: list[str]) -> None:
    said = manifest["totals"]
    for key, value in totals.items():
        if said.get(key, 0) != value:
            problems.append(f"{MANIFEST}: says {said.get(key, 0)} {key}, the shards hold {value}")
        by_source = sum(source.get(key, 0) for source in manifest["sources"])
        if by_source != value:
            problems.append(f"{MANIFEST}: its sources sum to {by_source} {key}, not {value}")
    _check_records(said, problems)
    if sum(manifest["length_histogram"]) != totals["documents"]:
        problems.append(f"{MANIFEST}: its length histogram does not count every document")


def _check_records(said: dict[str, Any], problems: list[str]) -> None:
    """Check that every record is counted: documents + drops + rejects = records + extra."""
    outcomes = said["documents"] + sum(said["drops"].values()) + sum(said["rejects"].values())
    extra = said.get("extra", 0)
    if outcomes != said["records"] + extra:
        and_extra = f" and {extra} extra" if extra else ""
        problems.append(
            f"{MANIFEST}: documents + drops + rejects = {outcomes}, "
            f"but {plural(said['records'], 'record')}{and_extra}"
        )
