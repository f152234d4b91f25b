"""Ctrl-C and SIGTERM, once and again, at any moment: exit code 130 and one line."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import tokmill

DEADLINE_S = 300
"""A bound that means a hang: a process may take half a minute to start on a busy machine."""
POLL_S = 0.005
"""Between two looks: a test that waits without a pause takes a core from the process."""
NOTES = ("first document: ", "input: ", "fields: ", "renderer: ")
STOPS = (signal.SIGINT, signal.SIGTERM)
KEPT = re.compile("error: interrupted; .*the same command (continues|begins again)")
STDIN_STOPPED = (
    "error: interrupted; standard input cannot be continued: start again with --overwrite"
)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory, write_rows: Callable[..., Path]) -> Path:
    """Input that takes seconds, in many parts."""
    rows = [{"text": f"hello world {i} 猫 " * 30} for i in range(20_000)]
    return write_rows(tmp_path_factory.mktemp("input") / "in.jsonl", rows)


@pytest.fixture
def begin(tokenizer_dir: Path, tmp_path: Path) -> Callable[..., subprocess.Popen[bytes]]:
    def start(*words: str | Path, **options: object) -> subprocess.Popen[bytes]:
        command: list[str | Path] = [
            sys.executable, "-m", "tokmill", "pretrain", *words, "-t", tokenizer_dir,
            "-o", tmp_path / "out", "--engine", "reference", "--threads", "1",
        ]  # fmt: skip
        return subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
            **options,
        )

    return start


def errors(process: subprocess.Popen[bytes]) -> list[str]:
    """What it prints on standard error until its end, without the notes."""
    _, said = process.communicate(timeout=DEADLINE_S)
    return [line for line in said.decode().splitlines() if not line.startswith(NOTES)]


def wait_for_plan(process: subprocess.Popen[bytes], out: Path) -> None:
    started = time.monotonic()
    while not (out / "plan.json").exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < started + DEADLINE_S
        time.sleep(POLL_S)


def wait_for_records(process: subprocess.Popen[bytes], out: Path, n: int) -> None:
    started = time.monotonic()
    while len(list(out.glob("parts/*.json"))) < n:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < started + DEADLINE_S
        time.sleep(POLL_S)


@pytest.mark.parametrize(("seed", "workers"), list(enumerate("121")))
def test_signals_in_any_number_at_any_moment_end_with_130_and_one_line(
    begin: Callable[..., subprocess.Popen[bytes]],
    source: Path,
    tmp_path: Path,
    workers: str,
    seed: int,
) -> None:
    """The whole group gets them, as from a terminal."""
    moments = random.Random(seed)
    with begin(source, "--part-bytes", "300kB", "--workers", workers) as process:
        if seed % 3:
            wait_for_records(process, tmp_path / "out", 1 + moments.randrange(3))
        else:
            wait_for_plan(process, tmp_path / "out")
        for _ in range(moments.randrange(1, 6)):
            if process.poll() is None:
                os.killpg(process.pid, moments.choice(STOPS))
            for _ in range(moments.choice((0, 10, 1000))):
                process.poll()
        (line,) = errors(process)
        assert KEPT.fullmatch(line)
    assert process.returncode == 130
    assert not (tmp_path / "out/manifest.json").exists()


@pytest.mark.parametrize("seed", [0, 5])
def test_a_signal_before_the_command_is_read_is_no_traceback(tmp_path: Path, seed: int) -> None:
    """The moments are those at which a module of ours or of others is imported."""
    program = f"""
import os, signal, sys
sys.argv[1:] = ["verify", "nowhere"]
import tokmill.interrupts
from tokmill.__main__ import main
n_imports = 0
def audit(event, arguments):
    global n_imports
    n_imports += event == "import"
    if event == "import" and n_imports == {1 + 7 * seed}:
        os.kill(os.getpid(), signal.SIGINT)
sys.addaudithook(audit)
main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "error: interrupted\n")


