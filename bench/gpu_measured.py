"""Scores the bill on GPU memory that others measured, with figures of public repositories.

    python -m bench.gpu_measured            a table by kind of run
    python -m bench.gpu_measured --rows     also every run
    python -m bench.gpu_measured --fit      the shares of fragmentation, fitted anew

The runs are `bench/gpu_measured.csv`: a recipe below, a model, the settings that differ, a metric,
and GiB. The metric is what torch counts as `allocated` or `reserved`, what nvidia-smi shows as
`used`, which some runs report beside it (`used_gib`), a part (`weights`, `KV cache`), or `ran` and
`did not run`. *Below high* counts the runs that need no more than the upper bound.

Fragmentation is fitted to reserved and used memory. *Left out* is the error when the source of a
run had no part in that fit.
"""

from __future__ import annotations

import argparse
import csv
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from bench.tables import table
from tokmill.bill import overhead
from tokmill.bill.formula import Bill, Line
from tokmill.bill.gpus import DOES_NOT_FIT, find_gpu, gpu_verdict
from tokmill.bill.models.load import load_model
from tokmill.bill.models.model import Model
from tokmill.bill.overhead import FRAGMENTATION, OUTSIDE
from tokmill.bill.servers import PADDED
from tokmill.bill.serving import WEIGHTS, inference_bill
from tokmill.bill.training_bill import training_bill
from tokmill.settings.training import InferenceSettings, ModelSettings, TrainingSettings

ROUNDED = ("swift", "axolotl")
"""Sources that round to whole GiB, or leave out a setting or two: nothing is fitted to them."""
ROWS = Path(__file__).with_suffix(".csv")
GIB = 1 << 30
HELD, PARTS, OUTCOMES = ("reserved", "used"), ("weights", "KV cache"), ("ran", "did not run")
"""Metrics: of memory that a process holds, of a part of it, and of whether it could run."""

FMS = {"checkpointing": "full", "sequence": 4096, "gpu": "A100 80GB", "transformers": "4"}
ADAPTED = {"adapter_rank": 16, "adapter_targets": "q_proj,k_proj,v_proj,o_proj"}
FOUR_BIT = {"adapter": "qlora", "weights": "nf4-double", "prepare_kbit": False}
FSDP_QLORA = {
    "adapter_rank": 64, "adapter_targets": "q_proj,k_proj,v_proj,up_proj,down_proj,gate_proj",
    "precision": "pure-16", "transformers": "5", "checkpointing": "full", "gpus": 2, "gpu": "3090",
    "sharding": "fsdp", "sequence": 2048,
}  # fmt: skip
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
         "gpu": "H100", "loss": "kernel"},  # compiled, the loss too
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
    # AnswerDotAI/fsdp_qlora 23fafdf, benchmarks_03_2024.md: 2 x RTX 3090 or 4090, torch 2.2, FSDP1
    # with reentrant checkpointing, peak reserved memory; and 70B on other GPUs, which ran. Its
    # checkpoints are inside FSDP's units (train.py: apply_activation_checkpointing after FSDP), so
    # that FSDP's hooks hold no leaf of theirs: as with transformers 5.
    "fsdp-qlora-lora": ("LoRA", {**FSDP_QLORA, "adapter": "lora"}),
    "fsdp-qlora-qlora": ("QLoRA", {**FSDP_QLORA, "adapter": "qlora", "prepare_kbit": False}),
}  # fmt: skip
SERVED: dict[str, dict[str, Any]] = {
    # QwenLM/Qwen README.md, A100-80: `generate` from one token on, at the length of the row; 72B
    # is the sum of two GPUs.
    "qwen1": {"prefill_chunk": 0},
    # Logs of vLLM (13061, 12569, 33155, 23278, 21348, 27508), ollama (6279, 16480), LLamaSharp
    # (1099), llama-cpp-python (66), amd-strix-halo-vllm-toolboxes (5).
    "served": {"context": 8192},
}


