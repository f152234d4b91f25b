"""Verify a dataset in an object store: names, sizes and checksums of all objects, by streaming.

Indexes, ids and masks are checked where the dataset was copied to a disk: equal checksums mean
that every byte is the one that was written.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from tokmill.dataset.canonical import json_chunks
from tokmill.dataset.checksum import Digest, FileEntry
from tokmill.dataset.layout import MANIFEST, PLAN, is_of_finished_part
from tokmill.dataset.manifest_shape import shape_problem
from tokmill.dataset.reader import is_intact, parse_manifest
from tokmill.dataset.verify import Findings
from tokmill.errors import StateError, UsageError
from tokmill.words.plural import plural

if TYPE_CHECKING:
    from tokmill.stores.store import Store


def stored_manifest(store: Store) -> dict[str, Any]:
    """Return the manifest of a finished dataset in a store.

    Raises:
        UsageError: there is no dataset.
        StateError: the run is not finished, or the format is newer than this reader.
        VerifyError: the manifest is damaged.
        StorageError: the store cannot be read.
    """
    return parse_manifest(lambda: _manifest_bytes(store), f"{store.url}/{MANIFEST}")


def _manifest_bytes(store: Store) -> bytes:
    try:
        return store.read(MANIFEST)
    except FileNotFoundError:
        if store.size(PLAN) is not None:
            raise StateError(
                f"{store.url}: its run is not finished (no {MANIFEST}): run the same command "
                "again to continue it"
            ) from None
        raise UsageError(
            f"{store.url}: not a tokmill dataset: no {MANIFEST} there: name the output of a run"
        ) from None


def verify_store(store: Store) -> Findings:
    """Check every object of a dataset against its manifest; some chunks are in memory at a time.

    Raises:
        TokmillError: see `stored_manifest`.
    """
    content = _manifest_bytes(store)
    manifest = parse_manifest(lambda: content, f"{store.url}/{MANIFEST}")
    findings = Findings()
    if not is_intact(manifest):
        findings.problems.append(f"{MANIFEST}: its own sha256 does not match: it was changed")
    elif content != b"".join(json_chunks(manifest)):
        findings.problems.append(
            f"{MANIFEST}: its bytes are not the ones that were written: it was changed"
        )
    if problem := shape_problem(manifest):
        findings.problems.append(f"{MANIFEST}: cannot be checked further: {problem}")
        return findings
    _check_objects(store, manifest, findings)
    return findings


def _check_objects(store: Store, manifest: dict[str, Any], findings: Findings) -> None:
    listed = Counter(entry["name"] for entry in manifest["files"])
    findings.problems += [f"{MANIFEST}: lists {name} twice" for name, n in listed.items() if n > 1]
    sizes = store.sizes()
    for name in sizes:
        if any(part.startswith(".") for part in name.split("/")):
            findings.notes += [] if name.startswith(".lock/") else [name]
        elif is_of_finished_part(name, listed.__contains__):
            findings.notes.append(name)
        elif name not in listed and name != MANIFEST:
            findings.problems.append(f"{name}: not listed in the manifest")
    for entry in manifest["files"]:
        said = FileEntry.from_json(entry)
        if said.name not in sizes:
            findings.problems.append(f"{said.name}: missing")
        else:
            _check_object(store, said, sizes[said.name], findings)


def _check_object(store: Store, said: FileEntry, n_bytes: int, findings: Findings) -> None:
    findings.n_files += 1
    findings.n_bytes += n_bytes
    if n_bytes != said.n_bytes:
        findings.problems.append(
            f"{said.name}: {plural(n_bytes, 'byte')}, the manifest says {said.n_bytes:,}"
        )
        return
    digest = Digest(said.checksum.algorithm)
    for chunk in store.chunks(said.name, n_bytes):
        digest.update(chunk)
    if digest.checksum() != said.checksum:
        findings.problems.append(f"{said.name}: its bytes have changed ({said.checksum.algorithm})")
