"""Holds an interrupt back while a block is written, so that none leaves one half written."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from typing import TYPE_CHECKING, Self

from tokmill import interrupts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class DelayedInterrupts:
    """Answers Ctrl-C and SIGTERM as before, but not inside `held`, in the main thread.

    The handlers are changed once and not for every block, of which small files give thousands:
    that took 20 us each. Masking the signals would not do: another thread would take them.
    """

    def __init__(self) -> None:
        self._handlers: dict[int, Callable[[int, FrameType | None], object]] = {}
        self._is_held = False
        self._arrived = 0
        self._since_s = 0.0

    def __enter__(self) -> Self:
        """Take over the signals that somebody answers."""
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                handler = signal.getsignal(number)
                if callable(handler):
                    self._handlers[number] = handler
                    signal.signal(number, self._answer)
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Restore the handlers that were there before."""
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _answer(self, number: int, frame: FrameType | None) -> None:
        if self._is_held and not self._arrived:
            self._arrived, self._since_s = number, time.monotonic()
        elif not self._is_held or time.monotonic() - self._since_s >= interrupts.TOGETHER_S:
            self._handlers[number](number, frame)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Answer an interrupt at the end of this; a second one is answered at once."""
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False
            number, self._arrived = self._arrived, 0
            if number:
                self._handlers[number](number, None)
