from __future__ import annotations

import re
import tomllib
from pathlib import Path

from tokmill.api.doctor.packages import NEEDED, needed_packages, optional_packages

PROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]


def test_the_needed_packages_are_those_of_the_project() -> None:
    named = {re.split(r"[>;]", line)[0] for line in PROJECT["dependencies"]}
    assert set(NEEDED) == named - {"awkward", "fastokens", "gigatoken"}


def test_optional_packages_are_those_of_the_extra_for_the_hub_and_more() -> None:
    names = {package.name for package in optional_packages()}
    assert {re.split(r">", line)[0] for line in PROJECT["optional-dependencies"]["hub"]} <= names


def test_packages_are_imported_after_one_that_fails() -> None:
    found = needed_packages(["numpy", "xxhash"])
    assert [(package.name, package.broken) for package in found] == [("numpy", ""), ("xxhash", "")]
    assert all(package.version for package in found)
