"""Engines that several callers share, and that a run takes over."""

from __future__ import annotations

import pickle
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import pytest

from tokmill.engines import loaded as stores
from tokmill.engines.loaded import EngineStore
from tokmill.errors import TokenizerError

SETTINGS = {"control_in_text": "text", "n_threads": 1}


class Loaded:
    """An engine that does nothing."""

    def __init__(self, *, renewable: bool = True) -> None:
        self.renewable = renewable


@pytest.fixture
def loads(monkeypatch) -> list[str]:
    """The name of each engine that is loaded, in order; "fixed" is not renewable."""
    found: list[str] = []

    def load(name, tokenizer, *, control_in_text, n_threads):
        found.append(name)
        return Loaded(renewable=name != "fixed")

    monkeypatch.setattr(stores, "load_engine", load)
    return found


def test_an_engine_is_loaded_once(tokenizer, loads):
    store = EngineStore()
    first = store.load("a", tokenizer, **SETTINGS)
    assert first is store.load("a", tokenizer, **SETTINGS)
    assert loads == ["a"]


def test_a_renewable_engine_is_taken_once_and_freed_by_its_taker(tokenizer, loads):
    load = partial(EngineStore().load, "a", tokenizer, **SETTINGS)
    first = load()
    assert load(is_taken=True) is first
    freed = weakref.ref(first)
    del first
    assert freed() is None
    assert load() is load() is load(is_taken=True)
    assert loads == ["a"] * 2


def test_an_engine_that_is_not_renewable_is_loaded_once_for_all(tokenizer, loads):
    load = partial(EngineStore().load, "fixed", tokenizer, **SETTINGS)
    assert load(is_taken=True) is load(is_taken=True) is load()
    assert loads == ["fixed"]


def test_another_tokenizer_name_of_the_same_content_shares_and_another_content_does_not(
    tokenizer, loads
):
    store = EngineStore()
    shared = store.load("a", tokenizer, **SETTINGS)
    renamed = replace(tokenizer, name="the tokenizer")
    assert store.load("a", renamed, **SETTINGS) is shared
    for other in (
        store.load("b", tokenizer, **SETTINGS),
        store.load("a", replace(tokenizer, json=tokenizer.json + " "), **SETTINGS),
        store.load("a", tokenizer, control_in_text="parse", n_threads=1),
        store.load("a", tokenizer, control_in_text="text", n_threads=2),
    ):
        assert other is not shared


def test_threads_wait_for_one_load(tokenizer, monkeypatch):
    begun, go_on, n_loads = threading.Event(), threading.Event(), []

    def load(name, tokenizer, **settings):
        n_loads.append(1)
        begun.set()
        assert go_on.wait(60)
        return Loaded()

    monkeypatch.setattr(stores, "load_engine", load)
    shared = partial(EngineStore().load, "a", tokenizer, **SETTINGS)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(shared)
        assert begun.wait(60)
        second = pool.submit(shared)
        go_on.set()
        assert first.result() is second.result()
    assert n_loads == [1]


def test_a_load_that_fails_is_tried_again(tokenizer, monkeypatch):
    answers = iter([TokenizerError("refused"), Loaded()])

    def load(name, tokenizer, **settings):
        answer = next(answers)
        if isinstance(answer, TokenizerError):
            raise answer
        return answer

    monkeypatch.setattr(stores, "load_engine", load)
    shared = partial(EngineStore().load, "a", tokenizer, **SETTINGS)
    with pytest.raises(TokenizerError, match="refused"):
        shared()
    assert isinstance(shared(), Loaded)


def test_engines_of_other_names_are_forgotten(tokenizer, loads):
    store = EngineStore()
    kept, dropped = (store.load(name, tokenizer, **SETTINGS) for name in "ab")
    store.keep({"a"})
    assert store.load("a", tokenizer, **SETTINGS) is kept
    assert store.load("b", tokenizer, **SETTINGS) is not dropped


def test_a_pickled_store_is_empty(tokenizer, loads):
    store = EngineStore()
    store.load("a", tokenizer, **SETTINGS)
    copy = pickle.loads(pickle.dumps(store))
    copy.load("a", tokenizer, **SETTINGS)
    assert len(loads) == 2


def test_engines_are_forgotten_while_other_threads_load_some(tokenizer, loads):
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    store, is_done = EngineStore(), threading.Event()
    kinds = [replace(tokenizer, identity=str(i)) for i in range(50)]

    def load():
        for i in range(5000):
            store.load("a", kinds[i % 50], **SETTINGS)
        is_done.set()

    try:
        with ThreadPoolExecutor(1) as pool:
            loading = pool.submit(load)
            while not is_done.is_set():
                store.keep(["a"])
            loading.result()
    finally:
        sys.setswitchinterval(before_s)
    assert len(loads) >= 50  # one that is loaded meanwhile may be forgotten
