"""The engine of a plan or a manifest and the checks of its ids, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokmill.dataset.counts import CHECKED, ROUTED, SKIPPED
from tokmill.engines.engine import REFERENCE
from tokmill.words.plural import plural

if TYPE_CHECKING:
    from collections.abc import Mapping


def engine_line(engine: Mapping[str, Any], checks: Mapping[str, int] | None = None) -> str:
    """Return the engine, and whether its ids were compared with the reference's.

    `checks`: totals of a finished run, see `Counts`.
    """
    name = f"{engine['name']} {engine['version']}"
    if engine["name"] == REFERENCE:
        return f"{engine['name']}: {engine['version']}"
    equal = "ids equal to the reference's (checked)"
    return f"{name}, {equal if _checked(engine, checks or {}) else 'ids not checked'}"


def describe_engine(engine: Mapping[str, Any], checks: Mapping[str, int] | None = None) -> str:
    """Return the engine with its checks, speeds, and the reasons against other engines."""
    text = f"{engine['name']} {engine['version']} ({engine['reason']}"
    speeds = engine["mb_per_s"]
    if speeds:
        text += ": " + ", ".join(f"{name} {speed:.0f} MB/s" for name, speed in speeds.items())
    text = "; ".join([text, *_checked(engine, checks or {})]) + ")"
    text = "\n".join([text, *_exceptions(checks or {})])
    for name, reason in engine["refused"].items():
        text += f"\n{name} not used: {reason}"
    return text


def _checked(engine: Mapping[str, Any], checks: Mapping[str, int]) -> list[str]:
    """Return how many texts and characters were compared with the reference, or nothing."""
    before, during = engine["n_checked"], checks.get(CHECKED, 0)
    where = [plural(before, "text") + (" before the run" if during else "")] if before else []
    where += [f"{plural(during, 'document')} during it"] if during else []
    if characters := scanned(engine):
        where = [", ".join([" and ".join(where), characters])] if where else [characters]
    return [f"same ids as the reference on {' and '.join(where)}"] if where else []


def scanned(engine: Mapping[str, Any]) -> str:
    """Return how many characters were compared with the reference, and when; '' for none."""
    scan = engine.get("scan")
    if not scan:
        return ""
    n_other = sum(last - first + 1 for first, last in scan["differs"])
    text = f"{scan['n_characters']:,} characters" + (f" except {n_other:,}" if n_other else "")
    if scan.get("uncompared"):
        text += f" (the reference encodes documents with {'these or ' if n_other else ''}others)"
    elif n_other:
        text += " (the reference encodes their documents)"
    return text + (" (compared in an earlier run)" if engine.get("scan_kept") else "")


def _exceptions(checks: Mapping[str, int]) -> list[str]:
    """Return the documents that the engine did not encode, or that could not be compared."""
    routed = checks.get(ROUTED, 0)
    found = [f"{plural(routed, 'document')} encoded by the reference"] if routed else []
    return found + [
        f"{plural(n, 'sampled document')} not compared: {name.removeprefix(SKIPPED)}"
        for name, n in checks.items()
        if name.startswith(SKIPPED)
    ]
