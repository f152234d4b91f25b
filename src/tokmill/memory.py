"""The bill of a model and a dataset: formulas over plain values; `tokmill.bill` is its door.

The functions that this package offered are found in `tokmill.bill`, and here with a warning.
"""

from __future__ import annotations


def __getattr__(name: str) -> object:
    """Return a function of `tokmill.bill` under its old name."""
    import warnings
    from importlib import import_module

    door = import_module("tokmill.bill")
    if name not in door.__all__:
        raise AttributeError(f"module 'tokmill.memory' has no attribute {name!r}")
    warnings.warn(
        f"tokmill.memory.{name} is now tokmill.bill.{name}", DeprecationWarning, stacklevel=2
    )
    found: object = getattr(door, name)
    return found
