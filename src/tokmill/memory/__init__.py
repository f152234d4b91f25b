"""The bill: parameters, GPU memory, host RAM and disk, as pure functions over plain values.

The functions here take a model as a built-in name, a config.json or its contents, settings by the
names of `budget_settings`, and give plain values: what `--json` prints. All amounts are in bytes.

    >>> from tokmill.memory import count_parameters
    >>> count_parameters("gpt2")
    124439808
"""

from __future__ import annotations

from tokmill.memory.api import (
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
