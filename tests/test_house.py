"""The source keeps the limits of CONTRIBUTING.md: sizes, no circle of imports, docstrings."""

from __future__ import annotations

import ast
import re
import statistics
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "tokmill"
MODULES = sorted(path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py"))
MOST_LINES = 300
MEDIAN_LINES, LONGEST_TENTH_LINES = 10, 35
NO_VERBS = {"Give", "Gives", "Say", "Says", "Tell", "Tells", "Hold", "Holds", "Hear", "Hears"}
NO_VERBS |= {"What", "Which", "Where", "Whether", "How", "Why", "Returns", "Yields"}


@cache
def tree(module: str) -> ast.Module:
    return ast.parse((SOURCE / module).read_bytes())


def functions(module: str) -> Iterator[ast.FunctionDef]:
    return (node for node in ast.walk(tree(module)) if isinstance(node, ast.FunctionDef))


def is_property(function: ast.FunctionDef) -> bool:
    return "property" in " ".join(map(ast.unparse, function.decorator_list))


def test_modules_are_short() -> None:
    lengths = {m: len((SOURCE / m).read_bytes().splitlines()) for m in MODULES}
    assert {m: length for m, length in lengths.items() if length > MOST_LINES} == {}


def test_the_first_line_of_a_module_is_a_sentence_on_its_subject() -> None:
    subjects = {m: (ast.get_docstring(tree(m)) or "").split("\n\n")[0] for m in MODULES}
    assert {m: subject for m, subject in subjects.items() if not re.search(r"[.:]$", subject)} == {}


def test_functions_are_short() -> None:
    lengths = sorted((f.end_lineno or 0) - f.lineno + 1 for m in MODULES for f in functions(m))
    assert statistics.median(lengths) <= MEDIAN_LINES
    assert lengths[len(lengths) * 9 // 10] <= LONGEST_TENTH_LINES


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


def test_tests_are_as_long_as_the_source() -> None:
    n_source, n_tests = (
        sum(len(path.read_bytes().splitlines()) for path in top.rglob("*.py"))
        for top in (SOURCE, ROOT / "tests")
    )
    print(f"{n_tests:,} lines of tests, {n_source:,} of source: {n_tests / n_source:.2f}")
    assert n_tests >= n_source
