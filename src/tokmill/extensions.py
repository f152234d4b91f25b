"""Finds an object by its name in a table: built in, or added by another package.

Entry points are looked up only for a name that is not built in, so a built-in name always wins.
What comes from outside has an identity: its distribution, and a hash of the source files of its
top-level package. The identity stands in the plan, so that a run never continues with other code.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
import sys
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, NamedTuple

from tokmill.errors import StateError, UsageError
from tokmill.own_process import expect_foreign_code

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from importlib.metadata import EntryPoint, EntryPoints

    from tokmill.tables import Table

DOTTED_PATH = re.compile(r"\w+(\.\w+)*:\w+(\.\w+)*")
"""`package.module:object`."""

_SOURCES = (".py", ".so", ".pyd")
"""Files that hold code; data files of a package are not hashed."""


@dataclass(frozen=True, slots=True)
class Extension:
    """The identity of something that did not come with tokmill.

    `kind`: of its table. `target`: `module:object`. `distribution`, `version`: '' for a module that
    no package installed. `sha256`: over the source files of its top-level package.
    """

    kind: str
    name: str
    target: str
    distribution: str
    version: str
    sha256: str

    def as_json(self) -> dict[str, str]:
        """Return the identity as plain values."""
        return asdict(self)

    @property
    def label(self) -> str:
        """Return what a message calls it: `format msgl (tokmill-demo 1.0)`."""
        package = f" ({self.distribution} {self.version})" if self.distribution else ""
        return f"{self.kind} {self.name}{package}"

    @property
    def release(self) -> str:
        """Return version and source in a few characters, as the version of an engine."""
        return f"{self.version or '0'}+{self.sha256[:12]}"


class TableEntry(NamedTuple):
    """An object of a table; `extension` is None for one that came with tokmill."""

    value: Any
    extension: Extension | None


@cache
def find(table: Table, name: str) -> TableEntry:
    """Return the object of a name in a table, imported.

    Raises:
        UsageError: nobody has the name, two packages have it, or it cannot be imported.
    """
    own_name = table.name_of(name)
    if own_name in table.rows:
        return TableEntry(resolve_name(table.rows[own_name]), None)
    named = [point for point in _entry_points(table) if point.name == name]
    if not named:
        check_name(table, name, table.kind)
        raise UsageError(f"{table.kind} {name!r}: this value does not name one {table.kind}")
    if len(named) > 1:
        packages = " and ".join(_package(point) for point in named)
        raise UsageError(f"{table.kind} {name}: two packages have it, {packages}: uninstall one")
    point, dist = named[0], named[0].dist
    where = f"{table.kind} {name}: {_package(point)} cannot be loaded ({point.value})"
    release = (dist.name, dist.version) if dist else ("", "")
    return _imported(table.kind, name, f"{point.module}:{point.attr}", where, release)


def _entry_points(table: Table) -> EntryPoints:
    """Return the entry points of a table in installed packages; few runs ask for any."""
    from importlib.metadata import entry_points  # takes 15 ms

    return entry_points(group=table.group)


def _package(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else point.value


def check_name(table: Table, name: str, where: str = "") -> None:
    """Check that something in a table has a name, imports nothing; `where` begins the message.

    Raises:
        UsageError: nothing has it; proposes the nearest name.
    """
    known = [*table.choices, *sorted(names_of_packages(table))]
    if name not in known and not (table.takes_paths and ":" in name):
        begin = f"{where}: " if where else ""
        expected = f"expected one of {', '.join(known)}"
        if table.takes_paths and name.endswith(".py"):
            advice = f": name a function of it, as in {_dotted(name, 'FUNCTION')}"
        else:
            advice = nearest(name, known, table.aliases)
        raise UsageError(f"{begin}{expected}; found {name!r}{advice}")


def _dotted(file: str, name: str) -> str:
    """Return how an object of a Python file is named, and where Python finds the module."""
    folder, _, last = file.replace("\\", "/").rpartition("/")
    inside = f", in the directory {folder} or with PYTHONPATH={folder}" if folder else ""
    return f"{last.removesuffix('.py')}:{name}{inside}"


def names_of_packages(table: Table) -> set[str]:
    """Return the names that other packages add to a table; imports none of them."""
    return _entry_points(table).names - table.rows.keys()


def nearest(name: str, known: Sequence[str], aliases: Mapping[str, str] | None = None) -> str:
    """Return `: did you mean …?` with the nearest of known names; '' if none is near.

    `aliases`: the known name of what people call otherwise.
    """
    folded = {**(aliases or {}), **{other.casefold(): other for other in known}}
    close = get_close_matches(name.casefold(), folded, n=1)
    return f": did you mean {folded[close[0]]}?" if close else ""


def one_line(error: BaseException) -> str:
    """Return the kind and the first line of an error, and where it was raised."""
    text = (str(error).strip().splitlines() or [""])[0]
    where, frame = "", error.__traceback__
    while frame is not None:
        path = Path(frame.tb_frame.f_code.co_filename)
        if not path.name.startswith("<frozen"):
            where = f" ({path.name}:{frame.tb_lineno})"
        frame = frame.tb_next
    return f"{type(error).__name__}: {text}{where}"


def find_path(kind: str, target: str) -> TableEntry:
    """Return the object of a dotted path `package.module:object`.

    Raises:
        UsageError: the path is none, the module cannot be imported, or lacks the object.
    """
    module, _, name = target.rpartition(":")
    if target.endswith(".py"):
        module, name = target, "FUNCTION"
    if module.endswith(".py"):
        raise UsageError(
            f"{kind} {target}: expected a module, found a file: name it as {_dotted(module, name)}"
        )
    if not DOTTED_PATH.fullmatch(target):
        raise UsageError(f"{kind} {target}: expected package.module:function")
    release = _release(target.partition(":")[0].partition(".")[0])
    return _imported(kind, target, target, f"{kind} {target}: cannot be imported", release)


def _release(package: str) -> tuple[str, str]:
    """Return the distribution that has installed a top-level package, and its version; or ''.

    It looks beside the package alone: to read the files of all distributions takes 300 ms.
    """
    try:
        spec = importlib.util.find_spec(package)
    except ValueError:  # importing it says more
        return "", ""
    places = [spec.origin or "", *(spec.submodule_search_locations or ())] if spec else []
    listed = re.compile(rf"^{re.escape(package)}([/.]|$)", re.MULTILINE)
    from importlib.metadata import distributions

    for installed in distributions(path=[str(Path(p).parent) for p in places]):
        for file in ("top_level.txt", "RECORD"):
            if listed.search(installed.read_text(file) or ""):
                return installed.name, installed.version
    return "", ""


def _imported(
    kind: str, name: str, target: str, where: str, release: tuple[str, str]
) -> TableEntry:
    """Import the object `module:object` and return it with its identity.

    The current directory is searched after all others, so that no file in it hides an installed
    module. `where` begins the message of an error. `release`: distribution and version.
    """
    module = target.partition(":")[0]
    expect_foreign_code()
    try:
        with _current_directory_last():
            value = resolve_name(target)
            sha256 = source_sha256(module)
    except (Exception, SystemExit) as error:  # whatever the module raises
        raise UsageError(f"{where}: {one_line(error)}") from error
    return TableEntry(value, Extension(kind, name, target, *release, sha256))


def _is_installed(package: str) -> bool:
    """Return whether a top-level module can be found; imports nothing."""
    try:
        return importlib.util.find_spec(package) is not None
    except ValueError:  # an empty name, or a module that was not imported from a file
        return False


@contextmanager
def _current_directory_last() -> Iterator[None]:
    here = str(Path.cwd())
    if here in sys.path or "" in sys.path:
        yield
        return
    sys.path.append(here)
    try:
        yield
    finally:
        sys.path.remove(here)


@cache
def source_sha256(module: str) -> str:
    """Return the sha256 over the source files of a module's top-level package, or of the module.

    Computed once in a process: the code that was imported does not change when a file does.
    """
    top = module.partition(".")[0]
    spec = importlib.util.find_spec(top)
    folders = [Path(p) for p in (spec.submodule_search_locations or ())] if spec else []
    paths = (path for folder in folders for path in folder.rglob("*"))
    files = [path for path in paths if path.suffix in _SOURCES and path.is_file()]
    if not folders and spec is not None and spec.origin and spec.has_location:
        files, folders = [Path(spec.origin)], [Path(spec.origin).parent]
    digest, names = hashlib.sha256(), {}
    for path in files:
        folder = next(folder for folder in folders if path.is_relative_to(folder))
        names[path.relative_to(folder).as_posix()] = path
    for name, path in sorted(names.items()):
        data = path.read_bytes()
        digest.update(f"{name}\0{len(data)}\0".encode())
        digest.update(data)
    return digest.hexdigest()


def check_extensions(planned: Iterable[Extension]) -> None:
    """Check that this process has the code from outside that a run was planned with.

    A worker imports the code anew: it may have been edited since, or differ on another machine.

    Raises:
        StateError: the source of one is another; names it.
    """
    for extension in planned:
        module = extension.target.partition(":")[0]
        if module == "__main__":
            continue
        with _current_directory_last():
            if not _is_installed(module.partition(".")[0]):
                raise StateError(f"{extension.label}: {module} is not installed on this machine")
            sha256 = source_sha256(module)
        if sha256 != extension.sha256:
            raise StateError(
                f"{extension.label}: its source changed since the run was planned "
                f"({extension.sha256[:12]}, here {sha256[:12]}): run again with --overwrite"
            )
