"""The cases of the two grids that check the bill of GPU memory, and the steps that they take.

`bench.memory_grid` counts tensors without a GPU, `bench.gpu_grid` measures a real one. Needs torch
and transformers; peft and bitsandbytes for the cases that ask for them.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokmill.bill.models.load import model_from_config
from tokmill.settings.inference import InferenceSettings
from tokmill.settings.training import TrainingSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tokmill.bill.models.model import Model

ROOT = Path(__file__).parents[1]
MODELS: dict[str, dict[str, Any]] = json.loads(
    Path(__file__).with_name("bill_models.json").read_bytes()
)
"""Configurations of Hugging Face models; llama-1b and llama-3b are Llama-3.2's."""
NEW_TOKENS = 8


@dataclass(frozen=True, slots=True)
class Case:
    """A model that is trained, or served, with the settings of the bill that are given.

    `held_out`: it has never shaped a formula, and only scores them. `real`: measured with values,
    not with fake tensors.
    """

    model: str
    settings: Mapping[str, Any]
    serves: bool = False
    held_out: bool = False
    real: bool = False

    @property
    def name(self) -> str:
        """Return the model and the settings as one line."""
        serves = ["inference"] if self.serves else []
        settings = (f"{key}={value}" for key, value in self.settings.items())
        return " ".join([self.model, *serves, *settings])

    @property
    def training(self) -> TrainingSettings:
        """Return how the model is trained."""
        return TrainingSettings(**self.settings)

    @property
    def inference(self) -> InferenceSettings:
        """Return how the model is served."""
        return InferenceSettings(**self.settings)

    @property
    def shape(self) -> Model:
        """Return the model as the bill has it."""
        return model_from_config(MODELS[self.model], self.model)


def measured_in_child(program: str, number: int, limit_s: float) -> dict[str, Any]:
    """Run `python -m PROGRAM --case NUMBER`; return its JSON, or why there is none.

    A process of its own, since a measurement changes how torch and transformers work.
    """
    command = [sys.executable, "-m", program, "--case", str(number)]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=limit_s)
    except subprocess.TimeoutExpired:
        return {"left_out": f"no result after {limit_s:.0f} s"}
    if done.returncode:
        return {"left_out": (done.stderr.strip().splitlines() or ["died"])[-1]}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def build(
    case: Case, device: str, config: Mapping[str, Any] | None = None, contexts: Any = None
) -> Any:
    """Make the model with random weights on a device, as the case has it.

    `config`: another one than the case's. `contexts`: those of checkpointed layers.
    """
    import torch
    import transformers

    values = dict(config or MODELS[case.model])
    made = transformers.AutoConfig.for_model(
        values.pop("model_type"), **{"pad_token_id": 0, **values}
    )
    if case.serves:
        with torch.device(device):
            return transformers.AutoModelForCausalLM.from_config(made, dtype=torch.bfloat16).eval()
    training = case.training
    adapted = training.adapter != "none"
    frozen_in_16_bit = adapted and training.precision == "amp" and training.weights != "fp32"
    in_16_bit = training.precision == "pure-16" or frozen_in_16_bit
    with torch.device(device):
        model = transformers.AutoModelForCausalLM.from_config(
            made,
            attn_implementation="eager" if training.attention == "eager" else "sdpa",
            dtype=torch.bfloat16 if in_16_bit else torch.float32,
        )
    if adapted:
        model = _adapted(model, training)
    if training.checkpointing != "none":
        more = {"context_fn": contexts} if contexts else {}
        model.gradient_checkpointing_enable({"use_reentrant": False, **more})
        if adapted:
            model.enable_input_require_grads()
    return model.train()


def _adapted(model: Any, training: TrainingSettings) -> Any:
    peft: Any = importlib.import_module("peft")
    targets: Any = training.adapter_targets
    targets = targets if targets == "all-linear" else targets.split(",")
    config = peft.LoraConfig(task_type="CAUSAL_LM", r=training.adapter_rank, target_modules=targets)
    if training.weights.startswith("nf4"):
        stand_ins = importlib.import_module("bench.memory_stand_ins")
        model = stand_ins.in_four_bits(model, double=training.weights == "nf4-double")
        config.target_modules = [
            name
            for name, module in model.named_modules()
            if isinstance(module, stand_ins.FourBitLinear)
            and (targets == "all-linear" or name.endswith(tuple(targets)))
        ]
        config._register_custom_module({stand_ins.FourBitLinear: stand_ins.LoraFourBit})
    return peft.get_peft_model(model, config)


def optimizer_of(case: Case, model: Any) -> Any:
    """Make the optimizer of a case; on a CPU, 8-bit AdamW is a stand-in."""
    import torch

    training = case.training
    parameters = [p for p in model.parameters() if p.requires_grad]
    how = {name: training.optimizer_step == name for name in ("foreach", "fused")}
    if training.optimizer == "adamw":
        return torch.optim.AdamW(parameters, **how)
    if training.optimizer == "adafactor":  # as Trainer makes it
        adafactor = importlib.import_module("transformers").Adafactor
        return adafactor(parameters, lr=1e-3, scale_parameter=False, relative_step=False)
    if training.optimizer == "adamw-8bit":
        if parameters[0].device.type == "cuda":
            return importlib.import_module("bitsandbytes").optim.AdamW8bit(parameters)
        tables = [m.weight for m in model.modules() if isinstance(m, torch.nn.Embedding)]
        return importlib.import_module("bench.memory_stand_ins").EightBitAdamW(parameters, tables)
    return torch.optim.SGD(parameters, momentum=0.9 * (training.optimizer == "momentum"), **how)


def step(case: Case, model: Any, optimizer: Any, ids: Any) -> None:
    """Take one step of training."""
    import torch

    training = case.training
    inputs = {"input_ids": ids, "labels": ids, "use_cache": False}
    if training.attention == "sdpa-mask":
        inputs["attention_mask"] = torch.ones_like(ids)
    for _ in range(training.accumulation):
        is_amp = training.precision == "amp"
        with torch.autocast(ids.device.type, dtype=torch.bfloat16, enabled=is_amp):
            loss = model(**inputs).loss
        loss.backward()
        del loss
    optimizer.step()
    optimizer.zero_grad()


def generate(case: Case, model: Any, prompt: Any) -> None:
    """Read a prompt and write the last tokens, as `generate` does with its default cache."""
    import torch

    with torch.no_grad():
        model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            do_sample=False,
            min_new_tokens=NEW_TOKENS,
            max_new_tokens=NEW_TOKENS,
            pad_token_id=0,
        )
