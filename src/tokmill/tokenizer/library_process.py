"""The `tokenizers` library in a child process, where it loads beside everything else.

To load a vocabulary of 150,000 takes 0.4 s, in which no other Python code of its process runs. A
child does it while the parent imports, reads the inputs and loads another engine. The module is
also the child: its first message is a path, and every other one texts to encode.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import threading
from array import array
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tokmill.children import Child, ChildEndedError, Parent

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

LEAST_BYTES = 1 << 20
"""A smaller tokenizer.json is loaded in less time than a child takes to start."""

_RAYON = "RAYON_NUM_THREADS"
"""Read by the library when it first encodes."""

AddedTokens = frozenset[tuple[int, str, bool]]
"""Added tokens: id, content, and whether they are marked special."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a child has loaded: the sha256 of the file, why the library refuses it, or ''."""

    sha256: str
    refused: str
    added: AddedTokens


class MarkedToken(NamedTuple):
    """An added token of the file that is to be special: its string and its other flags."""

    content: str
    lstrip: bool
    rstrip: bool
    single_word: bool
    normalized: bool


def mark_special(library: Any, tokens: Iterable[MarkedToken]) -> None:
    """Mark added tokens of a `tokenizers` object special."""
    from tokenizers import AddedToken

    library.add_special_tokens([AddedToken(special=True, **token._asdict()) for token in tokens])


class Encoded(NamedTuple):
    """Ids of texts, one after the other, and how many each has: uint32 and int64 in memory."""

    ids: bytes
    lengths: bytes


class LibraryProcess:
    """A child that loads a tokenizer.json; safe to call from several threads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._child = Child("tokmill.tokenizer.library_process")
        self._lock = threading.Lock()
        self._loaded: Loaded | None = None
        with contextlib.suppress(ChildEndedError):
            self._child.send(str(path))

    def loaded(self) -> Loaded:
        """Wait until the library has loaded the file.

        Raises:
            ChildEndedError: the child has ended, or could not read the file.
        """
        with self._asked():
            if self._loaded is None:
                self._loaded = self._child.receive()
            return self._loaded

    def encode(
        self, texts: Sequence[str], *, parse: bool, marked: tuple[MarkedToken, ...] = ()
    ) -> Encoded:
        """Encode texts, without adding tokens; `parse`: strings of control tokens become ids.

        `marked`: tokens to mark special first, those of earlier calls among them.

        Raises:
            ChildEndedError: the child has ended, or had to mark other tokens before.
        """
        self.loaded()
        with self._asked():
            self._child.send((texts, parse, marked, os.environ.get(_RAYON)))
            answer: Encoded = self._child.receive()
            return answer

    def end(self) -> None:
        """End the child."""
        self._child.kill()

    @contextlib.contextmanager
    def _asked(self) -> Iterator[None]:
        """Let one thread ask; if it does not get its whole answer, the child ends.

        Otherwise the next caller would read what is left of it, as the ids of other texts.
        """
        with self._lock:
            try:
                yield
            except BaseException:
                self._child.stop()
                self._child.wait()
                raise


_started: ContextVar[LibraryProcess | None] = ContextVar("started", default=None)


@contextlib.contextmanager
def library_started(path: str) -> Iterator[None]:
    """Let a child load a tokenizer while the block runs; `load_tokenizer` finds it there.

    `path`: a tokenizer.json, or a directory that holds one. For a small one, or another kind of
    tokenizer, or if only one processor is free for it, no child is started.
    """
    process = _start(path)
    token = _started.set(process)
    try:
        yield
    finally:
        _started.reset(token)
        if process is not None:
            process.end()


def started_for(path: Path) -> LibraryProcess | None:
    """Return the child of the block around the caller, if it loads this file."""
    process = _started.get()
    return process if process is not None and process.path == path else None


def _start(path: str) -> LibraryProcess | None:
    file = Path(path)
    try:
        if file.is_dir():
            file /= "tokenizer.json"
        if file.suffix != ".json" or file.stat().st_size < LEAST_BYTES:
            return None
        if not _two_processors() or not sys.executable:  # unknown in a program that embeds Python
            return None
        return LibraryProcess(file)
    except (OSError, ValueError):  # the tokenizer is read again, which says what is wrong
        return None


def _two_processors() -> bool:
    affinity = getattr(os, "sched_getaffinity", None)  # not on every system
    return (len(affinity(0)) if affinity else os.cpu_count() or 1) > 1


def main() -> None:
    """Load a tokenizer.json, say what is in it, then encode."""
    parent = Parent()
    data = Path(parent.receive()).read_bytes()
    library, refused = _load(data)
    decoder = {} if library is None else library.get_added_tokens_decoder()
    added = frozenset((id_, token.content, token.special) for id_, token in decoder.items())
    parent.send(Loaded(hashlib.sha256(data).hexdigest(), refused, added))
    del data
    done: frozenset[MarkedToken] = frozenset()
    while True:
        texts, parse, marked, threads = parent.receive()
        if threads:
            os.environ.setdefault(_RAYON, threads)
        if not done.issubset(marked):  # a mark cannot be removed
            return
        mark_special(library, [token for token in marked if token not in done])
        done = frozenset(marked)
        library.encode_special_tokens = not parse
        ids, lengths = array("I"), array("q")
        for encoding in library.encode_batch_fast(texts, add_special_tokens=False):
            ids.extend(found := encoding.ids)
            lengths.append(len(found))
        parent.send(Encoded(ids.tobytes(), lengths.tobytes()))


def _load(data: bytes) -> tuple[Any, str]:
    """Return the library's tokenizer, or why it refuses the file."""
    from tokenizers import Tokenizer as Library

    from tokmill.tokenizer.refusal import refusal

    try:
        library = Library.from_buffer(data)
    except BaseException as error:
        return None, refusal(error)
    library.no_truncation()
    library.no_padding()
    return library, ""
