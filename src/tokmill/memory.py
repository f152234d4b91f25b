"""Functions of `tokmill.bill` under their former names, with a DeprecationWarning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def __getattr__(name: str) -> object:
    """Return a function that returns plain values, as it did."""
    import warnings

    from tokmill import bill

    former: dict[str, tuple[Callable[..., Any], str]] = {
        "count_parameters": (bill.count_parameters, "count_parameters"),
        "parameters_by_module": (bill.parameters_by_module, "parameters_by_module"),
        "training_memory": (_plain(bill.training), "training"),
        "inference_memory": (_plain(bill.inference), "inference"),
        "host_memory": (_plain(bill.host), "host"),
        "disk_memory": (lambda directory: bill.disk(directory).bill.as_json(), "disk"),
    }
    if name not in former:
        raise AttributeError(f"module 'tokmill.memory' has no attribute {name!r}")
    function, now = former[name]
    warnings.warn(
        f"tokmill.memory.{name} is now tokmill.bill.{now}", DeprecationWarning, stacklevel=2
    )
    return function


def _plain(function: Callable[..., Any]) -> Callable[..., dict[str, Any]]:
    def called(model: Any = None, directory: Any = None, **settings: Any) -> dict[str, Any]:
        dataset = {} if directory is None else {"dataset": directory}
        found: dict[str, Any] = function(model, **dataset, **settings).as_json()
        return found

    return called
