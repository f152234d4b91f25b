"""Find the messages of some rooms that name a command: read from the source, not listed by hand."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).parents[3] / "src" / "tokmill"
ROOMS = ("sources", "run", "tokenizer", "chat/reading", "recipes", "rendering")

_TOOLS = "jq|sed|iconv|gzip|zstd|tar|xz|bunzip2|lz4|python3"
_VERBS = "pretrain|sft|plan|import|mix|verify|inspect|stats|export|finish|run-part|report|status"
COMMAND = re.compile(
    rf"(?<![\w-])--[a-z][a-z-]*[a-z]|\btokmill (?:{_VERBS})\b|(?<![\w.])(?:{_TOOLS})(?= -)"
    "|unzip$|7z x|unrar x|git lfs pull|pip install"
)
"""An option, a command of tokmill, or a program of the shell."""

_NAME = re.compile(r"--[a-z-]+")


class Message(NamedTuple):
    """A piece of a message that names a command. `pieces`: what stands between values, in order."""

    place: str
    words: str
    pieces: tuple[str, ...]

    def is_in(self, line: str) -> bool:
        """Return whether a line holds this message, with any values."""
        place = 0
        for piece in self.pieces:
            place = line.find(piece, place)
            if place < 0:
                return False
            place += len(piece)
        return True


def messages_with_commands() -> Iterator[Message]:
    """Yield the strings of the rooms that name a command, docstrings excepted."""
    for room in ROOMS:
        for path in sorted((SOURCE / room).rglob("*.py")):
            yield from _in_module(path)


def _in_module(path: Path) -> Iterator[Message]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    left_out: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):  # a docstring
            left_out.add(node.value)
        if isinstance(node, ast.JoinedStr):
            left_out.update(node.values)
        if node in left_out or not isinstance(node, ast.Constant | ast.JoinedStr):
            continue
        pieces = _pieces(node)
        if len(pieces) == 1 and _NAME.fullmatch(pieces[0] or ""):  # of an option, no message
            continue
        if COMMAND.search("".join(piece or "…" for piece in pieces)):
            place = f"{path.relative_to(SOURCE)}:{node.lineno}"
            words = "".join("{}" if piece is None else piece for piece in pieces)
            yield Message(place, words, tuple(piece for piece in pieces if piece))


def _pieces(node: ast.Constant | ast.JoinedStr) -> list[str | None]:
    """Return the literal pieces of a string; None for a value of an f-string."""
    if isinstance(node, ast.Constant):
        return node.value.split("{}") if isinstance(node.value, str) else []
    return [str(v.value) if isinstance(v, ast.Constant) else None for v in node.values]


NOT_FOLLOWED: Mapping[str, str] = {
    "damaged ({}): run with --overwrite": "a damaged plan: tests/run",
    "--role-names leaves none": "the reason of a drop",
    "with which": "needs the vocabulary of a known family: test_first_minutes",
    "header is longer than --max-record-bytes": "the limit is its own advice",
    "git lfs pull": "needs a server",
    "--template={} writes them": "needs the template of a known family: tests/chat",
    "--inline-tags=fields reads think blocks": "needs the template of a known family: tests/chat",
    "7z x": "nothing here packs such a file",
    "unrar x": "nothing here packs such a file",
    "lz4 -dk": "nothing here packs such a file",
    "take --format, or uninstall one": "needs two installed packages: tests/extensions",
    "run again with --overwrite when nothing writes to it": "a race: tests/sources",
    "standard input cannot be continued": "needs a pipe: tests/run",
    "leave --engine out to continue": "needs two engines: tests/run",
    "and there is room for": "needs a full disk",
    "install that version": "needs two versions",
    "its file system lacks": "needs another file system",
    "another run writes there too": "a race",
    "began under other rules": "needs an older tokmill: tests/run",
    "another run took this place over": "a race",
    "read it again with --on-unread=skip and --overwrite": "needs a pipe: tests/run",
    "no tokenizer is named": "the command line refuses it first",
    "the package chardet": "needs a machine without it",
    "the package sentencepiece": "needs a machine without it",
    "input breaks off: {}; --on-unread=skip": "only in Python: tests/api",
    "reads other trainers' tokens": "needs files of another trainer: tests/run/importing",
    # Of imports, in tests/run/importing
    "are for rows (--from": "the options are their own advice",
    "the tokenizer decides how ids of rows are stored": "the option is its own advice",
    "for documents, run tokmill pack after the import": "two commands",
    "the column of ids (--ids)": "a name in a sentence",
    "the column of labels (--labels)": "a name in a sentence",
    "the columns of masks (--mask)": "a name in a sentence",
    "the column of weights (--weights)": "a name in a sentence",
    "has the splits": "an import of several splits",
    "expected rows of ids": "a command with sources of another program",
    "may be of another split": "an import of several splits",
    ": --from {} reads it": "an import of another kind",
    "import them apart, and join them": "two commands",
    "as --alignment says": "a note",
    "--alignment next if they stand": "a note",
    "name the token that ends documents with --eos-token": "needs millions of tokens",
    "--dtype uint32 reads it": "an import",
    "are no whole number of": "an import",
    "name the type with --dtype": "an import",
    "as in files of llm.c: --from nanogpt reads": "an import",
    "a file beside it was changed": "an import that is shared out",
    "--dtype: the files name the type": "the option is its own advice",
    "--add-eos": "an import",
    "the program that wrote the tokens (--from)": "a name in a sentence",
    "the files of the val split (--val)": "a name in a sentence",
    # Of arrays and Ray, in tests/run/test_tasks.py and test_ray.py
    "start their tasks again": "an array",
    "names code, {}, which was not run": "an array",
    "--of {}: expected 1 or more": "the option is its own advice",
    "--index {}: expected 0 to": "the option is its own advice",
    "the package ray is missing": "needs a machine without it",
    "--executor=ray:": "needs a cluster",
    "--threads or run.engine_memory_bytes": "needs a cluster",
    "--threads if memory is short": "needs a cluster",
    "no node of the Ray cluster can run": "needs a cluster",
}
"""Pieces of messages that are not met here, and why."""
