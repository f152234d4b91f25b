"""Every rank gets its rows of one sequence, which a state goes on with anywhere."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import pytest

from tests.loader.numbered import Numbered, in_step, ranks, samples
from tokmill.api.dataset import Dataset
from tokmill.errors import StateError, UsageError
from tokmill.loader import Loader, documents, packs, shuffled, windows


def rows_of(steps: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """Return the samples of a global batch, rank after rank."""
    return [row for batch in steps for row in samples(batch)]


@pytest.mark.parametrize("world", [1, 2, 8])
@pytest.mark.parametrize("workers", [0, 2, 4])
@pytest.mark.parametrize("tail", ["drop", "pad"])
def test_an_epoch_has_every_window_exactly_once(pretrained, world, workers, tail) -> None:
    source = windows(pretrained, 64, shift=False)
    make = partial(Loader, source, 3, epochs=1, tail=tail, workers=workers, seed=5)
    found = []
    for batches in in_step(ranks(make, world)):
        for batch in batches:
            real = ~batch.get("is_padding", np.zeros(3, bool))
            found += [row.tobytes() for row in batch["input_ids"][real]]
    dropped = len(source) % (3 * world) if tail == "drop" else 0
    every = [row.tobytes() for row in source.batch(range(len(source)))["input_ids"]]
    order = shuffled(np.arange(len(source) - dropped), len(source), seed=5)
    assert sorted(found) == sorted(every[number] for number in order.tolist())
    assert len(found) == len(source) - dropped > 500


@pytest.mark.parametrize("tail", ["drop", "pad"])
@pytest.mark.parametrize("is_blend", [False, True])
def test_a_loader_with_epochs_has_a_length(tail, is_blend) -> None:
    source = [(Numbered(17), 1), (Numbered(14), 2)] if is_blend else Numbered(31)
    loader = Loader(source, 3, world=2, epochs=3, tail=tail)
    assert len(loader) == len(list(loader))
    with pytest.raises(TypeError, match="give epochs=1"):
        len(Loader(source, 3))


@pytest.mark.parametrize("workers", [0, 3])
def test_the_sequence_does_not_depend_on_batch_ranks_or_workers(workers: int) -> None:
    wanted = [(0, number) for number in shuffled(np.arange(96), 100, seed=7).tolist()]
    for batch, world in ((1, 1), (8, 1), (4, 3), (2, 6), (1, 8)):
        make = partial(Loader, Numbered(100), batch, seed=7, epochs=1, workers=workers)
        found = [row for step in in_step(ranks(make, world)) for row in rows_of(step)]
        assert found[:96] == wanted


def kept(key: int, sizes: tuple[int, int], blend: bool, end: int = 120) -> list[int]:
    """Return the samples from `key` on that fill whole global batches, in epochs of 30."""
    size, numbers = sizes[0] * sizes[1], []
    while key < end:
        stop = end if blend else key // 30 * 30 + 30
        numbers += range(key, key + (stop - key) // size * size)
        key = stop
    return numbers


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("blend", [False, True])
@pytest.mark.parametrize("tail", ["drop", "pad"])
@pytest.mark.parametrize("stop", [0, 3, 7])
def test_a_state_goes_on_with_another_batch_and_world(shuffle, blend, tail, stop) -> None:
    sources: Any = [(Numbered(23, 1), 0.7), (Numbered(7, 2), 0.3)] if blend else Numbered(30)
    options = {"seed": 3, "shuffle": shuffle, "tail": tail, "epochs": 4}
    whole = [row for batch in Loader(sources, 1, **options) for row in samples(batch)]
    assert len(whole) == 120
    for first, second in (((2, 4), (3, 1)), ((3, 1), (2, 4)), ((7, 1), (4, 2)), ((4, 2), (5, 1))):
        loaders = ranks(partial(Loader, sources, first[0], **options), first[1])
        found = [row for step in islice(in_step(loaders), stop) for row in rows_of(step)]
        states = [loader.state_dict() for loader in loaders]
        assert states == [states[0]] * first[1]
        key = states[0]["epoch"] * 30 + states[0]["samples_seen"]
        others = ranks(partial(Loader, sources, second[0], **options), second[1], states[0])
        rest = [row for step in in_step(others) for row in rows_of(step)]
        if tail == "drop":
            assert found == [whole[k] for k in kept(0, first, blend)[: len(found)]]
            assert len(found) == stop * first[0] * first[1]
            assert rest == [whole[k] for k in kept(key, second, blend)]
        else:  # every sample once; in a padded batch, ranks have other places
            assert sorted(found) == sorted(whole[:key])
            assert sorted(rest) == sorted(whole[key:])


class ReadAhead(Numbered):
    """Rows that say when more than ten batches of four were read."""

    def __init__(self, n: int) -> None:
        super().__init__(n)
        self.is_ahead = threading.Event()

    def fill(self, numbers: Any, into: dict[str, Any], rows: Any = slice(None)) -> None:
        super().fill(numbers, into, rows)
        if self.n_read > 40:
            self.is_ahead.set()


@pytest.mark.parametrize("workers", [0, 2, 4])
def test_samples_are_counted_when_they_are_received(workers: int) -> None:
    source = ReadAhead(100)
    loader = Loader(source, 4, world=2, workers=workers)
    assert loader.state_dict()["samples_seen"] == 0
    batches = iter(loader)
    for number, _ in enumerate(islice(batches, 10), start=1):
        assert loader.state_dict() == {
            "fingerprint": loader.fingerprint, "seed": 0, "epoch": 0, "samples_seen": number * 8,
        }  # fmt: skip
    if workers:  # read ahead, and not counted
        assert source.is_ahead.wait(timeout=60)
    else:
        assert not source.is_ahead.is_set()


def test_a_padded_row_hides_its_tokens_and_is_not_counted() -> None:
    loader = Loader(Numbered(5), 4, tail="pad", shuffle=False, epochs=2)
    batches = list(loader)
    assert [batch["is_padding"].tolist() for batch in batches[:2]] == [
        [False] * 4, [False, True, True, True],
    ]  # fmt: skip
    assert batches[1]["labels"].tolist() == [[4, 0], [-100, -100], [-100, -100], [-100, -100]]
    assert batches[1]["input_ids"].tolist() == [[4, 0], [3, 3], [3, 3], [3, 3]]
    assert len(batches) == 4 == 2 * loader.batches_per_epoch
    assert loader.state_dict() | {"fingerprint": ""} == {
        "fingerprint": "", "seed": 0, "epoch": 2, "samples_seen": 0,
    }  # fmt: skip


def test_a_tail_is_dealt_out_to_all_ranks() -> None:
    make = partial(Loader, Numbered(11), 4, tail="pad", shuffle=False, epochs=1)
    steps = list(in_step(ranks(make, 2)))
    assert [samples(batch) for batch in steps[1]] == [[(0, 8), (0, 10)], [(0, 9)]]


@pytest.mark.parametrize("tail", ["drop", "pad"])
def test_real_rows_are_padded(chats: Dataset, pretrained: Dataset, tail: Any) -> None:
    for source in (
        packs(chats, shift=False),
        windows(pretrained, 500, document_ids=True, cu_seqlens=True, shift=False),
    ):
        batch = len(source) + 2 if tail == "pad" else len(source)
        found = next(iter(Loader(source, batch, tail=tail, shuffle=False)))
        wanted = source.batch(range(len(source)))
        for name in source.dtypes:
            np.testing.assert_array_equal(found[name][: len(source)], wanted[name])
        if tail == "pad":
            assert (found["labels"][-2:] == -100).all()
            assert (found["input_ids"][-2:] == source.pad_id).all()
            own = [*wanted["cu_seqlens"], *(len(source) + np.arange(1, 3)) * source.length]
            np.testing.assert_array_equal(found["cu_seqlens"], own)


def test_rows_without_padding_are_one_batch_end_to_end(chats: Dataset) -> None:
    source = packs(chats, pad=False, shift=False)
    found = list(Loader(source, 2, shuffle=False, epochs=1))
    assert len(found) == len(source) // 2
    np.testing.assert_array_equal(found[0]["input_ids"], source.batch([0, 1])["input_ids"])
    with pytest.raises(UsageError, match="different lengths"):
        Loader(source, 2, tail="pad")
    with pytest.raises(UsageError, match="cannot be blended"):
        Loader([(source, 1), (packs(chats, shift=False), 1)], 2)


def test_a_blend_has_its_shares_and_each_source_its_epochs() -> None:
    a, b = Numbered(50, 1), Numbered(4, 2)
    loader = Loader([(a, 0.7), (b, 0.3)], 10, seed=9)
    assert (loader.n_samples, loader.shares) == (54, (7, 3))
    found = [samples(batch) for batch in islice(loader, 40)]
    for batch in found[:5]:
        assert sum(name == 1 for name, _ in batch) == 7
    of_b = [number for batch in found for name, number in batch if name == 2]
    for epoch in range(10):
        own = of_b[epoch * 4 : epoch * 4 + 4]
        assert own == shuffled(np.arange(4), 4, seed=9, epoch=epoch, stream=1).tolist()


def test_rows_of_a_blend_must_be_alike(pretrained: Dataset) -> None:
    plain = windows(pretrained, 64, shift=False)
    for other, reason in (
        (windows(pretrained, 65, shift=False), "length is 65, but 64"),
        (windows(pretrained, 64, shift=True), "shift is True, but False"),
        (
            windows(pretrained, 64, position_ids=True, shift=False),
            "keys is input_ids labels position_ids, but",
        ),
    ):
        with pytest.raises(UsageError, match=reason):
            Loader([(plain, 1), (other, 1)], 2)


def test_sources_of_different_tokenizers_are_not_blended(pretrained: Dataset) -> None:
    first, second = windows(pretrained, 64, shift=False), windows(pretrained, 64, shift=False)
    Loader([(first, 1), (second, 1)], 2)
    second.probe_ids = (*second.probe_ids[:-1], 7)
    with pytest.raises(UsageError, match="made with another tokenizer"):
        Loader([(first, 1), (second, 1)], 2)
    second.probe_ids = ()  # of a dataset that has none
    Loader([(first, 1), (second, 1)], 2)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loop_that_raises_goes_on_with_the_next_batch(workers: int) -> None:
    loader = Loader(Numbered(30), 2, workers=workers, epochs=1)
    whole = [row for batch in Loader(Numbered(30), 2, epochs=1) for row in samples(batch)]
    seen: list[int] = []

    def train() -> None:
        for batch in loader:
            seen.extend(samples(batch))
            if len(seen) == 6:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train()
    assert loader.samples_seen == 6
    assert seen + [row for batch in loader for row in samples(batch)] == whole


def test_a_start_and_a_resume_do_not_depend_on_the_size() -> None:
    source = Numbered(1 << 61)
    loader = Loader(source, 8, seed=4)
    state = loader.state_dict() | {"epoch": 1, "samples_seen": (1 << 61) - 20}
    loader.load_state_dict(state)
    found = [row for batch in islice(loader, 3) for row in samples(batch)]
    wanted = shuffled((1 << 61) - 20 + np.arange(16), 1 << 61, seed=4, epoch=1)
    then = shuffled(np.arange(8), 1 << 61, seed=4, epoch=2)
    assert [number for _, number in found] == [*wanted.tolist(), *then.tolist()]
    assert loader.state_dict()["epoch"] == 2


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: Loader(Numbered(8), 3), "fingerprint .* in the state, .* here"),
        (lambda: Loader(Numbered(7, 1), 3), "sources, weights or shuffle changed"),
        (lambda: Loader(Numbered(7), 3, shuffle=False), "weights or shuffle changed"),
        (lambda: Loader(Numbered(7), 3, seed=1), "seed 0 in the state, 1 here"),
        (lambda: Loader([(Numbered(7), 1), (Numbered(7), 2)], 3), "fingerprint"),
    ],
)
def test_a_state_of_another_sequence_is_refused(make: Callable[[], Loader], reason: str) -> None:
    state = Loader(Numbered(7), 3).state_dict()
    with pytest.raises(StateError, match=reason):
        make().load_state_dict(state)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"samples_seen": 7}, "samples_seen 7; expected samples_seen from 0 to 6"),
        ({"samples_seen": -1}, "samples_seen -1"),
        ({"epoch": -1}, "epoch -1"),
        ({"epoch": 1 << 62}, "epoch 4611686018427387904, .* at most 2\\^62 samples in all"),
        ({"epoch": "x"}, "no state of a Loader"),
        ({"epoch": 1.5}, "no state of a Loader"),
    ],
)
def test_a_damaged_state_is_refused(change: dict[str, Any], reason: str) -> None:
    loader = Loader(Numbered(7), 3)
    with pytest.raises(StateError, match=reason):
        loader.load_state_dict(loader.state_dict() | change)
    with pytest.raises(StateError, match="no state of a Loader: 'epoch'"):
        loader.load_state_dict({})


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"batch": 0}, "batch: expected a whole number from 1, found 0"),
        ({"batch": 1.5}, "batch: expected a whole number from 1, found 1.5"),
        ({"rank": 2, "world": 2}, "rank 2 of 2 ranks"),
        ({"rank": -1}, "rank: expected a whole number from 0"),
        ({"epochs": 0}, "epochs: expected a whole number from 1"),
        ({"tail": "keep"}, "tail: expected drop or pad, found 'keep'"),
        ({"workers": True}, "workers: expected"),
        ({"seed": 1 << 64}, "seed is 18446744073709551616"),
        ({"batch": 3, "world": 3}, "7 samples, fewer than a global batch of 9"),
    ],
)
def test_a_wrong_argument_is_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        Loader(Numbered(7), **{"batch": 1, **options})


def test_what_has_no_batches_is_refused(pretrained: Dataset) -> None:
    with pytest.raises(UsageError, match="expected windows or packs"):
        Loader(documents(pretrained), 2)
    for wrong in ([], [Numbered(3)], [Numbered(3), Numbered(3)]):
        with pytest.raises(UsageError, match="a list of \\(source, weight\\)"):
            Loader(wrong, 2)


def test_an_error_of_a_worker_is_raised_in_the_loop() -> None:
    class Broken(Numbered):
        def fill(self, numbers: Any, into: dict[str, Any], rows: Any = slice(None)) -> None:
            raise StateError("broken")

    with pytest.raises(StateError, match="broken"):
        list(Loader(Broken(7), 3, workers=2, epochs=1))


def test_an_iteration_that_is_left_ends_its_threads() -> None:
    batches = iter(Loader(Numbered(100), 3, workers=3))
    next(batches)
    assert any("tokmill-loader" in thread.name for thread in threading.enumerate())
    batches.close()  # type: ignore[attr-defined]
    assert not any("tokmill-loader" in thread.name for thread in threading.enumerate())
