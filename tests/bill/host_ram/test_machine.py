from __future__ import annotations

from tokmill.bill.host_ram.machine import Machine


def test_a_run_may_take_memory_or_limit_whichever_is_less():
    assert Machine(memory_bytes=8, limit_bytes=5).usable_bytes == 5
    assert Machine(memory_bytes=8, limit_bytes=50).usable_bytes == 8
    assert Machine(memory_bytes=8).usable_bytes == 8
    assert Machine(limit_bytes=5).usable_bytes == 5
    assert Machine().usable_bytes == 0
