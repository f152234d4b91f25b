"""The bill of a model and a dataset: parameters, GPU memory, host RAM, disk, time and cost.

A model is a built-in name, a config.json or its directory, its contents, safetensors files, or
numbers (`family="llama", layers=8, …`, or `parameters="7B"`). A dataset is a directory, an open
`tokmill.Dataset`, or a size (`dataset_bytes="100GB"`, `tokens="300B"`). Settings have the names of
the options of `tokmill memory`; those that are not given come from environment variables
(`TOKMILL_…`), then from the run that made the dataset, then they are the defaults. All amounts are
in bytes.

    >>> tokmill.bill.count_parameters("gpt2")
    124439808
    >>> bill = tokmill.bill.training("llama-3-8b", gpus=8, sharding="zero-3", sequence="4k")
    >>> bill.peak.n_bytes <= bill.peak.high_bytes
    True
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokmill.lazy import attach

if TYPE_CHECKING:
    from tokmill.bill.bill_settings import BillSettings
    from tokmill.bill.compute import Compute
    from tokmill.bill.formula import Bill, Line
    from tokmill.bill.full_bill import FullBill, ModelBill
    from tokmill.bill.functions import (
        compare,
        count_parameters,
        disk,
        host,
        inference,
        of,
        parameters_by_module,
        training,
    )
    from tokmill.bill.host_ram.host import HostBill
    from tokmill.bill.on_disk import DatasetDisk, OnDisk
    from tokmill.bill.remedies.advice import Advice
    from tokmill.bill.remedies.comparison import Comparison
    from tokmill.bill.training_bill import TrainingBill

__all__ = [
    "Advice", "Bill", "BillSettings", "Comparison", "Compute", "DatasetDisk", "FullBill",
    "HostBill", "Line", "ModelBill", "OnDisk", "TrainingBill", "compare", "count_parameters",
    "disk", "host", "inference", "of", "parameters_by_module", "training",
]  # fmt: skip

_FUNCTIONS = (
    "compare", "count_parameters", "disk", "host", "inference", "of", "parameters_by_module",
    "training",
)  # fmt: skip
_MODULES = {
    **dict.fromkeys(_FUNCTIONS, "functions"),
    "Advice": "remedies.advice", "Bill": "formula", "BillSettings": "bill_settings",
    "Comparison": "remedies.comparison", "Compute": "compute", "DatasetDisk": "on_disk",
    "FullBill": "full_bill", "HostBill": "host_ram.host", "Line": "formula",
    "ModelBill": "full_bill", "OnDisk": "on_disk", "TrainingBill": "training_bill",
}  # fmt: skip
if not TYPE_CHECKING:
    __getattr__, __dir__ = attach(__name__, _MODULES)
