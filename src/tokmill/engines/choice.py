"""The engine of a run and how it was found; fixed in the plan for workers and resumes."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tokmill.engines.characters import CharacterSet
from tokmill.engines.engine import FAST_ENGINES, REFERENCE
from tokmill.engines.spot_check import spot_share

if TYPE_CHECKING:
    from collections.abc import Mapping

_LONGEST_REASON = 100


@dataclass(frozen=True, slots=True)
class ScanResult:
    """How an engine compares with the reference.

    `differs`: the characters on which it gives other ids, in some context; documents with them are
    not for this engine. `refused`: why it cannot be used at all, or ''. `n_characters`: compared,
    each in at least one context; `n_sequences`: texts of several characters.
    """

    differs: CharacterSet = field(default_factory=CharacterSet)
    refused: str = ""
    n_characters: int = 0
    n_sequences: int = 0

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "differs": self.differs.as_json(),
            "refused": self.refused,
            "n_characters": self.n_characters,
            "n_sequences": self.n_sequences,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ScanResult:
        """Read what `as_json` gave.

        Raises:
            ValueError, KeyError, TypeError: it is something else.
        """
        return cls(
            CharacterSet.from_json(data["differs"]),
            str(data["refused"]),
            int(data["n_characters"]),
            int(data["n_sequences"]),
        )


@dataclass(frozen=True, slots=True)
class Continuation:
    """The engine for text that continues text, where that is a tokenizer variant of its own."""

    name: str
    differs: CharacterSet = field(default_factory=CharacterSet)


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """An engine, and what is known of it.

    `n_checked`: texts on which it gave the reference's ids in this run, before it began.
    `mb_per_s`: what each exact candidate may be expected to encode of this corpus. `refused`: why
    others were not taken. `spot_share`: of the text that the reference encodes again while the run
    goes on; of a plan that does not say it, and of a new one, what this version finds right for the
    engine. `reference`: the version of the reference that it was held against, '' in
    plans of earlier versions; `scan`: on all characters, None where it was not; `scan_kept`:
    whether an earlier run did that. `continuation`: in SFT, where its variant is another one.
    """

    name: str
    version: str
    reason: str
    n_checked: int = 0
    mb_per_s: Mapping[str, float] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    spot_share: float = 0.0
    reference: str = ""
    scan: ScanResult | None = None
    scan_kept: bool = False
    continuation: Continuation | None = None

    def __post_init__(self) -> None:
        """Fill in the share."""
        if not self.spot_share:
            object.__setattr__(self, "spot_share", spot_share(self.name))

    @property
    def differs(self) -> CharacterSet:
        """Return the characters whose documents the reference encodes."""
        return CharacterSet() if self.scan is None else self.scan.differs

    @property
    def fallback(self) -> str:
        """Return why a slower engine encodes than tokmill has, and how slow it is, in one line."""
        if self.name in FAST_ENGINES or not self.refused:
            return ""
        speed, of_reference = self.mb_per_s.get(self.name), self.mb_per_s.get(REFERENCE)
        how_slow = ""
        if speed:
            how_slow = f", at about {speed:.3g} MB/s"
        elif of_reference:
            how_slow = f" (without its memory at about {of_reference:.3g} MB/s)"
        why = "; ".join(f"{name}: {_short(name, reason)}" for name, reason in self.refused.items())
        return f"{self.name} encodes{how_slow}, since {self.reason}: {why}"

    def as_json(self) -> dict[str, Any]:
        """Return the choice as plain values."""
        plain = asdict(replace(self, scan=None, continuation=None))
        plain["scan"] = None if self.scan is None else self.scan.as_json()
        if self.continuation is None:
            del plain["continuation"]
        else:
            name, differs = self.continuation.name, self.continuation.differs.as_json()
            plain["continuation"] = {"name": name, "differs": differs}
        return plain

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> EngineChoice:
        """Read what `as_json` gave, in this version or an earlier one.

        Raises:
            TypeError: it is something else.
        """
        values = dict(data)
        try:
            if values.get("scan") is not None:
                values["scan"] = ScanResult.from_json(values["scan"])
            if values.get("continuation") is not None:
                found = values["continuation"]
                differs = CharacterSet.from_json(found["differs"])
                values["continuation"] = Continuation(str(found["name"]), differs)
        except (ValueError, KeyError) as error:
            raise TypeError(f"its engine has no scan that can be read: {error}") from None
        return cls(**values)


def _short(engine: str, reason: str) -> str:
    reason = reason.removeprefix(f"engine {engine} refuses the tokenizer: ")
    return reason if len(reason) <= _LONGEST_REASON else reason[: _LONGEST_REASON - 1] + "…"
