"""How long a process holds the GIL: another process reads the word of the lock again and again.

Nothing runs inside the measured process, so nothing competes for its GIL. The lock is found by its
switch interval, which stands at its beginning: it is set to a value that nothing else has.
"""

from __future__ import annotations

import ctypes
import os
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

from bench.values import NotMeasured

_MARK_US = 987_654
_RUNTIME_BYTES = 1 << 20
_LOCK = struct.Struct("@LPi")
"""How the lock begins in CPython 3.11 to 3.13: switch interval in us, last holder, is it held."""

_SAMPLER = """
import os, select, struct, sys, time
lock, file = struct.Struct("@LPi"), os.open(f"/proc/{sys.argv[1]}/mem", os.O_RDONLY)
seen = held = 0
print("ready", flush=True)
while not select.select([0], [], [], 0)[0]:
    time.sleep(0.0002)
    seen, held = seen + 1, held + lock.unpack(os.pread(file, lock.size, int(sys.argv[2])))[2]
print(seen, held)
"""


def lock_address() -> int:
    """Return the address of this process's GIL.

    Raises:
        NotMeasured: not Linux, or a Python without this lock.
    """
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(_MARK_US / 1e6)
    try:
        base = ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, "_PyRuntime"))
        with Path("/proc/self/mem").open("rb", buffering=0) as memory:
            memory.seek(base)
            words = memoryview(memory.read(_RUNTIME_BYTES)).cast("L")
    except (OSError, ValueError) as error:
        raise NotMeasured(f"the GIL is not found: {error}") from None
    finally:
        sys.setswitchinterval(interval_s)
    found = [i for i, word in enumerate(words) if word == _MARK_US]
    if len(found) != 1:
        raise NotMeasured(f"the GIL is not found: {len(found)} candidates")
    return base + found[0] * words.itemsize


class GilClock:
    """Counts for how long this process holds the GIL while the context is open.

    `held_s`: share of the moments at which it was held, times the seconds. A holder that waits for
    a processor counts, so leave a processor idle. `n_moments`: about 4,000 a second.
    """

    held_s = 0.0
    n_moments = 0

    def __enter__(self) -> Self:
        command = [sys.executable, "-c", _SAMPLER, str(os.getpid()), str(lock_address())]
        pipe = subprocess.PIPE
        self._sampler = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
        assert self._sampler.stdout is not None
        self._sampler.stdout.readline()
        self._start_s = time.perf_counter()
        return self

    def __exit__(self, *exc_info: object) -> None:
        seconds = time.perf_counter() - self._start_s
        counts, _ = self._sampler.communicate("stop")
        self.n_moments, n_held = map(int, counts.split())
        self.held_s = seconds * n_held / max(1, self.n_moments)
