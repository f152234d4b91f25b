"""The bill of a model: parameters, GPU memory, host RAM and disk, as functions of plain values.

Functions take a model as a built-in name, a config.json or its contents, and settings by the names
of the options of `tokmill memory`. They return what `--json` prints. All amounts are in bytes. The
bill of a model trained on a dataset is `tokmill.Dataset.bill`.

    >>> tokmill.bill.count_parameters("gpt2")
    124439808
"""

from __future__ import annotations

from tokmill.memory import (
    count_parameters,
    disk_memory,
    host_memory,
    inference_memory,
    parameters_by_module,
    training_memory,
)

__all__ = [
    "count_parameters",
    "disk_memory",
    "host_memory",
    "inference_memory",
    "parameters_by_module",
    "training_memory",
]
