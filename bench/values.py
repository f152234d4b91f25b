"""What travels between the benchmark and its child processes: plain values, kept as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol


class NotMeasured(Exception):
    """A peer cannot run here: not installed, or it refuses the tokenizer. Never a failure."""


@dataclass(frozen=True, slots=True)
class Task:
    """What a child process is told.

    `tokenizer`: file or directory; `eos`: its token, '' for the configured one. `text`: Arrow file
    of the rendered documents. `inputs`: files for those that read. `work`: an empty directory.
    `cache`: where tokmill remembers its choice of engine.
    """

    peer: str
    tokenizer: str
    eos: str
    text: str
    inputs: Sequence[str]
    work: str
    cache: str
    cores: int
    settings: dict[str, Any]

    def as_json(self) -> dict[str, Any]:
        """Return the task as plain values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Timing:
    """What a child process found.

    `seconds`: for tokmill of the whole command, for its peers of their work alone, without imports
    and loading. `own_s`: for tokmill from the moment when the first text could be encoded to the
    last commit, by its manifest; for peers as `seconds`. `start_s`: the rest of the command:
    interpreter, imports, tokenizer, choice and loading of the engine, end of the process; of an
    engine alone, importing and loading it; 0 where it was not measured. `text_bytes`: of rendered
    UTF-8. `tokens`: one eos a document included.
    """

    seconds: float
    own_s: float
    text_bytes: int
    tokens: int
    documents: int
    start_s: float = 0.0
    notes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sample:
    """One timing of one contender. Round 0 is the very first run, before anything is remembered."""

    corpus: str
    tokenizer: str
    contender: str
    round: int
    timing: Timing


class Peer(Protocol):
    """A module of `bench.peers`."""

    def run(self, task: Task) -> Timing:
        """Load what is needed, then time the work; `NotMeasured` where it cannot run."""
