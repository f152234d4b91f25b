"""What the samples of a dataset must be, computed from its documents one by one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tokmill.api.dataset import Dataset


@dataclass
class Naive:
    """A split read document by document: its stream, its mask, and the document of each token."""

    documents: list[npt.NDArray[np.int64]]
    masks: list[npt.NDArray[np.uint8]]

    @property
    def ids(self) -> npt.NDArray[np.int64]:
        return np.concatenate(self.documents)

    @property
    def labels(self) -> npt.NDArray[np.int64]:
        return np.where(np.concatenate(self.masks) == 1, self.ids, -100)

    @property
    def numbers(self) -> npt.NDArray[np.int64]:
        return np.repeat(np.arange(len(self.documents)), [len(one) for one in self.documents])


def naive(dataset: Dataset, split: str = "train") -> Naive:
    """Read a split through `tokmill.Dataset`."""
    own = dataset.split(split)
    documents = [one.astype(np.int64) for one in own]
    is_sft = dataset.kind == "sft"
    masks = [
        own.mask(i) if is_sft else np.ones(len(one), np.uint8) for i, one in enumerate(documents)
    ]
    return Naive(documents, masks)


def check_sample(sample: Mapping[str, Any], **expected: Any) -> None:
    """Check that a sample has exactly these arrays, with their dtypes."""
    assert set(sample) == set(expected)
    for name, values in expected.items():
        wanted = np.asarray(values)
        assert sample[name].dtype == wanted.dtype, name
        np.testing.assert_array_equal(sample[name], wanted, err_msg=name)
