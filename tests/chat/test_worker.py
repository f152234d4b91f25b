from __future__ import annotations

import subprocess
import sys

from tokmill.chat.worker import OUT_OF_MEMORY, OUT_OF_TIME

TIME = """
from tokmill.chat import worker
worker.TIME_S = worker.EXAMPLE_TIME_S = 0.2
with worker.guarded(0):
    pass
with worker.guarded(1 << 20):
    print("begun", flush=True)
    worker.TIME_OF_MIB_S = 0
with worker.guarded(0):
    while True:
        pass
"""
MEMORY = """
from tokmill.chat import worker
worker.MEMORY_BYTES = 1 << 26
with worker.guarded(4 << 20):
    kept = bytearray(1 << 27)
print("begun", flush=True)
with worker.guarded(0):
    more = bytearray(1 << 28)
"""


def run(code: str) -> tuple[int, str]:
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    return child.returncode, child.stdout


def test_a_message_that_takes_too_much_processor_time_ends_the_process():
    assert run(TIME) == (OUT_OF_TIME, "begun\n")


def test_a_message_that_takes_too_much_memory_ends_the_process():
    assert run(MEMORY) == (OUT_OF_MEMORY, "begun\n")
