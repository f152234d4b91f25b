"""Run the blocks of pages one after the other: `run_page.py STEPS RESULTS`.

STEPS is JSON, a list of `{kind, text, name, needs}`: `page` goes to a directory and forgets all
names, `file` writes a file, `shell` runs a script, `python` runs a program with the names of the
programs before it; `needs` is a package. RESULTS gets one line of JSON for each step: `skipped`
(the reason), `failed` (its output or traceback), `output`. A script of `tokmill` commands runs in
this process: packages such as torch, which take seconds to import, are imported once.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import importlib.util
import io
import json
import os
import re
import shlex
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any


def main() -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    lost: dict[str, str] = {}
    steps = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    # A file: what a program prints past Python, such as a worker, is not among the results.
    with Path(sys.argv[2]).open("w", encoding="utf-8", buffering=1) as results:
        for step in steps:
            print(json.dumps(run(step, names, lost)), file=results)


PLAIN = re.compile(r"(tokmill [^\n|&;<>()$`\\*?#~{}]+(#.*)?(\n|$))+")
"""A script that needs no shell."""


def run(step: dict[str, str], names: dict[str, Any], lost: dict[str, str]) -> dict[str, str]:
    """Run a step; `lost`: why names that skipped programs would have made do not exist."""
    if (package := step.get("needs", "")) and importlib.util.find_spec(package) is None:
        return {"skipped": f"{package} is not installed"}
    if step["kind"] == "file":
        Path(step["name"]).parent.mkdir(parents=True, exist_ok=True)
        Path(step["name"]).write_text(step["text"], encoding="utf-8")
        return {}
    if step["kind"] == "page":
        os.chdir(step["text"])
        names.clear()
        names["__name__"] = "__main__"
        lost.clear()
        return {}
    if step["kind"] == "shell":
        script = step["text"].replace("\\\n", " ")
        return run_commands(script) if PLAIN.fullmatch(script) else run_shell(script)
    tree = ast.parse(step["text"])
    needed = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    reason = next((lost[name] for name in sorted(needed) if name in lost), "") or missing(tree)
    if reason:
        made = {
            node.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        lost |= dict.fromkeys(made - set(names) - set(dir(builtins)), reason)
        return {"skipped": reason}
    return run_python(step["text"], names)


def missing(tree: ast.Module) -> str:
    """Return which imported package is not installed; '' if all are."""
    for node in ast.walk(tree):
        modules = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = [str(node.module)]
        for module in modules:
            top = module.partition(".")[0]
            if importlib.util.find_spec(top) is None:
                return f"{top} is not installed"
    return ""


def run_shell(script: str) -> dict[str, str]:
    command = ["bash", "-e", "-o", "pipefail", "-c", script]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    return outcome(done.returncode, done.stdout)


def run_commands(script: str) -> dict[str, str]:
    from tokmill.cli.main import main as tokmill

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        for line in script.splitlines():
            sys.argv = shlex.split(line, comments=True)
            try:
                tokmill()
            except SystemExit as stopped:
                if stopped.code:
                    return outcome(int(stopped.code), printed.getvalue())
            except BaseException:
                return {"failed": printed.getvalue() + traceback.format_exc()}
    return outcome(0, printed.getvalue())


def outcome(code: int, printed: str) -> dict[str, str]:
    """Return what became of a script."""
    if code == 2 and "is not installed: pip install" in printed:
        return {"skipped": printed.strip().splitlines()[-1]}
    return {"failed": f"exit code {code}: {printed}"} if code else {"output": printed}


def run_python(program: str, names: dict[str, Any]) -> dict[str, str]:
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            exec(compile(program, "page", "exec"), names)
    except BaseException:
        return {"failed": printed.getvalue() + traceback.format_exc()}
    return {"output": printed.getvalue()}


if __name__ == "__main__":
    main()
