"""The cases of the measured grid: which model, and how it is trained or evaluated."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Case:
    """One training step to measure. `lora`: ends of names, by comma, or all-linear; '' for none.

    `base`: type of the frozen weights, '' for that of the precision. `evaluate`: not a step, but an
    evaluation of so many batches with metrics, `eval_accumulation` of them on the device at once.
    `real`: with values, not with fake tensors. `raw`: measured as the tool is, without the
    corrections of `memory_measure`.
    """

    model: str
    precision: str
    batch: int
    sequence: int
    attention: str = "flash"
    checkpointing: str = "none"
    optimizer: str = "adamw"
    step: str = "foreach"
    lora: str = ""
    rank: int = 16
    raw: bool = False
    base: str = ""
    evaluate: int = 0
    eval_accumulation: int = 0
    real: bool = False

    @property
    def name(self) -> str:
        """Return what differs from the defaults, in one word."""
        defaults = Case("", "", 0, 0)
        changed = {
            key: getattr(self, key)
            for key in (
                "attention", "checkpointing", "optimizer", "step", "lora", "base", "evaluate",
                "eval_accumulation",
            )
            if getattr(self, key) != getattr(defaults, key)
        }  # fmt: skip
        parts = [self.model, self.precision, f"b{self.batch}", f"s{self.sequence}"]
        parts += [f"{key}={value}" for key, value in changed.items()]
        return " ".join([*parts, "raw"] if self.raw else parts)


FIRST = (
    Case("gpt2", "fp32", 8, 1024),
    Case("gpt2", "fp32", 8, 1024, raw=True),
    Case("gpt2", "fp32", 1, 16),
    Case("gpt2", "fp32", 1, 16, step="for-loop"),
    Case("gpt2", "fp32", 1, 16, step="fused"),
    Case("gpt2", "fp32", 1, 16, optimizer="sgd"),
    Case("gpt2", "fp32", 1, 16, optimizer="momentum"),
    Case("gpt2", "fp32", 8, 1024, checkpointing="full"),
    Case("gpt2", "fp32", 4, 1024, attention="eager"),
    Case("gpt2", "fp32", 1, 1024, attention="eager", checkpointing="full", step="fused"),
    Case("gpt2", "amp", 8, 1024),
    Case("gpt2", "amp", 8, 1024, raw=True),
    Case("gpt2", "amp", 16, 512, checkpointing="full"),
    Case("gpt2-medium", "pure-16", 4, 1024),
    Case("tinyllama", "pure-16", 4, 2048),
    Case("tinyllama", "pure-16", 4, 2048, attention="sdpa-mask"),
    Case("tinyllama", "pure-16", 4, 2048, checkpointing="full", step="for-loop"),
    Case("tinyllama", "amp", 2, 2048),
    Case("tinyllama", "pure-16", 2, 2048, lora="q_proj,v_proj", rank=8),
    Case("llama-wide", "pure-16", 2, 2048, lora="all-linear", checkpointing="full"),
    Case("llama-wide", "amp", 2, 1024, lora="all-linear"),
    Case("tinyllama", "fp32", 1, 2048, optimizer="sgd"),
    Case("llama-wide", "pure-16", 8, 2048, checkpointing="full", step="fused"),
    Case("llama-wide", "amp", 4, 2048, checkpointing="full", step="for-loop"),
    Case("llama-wide", "fp32", 2, 2048, attention="eager", checkpointing="full"),
    Case("llama-wide", "pure-16", 8, 2048, optimizer="momentum"),
    Case("qwen2-0.5b", "pure-16", 2, 2048),
    Case("qwen2-0.5b", "amp", 4, 512, checkpointing="full"),
    Case("qwen2-0.5b", "fp32", 2, 1024, lora="all-linear"),
    Case("qwen3-0.6b", "pure-16", 2, 2048),
    Case("qwen3-0.6b", "fp32", 1, 1024, optimizer="momentum"),
    Case("qwen3-0.6b", "amp", 2, 1024),
    Case("gemma2-small", "pure-16", 2, 2048, attention="eager"),
    Case("gemma2-small", "amp", 2, 1024, attention="eager"),
    Case("gemma3-small", "pure-16", 2, 2048),
    Case("opt-125m", "fp32", 4, 2048),
    Case("opt-125m", "amp", 4, 2048, checkpointing="full"),
    Case("pythia-160m", "pure-16", 4, 2048),
    Case("pythia-160m", "amp", 4, 1024, attention="eager"),
    Case("phi3-small", "pure-16", 4, 2048),
    Case("phi3-small", "amp", 2, 2048, step="fused"),
    Case("phi-small", "amp", 2, 2048),
    Case("olmo2-small", "amp", 2, 2048),
    Case("bloom-small", "amp", 2, 1024, attention="eager"),
    Case("falcon-small", "pure-16", 2, 2048, attention="eager"),
    Case("mistral-small", "fp32", 2, 2048, checkpointing="full", optimizer="sgd"),
)

SET_A = (
    Case("llama3-small", "amp", 2, 1024, lora="all-linear"),
    Case("llama3-small", "amp", 1, 2048, lora="q_proj,v_proj", rank=8, base="fp32"),
    Case("qwen2-short", "amp", 2, 1024, lora="all-linear", base="fp32", checkpointing="full"),
    Case("llama3-small", "amp", 2, 1024, lora="all-linear", base="nf4"),
    Case(
        "llama3-small", "pure-16", 1, 2048, lora="all-linear", base="nf4-double",
        checkpointing="full",
    ),
    Case("mixtral-small", "pure-16", 2, 1024),
    Case("mixtral-small", "amp", 2, 512, checkpointing="full"),
    Case("qwen3-moe-small", "pure-16", 2, 1024),
    Case("qwen3-moe-small", "fp32", 1, 1024, optimizer="momentum"),
    Case("gpt2", "fp32", 4, 512, evaluate=6),
    Case("gpt2", "fp32", 4, 512, evaluate=6, eval_accumulation=2),
    Case("llama3-small", "amp", 1, 512, attention="eager", evaluate=4),
    Case("gpt2-tiny", "fp32", 4, 128, optimizer="adafactor", real=True),
    Case("tinyllama", "pure-16", 1, 1024, optimizer="adafactor"),
    Case("gpt2-medium", "fp32", 2, 256, optimizer="adamw-8bit"),
    Case("tinyllama", "amp", 1, 512, optimizer="adamw-8bit"),
    Case("tied-150k", "amp", 2, 2048, checkpointing="full"),
    Case("llama3-small", "pure-16", 2, 2048, checkpointing="selective"),
    Case("mistral-small", "amp", 2, 2048, checkpointing="selective"),
    Case("tied-150k", "fp32", 1, 256),
    Case("tied-150k", "pure-16", 4, 1024),
    Case("llama3-small", "pure-16", 1, 1024, attention="eager"),
    Case("opt-125m", "amp", 4, 1024, attention="eager"),
    Case("qwen2-short", "fp32", 1, 1024, attention="eager"),
)  # fmt: skip
"""Written before they were measured; four formulas were mended for what they showed."""

SET_B = (
    Case("llama-mha", "amp", 4, 512, lora="q_proj,k_proj,v_proj,o_proj", rank=32),
    Case("qwen3-tied", "amp", 2, 512, lora="all-linear", rank=8),
    Case(
        "mistral-small", "amp", 2, 1024, lora="gate_proj,up_proj,down_proj", base="fp32",
        checkpointing="full",
    ),
    Case("llama-mha", "amp", 2, 1024, lora="q_proj,v_proj", base="nf4-double"),
    Case("qwen2-short", "pure-16", 2, 512, lora="all-linear", rank=64, base="nf4"),
    Case("mistral-small", "amp", 4, 1024, lora="all-linear", base="nf4", checkpointing="full"),
    Case("mixtral-wide", "amp", 4, 1024, optimizer="sgd"),
    Case("qwen2-moe-small", "pure-16", 4, 1024, optimizer="sgd"),
    Case("mixtral-wide", "pure-16", 4, 2048, optimizer="momentum", checkpointing="full"),
    Case("tinyllama", "pure-16", 2, 1024, evaluate=5),
    Case("qwen3-tied", "amp", 2, 512, evaluate=7, eval_accumulation=3),
    Case("opt-125m", "fp32", 8, 256, evaluate=2),
    Case("mistral-small", "pure-16", 2, 512, evaluate=3, eval_accumulation=1),
    Case("opt-125m", "amp", 2, 512, optimizer="adafactor"),
    Case("gpt2-tiny", "pure-16", 2, 64, optimizer="adafactor", real=True),
    Case("mistral-small", "pure-16", 1, 512, optimizer="adamw-8bit"),
    Case("pythia-160m", "amp", 2, 1024, optimizer="adamw-8bit", checkpointing="full"),
    Case("pythia-160m", "fp32", 8, 1024, checkpointing="full"),
    Case("phi3-small", "pure-16", 4, 2048, optimizer="sgd", checkpointing="selective"),
    Case("qwen3-tied", "amp", 4, 1024, checkpointing="selective", step="fused"),
    Case("qwen3-tied", "fp32", 4, 512, optimizer="sgd"),
    Case("tied-150k", "amp", 1, 128),
    Case("phi3-small", "amp", 1, 1024, attention="eager"),
    Case(
        "llama-mha", "pure-16", 4, 1024, attention="eager", checkpointing="full", step="for-loop"
    ),
    Case("gemma3-small", "fp32", 2, 512, attention="eager", optimizer="momentum"),
)  # fmt: skip
"""Written after the formulas were mended, and before they were measured."""

SET_C = (
    Case("qwen2-moe-small", "amp", 2, 1024, optimizer="sgd"),
    Case("qwen3-moe-small", "amp", 4, 512, optimizer="sgd", checkpointing="full"),
    Case("mixtral-small", "amp", 8, 512, step="fused"),
)  # fmt: skip
"""Mixtures under autocast once more, where a case of the second set was missed by 14.4%."""

SET_D = (
    Case("moe-few-ids", "pure-16", 8, 1024, optimizer="sgd", checkpointing="full"),
    Case("moe-few-ids", "amp", 4, 512, optimizer="sgd"),
    Case("qwen3-moe-small", "fp32", 3, 512, optimizer="sgd", checkpointing="full"),
)  # fmt: skip
"""Mixtures whose peak is the backward of a layer, where the set before was missed by 1.4%."""

HELD_OUT = (*SET_A, *SET_B, *SET_C, *SET_D)
CASES = (*FIRST, *HELD_OUT)


@dataclass(frozen=True, slots=True)
class Measured:
    """What MemTracker saw of a case at the peak: bytes by category, and in all.

    `forecast` is the relative error of the peak that the bill gave before the case was measured;
    -1 where it had no such moment, None for cases that formulas were made with.
    """

    case: Case
    peak: int
    categories: dict[str, int]
    artefacts: dict[str, int] = field(default_factory=dict)
    forecast: float | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the measurement as plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Measured:
        """Read what `as_json` gave."""
        return cls(**{**value, "case": Case(**value["case"])})
