"""Examine this machine: what is installed, what works, and what to do about the rest."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tokmill.api.doctor.advice import problems_of
from tokmill.api.doctor.findings import EngineFound, Findings, Problem
from tokmill.api.doctor.packages import (
    IN_PYTHON,
    NEEDED,
    extensions,
    needed_packages,
    optional_packages,
)
from tokmill.version import __version__

if TYPE_CHECKING:
    from tokmill.api.doctor.findings import Disk, Gpu, Machine, Package

_FOR_ENGINES = ("numpy", "pyarrow", "tokenizers", "xxhash")
"""Without one of these, no engine is tried."""


def examine() -> Findings:
    """Return the findings of this machine and process; takes one to three seconds.

    Whatever is broken is a problem among the findings: nothing is raised.
    """
    is_in_python = sys.version_info >= IN_PYTHON[1]
    names = [name for name in NEEDED if not (is_in_python and name == IN_PYTHON[0])]
    packages = needed_packages(names)
    broken = {package.name for package in packages if package.broken}
    problems: list[Problem] = []
    machine, disks, gpus = _machine(broken)
    optional, added = _others(broken, problems)
    engines = _engines(broken, problems)
    findings = Findings(
        tokmill=__version__,
        python=platform.python_version(),
        platform=platform.platform(),
        packages=packages,
        engines=engines,
        machine=machine,
        disks=disks,
        gpus=gpus,
        optional=optional,
        extensions=added,
        problems=(),
    )
    return replace(findings, problems=(*problems_of(findings), *problems))


def _machine(broken: set[str]) -> tuple[Machine | None, tuple[Disk, ...], tuple[Gpu, ...]]:
    if "psutil" in broken:
        return None, (), ()
    from tokmill.api.doctor.disk import examine_disk
    from tokmill.api.doctor.machine import examine_gpus, examine_machine

    disks = [examine_disk("here", _current_directory())]
    try:
        temporary = Path(tempfile.gettempdir())
    except OSError:
        temporary = Path(os.environ.get("TMPDIR", "/tmp"))  # noqa: S108  it is only looked at
    disks.append(examine_disk("temporary", temporary))
    return examine_machine(), tuple(disks), examine_gpus()


def _current_directory() -> Path:
    try:
        return Path.cwd()
    except OSError:  # removed meanwhile
        return Path(os.environ.get("PWD", "/"))


def _others(
    broken: set[str], problems: list[Problem]
) -> tuple[tuple[Package, ...], tuple[str, ...]]:
    """Return optional packages and extensions; what cannot be loaded is a problem."""
    if broken.intersection(_FOR_ENGINES):
        return (), ()
    added, reasons = extensions()
    problems += [Problem(reason) for reason in reasons]
    return optional_packages(), tuple(added)


def _engines(broken: set[str], problems: list[Problem]) -> tuple[EngineFound, ...]:
    """Return the engines; the reference that does not work is an essential problem."""
    if broken.intersection(_FOR_ENGINES):
        return ()
    from tokmill.api.doctor.engines import try_engines
    from tokmill.errors import TokmillError

    try:
        return try_engines()
    except (TokmillError, OSError) as error:
        problems.append(Problem(f"engines: {error}", essential=True))
        return ()
