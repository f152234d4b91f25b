"""Checks every promise that bytes can show: sums, sizes, index, ids, eos, counts."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.errors import VerifyError
from tokmill.shards.layout import MANIFEST
from tokmill.shards.reader import open_shards
from tokmill.shards.record import manifest_sha256
from tokmill.storage import LOCK_NAME, storage_errors

if TYPE_CHECKING:
    from pathlib import Path

    from tokmill.shards.reader import Shard

_CHUNK_BYTES = 8 << 20


@dataclass(slots=True)
class Findings:
    """What a verification saw. `problems` is empty for a dataset that keeps its promises."""

    n_files: int = 0
    n_bytes: int = 0
    n_shards: int = 0
    n_documents: int = 0
    n_tokens: int = 0
    problems: list[str] = field(default_factory=list)


def verify(directory: Path, manifest: dict[str, Any]) -> Findings:
    """Check a dataset against its manifest; forgery with recomputed sums is out of scope."""
    findings = Findings()
    is_intact = manifest.get("sha256") == manifest_sha256(manifest)
    if not is_intact:
        findings.problems.append(f"{MANIFEST}: its own sha256 does not match: it was changed")
    try:
        _check_files(directory, manifest, findings)
        _check_shards(directory, manifest, findings)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        if is_intact:
            raise
        findings.problems.append(f"{MANIFEST}: cannot be checked further: {error!r}")
    return findings


def _check_shards(directory: Path, manifest: dict[str, Any], findings: Findings) -> None:
    totals: dict[str, int] = {"documents": 0, "tokens": 0}
    try:
        for shard, entry in zip(open_shards(directory, manifest), manifest["shards"], strict=True):
            _check_shard(shard, entry, manifest, findings.problems)
            totals["documents"] += len(shard.lengths)
            totals["tokens"] += len(shard.tokens)
            findings.n_shards += 1
    except VerifyError as error:
        findings.problems.append(str(error))
    findings.n_documents, findings.n_tokens = totals["documents"], totals["tokens"]
    _check_totals(manifest, totals, findings.problems)


def _check_files(directory: Path, manifest: dict[str, Any], findings: Findings) -> None:
    listed = {entry["name"] for entry in manifest["files"]}
    present = {str(p.relative_to(directory)) for p in directory.rglob("*") if p.is_file()}
    findings.problems += [
        f"{name}: not listed in the manifest"
        for name in sorted(present - listed - {MANIFEST, LOCK_NAME})
    ]
    for entry in manifest["files"]:
        path = directory / entry["name"]
        if not path.is_file():
            findings.problems.append(f"{entry['name']}: missing")
            continue
        n_bytes, sha256 = _digest(path)
        findings.n_files += 1
        findings.n_bytes += n_bytes
        if n_bytes != entry["bytes"]:
            findings.problems.append(
                f"{entry['name']}: {n_bytes} bytes, the manifest says {entry['bytes']}"
            )
        elif sha256 != entry["sha256"]:
            findings.problems.append(f"{entry['name']}: its bytes have changed (sha256)")


def _digest(path: Path) -> tuple[int, str]:
    digest, n_bytes = hashlib.sha256(), 0
    with storage_errors(path), path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
            n_bytes += len(chunk)
    return n_bytes, digest.hexdigest()


def _check_shard(
    shard: Shard, entry: dict[str, Any], manifest: dict[str, Any], problems: list[str]
) -> None:
    name, item_bytes = shard.name, shard.tokens.itemsize
    lengths = shard.lengths.astype(np.int64)
    ends = np.cumsum(lengths)
    if len(lengths) != entry["documents"] or len(shard.tokens) != entry["tokens"]:
        problems.append(
            f"{name}: {len(lengths)} documents and {len(shard.tokens)} tokens, the manifest says "
            f"{entry['documents']} and {entry['tokens']}"
        )
    if not len(lengths) or int(ends[-1]) != len(shard.tokens) or int(lengths.min()) < 1:
        problems.append(f"{name}.idx: its lengths do not add up to the {len(shard.tokens)} tokens")
        return
    if not np.array_equal(shard.offsets, (ends - lengths) * item_bytes):
        problems.append(f"{name}.idx: its byte offsets are not those of its lengths")
    tokenizer = manifest["tokenizer"]
    _check_ids(shard, tokenizer["vocab_size"], problems)
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
        if said[key] != value:
            problems.append(f"{MANIFEST}: says {said[key]} {key}, the shards hold {value}")
        by_source = sum(source[key] for source in manifest["sources"])
        if by_source != value:
            problems.append(f"{MANIFEST}: its sources sum to {by_source} {key}, not {value}")
    lost = said["documents"] + sum(said["drops"].values()) + sum(said["rejects"].values())
    if lost != said["records"]:
        problems.append(
            f"{MANIFEST}: documents + drops + rejects = {lost}, but {said['records']} records"
        )
    if sum(manifest["length_histogram"]) != totals["documents"]:
        problems.append(f"{MANIFEST}: its length histogram does not count every document")
