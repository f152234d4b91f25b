"""Change one thing of a module at a time, and list the changes that its tests do not notice.

    python -m bench.mutants loader/order.py [--share 0.2 --seed 1]

A mutant is a copy of the package with one operator, number, condition, text or statement changed.
The tests in `NEAR` run on it until one fails. What survives is printed: a missing test, a line that
is not needed, or a change that no user could notice; run the wider tests before you judge.
Docstrings, annotations, imports and decorators stay as they are.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
NEAR = {
    "loader/order.py": ("loader/test_order.py", "loader/test_blend.py"),
    "dataset/verify.py": tuple(f"dataset/test_verify{of}.py" for of in ("", "_masks", "_packs")),
    "masks/layout.py": ("masks/test_encoder.py",),
    "masks/truncation.py": ("masks/test_truncation.py",),
    "masks/encoder.py": ("masks/test_encoder.py",),
}
SECONDS = 60
"""Tests that take longer are in an endless loop, and count as a test that fails."""

_LEFT_ALONE = ("annotation", "returns", "decorator_list", "format_spec")
_OTHER: dict[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult, ast.Mod: ast.Mult, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.BitXor: ast.BitOr, ast.And: ast.Or,
    ast.Or: ast.And, ast.Break: ast.Pass, ast.Continue: ast.Pass, ast.Expr: ast.Pass,
    ast.AugAssign: ast.Pass, ast.Assign: ast.Pass, ast.Raise: ast.Pass, ast.Return: ast.Pass,
}  # fmt: skip
_NAMES = {"min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum", "any": "all"}


def mutants(source: str) -> Iterator[tuple[str, str]]:
    """Yield each mutant of a module: what was changed, and its source."""
    tree = ast.parse(source)
    for parent, name, i in list(_places(tree)):
        value = getattr(parent, name)
        node = value if i is None else value[i]
        for new in _changed(node):
            _put(parent, name, i, new)
            change = f"{_shown(node)}  ->  {_shown(new)}"
            line = getattr(node, "lineno", getattr(parent, "lineno", 0))
            yield f"{line}: {change}", ast.unparse(ast.fix_missing_locations(tree))
            _put(parent, name, i, node)


def _places(node: ast.AST) -> Iterator[tuple[ast.AST, str, int | None]]:
    """Yield the parent, field and index of each node that is code that runs."""
    for name, value in ast.iter_fields(node):
        for i, child in enumerate(value if isinstance(value, list) else [value]):
            is_docstring = isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)
            if isinstance(child, ast.AST) and not is_docstring and name not in _LEFT_ALONE:
                yield node, name, i if isinstance(value, list) else None
                yield from _places(child)


def _put(parent: ast.AST, name: str, i: int | None, node: ast.AST) -> None:
    if i is None:
        setattr(parent, name, node)
    else:
        getattr(parent, name)[i] = node


def _shown(node: ast.AST) -> str:
    return " ".join(ast.unparse(node).split())[:70] or type(node).__name__


def _changed(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what may stand in the place of a node."""
    if type(node) in _OTHER:
        yield _OTHER[type(node)]()
    match node:
        case ast.Constant(value=bool() as flag):
            yield ast.Constant(not flag)
        case ast.Constant(value=int() as number):
            yield ast.Constant(number + 1)
            yield ast.Constant(number - 1)
        case ast.Constant(value=str() as text):
            yield ast.Constant(f"{text}XX")
        case ast.Attribute(attr=word) if word in _NAMES:
            yield ast.Attribute(node.value, _NAMES[word], node.ctx)
        case ast.UnaryOp(operand=operand):
            yield operand
        case ast.IfExp(body=body, orelse=orelse):
            yield from (body, orelse)
        case ast.If() | ast.While() if _shown(node.test) != "TYPE_CHECKING":
            for truth in (True, False):
                yield type(node)(ast.Constant(truth), node.body, node.orelse)
        case ast.comprehension(ifs=[_, *_]):
            yield ast.comprehension(node.target, node.iter, [], node.is_async)
        case ast.Call(keywords=[_, *_]):
            for i in range(len(node.keywords)):
                yield ast.Call(node.func, node.args, node.keywords[:i] + node.keywords[i + 1 :])


def _notices(tests: list[str], package: Path) -> bool:
    """Return whether a test fails with this copy of the package."""
    env = {**os.environ, "PYTHONPATH": str(package), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-xqp", "no:cacheprovider", "--hypothesis-seed=0"]
    try:
        run = subprocess.run(
            [*command, *tests], cwd=ROOT, env=env, capture_output=True, timeout=SECONDS
        )
    except subprocess.TimeoutExpired:
        return True
    return run.returncode != 0


def main() -> None:
    """Run the tests on the mutants of a module."""
    parser = argparse.ArgumentParser(description="Change one thing of a module at a time.")
    parser.add_argument("module", choices=NEAR)
    parser.add_argument("--share", type=float, default=1.0, help="of the mutants that are tried")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    tests, chosen = [f"tests/{name}" for name in NEAR[args.module]], random.Random(args.seed)
    n, n_survived = 0, 0
    with tempfile.TemporaryDirectory() as work:
        package = Path(work, "src")
        shutil.copytree(ROOT / "src", package, ignore=shutil.ignore_patterns("__pycache__"))
        path = package / "tokmill" / args.module
        if _notices(tests, package):
            raise SystemExit("the tests fail without a change")
        for change, mutant in mutants(path.read_text()):
            if chosen.random() < args.share:
                path.write_text(mutant)
                n += 1
                if not _notices(tests, package):
                    n_survived += 1
                    print(f"{args.module}:{change}", flush=True)
    print(f"{args.module}: {n} mutants, {n_survived} survived")


if __name__ == "__main__":
    main()
