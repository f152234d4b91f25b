"""The source keeps CONTRIBUTING.md: lines of rooms, no circle of imports, docstrings."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest
from packaging.requirements import Requirement

from bench.rooms import ROOMS, TOO_MANY, gauges, too_large
from tokmill.version import __version__

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "tokmill"
MODULES = sorted(path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py"))
NO_VERBS = {"Give", "Gives", "Say", "Says", "Tell", "Tells", "Hold", "Holds", "Hear", "Hears"}
NO_VERBS |= {"What", "Which", "Where", "Whether", "How", "Why", "Returns", "Yields"}


@cache
def tree(module: str) -> ast.Module:
    return ast.parse((SOURCE / module).read_bytes())


def functions(module: str) -> Iterator[ast.FunctionDef]:
    return (node for node in ast.walk(tree(module)) if isinstance(node, ast.FunctionDef))


def is_property(function: ast.FunctionDef) -> bool:
    return "property" in " ".join(map(ast.unparse, function.decorator_list))


def test_no_room_has_more_lines_than_its_limit() -> None:
    assert too_large(gauges()) == []


def test_no_function_has_more_than_twenty_decisions():
    assert [place for room in gauges().values() for place in room.over(TOO_MANY)] == []


def test_a_room_that_grows_past_its_limit_is_named_with_what_to_do(tmp_path: Path) -> None:
    for name, n_lines in (("sources/csv.py", 5_000), ("sources/a.jinja", 2_000), ("new/a.js", 1)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("\n" * n_lines)
    (tmp_path / "values.py").write_text("\n" * 2_000)
    (tmp_path / "sources" / "notes.md").write_text("\n" * 9_000)
    rooms = gauges(tmp_path)
    n_lines = [rooms[room].n_lines for room in ("modules at the top", "cli, api", "all")]
    assert n_lines == [2_000, 0, 9_001]
    todo = "delete what is no longer needed, or raise the limit in bench/rooms.py and give the "
    limit = ROOMS["sources"]
    assert too_large(rooms) == [
        f"sources: 7,000 lines, limit {limit:,}: {todo}reason in the commit",
        f"new: 1 line, limit 0: {todo}reason in the commit",
    ]


def test_density_and_decisions_are_counted_as_the_page_says(tmp_path: Path) -> None:
    (tmp_path / "sources").mkdir()
    (tmp_path / "sources" / "a.py").write_text(
        '"""About."""\n\n# why\ndef f(x):\n    """Return."""\n'
        "    if x and x > 1 or not x:\n        return [y for y in x if y]\n"
        "    def g():\n        while x:\n            pass\n"
    )
    room = gauges(tmp_path)["sources"]
    assert (room.n_code_lines, list(room.decisions.values())) == (6, [5, 1])
    assert (room.p90(), len(room.over(4)), len(room.over(5))) == (5, 1, 0)


def test_the_first_line_of_a_module_is_a_sentence_on_its_subject() -> None:
    subjects = {m: (ast.get_docstring(tree(m)) or "").split("\n\n")[0] for m in MODULES}
    assert {m: subject for m, subject in subjects.items() if not re.search(r"[.:]$", subject)} == {}


def test_no_circle_of_imports_between_modules() -> None:
    graph = grimp.build_graph("tokmill")  # imports for types count too
    imports = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    for name in imports:  # a module and its own package: `from tokmill.chat import weights`
        imports[name] = {one for one in imports[name] if not name.startswith(f"{one}.")}
    assert len(list(TopologicalSorter(imports).static_order())) == len(graph.modules)


def test_docstrings_of_public_functions_begin_with_a_verb() -> None:
    wrong = [
        f"{module}: {function.name}: {docstring.splitlines()[0]}"
        for module in MODULES
        for function in functions(module)
        if not function.name.startswith("_") and not is_property(function)
        if (docstring := ast.get_docstring(function)) and docstring.split()[0] in NO_VERBS
    ]
    assert wrong == []


@pytest.mark.parametrize(("package", "version"), [("tokenizers", "1.0"), ("click", "9.0")])
def test_an_announced_release_that_breaks_us_is_not_installed(package: str, version: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    bounds = {one.name: one.specifier for one in map(Requirement, project["dependencies"])}
    assert not bounds[package].contains(version)
    assert not bounds[package].contains(f"{version}rc1", prereleases=True)


def test_the_version_is_the_same_wherever_it_stands() -> None:
    heading = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    cited = re.search(r"^version: (\S+)", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert heading
    assert cited
    assert heading[1] == cited[1] == __version__
