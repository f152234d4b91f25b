"""Holds an interrupt back while a block is written, so that none leaves one half written."""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def interrupts_held() -> Iterator[None]:
    """Answer Ctrl-C and SIGTERM at the end; a second one is answered at once.

    Masking the signals would not do: another thread would take them. Costs some microseconds.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    found = ((number, signal.getsignal(number)) for number in _SIGNALS)
    handlers = {number: handler for number, handler in found if callable(handler)}
    held: list[int] = []

    def hold(number: int, frame: FrameType | None) -> None:
        held.append(number)
        if len(held) > 1:
            handlers[signal.Signals(number)](number, frame)

    try:
        for number in handlers:
            signal.signal(number, hold)
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if held:
            handlers[signal.Signals(held[0])](held[0], None)
