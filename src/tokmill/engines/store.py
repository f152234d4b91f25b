"""The engines that a process has loaded, so that its run takes them over instead of loading again.

A vocabulary of 150,000 takes 0.4 s to load (one core of an AMD Zen 5), for each engine.
"""

from __future__ import annotations

import threading
import weakref
from functools import partial
from typing import TYPE_CHECKING

from tokmill.engines.engine import load_engine

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from tokmill.engines.engine import Engine
    from tokmill.tokenizer.tokenizer import Tokenizer

    _Key = tuple[str, str, str, str, str, int]


class SharedEngine:
    """An engine that is loaded at the first call; callers on other threads wait for it."""

    def __init__(
        self, name: str, tokenizer: Tokenizer, *, control_in_text: str, n_threads: int
    ) -> None:
        self._load = partial(
            load_engine, name, tokenizer, control_in_text=control_in_text, n_threads=n_threads
        )
        self._lock = threading.Lock()
        self._engine: Engine | None = None
        self._taken: Callable[[], Engine | None] = _nothing

    def __call__(self) -> Engine:
        """Return the engine.

        Raises:
            TokenizerError: see `load_engine`; the next call tries again.
        """
        with self._lock:
            engine = self._engine or self._taken()
            if engine is None:
                engine = self._engine = self._load()
            return engine

    def take(self) -> Engine:
        """Return the engine to the caller that decides how long it stays in memory.

        If it is renewable, the next one to take it gets a new one, with empty caches.

        Raises:
            TokenizerError: see `load_engine`.
        """
        with self._lock:
            engine = self._engine or self._load()
            if engine.renewable:
                self._engine, self._taken = None, _reference_to(engine)
            else:
                self._engine = engine
            return engine


class EngineStore:
    """Engines by name, tokenizer and settings; safe to call from several threads.

    A copy in another process is empty.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._engines: dict[_Key, SharedEngine] = {}

    def __reduce__(self) -> tuple[type[EngineStore], tuple[()]]:
        """Return how to make an empty store."""
        return EngineStore, ()

    def share(
        self, name: str, tokenizer: Tokenizer, *, control_in_text: str, n_threads: int
    ) -> SharedEngine:
        """Return the engine for these arguments, see `load_engine`: one for all callers."""
        key = _key(name, tokenizer, control_in_text, n_threads)
        with self._lock:
            if key not in self._engines:
                self._engines[key] = SharedEngine(
                    name, tokenizer, control_in_text=control_in_text, n_threads=n_threads
                )
            return self._engines[key]

    def take(
        self, name: str, tokenizer: Tokenizer, *, control_in_text: str, n_threads: int
    ) -> Engine:
        """Return the engine for these arguments to the caller that frees it, see `SharedEngine`.

        Raises:
            TokenizerError: see `load_engine`.
        """
        shared = self.share(name, tokenizer, control_in_text=control_in_text, n_threads=n_threads)
        return shared.take()

    def keep(self, names: Collection[str]) -> None:
        """Forget all engines with other names, and so free their memory."""
        with self._lock:
            self._engines = {key: one for key, one in self._engines.items() if key[0] in names}


def _key(name: str, tokenizer: Tokenizer, control_in_text: str, n_threads: int) -> _Key:
    # The sha256 is that of the file: a variant of a tokenizer has another `json`.
    variant = tokenizer.sha256, tokenizer.json, tokenizer.rewritten_json
    return name, *variant, control_in_text, n_threads


def _reference_to(engine: Engine) -> Callable[[], Engine | None]:
    """Return a weak reference; one to nothing, if a class of another package allows none."""
    try:
        return weakref.ref(engine)
    except TypeError:
        return _nothing


def _nothing() -> None:
    return None
