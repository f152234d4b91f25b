"""The engine of a run and how it was chosen; the plan fixes it for workers and resumed runs."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from tokmill.engines.added_tokens import AddedTokens
from tokmill.engines.engine import REFERENCE
from tokmill.engines.routing import CharacterSet, Routes
from tokmill.engines.spot_check import spot_share

if TYPE_CHECKING:
    from collections.abc import Mapping

_LONGEST_REASON = 100


@dataclass(frozen=True, slots=True)
class CharacterComparison:
    """The characters on which an engine differs from the reference; see `comparison`.

    `differs`: characters with other ids in some context. `refused`: why the engine cannot be used
    at all, or ''. `n_characters`: compared, each in at least one context. `n_sequences`: compared
    texts of several characters. `uncompared`: characters that were left out.
    """

    differs: CharacterSet = field(default_factory=CharacterSet)
    refused: str = ""
    n_characters: int = 0
    n_sequences: int = 0
    uncompared: CharacterSet = field(default_factory=CharacterSet)

    @property
    def routed(self) -> CharacterSet:
        """Return the characters whose documents are routed to the reference."""
        return self.differs | self.uncompared

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        sets = {"differs": self.differs.as_json(), "uncompared": self.uncompared.as_json()}
        return asdict(self) | sets

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> CharacterComparison:
        """Read the result of `as_json`.

        Raises:
            ValueError, KeyError, TypeError: it is something else.
        """
        return cls(
            CharacterSet.from_json(data["differs"]),
            str(data["refused"]),
            int(data["n_characters"]),
            int(data["n_sequences"]),
            CharacterSet.from_json(data["uncompared"]),
        )


@dataclass(frozen=True, slots=True)
class Continuation:
    """The engine for text that continues other text, if that needs a tokenizer variant.

    `routed`: characters on which it differs from the reference. `added`: as in `EngineChoice`.
    """

    name: str
    routed: CharacterSet = field(default_factory=CharacterSet)
    added: AddedTokens = field(default_factory=AddedTokens)

    @property
    def routes(self) -> Routes:
        """Return what sends a text to the reference."""
        return Routes(self.routed) | self.added.routes

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        added = self.added.as_json()
        return {"name": self.name, "differs": self.routed.as_json(), "added_tokens": added}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Continuation:
        """Read the result of `as_json`.

        Raises:
            ValueError, KeyError, TypeError: it is something else.
        """
        routed = CharacterSet.from_json(data["differs"])
        return cls(str(data["name"]), routed, AddedTokens.from_json(data["added_tokens"]))


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """An engine and the results of its trial.

    `n_checked`: texts on which its ids were the reference's before the run. `mb_per_s`: expected
    speed of each exact engine on this corpus. `refused`: reasons against other engines.
    `spot_share`: share of the text that the reference encodes again during the run; default:
    `spot_check.spot_share(name)`. `reference`: version of the reference that was compared.
    `scan`: comparison on characters, None if there was none. `scan_kept`: whether an earlier run
    did it. `continuation`: in SFT, if continuations need an engine of their own. `added`: which
    added tokens it is given, and what routes texts with the others.
    """

    name: str
    version: str
    reason: str
    n_checked: int = 0
    mb_per_s: Mapping[str, float] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    spot_share: float = 0.0
    reference: str = ""
    scan: CharacterComparison | None = None
    scan_kept: bool = False
    continuation: Continuation | None = None
    added: AddedTokens = field(default_factory=AddedTokens)

    def __post_init__(self) -> None:
        """Set the default share."""
        if not self.spot_share:
            object.__setattr__(self, "spot_share", spot_share(self.name))

    @property
    def routes(self) -> Routes:
        """Return what sends a document to the reference."""
        characters = CharacterSet() if self.scan is None else self.scan.routed
        return Routes(characters) | self.added.routes

    @property
    def fallback(self) -> str:
        """Return one line about why no fast engine is used, and the speed; '' if one is."""
        if self.name != REFERENCE or not self.refused:
            return ""
        speed = self.mb_per_s.get(self.name)
        how_slow = f", at about {speed:.3g} MB/s" if speed else ""
        why = "; ".join(f"{name}: {_short(name, reason)}" for name, reason in self.refused.items())
        return f"the {REFERENCE} encodes{how_slow}, since {self.reason}: {why}"

    def as_json(self) -> dict[str, Any]:
        """Return the choice as plain values."""
        plain = asdict(self)
        plain["scan"] = None if self.scan is None else self.scan.as_json()
        del plain["continuation"], plain["added"]
        if self.continuation is not None:
            plain["continuation"] = self.continuation.as_json()
        if self.added != AddedTokens():
            plain["added_tokens"] = self.added.as_json()
        return plain

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> EngineChoice:
        """Read the result of `as_json`.

        Raises:
            ValueError, KeyError, TypeError: it is something else.
        """
        values = dict(data)
        if scan := values.get("scan"):
            values["scan"] = CharacterComparison.from_json(scan)
        if continuation := values.get("continuation"):
            values["continuation"] = Continuation.from_json(continuation)
        if added := values.pop("added_tokens", None):
            values["added"] = AddedTokens.from_json(added)
        return cls(**values)


def _short(engine: str, reason: str) -> str:
    reason = reason.removeprefix(f"engine {engine} refuses the tokenizer: ")
    return reason if len(reason) <= _LONGEST_REASON else reason[: _LONGEST_REASON - 1] + "…"
