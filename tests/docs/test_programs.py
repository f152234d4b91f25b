"""Every command and program of the pages below runs with the installed wheel, as they say.

A page begins in a directory with `data_samples/`, a finished pretraining dataset `out` and packed
chats `sft`. Its blocks run in order: `python` in one interpreter, `bash` and `console` in a shell.
A `text` block behind one of them is what it prints. A name in backticks on a line of its own before
a block makes the block a file. A program whose packages are missing is skipped, and so is a block
behind the comment `<!-- not run: REASON -->`, or `<!-- needs: PACKAGE -->` if that is missing.
`<pre>` shows a sample that the `tokmill sft` before it has made, `<mark>` what is trained.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.docs.conftest import Installed
from tests.docs.pages import PAGES, Block, blocks, read
from tests.docs.trained_text import differences
from tests.fixtures.hub_names import make_hub_names

FOLDERS = (
    "docs/index.md", "docs/faq.md", "docs/start/", "docs/sft.md", "docs/trainers/",
    "docs/loader.md", "docs/mix.md", "docs/input.md", "docs/records.md", "docs/engines.md",
    "docs/clusters.md", "docs/containers.md", "docs/failures.md", "docs/sft-parity.md",
    "docs/sft-options.md", "docs/settings.md", "docs/python-input.md", "docs/audit.md",
)  # fmt: skip
TESTED = [page for page in PAGES if page.startswith(FOLDERS)]
SHELL = ("bash", "console", "sh")
DEADLINE_S = 1200
"""Torch, trl and torchtitan take half a minute to import on a busy machine."""


def step(block: Block) -> dict[str, str] | None:
    """Return what a block means to `run_page`; None if it is only there to be read."""
    if block.reason:
        return None
    text = block.text
    kind = "file" if block.file else "python" if block.language == "python" else "shell"
    if kind == "shell":
        lines = [line.removeprefix("$ ") for line in text.splitlines()]
        text = "\n".join(lines if block.language in SHELL else block.commands())
    return (
        {"kind": kind, "text": text, "name": block.file, "needs": block.package} if text else None
    )


def test_every_block_runs_and_prints_what_its_page_says(desk: Installed, tmp_path: Path) -> None:
    """All pages in one process: torch, trl and others take seconds to import."""
    where, steps = [], []
    for page in TESTED:
        own = shutil.copytree(desk.desk, tmp_path / "desks" / page)
        make_hub_names(own, read(page))
        where.append((page, -1))
        steps.append({"kind": "page", "text": str(own)})
        for at, block in enumerate(blocks(page)):
            if one := step(block):
                where.append((page, at))
                steps.append(one)
    (tmp_path / "steps.json").write_text(json.dumps(steps), encoding="utf-8")
    wrong = []
    for (page, at), found in zip(where, run_steps(desk, tmp_path), strict=True):
        line = f"{page}:{blocks(page)[at].line}" if at >= 0 else page
        if "failed" in found:
            wrong.append(f"{line}: {found['failed']}")
        elif "skipped" in found:
            print(f"skipped: {line}: {found['skipped']}")
        elif at >= 0:
            printed = stable(found.get("output", ""))
            missing = [one for one in said(page, at) if stable(one) not in printed]
            wrong += [f"{line}: {one}\nwas not printed:\n{printed}" for one in missing]
    wrong += [line for page in TESTED for line in differences(page, tmp_path / "desks" / page)]
    assert wrong == [], "\n\n".join(wrong)


def run_steps(desk: Installed, directory: Path) -> list[dict[str, str]]:
    """Run `steps.json` without network, in a home directory of its own."""
    (directory / "home").mkdir()
    variables: dict[str, Any] = {
        "PYTHONPATH": str(desk.site),
        "PATH": os.pathsep.join([str(desk.site / "bin"), os.environ["PATH"]]),
        "HOME": str(directory / "home"),
        "HF_HUB_OFFLINE": "1",
        "COLUMNS": "110",
    }
    program, written = Path(__file__).with_name("run_page.py"), directory / "results.jsonl"
    done = subprocess.run(
        [sys.executable, program, directory / "steps.json", written],
        cwd=directory,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in written.read_text(encoding="utf-8").splitlines()]


def said(page: str, index: int) -> list[str]:
    """Return the lines of the `text` block behind a block, without their ellipses."""
    after = blocks(page)[index + 1 : index + 2]
    if not after or after[0].language != "text" or after[0].file or after[0].reason:
        return []
    lines = after[0].text.splitlines()
    return [part.strip() for line in lines for part in line.split("…") if part.strip()]


_TIME = re.compile(r"\b[\d.,]+ ?(?:(?:[kMG]i?B )?of text per second|[kMG]i?B/s|ms|s|min)\b")
_VERSION = re.compile(r"\b\d+\.\d+\.\d+(?:\.?(?:dev|rc|post)\d+)?(?:\+\w+)?\b")
_MEMORY = re.compile(r"(peak memory|output|memory up to) +[\d.,]+ [kMG]i?B")


def stable(text: str) -> str:
    """Return printed text without what depends on the machine: times, memory, versions, blanks."""
    for pattern, instead in ((_TIME, "#"), (_VERSION, "#"), (_MEMORY, r"\1 #")):
        text = pattern.sub(instead, text)
    return re.sub(r"\s+", " ", text)
