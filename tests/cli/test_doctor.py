"""`tokmill doctor` as a user sees it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tokmill.api.doctor import examine as examining
from tokmill.api.doctor.findings import Package

LABELS = ["tokmill", "packages", "engines", "cores", "memory", "open files", "disk", "temporary"]


def test_rows_and_json_say_the_same(tokmill: Callable[..., Any]) -> None:
    shown, plain = tokmill("doctor"), tokmill("doctor", "--json")
    assert (shown.code, plain.code) == (0, 0), shown.err
    found = json.loads(plain.out)
    lines = shown.out.splitlines()
    assert [line.split("  ")[0] for line in lines[: len(LABELS)]] == LABELS
    assert lines[-1] == "tokmill works here"
    for package in found["packages"]:
        assert f"{package['name']} {package['version']}" in lines[1]
    for problem in found["problems"]:
        assert f"advice: {problem['text']}" in lines


def test_something_essential_is_the_last_line_and_the_exit_code(
    tokmill: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = (Package("xxhash", "3.5", "ImportError: wrong ELF class"),)
    monkeypatch.setattr(examining, "needed_packages", lambda names: broken)
    outcome = tokmill("doctor")
    assert outcome.code == 1
    assert outcome.error == "tokmill cannot work here: 1 essential problem"
    assert "broken: xxhash 3.5 cannot be imported: ImportError: wrong ELF class" in outcome.out
