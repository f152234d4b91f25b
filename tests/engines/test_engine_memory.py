from __future__ import annotations

import gc
import itertools
import mmap
import sys
import threading
import weakref
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from tokmill.engines import loaded as engine_memory
from tokmill.engines.loaded import EngineMemory, RenewableEngine, anonymous_bytes
from tokmill.timing import StageTimer
from tokmill.values import TokenBatch

if TYPE_CHECKING:
    from collections.abc import Callable

TEXT = pa.array(["a", "bc"], pa.large_string())
MEMORY_BYTES = 4 << 20
REST_BYTES = 1000
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")


def touched_pages(n_bytes: int) -> mmap.mmap:
    """Return memory that really goes back to the system when it is dropped."""
    pages = mmap.mmap(-1, n_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for start in range(0, n_bytes, mmap.PAGESIZE):  # no copy, which could stay in malloc's arena
        pages[start : start + 1] = b"x"
    return pages


class Hoarder:
    """An engine that keeps `grown_bytes` more memory after every call."""

    name = "hoarder"

    def __init__(self, grown_bytes: int, *, renewable: bool, concurrent: bool) -> None:
        self.renewable = renewable
        self.concurrent = concurrent
        self._grown_bytes = grown_bytes
        self._hoard: list[mmap.mmap] = []

    def encode(self, text: pa.LargeStringArray) -> TokenBatch:
        if self._grown_bytes:
            self._hoard.append(touched_pages(self._grown_bytes))
        return TokenBatch(np.array([1, 2, 3], np.uint32), np.array([0, 1, 3], np.int64))


class Loader:
    """Makes engines, and keeps count of them."""

    def __init__(
        self, grown_bytes: int, *, renewable: bool = True, concurrent: bool = False
    ) -> None:
        self.n_loads = 0
        self._grown_bytes = grown_bytes
        self._renewable = renewable
        self._concurrent = concurrent

    def __call__(self) -> Hoarder:
        self.n_loads += 1
        return Hoarder(self._grown_bytes, renewable=self._renewable, concurrent=self._concurrent)


class Meeting(Hoarder):
    """An engine whose every call waits for `n` calls at a time, and notes how many there were."""

    def __init__(self, n: int, *, concurrent: bool) -> None:
        super().__init__(0, renewable=False, concurrent=concurrent)
        self._barrier = threading.Barrier(n)
        self.most_at_once = 0
        self._n_inside = 0
        self._lock = threading.Lock()

    def encode(self, text: pa.LargeStringArray) -> TokenBatch:
        with self._lock:
            self._n_inside += 1
            self.most_at_once = max(self.most_at_once, self._n_inside)
        self._barrier.wait(timeout=30)
        with self._lock:
            self._n_inside -= 1
        return super().encode(text)


def restless(memory_bytes: int) -> EngineMemory:
    """Return a limit that renews engines however little they have encoded."""
    return EngineMemory(memory_bytes, rest_bytes=0)


class FakeMemory:
    """The memory of a process, as its engines see it: theirs, and `others`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.others = 0
        self.engines: dict[int, int] = {}
        monkeypatch.setattr(engine_memory, "anonymous_bytes", self.n_bytes)
        monkeypatch.setattr(engine_memory, "trim_heap", lambda: None)

    def n_bytes(self) -> int:
        return self.others + sum(self.engines.values())

    def engine(self, memory: EngineMemory, *, growth: float) -> RenewableEngine:
        """Return an engine of 50 bytes that grows by `growth` for each byte of text."""
        number = len(self.engines)
        self.engines[number] = 0
        taken = self.engines

        class Growing(Hoarder):
            def encode(self, text: pa.LargeStringArray) -> TokenBatch:
                taken[number] += int(growth * len(text[0].as_py()))
                return super().encode(text)

        def load() -> Growing:
            taken[number] = 50
            engine = Growing(0, renewable=True, concurrent=True)
            weakref.finalize(engine, taken.__setitem__, number, 0)
            return engine

        return RenewableEngine(load, memory)


def encode_bytes(engine: RenewableEngine, n_bytes: int) -> int:
    """Encode a text of so many bytes; return how often the engine has been loaded."""
    engine.encode(pa.array(["x" * n_bytes], pa.large_string()), StageTimer())
    return engine.n_loads


def test_an_engine_that_outgrows_its_limit_at_once_is_renewed_only_after_its_rest(monkeypatch):
    memory = EngineMemory(10, rest_bytes=REST_BYTES)
    engine = FakeMemory(monkeypatch).engine(memory, growth=7)
    loads = [encode_bytes(engine, 100) for _ in range(41)]
    assert loads == [1 + i // 10 for i in range(41)]  # not 41: each text alone is over the limit


def test_memory_of_others_that_comes_and_goes_renews_an_engine_ever_more_seldom(monkeypatch):
    fake = FakeMemory(monkeypatch)
    engine = fake.engine(EngineMemory(10, rest_bytes=REST_BYTES), growth=0)
    renewed_at: list[int] = []
    for i in range(160):
        fake.others = 500 * (i % 2)  # as a long record that is there for every second text
        n_loads = engine.n_loads
        if encode_bytes(engine, 100) > n_loads and i:
            renewed_at.append(i)
    rests = [stop - start for start, stop in itertools.pairwise(renewed_at)]
    assert len(renewed_at) >= 3
    assert all(later >= 2 * rest for rest, later in itertools.pairwise(rests))


def test_the_engine_is_loaded_once_and_encodes(tmp_path):
    load = Loader(0)
    engine = RenewableEngine(load, EngineMemory(1 << 40))
    batches = [encode(engine) for _ in range(3)]
    assert [batch.ids.tolist() for batch in batches] == [[1, 2, 3]] * 3
    assert load.n_loads == 1


def encode(engine: RenewableEngine) -> TokenBatch:
    return engine.encode(TEXT, StageTimer())


@linux_only
def test_reloading_frees_the_memory():
    engine = RenewableEngine(Loader(16 * MEMORY_BYTES), restless(MEMORY_BYTES))
    before = anonymous_bytes()
    for _ in range(8):
        assert encode(engine).ids.tolist() == [1, 2, 3]
    assert engine.n_loads == 8
    assert anonymous_bytes() - before < 3 * 16 * MEMORY_BYTES


def in_threads(n: int, work: Callable[[], None]) -> None:
    threads = [threading.Thread(target=work) for _ in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@linux_only
@pytest.mark.parametrize("concurrent", [False, True])
def test_threads_share_one_engine_between_reloads(concurrent):
    load = Loader(4 * MEMORY_BYTES, concurrent=concurrent)
    engine = RenewableEngine(load, restless(MEMORY_BYTES))
    lengths: list[int] = []
    in_threads(4, lambda: lengths.extend(len(encode(engine).ids) for _ in range(4)))
    assert lengths == [3] * 16
    assert load.n_loads == engine.n_loads
    assert 2 <= engine.n_loads <= 16


def test_a_concurrent_engine_encodes_on_several_threads_at_once():
    library = Meeting(3, concurrent=True)
    engine = RenewableEngine(lambda: library, EngineMemory(1 << 40))
    in_threads(3, lambda: encode(engine) and None)
    assert library.most_at_once == 3


def test_an_engine_with_its_own_threads_gets_one_batch_at_a_time():
    library = Meeting(1, concurrent=False)
    engine = RenewableEngine(lambda: library, EngineMemory(1 << 40))
    in_threads(3, lambda: encode(engine) and None)
    assert library.most_at_once == 1


def test_an_engine_that_raises_leaves_room_for_the_next_batch():
    class Failing(Hoarder):
        def encode(self, text: pa.LargeStringArray) -> TokenBatch:
            raise ValueError("no")

    engine = RenewableEngine(
        lambda: Failing(0, renewable=False, concurrent=False), EngineMemory(1 << 40)
    )
    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            encode(engine)


@linux_only
def test_anonymous_memory_grows_with_allocated_pages():
    before = anonymous_bytes()
    held = touched_pages(32 << 20)
    grown = anonymous_bytes() - before
    held.close()
    assert 28 << 20 <= grown <= 48 << 20
    assert anonymous_bytes() - before < 16 << 20


@linux_only
def test_a_block_in_work_does_not_look_like_a_cache_that_has_grown():
    memory = restless(MEMORY_BYTES)
    block: list[mmap.mmap] = []
    engine = RenewableEngine(Loader(0), memory)
    for _ in range(3):
        encode(engine)
        with memory.holding(16 * MEMORY_BYTES):
            block.append(touched_pages(12 * MEMORY_BYTES))
            encode(engine)
            block.pop().close()
    assert engine.n_loads == 1


@linux_only
def test_a_large_block_at_load_time_does_not_raise_the_memory_limit():
    memory = restless(MEMORY_BYTES)
    block = [touched_pages(16 * MEMORY_BYTES)]
    engine = RenewableEngine(Loader(3 * MEMORY_BYTES), memory)
    with memory.holding(20 * MEMORY_BYTES):
        encode(engine)
    assert engine.n_loads == 1
    block.pop().close()
    encode(engine)  # sees that what was there is gone
    for _ in range(3):
        encode(engine)
    assert engine.n_loads >= 3


@linux_only
def test_two_engines_share_one_memory_limit_and_are_reloaded_together():
    memory = restless(8 * MEMORY_BYTES)
    first, second = (RenewableEngine(Loader(3 * MEMORY_BYTES), memory) for _ in range(2))
    for engine in (first, second, first):
        encode(engine)
    assert (first.n_loads, second.n_loads) == (1, 1)
    assert first.engine is second.engine is None  # 9 of 8: neither has 8 alone
    for engine in (first, second):
        encode(engine)
    assert (first.n_loads, second.n_loads) == (2, 2)


@linux_only
def test_only_the_renewable_one_of_two_engines_is_reloaded():
    gc.collect()  # what earlier tests left in this process is not freed meanwhile
    memory = restless(MEMORY_BYTES)
    kept = RenewableEngine(Loader(0, renewable=False), memory)
    renewed = RenewableEngine(Loader(16 * MEMORY_BYTES), memory)
    for _ in range(3):
        encode(kept)
        encode(renewed)
    assert kept.n_loads == 1
    assert renewed.n_loads == 3
