"""Every program of examples/ and the notebook run with the installed wheel, without network."""

from __future__ import annotations

import ast
import importlib.util
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.docs.conftest import Installed
from tests.docs.pages import ROOT, read

EXAMPLES = ROOT / "examples"
PROGRAMS = sorted(path.name for path in EXAMPLES.glob("*.py"))
NOTEBOOK = EXAMPLES / "notebook.ipynb"
CELL_S = 120


SAID = {
    "bill_table.py": "llama-3-8b     H200         78.3 GiB   fits",
    "blend.py": "out/examples/books      1,000 tokens, 1.00 epochs",
    "colour_chats.py": "here each accent is a character of its own behind its letter",
    "on_ray.py": "the same tokens as on one process: True",
    "own_renderer.py": "银杏树高可达四十米。",
    "train_toy_model.py": "step 40: loss ",
}
"""What a program prints, among other things."""
QUICK = ("blend.py", "colour_chats.py", "own_renderer.py")
"""Programs that are run a second time, when all their datasets are there."""


def missing(source: str) -> str:
    """Return a package that a program imports and that is not installed; '' if there is none."""
    named = {"ray"} if 'executor="ray"' in source else set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            named |= {alias.name.partition(".")[0] for alias in node.names}
    return next((name for name in named if importlib.util.find_spec(name) is None), "")


def test_every_example_is_in_the_list_and_prints_something_that_is_checked() -> None:
    page = read("examples/README.md")
    assert [name for name in (*PROGRAMS, NOTEBOOK.name) if f"]({name})" not in page] == []
    assert list(SAID) == PROGRAMS


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_example_runs(installed: Installed, name: str) -> None:
    source = (EXAMPLES / name).read_text(encoding="utf-8")
    if package := missing(source):
        pytest.skip(f"{package} is not installed")
    shutil.copytree(EXAMPLES, installed.desk / "examples")
    for _ in range(2 if name in QUICK else 1):
        printed = installed.run(sys.executable, "-W", "error", f"examples/{name}")
        assert SAID[name] in printed


def executed(desk: Path, site: Path, home: Path) -> Any:
    """Run the notebook in a kernel that has nothing but the wheel and an empty home directory."""
    nbformat = pytest.importorskip("nbformat", reason="needs the extra dev")
    nbclient = pytest.importorskip("nbclient", reason="needs the extra dev")
    pytest.importorskip("ipykernel", reason="needs the extra dev")
    notebook = nbformat.read(NOTEBOOK, 4)
    notebook.cells = [cell for cell in notebook.cells if not lacks(cell)]
    client = nbclient.NotebookClient(
        notebook, timeout=CELL_S, kernel_name="python3", resources={"metadata": {"path": desk}}
    )
    variables = {
        "HOME": str(home),
        "PYTHONPATH": str(site),
        "TOKMILL_CACHE_DIR": str(home / "cache"),
        "HF_HUB_OFFLINE": "1",
    }
    client.execute(env=os.environ | variables)
    return notebook


def lacks(cell: Any) -> bool:
    """Return whether a cell needs a package that is not installed."""
    needs = [tag.removeprefix("needs-") for tag in cell.metadata.get("tags", ())]
    return any(importlib.util.find_spec(name) is None for name in needs)


@pytest.mark.slow(reason="a kernel, fifty cells, a dozen runs")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_every_cell_of_the_notebook_runs_in_a_fresh_environment(
    installed: Installed, tmp_path: Path
) -> None:
    cells = executed(installed.desk, installed.site, tmp_path).cells
    shown = {}
    for cell in cells:
        if cell.cell_type == "code":
            shown[cell.source] = "".join(map(text_of, cell.outputs))
    assert len(shown) >= 40

    def of(part: str) -> str:
        return next(text for source, text in shown.items() if part in source)

    assert "fields: sections[].content" in of('output="out/notebook/dump"')
    assert "<table" in shown["dataset"]
    assert "val_fraction=" in of("provisionalcompleter")
    assert "20 of 21 records were rejected" in of("would_stop")
    assert 'title="id ' in shown["chats.show([12, 4])"]
    assert "<iframe" in shown["dataset.report()"]
    assert "image/png" in shown.get("dataset.plot()", "image/png")
    assert of("tokmill.encode(tokmill.render(") == "True"
    same = [source for source in shown if source.endswith(".identity")]
    assert len(same) >= 3
    assert [source for source in same if not shown[source].endswith("True")] == []


def text_of(output: Any) -> str:
    """Return what a cell printed or showed."""
    if output.output_type == "stream":
        return str(output.text)
    assert output.output_type != "error", output
    return "".join(f"{value}" if "text" in kind else kind for kind, value in output.data.items())


def test_the_notebook_is_stored_without_outputs() -> None:
    nbformat = pytest.importorskip("nbformat", reason="needs the extra dev")
    for cell in nbformat.read(NOTEBOOK, 4).cells:
        if cell.cell_type == "code":
            assert (cell.outputs, cell.execution_count) == ([], None)
