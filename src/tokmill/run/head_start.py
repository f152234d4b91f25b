"""What takes longest at the start of a run begins first, beside the imports of the rest.

A child process loads the reference (`library_started`). Meanwhile this process loads the tokenizer,
and a thread the engine that the run will probably take, if loading it lets other threads go on:
fastokens takes 1 to 2 s for 150,000 ids. The run chooses its engine without regard to this; another
one costs the time of a thread.
"""

from __future__ import annotations

import contextlib
import threading
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tokmill.engines.store import EngineStore
from tokmill.errors import TokmillError
from tokmill.tokenizer.library_process import library_started
from tokmill.tokenizer.tokenizer import Tokenizer, load_tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokmill.engines.engine import Engine
    from tokmill.settings.schema import Config

_PEEK_BYTES = 64 << 10
"""Of the first file, as it stands there: enough to see whether its text has spaces."""

_PLAIN_SUFFIXES = (".jsonl", ".ndjson", ".json", ".txt", ".md")


@dataclass(frozen=True, slots=True)
class HeadStart:
    """The tokenizer of a run, and the engines that are loaded or being loaded for it."""

    config: Config
    tokenizer: Tokenizer
    engines: EngineStore


_begun: ContextVar[HeadStart | None] = ContextVar("begun", default=None)


@contextlib.contextmanager
def head_start(config: Config) -> Iterator[None]:
    """Begin to load what a run with these settings needs; `begun_for` finds it in the block.

    Chats get no engine: their control tokens can make a variant of the tokenizer.
    """
    if not config.tokenizer.path:
        yield
        return
    with library_started(config.tokenizer.path):
        begun = _begin(config)
        if begun is not None and config.sft is None:
            threading.Thread(target=_load_engine, args=(begun,), daemon=True).start()
        token = _begun.set(begun)
        try:
            yield
        finally:
            _begun.reset(token)


def begun_for(config: Config) -> HeadStart | None:
    """Return what was begun for these settings by the block around the caller."""
    begun = _begun.get()
    return begun if begun is not None and begun.config is config else None


def _begin(config: Config) -> HeadStart | None:
    """Return the tokenizer of a run; None if it does not load.

    The run finds the same error, after what is wrong with other settings.
    """
    with contextlib.suppress(TokmillError):
        tokenizer = load_tokenizer(config.tokenizer, for_chat=config.sft is not None)
        return HeadStart(config, tokenizer, EngineStore())
    return None


def _load_engine(begun: HeadStart) -> None:
    """Load the engine that is expected, if there is one and it loads beside other threads."""
    with contextlib.suppress(Exception):  # the run meets the same error, and can explain it
        from tokmill.engines.engine import engine_row
        from tokmill.engines.trial.candidates import Corpus, EngineRequest
        from tokmill.engines.trial.compare import CorpusSample
        from tokmill.engines.trial.expected import expected_choice
        from tokmill.run.plan import make_parts
        from tokmill.run.workers import workers_and_threads
        from tokmill.sources.files import discover

        config, tokenizer, paths = begun.config, begun.tokenizer, begun.config.input.paths
        if not paths or not all(map(_is_plain, paths)):  # a folder may have a million files
            return
        files = discover(config.input).files
        n_bytes = sum(file.n_bytes for file in files)
        with Path(paths[0]).open("rb") as file:
            peeked = CorpusSample([file.read(_PEEK_BYTES).decode(errors="ignore")], n_bytes)
        _, n_threads = workers_and_threads(config, make_parts(files, config.output.part_bytes))
        control = config.tokenizer.control_tokens_in_text
        request = EngineRequest(tokenizer, _no_reference, config.run.engine, control, n_threads)
        corpus = Corpus(n_bytes, False, lambda *_: peeked)
        choice = expected_choice(request, corpus, has_continuations=False)
        if choice is not None and engine_row(choice.name)[0].loads_beside:
            begun.engines.share(
                choice.name, tokenizer, control_in_text=control, n_threads=n_threads
            )()


def _no_reference() -> Engine:
    raise RuntimeError("nothing is compared here")


def _is_plain(path: str) -> bool:
    return path.endswith(_PLAIN_SUFFIXES) and Path(path).is_file()
