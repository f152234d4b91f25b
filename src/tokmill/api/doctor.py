"""What works on this machine: packages, engines, cores and memory, the disk, a tokenizer.

Nothing else of tokmill is imported before the packages that it needs are known to work.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tokmill.errors import StorageError, TokmillError, UsageError
from tokmill.version import __version__
from tokmill.words.units import memory, size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokmill.tokenizer.tokenizer import Tokenizer

OK, NOTE, MISSING, BROKEN = "ok", "note", "missing", "broken"

NEEDED = (
    "backports.zstd", "blake3", "click", "jinja2", "numpy", "psutil", "pyarrow", "pyyaml", "rich",
    "sentencepiece", "tokenizers", "xxhash",
)[sys.version_info >= (3, 14) :]  # fmt: skip
"""Packages that tokmill needs everywhere; Python 3.14 has the first one itself."""

EXTRAS = {
    "hub": ("datasets", "fsspec", "huggingface-hub"),
    "ray": ("ray",),
    "s3": ("boto3", "obstore"),
}
OTHERS = ("torch", "transformers")
"""Packages that are used where they are installed."""

TIMEOUT_S = 60
"""For the import of packages, and for each engine."""

TEXTS = ("hello, world: 12 cats\n", "猫 и кошка — 🐈")
LEAST_MEMORY_BYTES = LEAST_FREE_BYTES = 1 << 30
"""A run takes 300 to 800 MiB of memory, see docs/speed.md."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was examined; `state`: OK, NOTE, MISSING, or BROKEN (tokmill cannot work)."""

    name: str
    state: str
    text: str


def examine(directory: str = "", tokenizer: str = "") -> list[Finding]:
    """Return what was found; takes one to three seconds.

    `directory`: an output that is to be written; its disk must do what a run needs. Empty: the
    current one. `tokenizer`: must load, and the engines are tried with it.
    """
    findings = [
        Finding("tokmill", OK, __version__),
        Finding("Python", OK, f"{platform.python_version()}, {platform.platform()}"),
        *_packages(),
        *_extras(),
    ]
    if all(finding.state != BROKEN for finding in findings):
        for found in (_engines(tokenizer), _extensions(), _machine(), _disk(directory)):
            findings += found
    return findings


def _packages() -> Iterator[Finding]:
    """Import needed packages; one by one only if they cannot be imported together."""
    all_work = not _import_error(*NEEDED)
    for name in NEEDED:
        version = _version(name)
        if not version:
            yield Finding(name, BROKEN, "not installed: pip install tokmill")
        elif not all_work and (error := _import_error(name)):
            remedy = f"pip install --force-reinstall {name}"
            yield Finding(name, BROKEN, f"{version} cannot be imported: {error}: {remedy}")
        else:
            yield Finding(name, OK, version)