@dataclass(frozen=True, slots=True)
class Run:
    """A measured amount of a run, or whether it ran.

    `source` is the recipe's first word, `kind` that of the table; `training` is None for a run
    that serves.
    """

    source: str
    kind: str
    name: str
    model: ModelSettings
    training: TrainingSettings | None
    inference: InferenceSettings
    metric: str
    n_bytes: float

    def bill(self) -> Bill:
        """Return the bill of the run."""
        model = _loaded(self.model)
        if self.training is None:
            gpu = find_gpu(self.gpu) if self.metric in OUTCOMES else None
            return inference_bill(model, self.inference, context=0, gpu=gpu)
        return training_bill(model, self.training).peak

    @property
    def gpu(self) -> str:
        """The GPU that a run needs, for whether it fits."""
        return self.training.gpu if self.training else "H100"


@dataclass(frozen=True, slots=True)
class Score:
    """A run, the expected amount, and its bounds; of an outcome 1 for right, else 0."""

    run: Run
    expected: float
    low: float
    high: float

    @property
    def error(self) -> float:
        """The relative error of the expected amount."""
        return self.expected / self.run.n_bytes - 1


@cache
def _loaded(settings: ModelSettings) -> Model:
    return load_model(settings)


def runs() -> Iterator[Run]:
    """Yield every measured amount."""
    with ROWS.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            yield from _runs_of(row)


def _runs_of(row: Mapping[str, str]) -> Iterator[Run]:
    """Yield the amounts of a row, of which a run of fms-acceleration has two."""
    recipe, model, metric = row["recipe"], row["model"], row["metric"]
    own = {name: _plain(value) for name, _, value in _pairs(row["settings"])}
    training, inference = None, InferenceSettings()
    if recipe in SERVED:
        inference = InferenceSettings(**(SERVED[recipe] | own))
        kind = f"{recipe}: {metric if metric in PARTS else 'generate'}"
    else:
        way, usual = RECIPES[recipe]
        settings = _fms(recipe, usual | own) if recipe.startswith("fms") else usual | own
        training = TrainingSettings(**settings)
        kind = f"{_source(recipe, model, settings)} {way}".strip()
    kind = "runs that did or did not fit" if metric in OUTCOMES else kind
    name = f"{model} {row['settings']}"
    for one, gib in ((metric, row["gib"]), ("used", row["used_gib"])):
        if gib or one in OUTCOMES:
            where = f"{kind}, {'held' if one in HELD else 'tensors'}" if training else kind
            where = kind if one in OUTCOMES else where
            yield Run(
                recipe.partition("-")[0], where, name, _model(model), training, inference, one,
                float(gib or 0) * GIB,
            )  # fmt: skip
        if metric in OUTCOMES:
            return


def _pairs(text: str) -> Iterator[tuple[str, str, str]]:
    for word in text.split():
        yield word.partition("=")


