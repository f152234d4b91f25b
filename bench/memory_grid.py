"""Compares the bill of GPU memory with torch's MemTracker, over a grid of training steps.

    python -m bench.memory_grid               measure all cases anew (torch, transformers, peft)
    python -m bench.memory_grid --score       the stored measurements against the code as it is
    python -m bench.memory_grid --only gpt2   measure the cases whose names hold a word
    python -m bench.memory_grid --gpu         run them on a GPU of this machine, and store nothing

The cases and their measurements are `bench/memory_grid.json`: add a case there, then measure it.
Measured is what MemTracker counts on fake tensors, and predicted is the bill's moment of the peak,
by category. A category counts if it is at least 1% of the peak. On a GPU the peaks of allocated
and of reserved memory are measured; cases that do not fit there are left out, with the reason.
"""

from __future__ import annotations

import argparse
import datetime as dt
import importlib.metadata
import json
import platform
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.tables import table
from tokmill.bill.models.load import model_from_config
from tokmill.bill.overhead import CUDA_CONTEXT, WORKSPACES
from tokmill.bill.states.optimizers import STATES, STEP
from tokmill.bill.training_bill import allocated_bytes, training_bill
from tokmill.settings.training import TrainingSettings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tokmill.bill.formula import Bill
    from tokmill.bill.models.model import Model

ROOT = Path(__file__).parents[1]
MODELS: dict[str, dict[str, Any]] = json.loads(
    Path(__file__).with_name("bill_models.json").read_bytes()
)
"""Configurations of Hugging Face models."""
STORED = Path(__file__).with_suffix(".json")
PACKAGES = ("torch", "transformers", "peft")
COUNTED_FROM = 0.01
LIMIT_S = 900
MIB = 1 << 20
OF_LINES = {
    "weights": "weights",
    "gradients": "gradients",
    **dict.fromkeys((*STATES, STEP.name), "optimizer"),
}
KEPT = (
    "activations", "16-bit casts", "loss:", "tanh of", "inputs of checkpointed", "logits of"
)  # fmt: skip
OF_CASE = ("model", "settings", "real")


@dataclass(frozen=True, slots=True)
class Case:
    """A model that is trained, with the settings of the bill that are given.

    `real`: measured with values, not with fake tensors.
    """

    model: str
    settings: Mapping[str, Any]
    real: bool = False

    @property
    def name(self) -> str:
        """Return the model and the settings as one line."""
        return " ".join([self.model, *(f"{key}={value}" for key, value in self.settings.items())])

    @property
    def training(self) -> TrainingSettings:
        """Return how the model is trained."""
        return TrainingSettings(**self.settings)

    @property
    def shape(self) -> Model:
        """Return the model as the bill has it."""
        return model_from_config(MODELS[self.model], self.model)


@dataclass(frozen=True, slots=True)
class Score:
    """One amount of a case: what MemTracker saw beside what the bill says."""

    case: str
    category: str
    measured: int
    predicted: int
    counted: bool

    @property
    def error(self) -> float:
        """The prediction's relative error."""
        return self.predicted / self.measured - 1 if self.measured else float(self.predicted > 0)


def main() -> None:
    """Measure and store, or score what is stored; print a table either way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--score", action="store_true", help="measure nothing")
    parser.add_argument("--gpu", action="store_true", help="measure on a GPU")
    parser.add_argument("--only", default="", help="measure cases whose names hold this")
    parser.add_argument("--case", type=int, help="measure this one in this process")
    options = parser.parse_args()
    if options.case is not None:
        from bench.memory_measure import measure, measure_on

        case = case_of(stored()[options.case])
        print(json.dumps(measure_on("cuda", case) if options.gpu else measure(case)))
    elif options.gpu:
        print(on_gpu(options.only))
    else:
        if not options.score:
            _measure(options.only)
        print(report([score for row in stored() for score in scores_of(row)]))


def stored() -> list[dict[str, Any]]:
    """Return the cases and measurements that are kept beside this program."""
    cases: list[dict[str, Any]] = json.loads(STORED.read_bytes())["cases"]
    return cases


def case_of(row: Mapping[str, Any]) -> Case:
    """Return the case of a measurement."""
    return Case(**{key: row[key] for key in OF_CASE if key in row})


def scores_of(row: Mapping[str, Any]) -> Iterator[Score]:
    """Yield the peak's score and that of each category at the peak."""
    case = case_of(row)
    moment = predicted(case)
    if "reserved" in row:  # of a GPU, whose allocator also holds the workspaces of cuBLAS
        outside = _bytes_of(moment, CUDA_CONTEXT.name)
        allocated = allocated_bytes(moment) + _bytes_of(moment, WORKSPACES.name)
        yield Score(case.name, "peak", row["allocated"], allocated, counted=True)
        yield Score(case.name, "reserved", row["reserved"], moment.n_bytes - outside, counted=True)
        return
    yield Score(case.name, "peak", row["peak"], allocated_bytes(moment), counted=True)
    foretold = categories(moment)
    for category, n_bytes in row["categories"].items():
        counted = max(n_bytes, foretold[category]) >= COUNTED_FROM * row["peak"]
        yield Score(case.name, category, n_bytes, foretold[category], counted)


