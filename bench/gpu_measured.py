"""Scores the bill on GPU memory that others measured, with figures of public repositories.

    python -m bench.gpu_measured            a table by kind of run
    python -m bench.gpu_measured --rows     also every run

The runs are `bench/gpu_measured.csv`: a recipe below, a model, the settings that differ, and GiB.
The metric is what torch counts as `allocated` or `reserved`, or what nvidia-smi shows as `used`,
which some runs report beside it (`used_gib`). The error is that of the metric. Of `used`, else of
the metric, `inside` counts the runs between the bounds of the bill, `below high` those that need no
more than its upper bound.
"""

from __future__ import annotations

import argparse
import csv
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.tables import table
from tokmill.bill.models.load import load_model
from tokmill.bill.overhead import CUDA_CONTEXT
from tokmill.bill.training_bill import TrainingBill, training_bill
from tokmill.settings.training import ModelSettings, TrainingSettings

ROWS = Path(__file__).with_suffix(".csv")
GIB = 1 << 30

FMS = {"checkpointing": "full", "sequence": 4096, "gpu": "A100 80GB", "transformers": "4"}
ADAPTED = {"adapter_rank": 16, "adapter_targets": "q_proj,k_proj,v_proj,o_proj"}
FOUR_BIT = {"adapter": "qlora", "weights": "nf4-double", "prepare_kbit": False}
LITGPT = {"precision": "pure-16", "sequence": 512, "accumulation": 2}
RECIPES: dict[str, tuple[str, dict[str, Any]]] = {
    # foundation-model-stack/fms-acceleration 876e2ed, scripts/benchmarks/refs: a100_80gb.csv (1a)
    # and a100_80gb_liger.csv (1c); transformers 4.48 and 4.45, FSDP1, rows packed to 4,096 tokens.
    "fms-1a-full": ("full", {**FMS, "precision": "pure-16"}),
    "fms-1a-lora": ("LoRA", {**FMS, **ADAPTED, "precision": "pure-16", "adapter": "lora"}),
    "fms-1a-qlora": ("QLoRA", {**FMS, **ADAPTED, **FOUR_BIT}),
    "fms-1a-gptq": ("QLoRA", {**FMS, **ADAPTED, "adapter": "qlora", "weights": "int4"}),
    "fms-1c-full": ("full", FMS),
    "fms-1c-lora": ("LoRA", {**FMS, **ADAPTED, "adapter": "lora"}),
    "fms-1c-qlora": ("QLoRA", {**FMS, **ADAPTED, **FOUR_BIT}),
    # Lightning-AI/litgpt 26857050, config_hub/finetune: Alpaca, longest rows of 512 tokens. Its
    # loss in chunks keeps the logits of all chunks, and evaluation computes them at once.
    "litgpt-full": ("full", LITGPT),
    "litgpt-lora": ("LoRA", {**LITGPT, "adapter": "lora"}),
    "litgpt-qlora": ("QLoRA", {**LITGPT, "adapter": "qlora", "weights": "nf4"}),
    # meta-pytorch/torchtune bd2a0fc, README (torch 2.6) and docs, sequences of Alpaca taken as 512.
    "torchtune": ("", {"precision": "pure-16"}),
    # NVIDIA-NeMo/Automodel 36044ad, pytorch/ao 36027d8 (torchtitan), axolotl 067b021, ms-swift
    # 3602360; the last two round to GiB and leave out a setting or two.
    "automodel": (
        "", {"precision": "pure-16", "gpus": 8, "micro_batch": 8, "sequence": 2048}
    ),
    "torchtitan": (
        "",
        {"gpus": 8, "sharding": "fsdp2", "sequence": 8192, "checkpointing": "selective",
         "gpu": "H100"},
    ),
    "axolotl": (
        "",
        {**FOUR_BIT, "adapter_rank": 32, "micro_batch": 2,
         "sequence": 2048, "checkpointing": "full", "loss": "fused", "optimizer": "adamw-8bit"},
    ),
    "swift-hf": ("", {"precision": "pure-16", "sequence": 2048, "checkpointing": "full"}),
    "swift-megatron": (
        "",
        {"framework": "megatron", "sharding": "distributed-optimizer", "sequence": 2048,
         "checkpointing": "full", "loss": "kernel"},
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Run:
    """A measured run: its kind for the table, its model and settings, and what was measured."""

    kind: str
    name: str
    model: ModelSettings
    training: TrainingSettings
    metric: str
    n_bytes: float
    used_bytes: float


@dataclass(frozen=True, slots=True)
class Score:
    """The relative error of a run, and what it needed relative to the upper bound."""

    run: Run
    error: float
    inside: bool
    below_high: bool


def runs() -> Iterator[Run]:
    """Yield every measured run."""
    with ROWS.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            recipe, model, settings = row["recipe"], row["model"], row["settings"]
            way, usual = RECIPES[recipe]
            words = settings.split()
            own = {
                name: _plain(value) for name, _, value in (word.partition("=") for word in words)
            }
            training = _fms(recipe, usual | own) if recipe.startswith("fms") else usual | own
            where = f"{_source(recipe, model, training)} {way}".strip()
            measured, used = float(row["gib"]), float(row["used_gib"] or 0)
            yield Run(
                where, f"{model} {settings}", _model(model), TrainingSettings(**training),
                row["metric"], measured * GIB, used * GIB,
            )  # fmt: skip


def _fms(recipe: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a run of fms-acceleration: FSDP on several GPUs, one sharded type."""
    sharded = settings["gpus"] > 1
    if recipe == "fms-1c-full" and not sharded:
        settings = {**settings, "precision": "pure-16"}  # the 16-bit weights are trained
    return {**settings, **({"sharding": "fsdp"} if sharded else {})}


def _source(recipe: str, model: str, training: dict[str, Any]) -> str:
    if not recipe.startswith("fms"):
        return "litgpt:" if recipe.startswith("litgpt") else recipe
    where = "FSDP" if training["gpus"] > 1 else "one GPU"
    return f"HF Trainer, {'Mixtral' if model.startswith('mixtral') else where}:"


def _model(text: str) -> ModelSettings:
    if "=" not in text:
        return ModelSettings(name=text)
    pairs = (word.partition("=") for word in text.split())
    return ModelSettings(**{name: _plain(value) for name, _, value in pairs})


def _plain(value: str) -> Any:
    return int(value) if value.isdecimal() else value


def score(run: Run) -> Score:
    """Score the bill of a run."""
    bill = training_bill(load_model(run.model), run.training)
    context = sum(n.n_bytes for n in bill.peak.lines if n.name == CUDA_CONTEXT.name)
    expected = {
        "allocated": bill.allocated_bytes,
        "reserved": bill.peak.n_bytes - context,
        "used": bill.peak.n_bytes,
    }[run.metric]
    low, high = _bounds(bill, "used" if run.used_bytes else run.metric)
    needed = run.used_bytes or run.n_bytes
    return Score(run, expected / run.n_bytes - 1, low <= needed <= high, needed <= high)


def _bounds(bill: TrainingBill, metric: str) -> tuple[int, int]:
    """Return the bounds of a metric; only nvidia-smi sees the context."""
    peak = bill.peak
    outside = [line for line in peak.lines if line.name == CUDA_CONTEXT.name and metric != "used"]
    low = peak.low_bytes - sum(line.low_bytes for line in outside)
    return low, peak.high_bytes - sum(line.high_bytes for line in outside)


def scores() -> list[Score]:
    """Score every run."""
    return [score(run) for run in runs()]


def scored(results: Sequence[Score]) -> str:
    """Lay out cases, errors and bounds by kind of run, and of all."""
    by_kind: dict[str, list[Score]] = {}
    for result in results:
        by_kind.setdefault(result.run.kind, []).append(result)
    head = ("kind", "cases", "median", "worst", "inside", "below high")
    return table(head, [*(_row(*item) for item in by_kind.items()), _row("all", results)])


def _row(kind: str, results: Sequence[Score]) -> list[str]:
    errors = [result.error for result in results]
    inside, below = sum(r.inside for r in results), sum(r.below_high for r in results)
    median = statistics.median(map(abs, errors))
    worst = max(errors, key=abs)
    return [kind, str(len(results)), f"{median:.1%}", f"{worst:+.0%}", str(inside), str(below)]


def main() -> None:
    """Print the table of kinds and, if asked, every run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", action="store_true", help="print every run")
    options, results = parser.parse_args(), scores()
    if options.rows:
        for result in results:
            mark = "" if result.inside else "  outside" if result.below_high else "  ABOVE HIGH"
            print(f"{result.error:+7.1%}  {result.run.kind}: {result.run.name}{mark}")
    print(scored(results))


if __name__ == "__main__":
    main()
