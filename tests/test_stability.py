"""What docs/upgrading.md, SECURITY.md, CHANGELOG.md and the workflows promise about releases."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

from tests.surface import STORED, surface
from tokmill.version import __version__

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
HEADINGS = ["New", "Changed", "Fixed", "Removed"]


def test_no_name_that_users_write_has_gone() -> None:
    now = surface()
    gone = {
        where: sorted(set(names) - set(now.get(where, [])))
        for where, names in json.loads(STORED.read_text("utf-8")).items()
    }
    gone = {where: names for where, names in gone.items() if names}
    assert gone == {}, (
        "docs/upgrading.md promises that these stay: deprecate them first. Before the first "
        "release, or when that time is over, `python -m tests.surface` writes the names of now"
    )


def test_each_version_of_the_changelog_has_its_changes_under_the_four_headings() -> None:
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    versions = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    assert versions
    for i, version in enumerate(versions):
        title, *lines = version.splitlines()
        form = r"\d+\.\d+\.\d+ \((unreleased|20\d\d-\d\d-\d\d)\)" if i == 0 else r"\S+ \(20.*\)"
        assert re.fullmatch(form, title), title
        headings = [line.removeprefix("### ") for line in lines if line.startswith("#")]
        assert headings == [name for name in HEADINGS if name in headings], (title, headings)
        first = next(n for n, line in enumerate(lines) if line.startswith("### "))
        assert not [line for line in lines[:first] if line.startswith("- ")], title
        for line in lines[first:]:
            assert re.match(r"- |  \S|### |$", line), line


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_name_actions_by_commit_and_may_only_read(path: Path) -> None:
    text = path.read_text("utf-8")
    used = re.findall(r"uses: (.*)", text)
    assert used
    assert [
        one for one in used if not re.fullmatch(r"\S+@[0-9a-f]{40} # v\d+\.\d+\.\d+", one)
    ] == []
    workflow = yaml.safe_load(text)
    assert workflow["permissions"] == {"contents": "read"}
    rights = {
        name: job["permissions"] for name, job in workflow["jobs"].items() if "permissions" in job
    }
    assert rights == ({"upload": {"id-token": "write"}} if path.name == "publish.yml" else {})


def test_the_upload_waits_for_a_person() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "publish.yml").read_text("utf-8"))[
        "jobs"
    ]
    assert (jobs["upload"]["if"], jobs["upload"]["environment"]) == (
        "vars.PUBLISH == 'yes'",
        "release",
    )


def test_locked_packages_are_allowed_and_complete() -> None:
    rows = map(Requirement, (ROOT / ".ci" / "newest.txt").read_text("utf-8").splitlines())
    locked = {row.name: next(iter(row.specifier)).version for row in rows}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    named = project["dependencies"] + [
        one for extra in ("dev", "hub", "ray", "s3") for one in extras[extra]
    ]
    for wanted in map(Requirement, named):
        name = wanted.name.replace(".", "-").lower()
        assert name in locked, f"{name}: .ci/lock writes .ci/newest.txt"
        assert wanted.specifier.contains(locked[name]), f"{name} {locked[name]}: run .ci/lock"


@pytest.mark.parametrize(
    ("subject", "is_good"),
    [
        ("sources: a file that breaks off is an error", True),
        ("tests, api: two rooms", True),
        ("Merge things", False),
        ("sources: " + "x" * 64, False),
        ("sources: " + "x" * 63, True),
    ],
)
def test_the_subject_of_a_commit_is_checked(tmp_path: Path, subject: str, is_good: bool) -> None:
    (tmp_path / "message").write_text(f"{subject}\n\nThe reason.\n")
    done = subprocess.run([ROOT / ".ci" / "subject", tmp_path / "message"], check=False)
    assert (done.returncode == 0) == is_good


def test_the_bill_of_materials_names_what_the_wheel_needs(tmp_path: Path) -> None:
    wheel = tmp_path / f"tokmill-{__version__}-py3-none-any.whl"
    wheel.write_bytes(b"wheel")
    done = subprocess.run(
        [sys.executable, ROOT / ".ci" / "sbom.py", wheel], capture_output=True, check=True
    )
    bill = json.loads(done.stdout)
    own = bill["metadata"]["component"]
    assert (own["purl"], own["hashes"][0]["content"]) == (
        f"pkg:pypi/tokmill@{__version__}",
        hashlib.sha256(b"wheel").hexdigest(),
    )
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    needed = {
        one.name.replace(".", "-")
        for one in map(Requirement, project["dependencies"])
        if one.marker is None or one.marker.evaluate()
    }
    assert needed <= {part["name"] for part in bill["components"]}
    assert all(part["version"] and part["bom-ref"] == part["purl"] for part in bill["components"])
