"""The findings of `tokmill doctor`, as plain values."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Package:
    """A package. `version`: '' if it is not installed. `broken`: why no import works, or ''."""

    name: str
    version: str
    broken: str = ""


@dataclass(frozen=True, slots=True)
class EngineFound:
    """An engine. `broken`: why it did not encode a text like the reference; '' if it did."""

    name: str
    version: str
    broken: str = ""


@dataclass(frozen=True, slots=True)
class Machine:
    """Cores and memory, in bytes; 0: not known, of a limit: none.

    `cores`: that this process may use, by affinity and cgroup. `usable_bytes`: the smaller of the
    machine's memory and the cgroup's limit. `open_files`: that a process may have; -1: no limit.
    """

    cores: int
    machine_cores: int
    memory_bytes: int
    limit_bytes: int
    usable_bytes: int
    available_bytes: int
    shm_bytes: int
    open_files: int


@dataclass(frozen=True, slots=True)
class Disk:
    """A directory and its file system.

    `problem`: why no file can be written, or ''; then nothing else than free space is known.
    `sync_s`: seconds to make a small file durable.
    """

    use: str
    path: str
    file_system: str
    free_bytes: int
    problem: str
    hard_links: bool
    reflinks: bool
    sync_s: float


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU. `memory_bytes`: 0 if it is not known."""

    name: str
    memory_bytes: int
    driver: str


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem, and what to do about it. `essential`: tokmill cannot work here."""

    text: str
    essential: bool = False


@dataclass(frozen=True, slots=True)
class Findings:
    """All findings.

    `packages`: that tokmill needs. `optional`: packages that add inputs or trainers' readers;
    version '' of those that are not installed. `extensions`: what other packages add to tokmill.
    """

    tokmill: str
    python: str
    platform: str
    packages: tuple[Package, ...]
    engines: tuple[EngineFound, ...]
    machine: Machine | None
    disks: tuple[Disk, ...]
    gpus: tuple[Gpu, ...]
    optional: tuple[Package, ...]
    extensions: tuple[str, ...]
    problems: tuple[Problem, ...]

    @property
    def works(self) -> bool:
        """Return whether nothing essential is broken."""
        return not any(problem.essential for problem in self.problems)

    def as_json(self) -> dict[str, Any]:
        """Return the findings as plain values."""
        return {"works": self.works, **asdict(self)}
