"""A node of a cluster proves that it can work on a run, before its first part.

It must see the output of the driver (a probe file or object with a random nonce is there), be able
to write to it, see the same input, and have the same versions. Otherwise its shards would be lost,
or hold other tokens, and nobody would know until the end.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import secrets
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tokmill.engines.engine import REFERENCE, engine_row
from tokmill.errors import StateError, StorageError
from tokmill.sources.json_parser import PARSER
from tokmill.storage import storage_errors
from tokmill.stores.store import Store
from tokmill.stores.urls import is_store
from tokmill.version import __version__
from tokmill.words.plural import plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tokmill.recipes.spec import Part, RunSpec
    from tokmill.settings.schema import Config

_PREFIX = ".node-proof-"
"""The probe's name begins so: hidden names are no part of a dataset."""

_FOLDER = ".node-proofs"
"""The folder of probes in an object store."""

_TOKMILL = "tokmill"

PATIENCE_S = 10.0
"""A file made on one machine may appear on others after seconds, as NFS keeps lists of names."""


@dataclass(frozen=True, slots=True)
class NodeProof:
    """What every node must find as the driver has it; plain values, for any version of tokmill.

    `directory`: of the output, or its URL. `probe`: name of what holds `nonce` there.
    `working_directory`: that of the driver if a path is relative to it, else ''. `input_path`: the
    first input that is a file, with `input_bytes` and `input_mtime_ns`; '' without one. `versions`:
    by distribution.
    """

    host: str
    directory: str
    probe: str
    nonce: str
    working_directory: str
    input_path: str
    input_bytes: int
    input_mtime_ns: int
    versions: dict[str, str]


@contextlib.contextmanager
def written_proof(spec: RunSpec, parts: Sequence[Part]) -> Iterator[NodeProof]:
    """Write the probe into the output directory, yield what nodes must prove, remove the probe.

    Raises:
        StorageError: the probe cannot be written.
    """
    place, nonce = spec.config.output.dir, secrets.token_hex(16)
    files = (piece.file for part in parts for piece in part.slices)
    on_disk = (file for file in files if not file.is_stream and not is_store(file.path))
    first = next(on_disk, None)
    proof = NodeProof(
        platform.node(),
        place,
        f"{_FOLDER}/{nonce[:8]}" if is_store(place) else f"{_PREFIX}{nonce[:8]}",
        nonce,
        str(Path.cwd()) if has_relative_paths(spec.config) else "",
        "" if first is None else first.path,
        0 if first is None else first.n_bytes,
        0 if first is None else first.mtime_ns,
        _versions(spec),
    )
    for left in _probes(place):
        remove_probe(place, left)  # of drivers that were killed; this one holds the lock
    try:
        _write_probe(place, proof.probe, nonce)
        yield proof
    finally:
        remove_probe(place, proof.probe)


def _probes(place: str) -> list[str]:
    if is_store(place):
        return Store(place).names(_FOLDER)
    return [path.name for path in Path(place).glob(f"{_PREFIX}*")]


def _write_probe(place: str, name: str, nonce: str) -> None:
    if is_store(place):
        Store(place).write(name, nonce.encode())
        return
    with storage_errors(Path(place) / name):
        (Path(place) / name).write_text(nonce)


def remove_probe(place: str, name: str) -> None:
    """Remove a probe from a directory or a store: tasks that look for it then end."""
    if is_store(place):
        Store(place).remove(name)
    else:
        (Path(place) / name).unlink(missing_ok=True)


def has_probe(place: str, name: str) -> bool:
    """Return whether a probe is there."""
    return Store(place).size(name) is not None if is_store(place) else (Path(place) / name).exists()


def has_relative_paths(config: Config) -> bool:
    """Return whether a path of a run depends on the directory in which a process works."""
    names = (config.output.dir, *config.input.paths)
    paths = (name for name in names if not is_store(name) and not name.startswith("hf:"))
    return not all(Path(path).is_absolute() for path in paths)