def _import_error(*packages: str) -> str:
    """Return why packages cannot be imported, or ''. A child does it: native code may end it."""
    modules = ", ".join(packages).replace("pyyaml", "yaml")
    command = [sys.executable, "-P", "-c", f"import {modules}"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    try:
        done = subprocess.run(
            command, env=env, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"its import did not finish within {TIMEOUT_S} s"
    if done.returncode < 0:
        return f"its import ended the process with status {done.returncode}"
    return done.stderr.strip().splitlines()[-1][:300] if done.returncode else ""


def _version(package: str) -> str:
    """Return the installed version of a package; '' if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _extras() -> Iterator[Finding]:
    """Find packages that add inputs, places and executors; none of them is imported."""
    for extra, packages in EXTRAS.items():
        if all(map(_version, packages)):
            yield Finding(extra, OK, ", ".join(f"{one} {_version(one)}" for one in packages))
        else:
            yield Finding(extra, MISSING, f"pip install 'tokmill[{extra}]'")
    for package in filter(_version, OTHERS):
        yield Finding(package, OK, _version(package))


def _engines(name: str) -> Iterator[Finding]:
    """Load the named tokenizer, or make a tiny one, and try the engines with it."""
    from tokmill.settings.schema import TokenizerSettings
    from tokmill.tokenizer.tokenizer import load_tokenizer

    tokenizer = _tiny_tokenizer()
    try:
        if name:
            tokenizer = load_tokenizer(TokenizerSettings(path=name))
            text = f"{name}, {tokenizer.vocab_size:,} ids, eos {tokenizer.eos.content}"
            yield Finding("tokenizer", OK, text)
        yield from _tried(tokenizer)
    except (TokmillError, OSError) as error:
        yield Finding("tokenizer" if name else "engines", BROKEN, str(error))


def _tried(tokenizer: Tokenizer) -> Iterator[Finding]:
    """Compare the ids of every engine with those of the reference, side by side in children."""
    from tokmill.engines.engine import REFERENCE, engine_row, is_installed, load_engine
    from tokmill.engines.engine_child import EngineChild, fingerprints
    from tokmill.tables import ENGINES

    reference = load_engine(REFERENCE, tokenizer, control_in_text="text", n_threads=1)
    expected = fingerprints(reference, TEXTS)
    yield Finding(f"engine {REFERENCE}", OK, f"tokenizers {_version('tokenizers')}")
    with ExitStack() as stack:
        children = []
        for name in ENGINES.rows:
            if not is_installed(name):
                yield Finding(f"engine {name}", MISSING, "pip install gigatoken awkward fastokens")
            elif name != REFERENCE:
                children.append(stack.enter_context(EngineChild(name, tokenizer, 1)))
        for child in children:
            child.begin(TEXTS)
            differs = (child.result(TIMEOUT_S) != expected).any()
            version = _version(engine_row(child.name)[0].distribution)
            state, text = OK, f"{version}, the ids of the reference"
            if child.refused or differs:
                reason = child.refused or "its ids of built-in texts differ from the reference's"
                state, text = NOTE, f"{version} is not used: {reason}"
            yield Finding(f"engine {child.name}", state, text)


def _tiny_tokenizer() -> Tokenizer:
    """Return a byte-level BPE of 256 bytes, two merges and eos; it needs no file."""
    from tokmill.tokenizer.tokenizer import Token, Tokenizer
    from tokmill.tokenizer.tokenizer_json import bpe_text, byte_characters

    eos = Token(256, "<|endoftext|>")
    vocab = {character: byte for byte, character in byte_characters().items()}
    vocab |= {eos.content: eos.id, "ca": 257, "cat": 258}
    by_bytes = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                "use_regex": True}  # fmt: skip
    text = bpe_text(
        vocab, [("c", "a"), ("ca", "t")], [(eos.id, eos.content)], ignore_merges=False,
        normalizer=None, pre_tokenizer=by_bytes, decoder=by_bytes,
    )  # fmt: skip
    return Tokenizer(
        name="a tiny tokenizer", kind="json", data=text.encode(), json=text, sha256="",
        vocab_size=259, eos=eos, bos=None, special_ids=(eos.id,), chat_template=None,
        max_emittable_id=258,
    )  # fmt: skip


def _extensions() -> Iterator[Finding]:
    """Load what other packages add to tokmill."""
    from tokmill.extensions import find, names_of_packages
    from tokmill.tables import ENGINES, FORMATS, RENDERERS, TEMPLATES, TRAINERS

    for table in (FORMATS, RENDERERS, ENGINES, TEMPLATES, TRAINERS):
        for name in sorted(names_of_packages(table)):
            state = OK
            try:
                added = find(table, name).extension
                text = f"{added.distribution} {added.version}" if added else ""
            except TokmillError as error:
                state, text = NOTE, str(error)
            yield Finding(f"{table.kind} {name}", state, text)


def _machine() -> Iterator[Finding]:
    """Find the cores and the memory that this process may use, by affinity and cgroup."""
    from tokmill.bill.measuring.machine import total_memory, usable_cores, usable_memory

    yield Finding("cores", OK, f"{usable_cores()} of {os.cpu_count()}")
    usable = usable_memory()
    state, text = OK, f"{memory(usable)} of {memory(total_memory())}"
    if usable < LEAST_MEMORY_BYTES:
        state, text = NOTE, f"{text}: use --workers=1 --threads=1 --engine=reference"
    yield Finding("memory", state, text)


def _disk(named: str) -> Iterator[Finding]:
    """Try in a directory, or where it will be made, all operations of a run; leaves nothing."""
    from tokmill.place.lock import locked
    from tokmill.run.disk_checks import check_file_system
    from tokmill.storage import free_bytes, storage_errors
    from tokmill.urls import store_url

    if store_url(named):
        raise UsageError(f"{named}: expected a directory of this machine, found an object store")
    directory, probe = Path(named), ""
    try:
        with storage_errors(named or "."):
            while not directory.exists():
                directory = directory.parent
            with tempfile.TemporaryDirectory(prefix=".tokmill-doctor-", dir=directory) as probe:
                check_file_system(Path(probe))
                with locked(Path(probe)):
                    n_free = free_bytes(directory)
            text = f"{directory.absolute()}, {size(n_free)} free"
    except StorageError as error:
        reason = str(error).replace(probe, str(directory)) if probe else str(error)
        yield Finding("disk", BROKEN if named else NOTE, f"no output can be written here: {reason}")
        return
    if n_free < LEAST_FREE_BYTES:
        yield Finding("disk", NOTE, f"{text}: make room")
    else:
        yield Finding("disk", OK, f"{text}, has hard links and locks")
