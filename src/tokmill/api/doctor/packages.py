"""Which packages are installed, and whether those that tokmill needs can be imported.

They are imported in a child process: a native package built for another processor ends the process.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, TYPE_CHECKING

from tokmill.api.doctor.findings import Package
from tokmill.children import Child, ChildEndedError, Parent
from tokmill.errors import TokmillError
from tokmill.extensions import find, find_all, names_of_packages
from tokmill.tables import ENGINES, FORMATS, RENDERERS, TEMPLATES, TRAINERS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tokmill.tables import Table

NEEDED = {
    "backports.zstd": "backports.zstd",
    "blake3": "blake3",
    "click": "click",
    "jinja2": "jinja2",
    "numpy": "numpy",
    "psutil": "psutil",
    "pyarrow": "pyarrow",
    "pyyaml": "yaml",
    "rich": "rich",
    "sentencepiece": "sentencepiece",
    "tokenizers": "tokenizers",
    "xxhash": "xxhash",
}
"""Packages that tokmill needs everywhere, as pip calls them, and the module of each."""

OPTIONAL = ("datasets", "huggingface-hub", "torch", "transformers")
"""Packages that are used where they are installed; the readers of trainers are added to them."""

IN_PYTHON = ("backports.zstd", (3, 14))
"""Since this version Python has the package itself."""

IMPORT_TIMEOUT_S = 30.0


def version(name: str) -> str:
    """Return the installed version of a package; '' if it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def needed_packages(names: Sequence[str]) -> tuple[Package, ...]:
    """Return packages of `NEEDED`, each imported in a child process."""
    broken = dict(_broken(names))
    return tuple(Package(name, version(name), broken.get(name, "")) for name in names)


def optional_packages() -> tuple[Package, ...]:
    """Return packages that add inputs, and readers of trainers; none of them is imported."""
    readers = {
        package
        for name in TRAINERS.rows
        for package in find(TRAINERS, name).value.reader
        if package not in NEEDED
    }
    return tuple(Package(name, version(name)) for name in sorted({*OPTIONAL, *readers}))


def extensions() -> tuple[list[str], list[str]]:
    """Return what other packages add to tokmill, and why some of it cannot be loaded."""
    found: list[str] = []
    problems: list[str] = []
    for table in (FORMATS, RENDERERS, ENGINES, TEMPLATES, TRAINERS):
        try:
            found += [row.extension.label for row in find_all(table) if row.extension]
        except TokmillError as error:
            found += _names(table)
            problems.append(str(error))
    return found, problems


def _names(table: Table) -> list[str]:
    return [f"{table.kind} {name}" for name in sorted(names_of_packages(table))]


def _broken(names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield packages that cannot be imported, and why; one that ends the child is left out next."""
    left = list(names)
    with Path(os.devnull).open("wb") as nothing:
        while left:
            answers, reason = _import(left, nothing)
            yield from ((name, answer) for name, answer in answers if answer)
            left = left[len(answers) :]
            if left:
                yield left.pop(0), reason


def _import(names: Sequence[str], errors: IO[bytes]) -> tuple[list[tuple[str, str]], str]:
    """Import packages in a child; return its answers, and why it ended before the last."""
    answers: list[tuple[str, str]] = []
    with Child(__name__, errors=errors) as child, ThreadPoolExecutor(1) as pool:
        try:
            child.send([NEEDED[name] for name in names])
            answers.extend(  # one after the other: what came before an error is kept
                (name, pool.submit(child.receive).result(IMPORT_TIMEOUT_S)) for name in names
            )
        except ChildEndedError as error:
            return answers, f"its import ended the process with status {error.status}"
        except TimeoutError:
            child.stop()
            return answers, f"its import did not finish within {IMPORT_TIMEOUT_S:.0f} s"
    return answers, ""


def main() -> None:
    """Import modules that the parent names; answer '' or an error for each."""
    parent = Parent()
    for module in parent.receive():
        try:
            importlib.import_module(module)
        except BaseException as error:  # whatever a broken package raises
            lines = str(error).strip().splitlines() or [""]
            parent.send(f"{type(error).__name__}: {lines[0]}"[:300])
        else:
            parent.send("")
