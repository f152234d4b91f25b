"""Ctrl-C and SIGTERM: the first stops the work, the second leaves at once; no traceback.

The first raises KeyboardInterrupt in the main thread, so that open files are closed and half
written ones removed. The second does not wait for that: every file is complete or absent, and the
next run removes the rest. A process that was started with SIGINT ignored (`command &` in a script)
goes on ignoring it; SIGTERM stops it. `DelayedInterrupts` delays a signal while a block is written.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, NoReturn, Self

from tokmill.errors import EXIT_INTERRUPTED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

_STOPPED = "interrupted"
NOT_BEGUN = "interrupted; nothing was done yet: the same command begins again"
CONTINUES = "interrupted; what is done is kept: the same command continues"
STDIN_STOPPED = "interrupted; standard input cannot be continued: start again with --overwrite"
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_AGAIN_S = 0.01

SAME_INTERRUPT_S = 0.5
"""A second signal this soon counts as the first: `timeout` signals a command, then its group."""


class Interrupt:
    """The interrupt of this process: there is one.

    `is_asked`: it has come, and later errors are its consequences. `line`: explains it to the user,
    and `shown` writes it for standard error.
    """

    is_asked = False
    since_s = 0.0
    line = _STOPPED

    @staticmethod
    def as_text(line: str) -> str:
        """Return the line as an error."""
        return f"error: {line}"

    shown: Callable[[str], str] = as_text


def answer_signals() -> None:
    """Handle SIGTERM, and SIGINT unless this process was started with it ignored."""
    Interrupt.is_asked, Interrupt.line = False, _STOPPED
    if sys.platform == "win32":
        return
    for number in _SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _stop)
    signal.signal(signal.SIGALRM, _stop_again)
    sys.unraisablehook = _unraisable


def ignore_signals() -> None:
    """Ignore both signals from here on: the exit code is decided, and the interpreter ends."""
    signal.setitimer(signal.ITIMER_REAL, 0)
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    # After an interrupt inside an exec of text, such as that of `dataclass`, Python ends itself by
    # SIGINT instead of its exit code; the next text that is run clears that flag.
    eval("0")  # noqa: S307


@contextlib.contextmanager
def sigint_blocked() -> Iterator[None]:
    """Start child processes that never get the Ctrl-C of a terminal: their parent handles it.

    They inherit the blocked signal. One that arrives here meanwhile is delivered at the end.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def leave() -> NoReturn:
    """Print the line and end this process at once, without cleaning up."""
    ignore_signals()
    with contextlib.suppress(OSError):
        if os.isatty(2):
            os.write(2, b"\x1b[?25h")  # show the cursor, which the progress bar has hidden
        os.write(2, f"{Interrupt.shown(Interrupt.line)}\n".encode())
    os._exit(EXIT_INTERRUPTED)


def _stop(number: int, frame: FrameType | None) -> None:
    if Interrupt.is_asked:
        if time.monotonic() - Interrupt.since_s < SAME_INTERRUPT_S:
            return
        leave()
    Interrupt.is_asked, Interrupt.since_s = True, time.monotonic()
    raise KeyboardInterrupt


def _stop_again(number: int, frame: FrameType | None) -> None:
    if not Interrupt.is_asked:
        _stop(number, frame)


def _unraisable(lost: sys.UnraisableHookArgs) -> None:
    """Raise an interrupt again that came where nothing can be raised, such as in `__del__`."""
    if isinstance(lost.exc_value, KeyboardInterrupt):
        Interrupt.is_asked = False
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)
    else:
        sys.__unraisablehook__(lost)


class DelayedInterrupts:
    """Delays Ctrl-C and SIGTERM inside `delayed`, in the main thread; elsewhere changes nothing.

    The handlers are replaced once, not for every block: small files give thousands of blocks, and
    replacing takes 20 us. Blocked signals would not do: another thread would receive them.
    """

    def __init__(self) -> None:
        self._handlers: dict[int, Callable[[int, FrameType | None], object]] = {}
        self._is_delaying = False
        self._arrived = 0
        self._since_s = 0.0

    def __enter__(self) -> Self:
        """Replace the handlers of both signals, if they have one."""
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                handler = signal.getsignal(number)
                if callable(handler):
                    self._handlers[number] = handler
                    signal.signal(number, self._answer)
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Restore the handlers."""
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _answer(self, number: int, frame: FrameType | None) -> None:
        if self._is_delaying and not (self._arrived or Interrupt.is_asked):
            self._arrived, self._since_s = number, time.monotonic()
        elif not self._is_delaying or time.monotonic() - self._since_s >= SAME_INTERRUPT_S:
            self._handlers[number](number, frame)

    @contextlib.contextmanager
    def delayed(self) -> Iterator[None]:
        """Handle an interrupt at the end of this block of code; a second one at once."""
        self._is_delaying = True
        try:
            yield
        finally:
            self._is_delaying = False
            number, self._arrived = self._arrived, 0
            if number:
                self._handlers[number](number, None)
