"""The cases of `python -m bench.gpu_grid`: which model, trained or served how.

A case that is held out has never shaped a formula: it only scores them. Of each kind of case some
are held out, by other shapes, batches and lengths than the shaped ones.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from bench.memory_models import MODELS
from tokmill.bill.models.load import model_from_config
from tokmill.bill.overhead import CUDA_CONTEXT, WORKSPACES
from tokmill.bill.serving.inference import inference_bill
from tokmill.bill.training_bill import allocated_bytes, training_bill
from tokmill.settings.inference import InferenceSettings
from tokmill.settings.training import TrainingSettings

if TYPE_CHECKING:
    from tokmill.bill.formula import Bill


def _llama(
    layers: int, hidden: int, heads: int, kv_heads: int, ffn: int, vocabulary: int, *, tied: bool
) -> dict[str, Any]:
    return {
        "model_type": "llama", "num_hidden_layers": layers, "hidden_size": hidden,
        "num_attention_heads": heads, "num_key_value_heads": kv_heads, "intermediate_size": ffn,
        "vocab_size": vocabulary, "max_position_embeddings": 16384, "tie_word_embeddings": tied,
    }  # fmt: skip


SHAPES = {
    "gpt2": MODELS["gpt2"],
    "gpt2-medium": MODELS["gpt2-medium"],
    "llama-100m": _llama(12, 768, 12, 4, 2048, 32000, tied=True),
    "llama-400m": _llama(24, 1024, 16, 16, 2816, 50304, tied=False),
    "llama-1b": _llama(16, 2048, 32, 8, 8192, 128256, tied=True),
    "tinyllama": MODELS["tinyllama"],
    "llama-3b": _llama(28, 3072, 24, 8, 8192, 128256, tied=True),
}
"""Configurations of Hugging Face models; llama-1b and llama-3b are Llama-3.2's."""


@dataclass(frozen=True, slots=True)
class Case:
    """One measurement: training settings, or inference settings with a context in tokens."""

    name: str
    shape: str
    held_out: bool
    training: TrainingSettings | None = None
    inference: InferenceSettings | None = None
    needs: str = ""

    @property
    def config(self) -> dict[str, Any]:
        """Its model's configuration."""
        return SHAPES[self.shape]

    def as_json(self) -> dict[str, Any]:
        """Return the case as plain values, for the process that measures it."""
        return asdict(self) | {"config": self.config}


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of a GPU: tensors; tensors and what the allocator keeps; what lies outside of it."""

    allocated: int
    reserved: int
    outside: int


def predicted(case: Case) -> Memory:
    """Return what the formulas expect for a case."""
    model = model_from_config(case.config, case.shape)
    if case.training is not None:
        return of_bill(training_bill(model, case.training).peak)
    settings = case.inference or InferenceSettings()
    return of_bill(inference_bill(model, settings, context=settings.context))


def of_bill(bill: Bill) -> Memory:
    """Part a bill by who sees its lines; workspaces of cuBLAS are in torch's allocator."""
    outside = sum(line.n_bytes for line in bill.lines if line.name == CUDA_CONTEXT.name)
    workspaces = sum(line.n_bytes for line in bill.lines if line.name == WORKSPACES.name)
    return Memory(allocated_bytes(bill) + workspaces, bill.n_bytes - outside, outside)


@dataclass(slots=True)
class _Grid:
    """Cases in their order, numbered by kind."""

    cases: list[Case] = field(default_factory=list)

    def train(self, shape: str, *, held_out: bool, needs: str = "", **settings: Any) -> None:
        chosen: dict[str, Any] = {
            "precision": "pure-16",
            "optimizer_step": "fused",
            "micro_batch": 1,
        }
        name = " ".join([shape, *(f"{key}={value}" for key, value in settings.items())])
        training = TrainingSettings(**(chosen | settings))
        self.cases.append(Case(name, shape, held_out, training=training, needs=needs))

    def serve(self, shape: str, *, held_out: bool, **settings: Any) -> None:
        name = " ".join([shape, "inference", *(f"{k}={v}" for k, v in settings.items())])
        self.cases.append(Case(name, shape, held_out, inference=InferenceSettings(**settings)))


def grid() -> tuple[Case, ...]:
    """Return every case, shaped ones first."""
    found = _Grid()
    _shaped(found)
    _held_out(found)
    return tuple(found.cases)


def _shaped(grid: _Grid) -> None:
    for precision in ("fp32", "amp", "pure-16"):
        grid.train("gpt2", held_out=False, precision=precision, micro_batch=8, sequence=1024)
        grid.train("llama-100m", held_out=False, precision=precision, micro_batch=8, sequence=1024)
    for step in ("foreach", "fused"):
        grid.train("llama-1b", held_out=False, optimizer_step=step, sequence=512)
    grid.train("gpt2", held_out=False, attention="eager", micro_batch=4, sequence=1024)
    grid.train("llama-1b", held_out=False, checkpointing="full", micro_batch=4, sequence=2048)
    grid.train("tinyllama", held_out=False, micro_batch=2, sequence=2048)
    grid.train("llama-1b", held_out=False, optimizer="adamw-8bit", needs="bitsandbytes",
               sequence=1024)  # fmt: skip
    grid.train("llama-1b", held_out=False, precision="amp", adapter="lora", needs="peft",
               micro_batch=2, sequence=2048)  # fmt: skip
    grid.serve("llama-1b", held_out=False, batch=4, context=4096)
    grid.serve("gpt2", held_out=False, batch=16, context=1024)


def _held_out(grid: _Grid) -> None:
    for precision in ("amp", "pure-16"):
        grid.train("gpt2-medium", held_out=True, precision=precision, micro_batch=4, sequence=768)
        grid.train("llama-400m", held_out=True, precision=precision, micro_batch=6, sequence=1536)
        grid.train("llama-3b", held_out=True, precision=precision, checkpointing="full",
                   micro_batch=2, sequence=4096)  # fmt: skip
    grid.train("llama-3b", held_out=True, optimizer_step="foreach", sequence=1024)
    grid.train("llama-400m", held_out=True, attention="eager", micro_batch=3, sequence=1024)
    grid.train("gpt2-medium", held_out=True, precision="fp32", optimizer="sgd", micro_batch=2,
               sequence=512)  # fmt: skip
    grid.train("gpt2-medium", held_out=True, accumulation=4, micro_batch=4, sequence=1024)
    grid.train("tinyllama", held_out=True, checkpointing="full", sequence=8192)
    grid.train("llama-3b", held_out=True, optimizer="adamw-8bit", needs="bitsandbytes",
               sequence=2048)  # fmt: skip
    grid.train("llama-3b", held_out=True, precision="amp", adapter="lora", adapter_rank=64,
               adapter_targets="q_proj,v_proj", needs="peft", sequence=2048)  # fmt: skip
    grid.train("tinyllama", held_out=True, precision="amp", adapter="lora", needs="peft",
               checkpointing="full", micro_batch=8, sequence=1024)  # fmt: skip
    grid.serve("llama-3b", held_out=True, batch=2, context=8192)
    grid.serve("tinyllama", held_out=True, batch=16, context=2048)
    grid.serve("gpt2-medium", held_out=True, batch=32, context=512)