def _bytes_of(moment: Bill, name: str) -> int:
    return sum(line.n_bytes for line in moment.lines if line.name == name)


def predicted(case: Case) -> Bill:
    """Return the bill of the peak: of a step, or of the evaluation that is measured alone."""
    is_evaluation = case.training.metric_batches > 0
    moments = training_bill(case.shape, case.training).moments
    return max(
        (m for m in moments if ("evaluation" in m.title) == is_evaluation), key=allocated_bytes
    )


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


def report(scores: Sequence[Score]) -> str:
    """Return the scores that count as a table, and the greatest errors."""
    counted = [score for score in scores if score.counted]
    rows = []
    for score in counted:
        amounts = (f"{amount / MIB:,.1f}" for amount in (score.measured, score.predicted))
        rows.append([score.case, score.category, *amounts, f"{1 + score.error:.4f}"])
    lines = [table(["case", "category", "measured MiB", "predicted", "ratio"], rows)]
    for what in ("peak", "category"):
        of = [abs(s.error) for s in counted if (s.category == "peak") == (what == "peak")] or [0.0]
        above = sum(error > 0.03 for error in of)
        lines.append(f"{what}: {len(of)} amounts, greatest error {max(of):.2%}, above 3%: {above}")
    return "\n".join(lines)


def on_gpu(word: str) -> str:
    """Measure the chosen cases on a GPU; return the table of scores, and what was left out."""
    scores: list[Score] = []
    left_out = []
    for number, row in enumerate(stored()):
        if word in (name := case_of(row).name):
            found = measured_in_child(number, "--gpu")
            if "left_out" in found:
                left_out.append(f"left out: {name}: {found['left_out']}")
            else:
                scores += scores_of(row | found)
    return "\n".join([*([report(scores)] if scores else []), *left_out])


def _measure(word: str) -> None:
    """Measure the chosen cases, each in a process of its own; keep the others as they are."""
    rows = stored()
    for number, row in enumerate(rows):
        name = case_of(row).name
        if word in name:
            found = measured_in_child(number)
            print(f"{number + 1}/{len(rows)} {name}: {found}", file=sys.stderr, flush=True)
            if "left_out" not in found:
                row |= found
                _store(rows)


def measured_in_child(number: int, *options: str) -> dict[str, Any]:
    """Measure a case in a process of its own; return its figures, or why there are none.

    A measurement changes how torch and transformers work.
    """
    command = [sys.executable, "-m", "bench.memory_grid", "--case", str(number), *options]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        return {"left_out": f"no result after {LIMIT_S:.0f} s"}
    if done.returncode:
        return {"left_out": (done.stderr.strip().splitlines() or ["died"])[-1]}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _store(rows: Sequence[Mapping[str, Any]]) -> None:
    """Write the cases, a line for each."""
    about = {
        "date": dt.date.today().isoformat(),
        "machine": f"{platform.machine()}, {platform.system()}, Python {platform.python_version()}",
        "versions": {name: importlib.metadata.version(name) for name in PACKAGES},
        "device": "fake tensors on the CPU: no GPU took part",
    }
    head = json.dumps(about, indent=1).removesuffix("\n}")
    lines = ",\n".join(f"  {json.dumps(row)}" for row in rows)
    STORED.write_text(f'{head},\n "cases": [\n{lines}\n ]\n}}\n')


if __name__ == "__main__":
    main()
