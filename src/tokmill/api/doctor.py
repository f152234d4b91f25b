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
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tokmill.errors import StorageError, TokmillError, UsageError
from tokmill.version import __version__
from tokmill.words import memory, size

OK, NOTE, MISSING, BROKEN = "ok", "note", "missing", "broken"
NEEDED = (
    "backports.zstd", "blake3", "chardet", "click", "jinja2", "numpy", "psutil",
    "pyarrow", "rich", "sentencepiece", "tokenizers", "xxhash",
)[sys.version_info >= (3, 14) :]  # fmt: skip
"""Packages that tokmill needs everywhere; Python 3.14 has the first one itself."""
EXTRAS = {
    "hub": ("datasets", "fsspec", "huggingface-hub"),
    "ray": ("ray",),
    "s3": ("boto3", "obstore"),
    "transformers": ("transformers",),
    "wordpiece": ("nanotoken",),
}
ENGINES = ("gigatoken", "fastokens")
TIMEOUT_S = 60
LEAST_BYTES = 1 << 30
"""Less memory than that is short for a run, see docs/scaling.md, and so is less disk."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was examined; `state`: OK, NOTE, MISSING, or BROKEN (tokmill cannot work)."""

    name: str
    state: str
    text: str

    @property
    def shown(self) -> str:
        """Return the text, behind a state that is not OK."""
        return self.text if self.state == OK else f"{self.state}: {self.text}"


def examine(directory: str = "", tokenizer: str = "") -> list[Finding]:
    """Return what was found; takes a few seconds.

    `directory`: an output that is to be written; its disk must do what a run needs. Empty: the
    current one. `tokenizer`: must load. That the engines encode it as the reference does is found
    out by every run.
    """
    findings = [
        Finding("tokmill", OK, __version__),
        Finding("Python", OK, f"{platform.python_version()}, {platform.platform()}"),
        *_packages(),
    ]
    if all(finding.state != BROKEN for finding in findings):
        for group in (_tokenizer(tokenizer), _extensions(), _machine(), _disk(directory)):
            findings += group
    return findings


def _packages() -> Iterator[Finding]:
    """Import needed packages and engines; find the packages of extras."""
    for name in NEEDED:
        version, remedy = _version(name), f"pip install --force-reinstall {name}"
        if not version:
            yield Finding(name, BROKEN, "not installed: pip install tokmill")
        elif why := _import_problem(name):
            yield Finding(name, BROKEN, f"{version} cannot be imported: {why}: {remedy}")
        else:
            yield Finding(name, OK, version)
    for extra, packages in EXTRAS.items():
        versions = [f"{package} {_version(package)}" for package in packages if _version(package)]
        is_there = len(versions) == len(packages)
        text = ", ".join(versions) if is_there else f"pip install 'tokmill[{extra}]'"
        yield Finding(extra, OK if is_there else MISSING, text)
    for name in ENGINES:
        version = _version(name)
        if not version:
            yield Finding(f"engine {name}", MISSING, f"pip install {name}")
        elif why := _import_problem(name):
            yield Finding(f"engine {name}", NOTE, f"{version} is not used: {why}")
        else:
            yield Finding(f"engine {name}", OK, version)


def _version(package: str) -> str:
    """Return the installed version of a package; '' if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _import_problem(package: str) -> str:
    """Import a package in a process of its own, since native code may end it; '' if it works."""
    module = package.replace("-", "_")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-P", "-c", f"import {module}"]
    try:
        done = subprocess.run(
            command, env=env, text=True, stderr=subprocess.PIPE, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"its import did not finish within {TIMEOUT_S} s"
    if done.returncode < 0:
        return f"its import ended the process with status {done.returncode}"
    return done.stderr.strip().splitlines()[-1][:300] if done.returncode else ""


def _tokenizer(name: str) -> Iterator[Finding]:
    """Load a tokenizer, if one is named."""
    from tokmill.settings.schema import TokenizerSettings
    from tokmill.tokenizer.tokenizer import load_tokenizer

    try:
        if name:
            loaded = load_tokenizer(TokenizerSettings(path=name))
            text = f"{name}, {loaded.vocab_size:,} ids, eos {loaded.eos.content}"
            yield Finding("tokenizer", OK, text)
    except (TokmillError, OSError) as error:
        yield Finding("tokenizer", BROKEN, str(error))


def _extensions() -> Iterator[Finding]:
    """Load what other packages add to tokmill."""
    from tokmill.extensions import find, names_of_packages
    from tokmill.tables import ENGINES, FORMATS, RENDERERS, TEMPLATES, TRAINERS

    for table in (FORMATS, RENDERERS, ENGINES, TEMPLATES, TRAINERS):
        for name in sorted(names_of_packages(table)):
            try:
                added = find(table, name).extension
                text = f"{added.distribution} {added.version}" if added else ""
                yield Finding(f"{table.kind} {name}", OK, text)
            except TokmillError as error:
                yield Finding(f"{table.kind} {name}", NOTE, str(error))


def _machine() -> Iterator[Finding]:
    """Find the cores and the memory that this process may use, by affinity and cgroup."""
    from tokmill.machine.limits import total_memory, usable_cores, usable_memory

    yield Finding("cores", OK, f"{usable_cores()} of {os.cpu_count()}")
    usable = usable_memory()
    text = f"{memory(usable)} of {memory(total_memory())}"
    if usable >= LEAST_BYTES:
        yield Finding("memory", OK, text)
    else:
        yield Finding("memory", NOTE, f"{text}: use --workers=1 --threads=1 --engine=reference")


def _disk(named: str) -> Iterator[Finding]:
    """Try in a directory, or where it will be made, all operations of a run; leaves nothing."""
    from tokmill.place.directory import locked
    from tokmill.run.begin import check_file_system
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
    except StorageError as error:
        reason = str(error).replace(probe, str(directory)) if probe else str(error)
        yield Finding("disk", BROKEN if named else NOTE, f"no output can be written here: {reason}")
        return
    text = f"{directory.absolute()}, {size(n_free)} free"
    if n_free < LEAST_BYTES:
        yield Finding("disk", NOTE, f"{text}: make room")
    else:
        yield Finding("disk", OK, f"{text}, has hard links and locks")