def _fms(recipe: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a run of fms-acceleration: FSDP on several GPUs, one sharded type."""
    sharded = settings["gpus"] > 1
    if recipe == "fms-1c-full" and not sharded:
        settings = {**settings, "precision": "pure-16"}  # the 16-bit weights are trained
    return {**settings, **({"sharding": "fsdp"} if sharded else {})}


def _source(recipe: str, model: str, training: dict[str, Any]) -> str:
    """Return the source of a recipe as the table names it."""
    if recipe.startswith("fms"):
        where = "FSDP" if training["gpus"] > 1 else "one GPU"
        return f"HF Trainer, {'Mixtral' if model.startswith('mixtral') else where}:"
    if recipe.startswith("fsdp-qlora"):
        return "fsdp_qlora:"
    return "litgpt:" if recipe.startswith("litgpt") else recipe


def _model(text: str) -> ModelSettings:
    if "=" not in text:
        return ModelSettings(name=text)
    return ModelSettings(**{name: _plain(value) for name, _, value in _pairs(text)})


def _plain(value: str) -> Any:
    return int(value) if value.isdecimal() else value


def score(run: Run) -> Score:
    """Score the bill of a run."""
    bill = run.bill()
    if run.metric in OUTCOMES:
        fits = gpu_verdict(bill, find_gpu(run.gpu)) != DOES_NOT_FIT
        return Score(run, float(fits == (run.metric == "ran")), 0, 0)
    lines = [line for line in bill.lines if _is_counted(line, run.metric)]
    expected: float = sum(line.n_bytes for line in lines)
    outside = [line for line in bill.lines if line not in lines]
    low, high = bill.low_bytes, bill.high_bytes
    if run.metric in PARTS:
        low, high = sum(each.low_bytes for each in lines), sum(each.high_bytes for each in lines)
    elif run.metric != "used":
        context = [line for line in outside if line.name in OUTSIDE]
        low -= sum(line.low_bytes for line in context)
        high -= sum(line.high_bytes for line in context)
    if run.metric == "allocated" and run.training:
        kept = _kept_by_old_bitsandbytes(run)
        expected = training_bill(_loaded(run.model), run.training).allocated_bytes + kept
        low, high = low + kept, high + kept
    return Score(run, expected, low, high)


def _kept_by_old_bitsandbytes(run: Run) -> int:
    """Return the bytes that bitsandbytes before 0.44 (its pull request 1270) kept for nothing.

    Each quantized matrix kept its input, outside of autograd's saved tensors, as long as the graph
    lived: litgpt's loop holds the loss, and so the graph of the step before, beside this step's.
    """
    training = run.training
    if run.source != "litgpt" or training is None or training.adapter != "qlora":
        return 0
    model = _loaded(run.model)
    widths = 0
    for layer in range(model.layers):
        inputs = set()
        for tensor in model.tensors:
            if tensor.kind == "linear" and layer in (tensor.layers or ()):
                last = tensor.split == "rows"
                module = tensor.module if last or not model.style.one_norm else ""
                inputs.add((module, last, tensor.n_in))
        widths += sum(width for _, _, width in inputs)
    steps, half = 2, 2
    return steps * half * widths * training.micro_batch * training.sequence


def _is_counted(line: Line, metric: str) -> bool:
    """Return whether a metric counts a line of a bill."""
    if metric == "weights":
        return line.name in (WEIGHTS.name, PADDED.name)
    if metric == "KV cache":
        return line.name.startswith("KV cache")
    return metric == "used" or line.name not in OUTSIDE


def fitted(known: Iterable[Run]) -> tuple[dict[str, float], float]:
    """Return the shares of fragmentation that runs show, and its bytes per logit.

    Each is the median of what would make the bill of a run exact. Runs that fill their GPU do not
    count, nor those that have logits for the shares. A kind without runs has the share of the other
    kind at its place, else the least.
    """
    shares: dict[str, list[float]] = {kind: [] for kind in overhead.SHARES}
    per_logit = []
    for run in known:
        if run.training is None or run.metric not in HELD or overhead.has_segments(run.training):
            continue
        if run.source in ROUNDED:
            continue
        if run.training.gpu and run.n_bytes > 0.9 * find_gpu(run.training.gpu).memory_bytes:
            continue
        bill = run.bill()
        line = next(line for line in bill.lines if line.name == FRAGMENTATION.name)
        context = sum(line.n_bytes for line in bill.lines if line.name in OUTSIDE)
        held = run.n_bytes + (context if run.metric == "reserved" else 0)
        shown = held - (bill.n_bytes - line.n_bytes)
        if line.symbols["split_logits"]:
            logits = line.symbols["split_logits"] / overhead.LOGITS_BYTES
            per_logit.append((shown - line.symbols["share"] * line.symbols["allocated"]) / logits)
        elif line.symbols["share"]:
            shares[overhead.kind_of(run.training)].append(shown / line.symbols["allocated"])
    medians = {kind: max(0.0, statistics.median(found)) for kind, found in shares.items() if found}
    for kind in shares:
        place = kind.partition(",")[0]
        alike = [share for known, share in medians.items() if known.startswith(place)]
        medians.setdefault(kind, alike[0] if alike else overhead.LEAST_SHARE)
    return medians, max(0.0, statistics.median(per_logit)) if per_logit else 0.0


@contextmanager
def fit_of(known: Sequence[Run]) -> Iterator[None]:
    """Bill with what some runs show of fragmentation, while the context lasts."""
    shares, logits_bytes = dict(overhead.SHARES), overhead.LOGITS_BYTES
    found, overhead.LOGITS_BYTES = fitted(known)
    overhead.SHARES.update(found)
    try:
        yield
    finally:
        overhead.SHARES.update(shares)
        overhead.LOGITS_BYTES = logits_bytes


def scores() -> list[tuple[Score, Score]]:
    """Score every run: fitted, and with its source left out of the fit."""
    every = list(runs())
    left_out: dict[Run, Score] = {}
    for source in dict.fromkeys(run.source for run in every):
        with fit_of([run for run in every if run.source != source]):
            left_out |= {run: score(run) for run in every if run.source == source}
    return [(score(run), left_out[run]) for run in every]


def scored(results: Sequence[tuple[Score, Score]]) -> str:
    """Lay out cases, errors and bounds by kind of run: fitted, and left out."""
    by_kind: dict[str, list[tuple[Score, Score]]] = {}
    for result in results:
        by_kind.setdefault(result[0].run.kind, []).append(result)
    outcomes = [each for each in results if each[0].run.metric in OUTCOMES]
    amounts = [each for each in results if each not in outcomes]
    trained = [each for each in amounts if each[0].run.training]
    served = [each for each in amounts if not each[0].run.training]
    head = ("kind", "cases", "median", "within 15%", "below high", "left out", "within 15%",
            "below high")  # fmt: skip
    rows = [_row(kind, own) for kind, own in by_kind.items() if own[0] not in outcomes]
    rows += [_row("all that train", trained), _row("all that serve", served)]
    right = sum(bool(fit.expected) for fit, _ in outcomes)
    left = sum(bool(out.expected) for _, out in outcomes)
    text = f"Of {len(outcomes)} runs that did or did not fit, {right} are told so, left out {left}."
    return f"{table(head, rows)}\n\n{text}"


def _row(kind: str, results: Sequence[tuple[Score, Score]]) -> list[str]:
    cells = [kind, str(len(results))]
    for place in range(2):
        every = [result[place] for result in results]
        errors = [abs(each.error) for each in every]
        below = sum(each.run.n_bytes <= each.high for each in every)
        within = sum(error <= 0.15 for error in errors)
        cells += [f"{statistics.median(errors):.1%}", str(within), str(below)]
    return cells


def main() -> None:
    """Print the table of kinds and, if asked, every run or the fit."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", action="store_true", help="print every run")
    parser.add_argument("--fit", action="store_true", help="print the fitted shares")
    options = parser.parse_args()
    if options.fit:
        shares, logits_bytes = fitted(runs())
        print({kind: round(share, 3) for kind, share in shares.items()}, round(logits_bytes, 2))
        return
    results = scores()
    if options.rows:
        for fit, out in results:
            print(_text(fit, out))
    print(scored(results))


def _text(fit: Score, out: Score) -> str:
    run = fit.run
    if run.metric in OUTCOMES:
        return f"{'right' if fit.expected else 'WRONG':>7}  {run.metric}: {run.name}"
    mark = "" if run.n_bytes <= fit.high else "  ABOVE HIGH"
    mark = "  below low" if run.n_bytes < fit.low else mark
    return f"{fit.error:+7.1%} {out.error:+7.1%}  {run.kind}: {run.name}{mark}"


if __name__ == "__main__":
    main()
