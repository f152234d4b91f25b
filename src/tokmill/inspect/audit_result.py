"""What an audit tells: the kinds of faults that it found, each with one sample."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tokmill.errors import UsageError, VerifyError
from tokmill.inspect.audit_kinds import ANY, KINDS, checked_kinds
from tokmill.tokenizer.decode import escaped
from tokmill.words import plural

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tokmill.inspect.samples import Sample


@dataclass(frozen=True, slots=True)
class Example:
    """The first sample of a kind.

    Attributes:
        where: its number in the dataset, or its file and row.
        message: what is wrong with a row that cannot be read as samples; '' for others.
        token: the token to blame, from 0 in the sample; None where it is the whole sample.
        tokens: of the whole sample.
        first: the first of `ids` in the sample: of a long sample a stretch is shown.
        ids: ids.
        mask: 1 where a token is trained; None in documents.
        raw: of such a row, its first characters.
        sample: the same as `ids`, decoded, to be shown; None for such a row.
    """

    where: str
    message: str = ""
    token: int | None = None
    tokens: int = 0
    first: int = 0
    ids: tuple[int, ...] = ()
    mask: tuple[int, ...] | None = None
    raw: str = ""
    sample: Sample | None = field(default=None, repr=False)

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        names = ("where", "message", "token", "tokens", "first", "ids", "mask", "raw")
        texts = () if self.sample is None else (run.text for run in self.sample.runs)
        return {**{name: getattr(self, name) for name in names}, "text": escaped("".join(texts))}


@dataclass(frozen=True, slots=True)
class Finding:
    """The samples of a kind.

    Attributes:
        kind: its name; see `tokmill audit --kinds`.
        count: how many samples there are.
        share: of all samples.
        means: what is so in such a sample.
        hurts: what training does then.
        remedy: what to do.
        example: the first one.
    """

    kind: str
    count: int
    share: float
    means: str
    hurts: str
    remedy: str
    example: Example | None

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        names = ("kind", "count", "share", "means", "hurts", "remedy")
        example = None if self.example is None else self.example.as_json()
        return {**{name: getattr(self, name) for name in names}, "example": example}


@dataclass(frozen=True, slots=True)
class Audit:
    """What a trainer would train; see `tokmill.audit`.

    Attributes:
        source: what was read.
        samples: samples or documents, and rows that cannot be read as such.
        tokens: tokens of samples, without padding that does not count.
        trained_tokens: targets among them.
        findings: the kinds of faults that were found, in the order of `KINDS`.
        not_checked: kinds that were not looked for, each with what they need.
        meant: kinds that are no fault here, as the run of the dataset was told to train so, each
            with its samples.
        notes: how rows were read, in lines.
    """

    source: str
    samples: int
    tokens: int
    trained_tokens: int
    findings: tuple[Finding, ...] = ()
    not_checked: Mapping[str, str] = field(default_factory=dict)
    meant: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def counts(self) -> dict[str, int]:
        """Return the samples of each kind that was found."""
        return {finding.kind: finding.count for finding in self.findings}

    def check(self, kinds: str = ANY) -> None:
        """Check that no sample is of one of these kinds: names with commas between, or `any`.

        Kinds that are meant count only if they are named.

        Raises:
            VerifyError: some are; `problems` has a line for each kind.
            UsageError: there is no such kind, or it was not looked for.
        """
        names = checked_kinds(kinds)
        for name in names:
            if name in self.not_checked and ANY not in kinds:
                raise UsageError(f"{name}: was not looked for: needs {self.not_checked[name]}")
        counts = self.counts if ANY in kinds else {**self.counts, **self.meant}
        found = {name: counts[name] for name in names if name in counts}
        if found:
            listed = ", ".join(f"{name} ({n:,})" for name, n in found.items())
            problems = tuple(
                f"{name}: {plural(n, 'sample')}: {KINDS[name].means}" for name, n in found.items()
            )
            raise VerifyError(f"{self.source}: found {listed}", problems)

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "source": self.source,
            "samples": self.samples,
            "tokens": self.tokens,
            "trained_tokens": self.trained_tokens,
            "findings": [finding.as_json() for finding in self.findings],
            "not_checked": dict(self.not_checked),
            "meant": dict(self.meant),
            "notes": list(self.notes),
        }
