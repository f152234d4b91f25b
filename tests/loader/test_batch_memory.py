"""Memory of batches is used again only when nobody can see the last batch in it any more."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tokmill.loader import Loader, windows
from tokmill.loader.batch_memory import LEAST_BYTES, BatchMemory

SHAPE = (64, 256)


def address(array: Any) -> int:
    """Return where the first number of an array is."""
    return int(array.__array_interface__["data"][0])


def test_memory_is_used_again_when_the_array_is_gone() -> None:
    memory = BatchMemory(2)
    first = memory(SHAPE, np.int64)
    assert (first.shape, first.dtype, first.flags.c_contiguous) == (SHAPE, np.int64, True)
    place = address(first)
    assert address(memory(SHAPE, np.int64)) != place  # it is still here
    del first
    assert address(memory(SHAPE, np.int64)) == place
    assert memory((8, 4096), np.float32).shape == (8, 4096)  # another size
    assert memory((2, 3), np.int32).nbytes < LEAST_BYTES


@pytest.mark.parametrize(
    "part",
    [
        lambda array: array[1:, ::2],
        lambda array: array.reshape(-1)[5:],
        lambda array: array.T,
        lambda array: array.view(np.uint8),
        memoryview,
        lambda array: memoryview(array)[3:],
        lambda array: np.broadcast_to(array, (2, *SHAPE)),
        lambda array: np.frombuffer(array, np.int64),
        lambda array: [array],
    ],
)
def test_what_is_made_of_an_array_keeps_its_memory(part) -> None:
    memory = BatchMemory(1)
    array = memory(SHAPE, np.int64)
    array[:] = 7
    kept = part(array)
    del array
    memory(SHAPE, np.int64)[:] = 9
    assert 7 in np.asarray(kept)
    assert 9 not in np.asarray(kept)


def test_tensors_and_other_libraries_keep_the_memory() -> None:
    torch = pytest.importorskip("torch")
    memory = BatchMemory(1)
    for make in (torch.from_numpy, torch.as_tensor, torch.from_dlpack):
        kept = make(memory(SHAPE, np.int64).view())
        kept = kept[1:].flatten()
        kept[:] = 7
        memory(SHAPE, np.int64)[:] = 9
        assert (kept == 7).all()


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_that_are_kept_never_change(pretrained, workers) -> None:
    source = windows(pretrained, 64, shift=True)
    options: dict[str, Any] = {"epochs": 1, "seed": 3, "workers": workers}
    kept = list(Loader(source, 128, **options))
    assert kept[0]["input_ids"].nbytes >= LEAST_BYTES
    for batch, own in zip(Loader(source, 128, allocate=np.empty, **options), kept, strict=True):
        for name, values in batch.items():
            np.testing.assert_array_equal(values, own[name])


def test_a_loop_that_drops_its_batches_uses_the_same_memory(pretrained) -> None:
    source = windows(pretrained, 64, shift=True)
    places = {address(batch["labels"]) for batch in Loader(source, 128, epochs=4)}
    assert len(places) <= 6
