from __future__ import annotations

import os
import signal

import pytest

from tokmill.interrupts import DelayedInterrupts


@pytest.fixture(params=[signal.SIGINT, signal.SIGTERM])
def number(request):
    """A signal that raises KeyboardInterrupt, as it does in a run."""
    before = signal.signal(request.param, signal.default_int_handler)
    yield request.param
    signal.signal(request.param, before)


def test_an_interrupt_is_raised_at_the_end_of_the_delayed_code(number):
    done = []

    def work() -> None:
        with DelayedInterrupts() as interrupts, interrupts.delayed():
            os.kill(os.getpid(), number)
            done.append("first")
            done.append("second")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["first", "second"]
    assert signal.getsignal(number) is signal.default_int_handler


def test_an_interrupt_between_two_blocks_is_answered_at_once(number):
    done = []

    def work() -> None:
        with DelayedInterrupts() as interrupts:
            with interrupts.delayed():
                done.append("block")
            os.kill(os.getpid(), number)
            done.append("behind it")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["block"]
    assert signal.getsignal(number) is signal.default_int_handler


def test_a_second_interrupt_does_not_wait(number, monkeypatch):
    monkeypatch.setattr("tokmill.interrupts.SAME_INTERRUPT_S", 0)
    done = []

    def work() -> None:
        with DelayedInterrupts() as interrupts, interrupts.delayed():
            os.kill(os.getpid(), number)
            done.append("first")
            os.kill(os.getpid(), number)
            done.append("second")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["first"]
