"""The bill of a model and a dataset: formulas over plain values; `tokmill.bill` is its door.

The functions that this package offered are found in `tokmill.bill`, and here with a warning.
"""

from __future__ import annotations

_MOVED = (
    "count_parameters",
    "disk_memory",
    "host_memory",
    "inference_memory",
    "parameters_by_module",
    "training_memory",
)


def __getattr__(name: str) -> object:
    """Return a function of `tokmill.bill` under its old name."""
    if name not in _MOVED:
        raise AttributeError(f"module 'tokmill.memory' has no attribute {name!r}")
    import warnings
    from importlib import import_module

    warnings.warn(
        f"tokmill.memory.{name} is now tokmill.bill.{name}", DeprecationWarning, stacklevel=2
    )
    found: object = getattr(import_module("tokmill.bill"), name)
    return found
