"""Compares the bill of GPU memory with torch's MemTracker, over a grid of training steps.

    python -m bench.memory_grid               measure all cases anew (torch, transformers, peft)
    python -m bench.memory_grid --score       the stored measurements against the code as it is
    python -m bench.memory_grid --only gpt2   measure the cases whose names hold a word

Measured is what MemTracker counts on fake tensors; artefacts are what a GPU would not have, net is
without them, and predicted is the bill's moment of the peak, by category. A category counts if it
is at least 1% of the peak. No GPU has been compared yet: this checks formulas, not accuracy.
"""

from __future__ import annotations

import argparse
import datetime as dt
import importlib.metadata
import json
import platform
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.memory_cases import CASES, HELD_OUT, Case, Measured
from bench.memory_models import MODELS
from tokmill.bill.models.load import model_from_config
from tokmill.bill.states.optimizer_step import STEP, STEP_MUON
from tokmill.bill.states.optimizers import STATES
from tokmill.bill.training_bill import TrainingBill, allocated_bytes, training_bill
from tokmill.settings.training import TrainingSettings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tokmill.bill.formula import Bill

ROOT = Path(__file__).parents[1]
STORED = Path(__file__).with_suffix(".json")
PACKAGES = ("torch", "transformers", "peft")
COUNTED_FROM = 0.01
MIB = 1 << 20
OF_LINES = {
    "weights": "weights",
    "gradients": "gradients",
    **dict.fromkeys((*STATES, STEP.name, STEP_MUON.name), "optimizer"),
}
KEPT = (
    "activations", "16-bit casts", "loss:", "tanh of", "inputs of checkpointed", "logits of"
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Score:
    """One amount of a case: what MemTracker saw, less artefacts, beside what the bill says."""

    case: str
    category: str
    measured: int
    artefact: int
    predicted: int
    counted: bool

    @property
    def net(self) -> int:
        """The measured bytes that a GPU would have too."""
        return self.measured - self.artefact

    @property
    def error(self) -> float:
        """The prediction's relative error."""
        return self.predicted / self.net - 1 if self.net else float(self.predicted > 0)


def main() -> None:
    """Measure and store, or score what is stored; print a table either way."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--score", action="store_true", help="measure nothing")
    parser.add_argument("--only", default="", help="measure cases whose names hold this")
    options = parser.parse_args()
    if not options.score:
        _measure(options.only)
    scores = [score for measured in stored() for score in scores_of(measured)]
    print("\n".join(table(scores)))


def stored() -> list[Measured]:
    """Return the measurements that are kept beside this program."""
    return [Measured.from_json(value) for value in json.loads(STORED.read_text())["cases"]]


def scores_of(measured: Measured) -> Iterator[Score]:
    """Return the peak's score and that of each category at the peak."""
    bill = predicted(measured.case)
    artefact = sum(measured.artefacts.values())
    name, peak = measured.case.name, measured.peak - artefact
    moment = peak_of(bill, measured.case)
    yield Score(name, "peak", measured.peak, artefact, allocated_bytes(moment), counted=True)
    foretold = categories(moment)
    for category, n_bytes in measured.categories.items():
        off = artefact if category == "activations" else 0
        counted = max(n_bytes - off, foretold[category]) >= COUNTED_FROM * peak
        yield Score(name, category, n_bytes, off, foretold[category], counted)


def peak_of(bill: TrainingBill, case: Case) -> Bill:
    """Return the moment of the peak: of a step, or of the evaluation that is measured alone."""
    moments = [m for m in bill.moments if ("evaluation" in m.title) == (case.evaluate > 0)]
    return max(moments, key=allocated_bytes)


def predicted(case: Case) -> TrainingBill:
    """Return the bill that a measurement is held against."""
    settings = TrainingSettings(
        precision=case.precision, micro_batch=case.batch, sequence=case.sequence,
        attention=case.attention, checkpointing=case.checkpointing, optimizer=case.optimizer,
        optimizer_step=case.step, adapter="lora" if case.lora else "none",
        adapter_targets=case.lora or "all-linear", adapter_rank=case.rank,
        weights=case.base or "auto", metric_batches=case.evaluate,
        eval_accumulation=case.eval_accumulation,
    )  # fmt: skip
    return training_bill(model_from_config(MODELS[case.model]), settings)


def categories(moment: Bill) -> dict[str, int]:
    """Return the bytes of a moment's tensors by MemTracker's categories.

    What forward makes is an activation there, what backward makes is temporary unless it is the
    gradient of a weight, and what the step makes belongs to the optimizer.
    """
    found = dict.fromkeys(("weights", "gradients", "activations", "temporary", "optimizer"), 0)
    ahead = moment.title.endswith("end of forward") or "evaluation" in moment.title
    rest = "activations" if ahead else "temporary"
    for line in moment.lines:
        kept = "activations" if line.name.startswith(KEPT) else rest
        found[OF_LINES.get(line.name, kept)] += line.n_bytes
    outside = sum(line.n_bytes for line in moment.lines) - allocated_bytes(moment)
    found[rest] -= outside
    return found


def table(scores: Iterable[Score]) -> Iterator[str]:
    """Return the scores as lines of a Markdown table, and the greatest errors."""
    yield "| case | category | measured MiB | artefact | net | predicted | ratio |"
    yield "|---|---|---|---|---|---|---|"
    counted = [score for score in scores if score.counted]
    for score in counted:
        amounts = (score.measured, score.artefact, score.net, score.predicted)
        shown = " | ".join(f"{amount / MIB:,.1f}" for amount in amounts)
        yield f"| {score.case} | {score.category} | {shown} | {1 + score.error:.4f} |"
    for what in ("peak", "category"):
        of = [abs(s.error) for s in counted if (s.category == "peak") == (what == "peak")]
        yield f"{what}: {len(of)} amounts, greatest error {max(of):.2%}, above 3%: " + str(
            sum(error > 0.03 for error in of)
        )


def _measure(word: str) -> None:
    """Measure the chosen cases, each in a process of its own; keep the others as they are."""
    known = {m.case.name: m for m in stored()} if STORED.exists() else {}
    for number, case in enumerate(CASES):
        if word not in case.name:
            continue
        found = _run(number, case)
        if found:
            known[case.name] = replace(found, forecast=_forecast(found, known.get(case.name)))
            print(f"{number + 1}/{len(CASES)} {case.name}: {found.peak:,} B", file=sys.stderr)
            _store([known[c.name] for c in CASES if c.name in known])


def _forecast(found: Measured, before: Measured | None) -> float | None:
    """Return the error of the first comparison; cases that formulas were made with have none."""
    if before is not None or found.case not in HELD_OUT:
        return before.forecast if before else None
    return round(next(scores_of(found)).error, 4)


def _run(number: int, case: Case) -> Measured | None:
    command = [sys.executable, "-m", "bench.memory_measure", str(number)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{case.name}: not measured: {done.stderr[-500:]}", file=sys.stderr)
        return None
    return Measured.from_json(json.loads(done.stdout.splitlines()[-1]))


def _store(cases: list[Measured]) -> None:
    about: dict[str, Any] = {
        "date": dt.date.today().isoformat(),
        "machine": f"{platform.machine()}, {platform.system()}, Python {platform.python_version()}",
        "versions": {name: importlib.metadata.version(name) for name in PACKAGES},
        "device": "fake tensors on the CPU: no GPU took part",
    }
    text = json.dumps({**about, "cases": [case.as_json() for case in cases]}, indent=1)
    STORED.write_text(text + "\n")


if __name__ == "__main__":
    main()
