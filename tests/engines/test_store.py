"""Engines that several callers share, and that a run takes over."""

from __future__ import annotations

import pickle
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

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


def test_an_engine_is_loaded_at_the_first_call_and_once(tokenizer, loads):
    store = EngineStore()
    first = store.share("a", tokenizer, **SETTINGS)
    assert loads == []
    assert first() is first() is store.share("a", tokenizer, **SETTINGS)()
    assert loads == ["a"]


def test_a_renewable_engine_is_taken_once_and_freed_by_its_taker(tokenizer, loads):
    shared = EngineStore().share("a", tokenizer, **SETTINGS)
    first = shared()
    assert shared.take() is first
    freed = weakref.ref(first)
    del first
    assert freed() is None
    assert shared() is shared() is shared.take()
    assert loads == ["a"] * 2


def test_an_engine_that_is_not_renewable_is_loaded_once_for_all(tokenizer, loads):
    shared = EngineStore().share("fixed", tokenizer, **SETTINGS)
    assert shared.take() is shared.take() is shared()
    assert loads == ["fixed"]


def test_another_tokenizer_name_of_the_same_content_shares_and_another_content_does_not(
    tokenizer, loads
):
    store = EngineStore()
    shared = store.share("a", tokenizer, **SETTINGS)()
    renamed = replace(tokenizer, name="the tokenizer")
    assert store.share("a", renamed, **SETTINGS)() is shared
    for other in (
        store.share("b", tokenizer, **SETTINGS),
        store.share("a", replace(tokenizer, json=tokenizer.json + " "), **SETTINGS),
        store.share("a", tokenizer, control_in_text="parse", n_threads=1),
        store.share("a", tokenizer, control_in_text="text", n_threads=2),
    ):
        assert other() is not shared


def test_threads_wait_for_one_load(tokenizer, monkeypatch):
    begun, go_on, n_loads = threading.Event(), threading.Event(), []

    def load(name, tokenizer, **settings):
        n_loads.append(1)
        begun.set()
        assert go_on.wait(60)
        return Loaded()

    monkeypatch.setattr(stores, "load_engine", load)
    shared = EngineStore().share("a", tokenizer, **SETTINGS)
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
    shared = EngineStore().share("a", tokenizer, **SETTINGS)
    with pytest.raises(TokenizerError, match="refused"):
        shared()
    assert isinstance(shared(), Loaded)


def test_engines_of_other_names_are_forgotten(tokenizer, loads):
    store = EngineStore()
    kept, dropped = (store.share(name, tokenizer, **SETTINGS)() for name in "ab")
    store.keep({"a"})
    assert store.share("a", tokenizer, **SETTINGS)() is kept
    assert store.share("b", tokenizer, **SETTINGS)() is not dropped


def test_a_pickled_store_is_empty(tokenizer, loads):
    store = EngineStore()
    store.share("a", tokenizer, **SETTINGS)()
    copy = pickle.loads(pickle.dumps(store))
    copy.share("a", tokenizer, **SETTINGS)()
    assert len(loads) == 2
