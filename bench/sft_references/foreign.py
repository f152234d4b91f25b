"""Loads a framework's own source without what it needs for models, images and downloads."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType
from typing import TYPE_CHECKING, Any

from bench.values import NotMeasured

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from pathlib import Path


def load_file(path: Path, stubs: Collection[str]) -> ModuleType:
    """Run one file as a module, with everything under the names in `stubs` replaced by nothing.

    Raises:
        NotMeasured: it is not there, or needs a package that is not.
    """
    if not path.is_file():
        raise NotMeasured(f"{path}: no such file")
    spec = spec_from_file_location(f"foreign_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    with stubbed(stubs, {}):
        spec.loader.exec_module(module)
    return module


@contextmanager
def stubbed(stubs: Collection[str], packages: Mapping[str, Path]) -> Iterator[None]:
    """Import within, with everything under the names in `stubs` replaced by nothing.

    `packages`: folders of packages whose `__init__` is not run.

    Raises:
        NotMeasured: another module is missing.
    """
    finder = _Finder(stubs, packages)
    before = {name: module for name, module in sys.modules.items() if finder.is_stub(name)}
    for name in before:
        del sys.modules[name]
    sys.meta_path.insert(0, finder)
    try:
        yield
    except ModuleNotFoundError as error:
        raise NotMeasured(f"needs {error.name}, which is not installed") from None
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if finder.is_stub(name)]:
            del sys.modules[name]
        sys.modules.update(before)


class _Finder(MetaPathFinder, Loader):
    def __init__(self, stubs: Collection[str], packages: Mapping[str, Path]) -> None:
        self._stubs = tuple(stubs)
        self._packages = packages

    def is_stub(self, name: str) -> bool:
        return any(name == stub or name.startswith(f"{stub}.") for stub in self._stubs)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname in self._packages:
            spec = ModuleSpec(fullname, self, is_package=True)
            spec.submodule_search_locations = [str(self._packages[fullname])]
            return spec
        return ModuleSpec(fullname, self, is_package=True) if self.is_stub(fullname) else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Stub(spec.name) if self.is_stub(spec.name) else ModuleType(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Run nothing."""


class _Stub(ModuleType):
    """A module that has whatever is asked of it: classes of which nothing is expected."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = _Anything(name, (_Nothing,), {})
        setattr(self, name, value)
        return value


class _Anything(type):
    """The type of classes that have whatever is asked of them."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Nothing

    def __getitem__(cls, _: Any) -> Any:
        return cls


class _Nothing(metaclass=_Anything):
    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __getattr__(self, name: str) -> Any:
        return getattr(type(self), name)
