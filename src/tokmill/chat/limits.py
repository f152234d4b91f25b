"""The limits of chat templates: source, processor time, memory, and the text that they write.

A template is a program. Time and memory are bounded in a child process alone, see `render_pool`;
the length of a text is bounded wherever one is written. Each limit is a fixed amount and a share of
the record that is written, so that the length of a corpus does not matter.
"""

from __future__ import annotations

import resource
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tokmill.errors import TemplateLimitError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

TIME_S, TIME_OF_MIB_S = 3, 150
"""Of the processor, so that other jobs do not count. To compile a template takes 0.1 s, a MiB of
chats 1 s, and a chat of a thousand turns, 40 kB, whose spans are proven by prefixes 4 s."""

MEMORY_BYTES, MEMORY_TIMES_RECORD = 128 << 20, 64
"""More than before the template began. Qwen 3's takes 7 MiB."""

LONGEST_TEXT, TEXT_OF_RECORD, TEXT_TIMES_RECORD = 1 << 19, 1 << 14, 8
"""Characters of a sample. The reference takes 100 bytes for each while it encodes, and a block has
thousands of samples: the first number is for one that is much longer than others, the second for
the text that a template writes into every sample."""

LONGEST_SOURCE = 1 << 20
"""Characters of a template; those of models have up to 30,000."""

OUT_OF_TIME, OUT_OF_MEMORY = -signal.SIGPROF, 86
"""Exit statuses of a child that has reached a limit, as its parent sees them."""

_STEP = 1 << 14
"""Characters of records after which the limits of time and memory are set anew. That takes 20 us,
as long as the fastest template takes for 200 characters."""

_STATM = Path("/proc/self/statm")
IS_LIMITED = _STATM.exists()
"""Whether a child limits its own memory; else its parent watches it."""


class Unlimited:
    """The limits of tokmill's own templates: none."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def begin(self, row: int | None, n_characters: int) -> None:
        """Note that a template is to write a sample of a record.

        `row`: its number in the block, None for what is no record. `n_characters`: of its JSON.
        """


class ChildLimits(Unlimited):
    """The limits of time and memory, while entered; for the main thread of a child.

    Time that is used up ends this process at once. Memory that is used up raises `MemoryError`.
    `note`: gets the number of each record, for the parent.

    The time of a template is an account: it begins with `TIME_S`, every record adds its share, and
    there is never more than `TIME_S` to begin a record with. So a template that takes 1 s for each
    small record is stopped too.
    """

    def __init__(self, note: Callable[[int | None], None]) -> None:
        self._note = note
        self._left_s = float(TIME_S)
        self._n_characters = 0
        self._page_bytes = resource.getpagesize()

    def __enter__(self) -> Self:
        self._note(None)
        self._set(0)
        return self

    def __exit__(self, *_: object) -> None:
        self._left_s = signal.setitimer(signal.ITIMER_PROF, 0)[0]
        if IS_LIMITED:
            hard = resource.getrlimit(resource.RLIMIT_AS)[1]
            resource.setrlimit(resource.RLIMIT_AS, (hard, hard))

    def begin(self, row: int | None, n_characters: int) -> None:
        """Note the record, and add its share to the limits."""
        self._note(row)
        self._n_characters += n_characters
        if self._n_characters >= _STEP:
            self._left_s = signal.getitimer(signal.ITIMER_PROF)[0]
            self._set(self._n_characters)
            self._n_characters = 0

    def _set(self, n_characters: int) -> None:
        """Set both limits, for records of so many characters from here on."""
        seconds = min(TIME_S, self._left_s) + TIME_OF_MIB_S * n_characters / (1 << 20)
        signal.setitimer(signal.ITIMER_PROF, max(seconds, 0.001))  # 0 would be no limit
        if IS_LIMITED:
            hard = resource.getrlimit(resource.RLIMIT_AS)[1]
            soft = self._mapped_bytes() + most_memory(n_characters)
            if hard != resource.RLIM_INFINITY:
                soft = min(soft, hard)
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))

    def _mapped_bytes(self) -> int:
        """Return the address space of this process; what earlier samples hold is in it."""
        return int(_STATM.read_bytes().split()[0]) * self._page_bytes


class TextLimit:
    """The limit of the length of samples that one template writes; an account as that of time."""

    def __init__(self) -> None:
        self._left = LONGEST_TEXT

    def spend(self, n_written: int, n_record: int, row: int | None) -> None:
        """Take the characters of a sample; `n_record`: those of its record.

        Raises:
            TemplateLimitError: they are too many; `row` is its record.
        """
        share = TEXT_OF_RECORD + TEXT_TIMES_RECORD * n_record
        self._left = min(LONGEST_TEXT, self._left) + share - n_written
        if self._left < 0:
            limit = f"{LONGEST_TEXT:,} characters of text"
            raise too_much(limit, f"{TEXT_TIMES_RECORD} for each character of a record", row)


def checked_source(source: str, where: str) -> str:
    """Return the source of a template.

    Raises:
        UsageError: it is too long, or cannot be UTF-8; `where` names it.
    """
    if len(source) > LONGEST_SOURCE:
        raise UsageError(f"{where}: longer than {LONGEST_SOURCE:,} characters: no chat template")
    try:
        source.encode()
    except UnicodeEncodeError as error:
        found = ascii(source[error.start])
        raise UsageError(f"{where}: expected text that can be UTF-8, found {found}") from None
    return source


def most_memory(n_characters: int) -> int:
    """Return the bytes of memory that a record of so many characters may take."""
    return MEMORY_BYTES + MEMORY_TIMES_RECORD * n_characters


def too_much(limit: str, share: str, row: int | None) -> TemplateLimitError:
    """Return the error of a template that took more than a limit and the share of its record.

    `row`: of the record, None if it was read, compiled, or writing an example of tokmill's own.
    """
    if row is None:
        return TemplateLimitError(
            f"the chat template took more than {limit} for a chat of a few words: use another "
            "--template"
        )
    return TemplateLimitError(
        f"the chat template, or a --weigh, took more than {limit} and {share}: use another, or a "
        "lower --max-record-bytes, which leaves long records out; it stopped at record "
        f"{row + 1} of the block",
        row,
    )


def death_at_limit(status: int, row: int | None) -> TemplateLimitError | None:
    """Return the error of a child that has ended with a status, None if it reached no limit."""
    if status == OUT_OF_TIME:
        limit = f"{TIME_S} s of processor time"
        return too_much(limit, f"{TIME_OF_MIB_S} s for each MiB of records", row)
    if status == OUT_OF_MEMORY:
        limit = f"{MEMORY_BYTES >> 20} MiB of memory"
        return too_much(limit, f"{MEMORY_TIMES_RECORD} bytes for each character of a record", row)
    return None
