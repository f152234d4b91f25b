"""Processes of torch's DataLoader read ahead, and the sequence and its count stay the same."""

from __future__ import annotations

from functools import partial
from itertools import islice

import numpy as np
import pytest

from tests.loader.numbered import Numbered, in_step, ranks
from tokmill.api.dataset import Dataset
from tokmill.errors import StateError
from tokmill.loader import Loader, packs, windows

pytest.importorskip("torch", reason="processes of torch's DataLoader need torch")
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")  # on few cores


@pytest.mark.parametrize("workers", [2, 4])
@pytest.mark.parametrize("world", [1, 2])
def test_processes_give_every_window_once(pretrained: Dataset, workers: int, world: int) -> None:
    source = windows(pretrained, 256, shift=False)
    alone = partial(Loader, source, 5, epochs=1, tail="pad", seed=2)
    wanted = list(in_step(ranks(alone, world)))
    found = list(in_step(ranks(partial(alone, workers=workers, processes=True), world)))
    assert len(found) == len(wanted) > 1
    for here, there in zip(wanted, found, strict=True):
        for batch, other in zip(here, there, strict=True):
            assert batch.keys() == other.keys()
            for name, values in batch.items():
                assert values.dtype == other[name].dtype
                np.testing.assert_array_equal(values, other[name])


def test_what_processes_read_ahead_is_not_counted(pretrained: Dataset) -> None:
    source = windows(pretrained, 64, shift=False)
    loader = Loader(source, 4, seed=1, workers=2, processes=True)
    received = [batch["input_ids"] for batch in islice(loader, 5)]
    state = loader.state_dict()
    assert (state["epoch"], state["samples_seen"]) == (0, 20)
    other = Loader(source, 2, seed=1)
    other.load_state_dict(state)
    received += [batch["input_ids"] for batch in islice(other, 5)]
    wanted = next(iter(Loader(source, 30, seed=1)))["input_ids"]
    np.testing.assert_array_equal(np.concatenate(received), wanted)


def test_a_blend_is_read_in_processes(pretrained: Dataset, chats: Dataset) -> None:
    sources = [(windows(one, 128, cu_seqlens=True, shift=False), 1) for one in (pretrained, chats)]
    alone, others = (
        list(islice(Loader(sources, 8, **options), 4))
        for options in ({}, {"workers": 2, "processes": True})
    )
    for batch, other in zip(alone, others, strict=True):
        for name, values in batch.items():
            np.testing.assert_array_equal(values, other[name])
    assert len(list(Loader(packs(chats, shift=False), 2, epochs=1, workers=1, processes=True))) > 1


def test_an_error_of_a_process_is_raised_in_the_loop() -> None:
    class Broken(Numbered):
        def batch(self, numbers: object, allocate: object = None) -> dict[str, object]:
            raise StateError("broken")

    with pytest.raises(StateError, match="broken"):
        list(Loader(Broken(7), 3, workers=1, processes=True, epochs=1))
