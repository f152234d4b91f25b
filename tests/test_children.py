from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tokmill import children
from tokmill.children import Child, ChildEndedError

MODULE = "tests.fixtures.echo_child"
ROOT = str(Path(__file__).parent.parent)


@pytest.fixture
def child(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    with Child(MODULE) as child:
        yield child


def ask(child, asked, value=None):
    child.send((asked, value))
    return child.receive()


def test_messages_of_any_size_come_back_as_they_were(child):
    for value in (None, "猫", b"x" * (1 << 21), list(range(1000))):
        assert ask(child, "echo", value) == value


def test_a_child_that_dies_inside_a_message_has_ended(child):
    child.send(("half", None))
    with pytest.raises(ChildEndedError):
        child.receive()


def test_what_a_child_prints_is_no_message_and_it_has_no_standard_input(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(ROOT)
    with (tmp_path / "errors").open("w+b") as errors, Child(MODULE, errors=errors) as child:
        assert ask(child, "print", "hello") == 5
        assert ask(child, "read") == ""
        assert (tmp_path / "errors").read_text() == "hello\n"


def test_a_child_does_not_import_the_main_module_of_its_parent(child):
    assert "pytest" not in ask(child, "main")
    assert "module" in ask(child, "main")


@pytest.mark.parametrize("how", ["end", "kill"])
def test_a_child_that_ended_is_an_error_with_its_status(child, how):
    if how == "end":
        child.send(("end", 86))
    else:
        child.stop()
    with pytest.raises(ChildEndedError) as caught:
        child.receive()
    assert caught.value.status == (86 if how == "end" else -signal.SIGKILL)
    with pytest.raises(ChildEndedError):
        child.send("more")


def test_a_stopped_child_is_ended_and_the_error_says_so(monkeypatch):
    monkeypatch.setattr(children, "LOOK_S", 0.02)
    monkeypatch.syspath_prepend(ROOT)
    with Child(MODULE) as child:
        assert ask(child, "echo", 1) == 1
        newest = max(psutil.Process().children(), key=psutil.Process.create_time)
        newest.send_signal(signal.SIGSTOP)
        with pytest.raises(ChildEndedError) as caught:
            ask(child, "echo", b"x" * (1 << 21))
    assert caught.value.stopped.startswith(f"process {newest.pid} was stopped by a signal")


def test_a_child_that_waits_is_not_taken_for_a_stopped_one(monkeypatch, tmp_path):
    """As one does whose disk or object store is slow: its processor time stands still, too."""
    monkeypatch.setattr(children, "LOOK_S", 0.02)
    monkeypatch.syspath_prepend(ROOT)
    os.mkfifo(tmp_path / "slow")
    with Child(MODULE) as child:
        child.send(("file", str(tmp_path / "slow")))
        readable, _, _ = select.select([child], [], [], 1)
        assert not readable
        (tmp_path / "slow").write_text("at last")
        assert child.receive() == "at last"


STOPPED = """
import os, signal
from tokmill.children import watch_this_process
watcher = watch_this_process(0.02)
os.kill(os.getpid(), signal.SIGSTOP)
"""


def test_a_stopped_process_that_nobody_looks_at_is_ended_by_its_own_watcher():
    with subprocess.Popen([sys.executable, "-c", STOPPED]) as stopped:
        assert stopped.wait(60) == -signal.SIGKILL


def test_a_watcher_ends_with_its_process():
    code = STOPPED.replace("SIGSTOP", "SIGKILL") + "\n"
    code = code.replace("os.kill", "print(watcher._process.pid, flush=True); os.kill")
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    deadline = time.monotonic() + 60
    while is_running(int(ended.stdout)):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    """Return whether a process runs; one that nobody has waited for has ended, too."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_child_ignores_ctrl_c(child):
    assert ask(child, "echo", 1) == 1
    newest = max(psutil.Process().children(), key=psutil.Process.create_time)
    newest.send_signal(signal.SIGINT)
    assert ask(child, "echo", 2) == 2


def test_a_killed_child_leaves_no_process_and_no_open_pipe(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    own = psutil.Process()
    before = (own.num_fds(), set(own.children()))  # an earlier test may have left a tracker
    with Child(MODULE) as child:
        assert ask(child, "echo", 1) == 1
    assert (own.num_fds(), set(own.children())) == before


@pytest.mark.parametrize("held", ["", "os.fork() or os.execlp('sleep', 'sleep', '600'); "])
def test_a_child_ends_with_its_parent_though_another_process_holds_its_socket(tmp_path, held):
    code = (
        f"import sys; sys.path.insert(0, {ROOT!r}); from tokmill.children import Child; "
        f"child = Child({MODULE!r}); import os; "
        "os.set_inheritable(child._connection.fileno(), True); "
        f"{held}child.send(('echo', 1)); child.receive(); print('ready', flush=True); "
        "child.send(('read', 0)); __import__('time').sleep(300)"
    )  # fmt: skip
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as parent:
        assert parent.stdout.readline() == b"ready\n"
        children = psutil.Process(parent.pid).children()
        ours = [one for one in children if MODULE in " ".join(one.cmdline())]
        parent.kill()
        deadline = time.monotonic() + 300
        while any(is_alive(one) for one in ours):
            assert time.monotonic() < deadline
            psutil.wait_procs(ours, timeout=0.05)
        for one in children:
            one.kill()


def is_alive(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_process_that_renders_does_without_arrows_functions():
    program = "import sys, tokmill.chat.render_pool; print('pyarrow.compute' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr
