"""Code that a plan or a manifest names is not imported, nor are files beside the data."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tokmill.dataset.checksum import json_chunks, manifest_sha256
from tokmill.dataset.plan_file import plan_fingerprint

SAMPLES = Path(__file__).parents[2] / "data_samples"
RUN = (SAMPLES / "records.jsonl", "-t", SAMPLES / "tokenizer", "--part-bytes", "64KiB")
RENDERER = "def render(batch):\n    return batch.column('record')\n"
FILTER = "def keep(record):\n    return len(record['title']) > 3\n"
TRACE = "import pathlib\npathlib.Path('imported').touch()\n" + RENDERER + FILTER
PART = ("run-part", "out", "--index", "0", "--of", "1")


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """The current directory: `evil.py` in it leaves a file where it is imported."""
    (tmp_path / "evil.py").write_text(TRACE)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("evil", None)


def put(data: dict[str, Any], place: tuple[Any, ...], value: Any) -> None:
    """Put a value into an object, at a place of nested keys."""
    for key in place[:-1]:
        data = data[key]
    data[place[-1]] = value


def edit_plan(folder: Path, *changes: tuple[tuple[Any, ...], Any]) -> None:
    """Change values of a plan; its fingerprint fits."""
    path = folder / "out" / "plan.json"
    plan = json.loads(path.read_bytes())
    for place, value in changes:
        put(plan, place, value)
    plan["fingerprint"] = plan_fingerprint(plan)
    path.chmod(0o644)
    path.write_bytes(b"".join(json_chunks(plan)))


PLACES = {
    "the renderer of the run": [(("task", "config", "render", "renderer"), "evil:render")],
    "the renderer of a reading": [
        (("task", "readings", 0, "settings", "render", "renderer"), "evil:render")
    ],
    "both, and the settings that decide bytes": [
        (("task", "config", "render", "renderer"), "evil:render"),
        (("task", "readings", 0, "settings", "render", "renderer"), "evil:render"),
        (("settings", "render", "renderer"), "evil:render"),
    ],
    "the filter of the run": [(("task", "config", "input", "where"), "evil:keep")],
    "the filter of a reading": [
        (("task", "readings", 0, "settings", "input", "where"), "evil:keep")
    ],
    "a module inside a package": [
        (("task", "readings", 0, "settings", "render", "renderer"), "evil.inner:render.deep")
    ],
}
COMMANDS = {
    "run-part": PART,
    "finish": ("finish", "out"),
    "status": ("status", "out"),
    "pretrain": ("pretrain", *RUN, "-o", "out"),
    "plan --write": ("plan", *RUN, "-o", "out", "--write"),
}


@pytest.mark.parametrize("place", PLACES)
def test_code_that_a_plan_names_is_not_imported_unless_the_command_names_it(folder, tokmill, place):
    assert tokmill("plan", *RUN, "-o", "out", "--write").code == 0
    edit_plan(folder, *PLACES[place])
    assert "names code" in tokmill(*PART, "--allow-code", "evil:other,math:floor").error
    for name, command in COMMANDS.items():
        outcome = tokmill(*command)
        assert not (folder / "imported").exists(), name
        if name in ("run-part", "finish"):
            assert outcome.code == 2
            assert "out/plan.json: names code, evil" in outcome.error
            assert outcome.error.endswith(f"--allow-code={PLACES[place][0][1]}")


def test_a_name_of_an_extension_in_a_plan_imports_no_file_of_the_current_directory(folder, tokmill):
    tokmill("plan", *RUN, "-o", "out", "--write")
    information = folder / "evil-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n")
    points = "[tokmill.renderers]\nevil = evil:render\n"
    (information / "entry_points.txt").write_text(points)
    extension = {"kind": "renderer", "name": "evil", "target": "evil:render"}
    extension |= {"distribution": "evil", "version": "1.0", "sha256": "0" * 64}
    for changes in (
        [(("task", "readings", 0, "settings", "render", "renderer"), "evil")],
        [(("extensions",), [extension])],
        [(("extensions",), [{**extension, "target": ""}])],
    ):
        edit_plan(folder, *changes)
        for command in COMMANDS.values():
            outcome = tokmill(*command)
            assert "Traceback" not in outcome.err
            assert not (folder / "imported").exists()


@pytest.mark.parametrize(
    ("option", "code"), [("--renderer", "evil:render"), ("--where", "evil:keep")]
)
def test_every_command_of_an_array_with_code_of_its_own_is_printed_in_full(
    folder, tokmill, option, code
):
    planned = tokmill("plan", *RUN, "-o", "out", "--write", option, code)
    assert f"tokmill run-part out --index I --of N --allow-code {code}, for" in planned.out
    assert f"tokmill finish out --allow-code {code}" in planned.out
    assert json.loads(tokmill("status", "out", "--json").out)["code"] == [code]
    refused = tokmill(*PART)
    allow = refused.error.rpartition("with ")[2]
    assert allow == f"--allow-code={code}"
    assert tokmill(*PART, allow).code == 0
    status = tokmill("status", "out").out
    finish = status.partition("not finished: tokmill ")[2].split()
    assert finish == ["finish", "out", "--allow-code", code]
    assert tokmill(*finish).code == 0
    assert tokmill("verify", "out").code == 0


def test_nothing_that_a_manifest_names_is_imported(folder, tokmill):
    assert tokmill("pretrain", *RUN, "-o", "out", "-q").code == 0
    path = folder / "out" / "manifest.json"
    manifest = json.loads(path.read_bytes())
    manifest["config"]["render"]["renderer"] = "evil:render"
    manifest["mix"] = {"where": "evil:render", "sources": [], "fingerprint": ""}
    manifest["extensions"] = [{"kind": "renderer", "name": "evil:render", "target": "evil:render"}]
    manifest["sha256"] = manifest_sha256(manifest)
    path.chmod(0o644)
    path.write_bytes(b"".join(json_chunks(manifest)))
    for command in (
        ("inspect", "out"),
        ("report", "out"),
        ("stats", "out"),
        ("verify", "out"),
        ("mix", "out", "-o", "mixed", "--shuffle", "1"),
        ("export", "out", "--to", "nanogpt", "--output", "exported"),
        ("pack", "out", "--length", "64"),
        ("finish", "out"),
    ):
        assert "Traceback" not in tokmill(*command).err, command
        assert not (folder / "imported").exists(), command


@pytest.mark.parametrize("start", [["-m", "tokmill"], ["-P", "-m", "tokmill"]], ids=" ".join)
def test_modules_are_not_looked_for_among_the_files_of_the_current_directory(tmp_path, start):
    for name in ("numpy", "pyarrow", "click", "json", "pathlib", "signal", "__future__", "typing"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported')")
    done = subprocess.run(
        [sys.executable, *start, "plan", *RUN],
        cwd=tmp_path, env=os.environ, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
