"""A process that writes records: `python -m tokmill.chat.worker`.

Per-record work holds the interpreter, so that only processes make it faster. Messages come on
standard input and are answered on standard output: 8 bytes of length, little-endian, then a pickle.
The first one says how to write, every other one is a column of records. The process ends with its
input, so that it cannot outlive its parent.
"""

from __future__ import annotations

import pickle
import signal
import sys
from typing import TYPE_CHECKING, Any

from tokmill.chat.guard import guarded
from tokmill.chat.records import RecordWriter
from tokmill.chat.rule import mask_rule
from tokmill.chat.templates import make_template

if TYPE_CHECKING:
    from typing import IO

_LENGTH_BYTES = 8


def send(pipe: IO[bytes], value: Any) -> None:
    """Write a message."""
    data = pickle.dumps(value, protocol=5)
    pipe.write(len(data).to_bytes(_LENGTH_BYTES, "little"))
    pipe.write(data)
    pipe.flush()


def receive(pipe: IO[bytes]) -> Any:
    """Read a message, from a process of one's own.

    Raises:
        EOFError: the other side has ended.
    """
    length = int.from_bytes(_exactly(pipe, _LENGTH_BYTES), "little")
    return pickle.loads(_exactly(pipe, length))  # noqa: S301  from our own process


def _exactly(pipe: IO[bytes], n_bytes: int) -> bytes:
    data = pipe.read(n_bytes)
    if len(data) < n_bytes:
        raise EOFError
    return data


def main() -> None:
    """Answer until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt ends the parent, and so the input
    messages, answers = sys.stdin.buffer, sys.stdout.buffer
    try:
        settings, source, vocabulary = receive(messages)
        with guarded(0):
            template = make_template(source, settings, vocabulary)
            writer = RecordWriter(settings, template, mask_rule(settings), vocabulary)
        while True:
            text = receive(messages)
            with guarded(text.nbytes):
                written = writer.write(text)
            send(answers, written)
    except (EOFError, BrokenPipeError):
        return


if __name__ == "__main__":
    main()
