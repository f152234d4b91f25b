"""A node of a cluster proves that it can work on a run or an array, before its first part.

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
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tokmill.engines.engine import REFERENCE, engine_row
from tokmill.errors import StateError, StorageError
from tokmill.run.probes import NODES, probe_name, probes, remove_probe, write_probe
from tokmill.sources.json_parser import PARSER
from tokmill.stores.store import Store
from tokmill.stores.urls import is_store
from tokmill.version import __version__
from tokmill.words.plural import plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tokmill.recipes.spec import Part, RunSpec
    from tokmill.settings.schema import Config

_TOKMILL = "tokmill"

PATIENCE_S = 10.0
"""A file made on one machine may appear on others after seconds, as NFS keeps lists of names."""


@dataclass(frozen=True, slots=True)
class NodeProof:
    """What every node must find as the driver has it; plain values, for any version of tokmill.

    `host`: the driver, or the machine that planned an array. `directory`: of the output, or its
    URL. `probe`: name of what holds `nonce` there. `working_directory`: that of the driver if a
    path is relative to it, else ''. `input_path`: the first input that is a file, with
    `input_bytes` and `input_mtime_ns`; '' without one. `versions`: by distribution.
    """

    host: str
    directory: str
    probe: str
    nonce: str
    working_directory: str
    input_path: str = ""
    input_bytes: int = 0
    input_mtime_ns: int = 0
    versions: dict[str, str] = field(default_factory=dict)

    def for_parts(self, parts: Iterable[Part]) -> NodeProof:
        """Return the proof with the first input of some parts that is a file on a disk."""
        files = (piece.file for part in parts for piece in part.slices)
        on_disk = (file for file in files if not file.is_stream and not is_store(file.path))
        first = next(on_disk, None)
        path, n_bytes, mtime_ns = "", 0, 0
        if first is not None:
            path, n_bytes, mtime_ns = first.path, first.n_bytes, first.mtime_ns
        return replace(self, input_path=path, input_bytes=n_bytes, input_mtime_ns=mtime_ns)


@contextlib.contextmanager
def written_proof(spec: RunSpec, parts: Sequence[Part]) -> Iterator[NodeProof]:
    """Write the probe into the output directory, yield what nodes must prove, remove the probe.

    Raises:
        StorageError: the probe cannot be written.
    """
    place, nonce = spec.config.output.dir, secrets.token_hex(16)
    working_directory = str(Path.cwd()) if has_relative_paths(spec.config) else ""
    proof = NodeProof(
        platform.node(),
        place,
        probe_name(place, NODES, nonce),
        nonce,
        working_directory,
        versions=versions_of(spec),
    ).for_parts(parts)
    for left in probes(place, NODES):
        remove_probe(place, left)  # of drivers that were killed; this one holds the lock
    try:
        write_probe(place, proof.probe, nonce)
        yield proof
    finally:
        remove_probe(place, proof.probe)


def has_relative_paths(config: Config) -> bool:
    """Return whether a path of a run depends on the directory in which a process works."""
    names = (config.output.dir, *config.input.all_paths)
    paths = (name for name in names if not is_store(name) and not name.startswith("hf:"))
    return not all(Path(path).is_absolute() for path in paths)


def check_node(proof: NodeProof, *, patience_s: float = PATIENCE_S, otherwise: str = "") -> None:
    """Check that this process sees and has what the driver does.

    `patience_s`: how long to wait for the probe. `otherwise`: what else to do if it is not there.

    Raises:
        StateError: it does not; names this machine, what was expected, what was found.
    """
    here = _here()
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
        _check_store(here, proof, otherwise)
    else:
        directory = base / proof.directory
        _check_probe(here, proof, directory, patience_s, otherwise)
        _check_writable(here, directory, proof.probe)
    try:
        check_input(proof)
    except StorageError as error:
        raise StateError(str(error)) from None  # of the node, as all that differs there


def _check_store(here: str, proof: NodeProof, otherwise: str) -> None:
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
            f"same endpoint and credentials{otherwise}"
        )


def _check_probe(
    here: str, proof: NodeProof, directory: Path, patience_s: float, otherwise: str
) -> None:
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
                f"{otherwise}"
            )
        time.sleep(0.1)


def _check_writable(here: str, directory: Path, probe: str) -> None:
    path = directory / f"{probe}-{secrets.token_hex(4)}"
    try:
        path.touch()
        path.unlink(missing_ok=True)  # a plan that is written meanwhile removes it, too
    except OSError as error:
        raise StateError(
            f"{here}: cannot write into the output directory {directory} "
            f"({str(error.strerror).lower()}): every node writes its shards there"
        ) from None


def check_input(proof: NodeProof) -> None:
    """Check that this node sees the input file of a proof as it was planned.

    Raises:
        StorageError: it is another one, or cannot be read; see `check_node`.
    """
    if not proof.input_path:
        return
    here, path = _here(), Path(proof.working_directory) / proof.input_path
    advice = (
        f"every node must see the input of {proof.host} under the same paths; if it was changed "
        "since, begin again with --overwrite"
    )
    try:
        stat = os.stat(path)  # noqa: PTH116  as the plan took it
    except OSError as error:
        raise StorageError(
            f"{here}: cannot read the input {path} ({str(error.strerror).lower()}): {advice}"
        ) from None
    if (stat.st_size, stat.st_mtime_ns) != (proof.input_bytes, proof.input_mtime_ns):
        raise StorageError(
            f"{here}: the input {path} is another file: expected "
            f"{plural(proof.input_bytes, 'byte')} of time {_seconds(proof.input_mtime_ns)}, found "
            f"{stat.st_size:,} of {_seconds(stat.st_mtime_ns)}: {advice}"
        )


def _here() -> str:
    return f"node {platform.node()}"


def _seconds(ns: int) -> str:
    return f"{ns // 10**9}.{ns % 10**9:09}"


def versions_of(spec: RunSpec) -> dict[str, str]:
    """Return the versions, by distribution, of all that decides the tokens.

    Code from outside tokmill is compared by its source (`extensions.check_extensions`).
    """
    named = [_TOKMILL, PARSER.name]
    if spec.tokenizer.kind == "sentencepiece":
        named.append("sentencepiece")
    named += [engine_row(name)[0].distribution for name in (REFERENCE, spec.engine.name)]
    return {name: _installed(name) for name in named if name}


def _installed(distribution: str) -> str:
    if distribution == _TOKMILL:
        return __version__
    try:
        return importlib.metadata.version(distribution)
    except (importlib.metadata.PackageNotFoundError, ValueError):  # a name that is none
        return "none"