def check_node(proof: NodeProof, *, patience_s: float = PATIENCE_S) -> None:
    """Check that this process sees and has what the driver does.

    `patience_s`: how long to wait for the probe.

    Raises:
        StateError: it does not; names this machine, what was expected, what was found.
    """
    here = f"node {platform.node()}"
    for distribution, wanted in proof.versions.items():
        found = _installed(distribution)
        if found != wanted:
            raise StateError(
                f"{here}: has {distribution} {found}, expected {wanted}, as on {proof.host}: "
                "install that version on every node"
            )
    base = Path(proof.working_directory)
    if not base.is_dir():
        raise StateError(
            f"{here}: has no directory {base}, to which paths of this run are relative: mount it "
            "there, or name input and output by absolute paths"
        )
    if is_store(proof.directory):
        _check_store(here, proof)
    else:
        directory = base / proof.directory
        _check_probe(here, proof, directory, patience_s)
        _check_writable(here, directory, proof.nonce)
    if proof.input_path:
        _check_input(here, proof, base / proof.input_path)


def _check_store(here: str, proof: NodeProof) -> None:
    """Check that this node reads and writes the objects of the driver."""
    store, mine = Store(proof.directory), f"{proof.probe}-{secrets.token_hex(4)}"
    try:
        found = store.read(proof.probe)
        store.write(mine, proof.nonce.encode())
        store.remove(mine)
    except FileNotFoundError:
        found = b""
    except StorageError as error:
        raise StateError(f"{here}: cannot use the output, as {proof.host} can: {error}") from None
    if found != proof.nonce.encode():
        raise StateError(
            f"{here}: does not see the objects of {proof.host} in {store.url}: give every node the "
            "same endpoint and credentials"
        )


def _check_probe(here: str, proof: NodeProof, directory: Path, patience_s: float) -> None:
    deadline = time.monotonic() + patience_s
    while True:
        try:
            if (directory / proof.probe).read_text() == proof.nonce:
                return
            reason = "another probe is there"
        except (OSError, UnicodeDecodeError) as error:
            reason = str(getattr(error, "strerror", error)).lower()
        if time.monotonic() >= deadline:
            raise StateError(
                f"{here}: does not see the output directory {directory} of {proof.host} ({reason}: "
                f"{proof.probe}): mount the same directory under this path on every node"
            )
        time.sleep(0.1)


def _check_writable(here: str, directory: Path, nonce: str) -> None:
    path = directory / f"{_PREFIX}{nonce[:8]}-{secrets.token_hex(4)}"
    try:
        path.touch()
        path.unlink()
    except OSError as error:
        raise StateError(
            f"{here}: cannot write into the output directory {directory} "
            f"({str(error.strerror).lower()}): every node writes its shards there"
        ) from None


def _check_input(here: str, proof: NodeProof, path: Path) -> None:
    advice = f"every node must see the input of {proof.host} under the same paths"
    try:
        stat = os.stat(path)  # noqa: PTH116  as the plan took it
    except OSError as error:
        raise StateError(
            f"{here}: cannot read the input {path} ({str(error.strerror).lower()}): {advice}"
        ) from None
    if (stat.st_size, stat.st_mtime_ns) != (proof.input_bytes, proof.input_mtime_ns):
        raise StateError(
            f"{here}: the input {path} is another file: expected "
            f"{plural(proof.input_bytes, 'byte')} of time {_seconds(proof.input_mtime_ns)}, found "
            f"{stat.st_size:,} of {_seconds(stat.st_mtime_ns)}: {advice}"
        )


def _seconds(ns: int) -> str:
    return f"{ns // 10**9}.{ns % 10**9:09}"


def _versions(spec: RunSpec) -> dict[str, str]:
    """Return the versions, by distribution, of all that decides the tokens.

    Code from outside tokmill is compared by its source (`extensions.check_extensions`).
    """
    named = [_TOKMILL, PARSER.name, "sentencepiece"]
    named += [engine_row(name)[0].distribution for name in (REFERENCE, spec.engine.name)]
    return {name: _installed(name) for name in named if name}


def _installed(distribution: str) -> str:
    if distribution == _TOKMILL:
        return __version__
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "none"
