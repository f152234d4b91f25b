"""Where memory runs out: one line, and the exit code of a process that died of it."""

from __future__ import annotations

import errno
import os
import resource
import sys
from typing import NoReturn

from tokmill.errors import WorkerError
from tokmill.words.units import memory

EXIT_CODE = WorkerError.exit_code

_SAID = (
    "cannot allocate memory",
    "failed to map segment",
    "can't start new thread",
    "resource temporarily unavailable",
)
"""What the loader of libraries, Arrow, Rust and `threading` say: their errors have no number."""


def is_out_of_memory(error: BaseException | None) -> bool:
    """Return whether an error, or one that led to it, means that memory ran out."""
    # Where its memory ends, Python sometimes loses the error: "error return without exception set".
    known = (MemoryError, SystemError) if _is_limited() else (MemoryError,)
    while error is not None:
        is_known = isinstance(error, known) or getattr(error, "errno", 0) == errno.ENOMEM
        if is_known or any(words in str(error).lower() for words in _SAID):
            return True
        error = error.__cause__ or error.__context__
    return False


def spare_address_space() -> None:
    """Let OpenBLAS, which nothing here calls, reserve little where the address space is limited.

    It takes 32 MiB for each core when numpy is imported; without them it ends the process with 1,
    the code of a mismatch.
    """
    if _is_limited():
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def end() -> NoReturn:
    """End the process at once: libraries that lacked memory may crash while they are unloaded."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(EXIT_CODE)


def explain() -> str:
    """Return the line for the user, with the limit of this process if it has one."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    where = f" (ulimit -v allows {memory(limit)})" if _is_limited() else ""
    return (
        f"out of memory{where}: give this process more memory, or use fewer --workers and "
        "--threads, and run the same command again; a run keeps the parts that are done"
    )


def _is_limited() -> bool:
    return resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY
