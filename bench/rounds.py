"""Runs contenders in turn, each in a process of its own: A B C, A B C."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench.contenders import FIRST, KEPT_RIVALS
from bench.machine import CpuClock
from bench.ratios import bytes_per_s
from bench.values import NotMeasured, Sample, Task, Timing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench.contenders import Contender
    from bench.corpus import Corpus

ROOT = Path(__file__).resolve().parent.parent
LIMIT_S = 3600
UNCOUNTED = ("datatrove",)
"""Peers whose grandchildren nobody waits for: their CPU time would count as somebody else's."""


@dataclass(frozen=True, slots=True)
class Pairing:
    """A corpus and a tokenizer, with what all runs over them share."""

    corpus: Corpus
    tokenizer: str
    eos: str
    cache: Path
    cores: int

    @property
    def tokenizer_name(self) -> str:
        """Return the short name of the tokenizer."""
        path = Path(self.tokenizer)
        return path.parent.name if path.is_file() else path.name


def measure(
    pairing: Pairing,
    contenders: Sequence[Contender],
    n_rounds: int,
    tell: Callable[[Contender, int, Timing | str], None],
) -> tuple[list[Sample], dict[str, str]]:
    """Run every contender once a round; give the samples, and why others were left out.

    A warm contender runs once before the rounds: that is its very first run, round 0. After the
    first round slow contenders and the slower ones of rivals are done.
    """
    samples: list[Sample] = []
    left_out: dict[str, str] = {}
    for contender in contenders:
        pairing.corpus.inputs(contender.files, pairing.cores)
    os.sync()  # what was just made must not be written to disk while the first ones run
    for number in range(n_rounds + 1):
        done = _done_after_first(contenders, samples) if number > 1 else set()
        for contender in contenders:
            is_early = number == 0 and not contender.warm
            if contender.name in left_out or contender.name in done or is_early:
                continue
            try:
                timing = run_once(pairing, contender)
            except NotMeasured as reason:
                left_out[contender.name] = str(reason)
                tell(contender, number, str(reason))
                continue
            tell(contender, number, timing)
            name = contender.name if number else contender.name + FIRST
            corpus, tokenizer = pairing.corpus.name, pairing.tokenizer_name
            samples.append(Sample(corpus, tokenizer, name, number, timing))
    return samples, left_out


def _done_after_first(contenders: Sequence[Contender], samples: Sequence[Sample]) -> set[str]:
    """Return the names of slow contenders, and of rivals that others beat in the first round."""
    done = {contender.name for contender in contenders if contender.is_slow}
    speeds = {sample.contender: bytes_per_s(sample.timing) for sample in samples if sample.round}
    for rivals in {contender.rivals for contender in contenders if contender.rivals}:
        names = [c.name for c in contenders if c.rivals == rivals and c.name in speeds]
        done.update(sorted(names, key=lambda name: -speeds[name])[KEPT_RIVALS:])
    return done


def run_once(pairing: Pairing, contender: Contender) -> Timing:
    """Run one contender in a fresh process and an empty directory.

    Raises:
        NotMeasured: it cannot run here, died, or did not finish within the limit.
    """
    corpus = pairing.corpus
    inputs = corpus.inputs(contender.files, pairing.cores)
    with tempfile.TemporaryDirectory(dir=corpus.directory, prefix="run-") as directory:
        work = Path(directory)
        task = Task(
            peer=contender.peer,
            tokenizer=pairing.tokenizer,
            eos=pairing.eos,
            text=str(corpus.text),
            inputs=inputs,
            work=str(work),
            cache=str(pairing.cache),
            cores=pairing.cores,
            settings=dict(contender.settings),
        )
        start, start_s = CpuClock.now(), time.perf_counter()
        timing = _in_child(task, work)
        wall_s = time.perf_counter() - start_s
        if contender.peer not in UNCOUNTED:
            others = CpuClock.now().others_since(start) / wall_s
            timing.notes["others_cores"] = round(others, 2)
        shutil.rmtree(work / "dataset", ignore_errors=True)
    return timing


def _in_child(task: Task, work: Path) -> Timing:
    task_file, result_file = work / "task.json", work / "result.json"
    task_file.write_text(json.dumps(task.as_json()), encoding="utf-8")
    command = [sys.executable, "-m", "bench.child", str(task_file), str(result_file)]
    try:
        child = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise NotMeasured(f"did not finish within {LIMIT_S} s") from None
    if child.returncode or not result_file.exists():
        last = (child.stderr.strip().splitlines() or ["no message"])[-1]
        raise NotMeasured(f"died with status {child.returncode}: {last[:200]}")
    result = json.loads(result_file.read_bytes())
    if "refused" in result:
        raise NotMeasured(result["refused"])
    return Timing(**result)
