"""Packages whose public names are imported when they are first used."""

TYPE_CHECKING = False  # that of typing, whose import takes longer than all of this module
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def attach(
    package: str, modules: "Mapping[str, str]"
) -> "tuple[Callable[[str], object], Callable[[], list[str]]]":
    """Return the `__getattr__` and the `__dir__` of a package.

    Args:
        package: its name, `__name__`.
        modules: the public names, each with the module inside of the package that defines it; "":
            the name is that of a module.
    """

    def import_name(name: str) -> object:
        from importlib import import_module

        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = import_module(f"{package}.{modules[name] or name}")
        value: object = getattr(module, name) if modules[name] else module
        setattr(import_module(package), name, value)
        return value

    def public_names() -> list[str]:
        return sorted(modules)

    return import_name, public_names
