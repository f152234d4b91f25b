"""Ctrl-C and SIGTERM: the first stops the work, the second leaves at once; neither is a traceback.

The first one raises KeyboardInterrupt in the main thread, so that what is open is closed and what
is half written is removed. The second one does not wait for that: files appear whole or not at all,
and the next run removes what is left. A process that was started with SIGINT ignored (`command &`
in a script) goes on ignoring it; SIGTERM stops it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from typing import TYPE_CHECKING, NoReturn

from tokmill.errors import EXIT_INTERRUPTED

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

STOPPED = "interrupted"
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SHOW_CURSOR = b"\x1b[?25h"
_AGAIN_S = 0.01

TOGETHER_S = 0.5
"""Signals so soon after the first belong to it: `timeout` signals a command, then its group."""


class _State:
    """What has arrived so far, and the one line that says what it means for the work."""

    is_asked = False
    since_s = 0.0
    line = STOPPED


def answer_signals() -> None:
    """Take over SIGTERM, and SIGINT unless whoever started this process had it ignored."""
    _State.is_asked, _State.line = False, STOPPED
    if sys.platform == "win32":
        return
    for number in _SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _stop)
    signal.signal(signal.SIGALRM, _stop_again)
    sys.unraisablehook = _unraisable


def ignore_signals() -> None:
    """Ignore both from here on: the exit code is settled, and the interpreter is taken down."""
    signal.setitimer(signal.ITIMER_REAL, 0)
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    # An interrupt inside an exec of text, such as that of `dataclass`, has Python end itself by
    # SIGINT in place of its exit code; the next text that is run takes the mark away.
    eval("0")  # noqa: S307


def is_asked() -> bool:
    """Return whether the work is to stop: whatever error follows comes from that."""
    return _State.is_asked


def explain(line: str) -> None:
    """Set the line that is printed if an interrupt comes from here on."""
    _State.line = line


def explanation() -> str:
    """Return the line that says what the interrupt means."""
    return _State.line


@contextlib.contextmanager
def sigint_blocked() -> Iterator[None]:
    """Start child processes that never see the Ctrl-C of a terminal: their parent answers it.

    They inherit the signal as blocked. One that arrives here meanwhile is delivered at the end.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def leave() -> NoReturn:
    """Print the line and end this process at once; nothing is cleaned up."""
    ignore_signals()
    with contextlib.suppress(OSError):
        if os.isatty(2):
            os.write(2, _SHOW_CURSOR)  # the progress bar has hidden it
        os.write(2, f"error: {_State.line}\n".encode())
    os._exit(EXIT_INTERRUPTED)


def _stop(number: int, frame: FrameType | None) -> None:
    if _State.is_asked:
        if time.monotonic() - _State.since_s < TOGETHER_S:
            return
        leave()
    _State.is_asked, _State.since_s = True, time.monotonic()
    raise KeyboardInterrupt


def _stop_again(number: int, frame: FrameType | None) -> None:
    if not _State.is_asked:
        _stop(number, frame)


def _unraisable(lost: sys.UnraisableHookArgs) -> None:
    """Raise an interrupt once more that came where nothing can be raised, such as in `__del__`."""
    if isinstance(lost.exc_value, KeyboardInterrupt):
        _State.is_asked = False
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)
    else:
        sys.__unraisablehook__(lost)