def test_a_signal_before_the_handlers_stand_ends_the_process_without_a_word() -> None:
    """Shells show an end by SIGINT as 130."""
    program = """
import os, signal, sys
sys.argv[1:] = ["verify", "nowhere"]
from tokmill.__main__ import main
def audit(event, arguments):
    if event == "import" and arguments[0] == "tokmill.interrupts":
        os.kill(os.getpid(), signal.SIGINT)
sys.addaudithook(audit)
main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


def test_a_signal_before_the_plan_is_written_says_that_nothing_was_done(
    tokenizer_dir: Path, source: Path, tmp_path: Path
) -> None:
    """The moment is that of the first file in the output, which a test of the disk writes."""
    program = f"""
import os, signal, sys
out = {str(tmp_path / "out")!r}
sys.argv[1:] = ["pretrain", {str(source)!r}, "-t", {str(tokenizer_dir)!r}, "-o", out]
from tokmill.__main__ import main
def audit(event, arguments):
    if event == "open" and str(arguments[0]).startswith(".plan.json"):
        os.kill(os.getpid(), signal.SIGINT)
sys.addaudithook(audit)
main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 130
    last = done.stderr.splitlines()[-1]
    assert last == "error: interrupted; nothing was done yet: the same command begins again"
    assert not (tmp_path / "out/plan.json").exists()


def test_the_second_signal_leaves_at_once_while_a_block_takes_long(
    begin: Callable[..., subprocess.Popen[bytes]], source: Path, tmp_path: Path
) -> None:
    """The first stops the work where it can be stopped: not inside a renderer of the user."""
    (tmp_path / "endless.py").write_text(
        "import threading, time\n"
        "import pyarrow as pa\n"
        "def render(batch):\n"
        "    if threading.current_thread() is not threading.main_thread():\n"
        f"        open({str(tmp_path / 'begun')!r}, 'w').close()\n"
        f"        time.sleep({2 * DEADLINE_S})\n"
        "    return pa.array(['x'] * len(batch))\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    with begin(source, "--renderer", "endless:render", env=environment) as process:
        started = time.monotonic()
        while not (tmp_path / "begun").exists():
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < started + DEADLINE_S
            time.sleep(POLL_S)
        for pause_s in (3, 0):
            process.send_signal(signal.SIGINT)
            time.sleep(pause_s)
        assert errors(process) == [
            "error: interrupted; what is done is kept: the same command continues"
        ]
        assert process.returncode == 130


def test_the_first_line_of_the_package_imports_no_typing() -> None:
    """Its import takes longer than all before it, and Ctrl-C then is a traceback."""
    program = "import sys; import tokmill; print('typing' in sys.modules)"
    # Without site, whose .pth files may import it: the package is found by its path.
    found = {**os.environ, "PYTHONPATH": str(Path(tokmill.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-S", "-c", program], env=found, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_a_run_of_standard_input_cannot_be_continued(
    begin: Callable[..., subprocess.Popen[bytes]], source: Path, tmp_path: Path
) -> None:
    # It has more input than it is given: cat waits for the rest.
    feed = subprocess.Popen(["cat", source, "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with feed, begin("-", stdin=feed.stdout) as process:
        wait_for_plan(process, tmp_path / "out")
        process.send_signal(signal.SIGINT)
        assert errors(process) == [STDIN_STOPPED]
        feed.kill()
    assert process.returncode == 130
    with begin("-", "--overwrite", stdin=subprocess.PIPE) as process:
        process.communicate(source.read_bytes()[:1000].rpartition(b"\n")[0], DEADLINE_S)
    assert process.returncode == 0


def test_what_ignored_ctrl_c_at_its_start_ignores_it_and_answers_sigterm(
    begin: Callable[..., subprocess.Popen[bytes]], source: Path, tmp_path: Path
) -> None:
    """A shell starts what a script puts in the background so."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process = begin(source, "--part-bytes", "300kB")
    finally:
        signal.signal(signal.SIGINT, before)
    with process:
        wait_for_records(process, tmp_path / "out", 1)
        process.send_signal(signal.SIGINT)
        wait_for_records(process, tmp_path / "out", 4)
        process.send_signal(signal.SIGTERM)
        (line,) = errors(process)
        assert KEPT.fullmatch(line)
    assert process.returncode == 130
