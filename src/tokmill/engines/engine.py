"""The engine protocol, and how engines are loaded by name.

An engine turns documents into flat token ids. The reference is the `tokenizers` library, or
SentencePiece's own for a `.model`. Other engines are used only where they return the same ids.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from tokmill import tables
from tokmill.errors import TokenizerError, TokmillError, UsageError
from tokmill.extensions import Extension, find
from tokmill.tokenizer.tokenizer_json import refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from tokmill.tokenizer.tokenizer import Tokenizer
    from tokmill.values import TokenBatch

REFERENCE = "reference"
FAST_ENGINES = tuple(tables.FAST_ENGINES)
ENGINES_OF_MODEL = {"BPE": FAST_ENGINES, "WordPiece": ("nanotoken",)}
"""By the type of a tokenizer's model, the engines that encode it, in the order they are tried."""


class Engine(Protocol):
    """Encodes documents and adds no token around them; safe to call from several threads."""

    name: str
    renewable: bool
    """Whether loading it again frees the memory of its caches."""
    concurrent: bool
    """Whether several calls at the same time are faster than one after the other."""

    def encode(self, text: pa.LargeStringArray) -> TokenBatch:
        """Encode n documents of valid UTF-8, no nulls."""


@dataclass(frozen=True, slots=True)
class EngineRow:
    """An engine in the table: what it needs, and how it is loaded.

    `load(tokenizer, *, parse, n_threads)` returns the engine; its class will do. With `parse`, a
    control token's string in a text becomes its id. `packages`: modules that must be importable.
    `distribution`: whose version is that of the engine. `takes_models`: loads a SentencePiece model
    without a `tokenizer.json`.
    """

    load: Callable[..., Engine]
    packages: tuple[str, ...] = ()
    distribution: str = ""
    takes_models: bool = False


IMPORT = "import"
"""Stands in plan and manifest in place of an engine where tokens were imported."""


def engine_row(name: str) -> tuple[EngineRow, Extension | None]:
    """Return the row of an engine, and its identity if it is another package's.

    Raises:
        UsageError: there is no such engine, or its package cannot be loaded.
    """
    row, extension = find(tables.ENGINES, name)
    if not isinstance(row, EngineRow):
        label = extension.label if extension else name
        raise UsageError(f"{label}: expected a tokmill EngineRow, found {type(row).__name__}")
    return row, extension


def load_engine(name: str, tokenizer: Tokenizer, *, control_in_text: str, n_threads: int) -> Engine:
    """Load an engine for a tokenizer.

    `control_in_text`: `parse` turns a control token's string in a text into its id; `text` and
    `reject` encode the string as ordinary text. `n_threads`: for use inside one call.

    Raises:
        UsageError: there is no such engine.
        TokenizerError: the package is missing, or the engine refuses this tokenizer.
    """
    row, _ = engine_row(name)
    if not tokenizer.json and not row.takes_models:
        raise TokenizerError(
            f"engine {name} cannot take {tokenizer.name}: no tokenizer.json says the same"
        )
    try:
        return row.load(tokenizer, parse=control_in_text == "parse", n_threads=n_threads)
    except (TokmillError, MemoryError):
        raise
    except ImportError as error:
        raise TokenizerError(f"engine {name} is not installed here: {error}") from None
    except BaseException as error:
        raise TokenizerError(f"engine {name} refuses {tokenizer.name}: {refusal(error)}") from None


def is_installed(name: str) -> bool:
    """Return whether the packages that an engine needs can be imported; imports none."""
    row, _ = engine_row(name)
    return all(importlib.util.find_spec(package) is not None for package in row.packages)


def engine_version(name: str, tokenizer: Tokenizer) -> str:
    """Return the installed version of the library that an engine runs.

    Of the reference also the library's name.
    Of an engine from another package also the hash of its source: a change is another version.
    """
    if name == REFERENCE:
        if tokenizer.kind == "sentencepiece":
            return f"sentencepiece {_version('sentencepiece')}"
        import tokenizers

        return f"tokenizers {tokenizers.__version__}"
    row, extension = engine_row(name)
    return extension.release if extension else _version(row.distribution)


@cache
def _version(distribution: str) -> str:
    """Return the version of an installed package, that of the first folder that Python looks into.

    It stands in the name of a folder: `importlib.metadata`, which reads it, takes 25 ms.
    """
    for folder in filter(os.path.isdir, sys.path):
        found = list(Path(folder).glob(f"{distribution}-*.dist-info"))
        if len(found) == 1:
            return found[0].name.removesuffix(".dist-info").partition("-")[2]
    from importlib.metadata import version

    return version(distribution)


def thread_variables(n_threads: int) -> dict[str, str]:
    """Return the variables from which engines learn their threads, in a process with `n_threads`.

    fastokens gets no threads of its own, since all threads of a run call it. With one for each core
    besides, each of them fills a cache, and two callers need 14% to 22% more processor time (gpt2
    in English and Chinese, qwen2.5 in English, 2 cores of an AMD EPYC).
    """
    return {"RAYON_NUM_THREADS": str(n_threads), "FASTOKENS_BPE_THREADS": "1"}


@contextmanager
def engine_threads(n_threads: int) -> Iterator[None]:
    """Set the variables while the context is open, except those that are set already.

    Engines read them when they encode for the first time in a process, and never again.
    """
    added = {k: v for k, v in thread_variables(n_threads).items() if k not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)
