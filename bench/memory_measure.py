"""Measures one training step without memory: fake tensors on the CPU, torch's MemTracker.

Corrections make the CPU work as a GPU does; a case that is `raw` goes without them:

* transformers cannot see that positions run on, since fake tensors have no values, and makes the
  causal mask that a real run leaves out; we tell it that nothing is packed.
* the tool loses count of which layer is computed again once torch stops that early, and takes some
  of its tensors for temporary ones; we tell it when checkpointed layers run again.
* the tool's hooks keep an embedding's output that requires a gradient, as adapters with
  checkpointing ask for, and its gradient, until the next step is over; we free them before it.
* torch knows the shapes of grouped products in bf16 alone; of others, transformers' own does.
* autocast on a CPU leaves powers in 16 bit, where that of CUDA makes them fp32; gelu_new is made of
  such; we add CUDA's rule.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import warnings
import weakref
from contextlib import nullcontext
from typing import Any

from bench.memory_cases import CASES, Case, Measured
from bench.memory_contexts import contexts_of
from bench.memory_models import MODELS

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
CATEGORIES = {
    "Parameter": "weights", "Buffer": "weights", "Gradient": "gradients",
    "Activation": "activations", "Temp": "temporary", "Optstate": "optimizer",
}  # fmt: skip


def main() -> None:
    """Measure the case of the given number, and print it as JSON."""
    warnings.filterwarnings("ignore")
    print(json.dumps(measure(CASES[int(sys.argv[1])]).as_json()))


def measure(case: Case) -> Measured:
    """Run two training steps of a case on fake tensors; give the peak of both."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.mem_tracker import MemTracker

    torch.set_num_threads(1)
    if not case.raw:
        _correct()
    tracker = MemTracker()
    model = _model(case, tracker)
    with nullcontext() if case.real else FakeTensorMode(allow_non_fake_inputs=True):
        _give_storage(model)
        optimizer = _optimizer(case, model)
        ids = torch.zeros(case.batch, case.sequence, dtype=torch.long)
        _track(tracker, model, optimizer, ids)
        with tracker:
            for _ in range(2):
                _step(case, model, optimizer, ids)
                tracker.reset_mod_stats()
        if case.evaluate:
            tracker = MemTracker()
            _track(tracker, model, optimizer, ids)
            with tracker:
                evaluate(case, model, ids, tracker)
    peak = tracker.get_tracker_snapshot("peak")[torch.device("cpu")]
    found = dict.fromkeys(CATEGORIES.values(), 0)
    for kind, n_bytes in peak.items():
        name = str(getattr(kind, "value", kind))
        if name != "Total":
            found[CATEGORIES.get(name, "temporary")] += n_bytes
    return Measured(case, sum(found.values()), found, _artefacts(case))


def _track(tracker: Any, model: Any, optimizer: Any, ids: Any) -> None:
    for parameter in (p for p in model.parameters() if not p.requires_grad):
        # The tool hooks every parameter's gradient, and frozen ones refuse.
        tracker._param_to_grad_hook_handles[parameter] = (_NoHook(), _NoHook())
    tracker.track_external(model, optimizer, ids)


class _NoHook:
    """Stands where the tool expects the handle of a hook."""

    def remove(self) -> None:
        """Do nothing."""


def _correct() -> None:
    """Make transformers leave the mask out, and autocast make powers fp32 as on CUDA."""
    import torch
    from transformers import masking_utils
    from transformers.integrations import moe

    masking_utils.find_packed_sequence_indices = lambda *_, **__: None
    moe._can_use_grouped_mm = lambda _, weight, __: weight.dtype == torch.bfloat16
    library = torch.library.Library("aten", "IMPL", "AutocastCPU")
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)
    power = torch.ops.aten.pow.Tensor_Scalar

    def in_fp32(tensor: Any, exponent: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(keys):
            return power(tensor.float(), exponent)

    library.impl("pow.Tensor_Scalar", in_fp32)
    _kept.append(library)


_kept: list[Any] = []
"""Libraries whose rules end when they are collected."""


def _artefacts(case: Case) -> dict[str, int]:
    """Return what a raw case has beside what a GPU would have, by its name; GPT-2 only."""
    if not case.raw:
        return {}
    config = MODELS[case.model]
    layers, d = config["n_layer"], config["n_embd"]
    q = 4 if case.precision == "fp32" else 2
    found = {"causal mask": q * case.batch * case.sequence**2 * layers}
    if case.precision == "amp":
        found["powers left in 16 bit"] = -6 * 4 * d * case.batch * case.sequence * layers
    return found


def _forget(embedding: Any, _: Any, output: Any) -> None:
    """Free the embedding's output of the step before, which hooks of the tool keep."""
    before, embedding.before = getattr(embedding, "before", None), weakref.ref(output)
    leaf = before() if before else None
    if leaf is not None:
        leaf.data, leaf.grad = leaf.data[:0].clone(), None


def _model(case: Case, tracker: Any) -> Any:
    """Build the model of a case on the meta device."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = dict(MODELS[case.model])
    made = AutoConfig.for_model(config.pop("model_type"), pad_token_id=0, **config)
    kernel = "eager" if case.attention == "eager" else "sdpa"
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(made, attn_implementation=kernel)
    frozen_in_16_bit = case.lora and case.precision == "amp" and case.base != "fp32"
    if case.precision == "pure-16" or frozen_in_16_bit:
        model = model.to(torch.bfloat16)
    if case.lora:
        model = _with_lora(model, case)
    if case.checkpointing != "none":
        contexts = {"context_fn": lambda: contexts_of(case, tracker)}
        model.gradient_checkpointing_enable({"use_reentrant": False, **contexts})
        if case.lora:
            model.enable_input_require_grads()
            model.get_input_embeddings().register_forward_hook(_forget)
    return model.train()


def _with_lora(model: Any, case: Case) -> Any:
    peft = importlib.import_module("peft")
    targets = case.lora if case.lora == "all-linear" else case.lora.split(",")
    config = peft.LoraConfig(task_type="CAUSAL_LM", r=case.rank, target_modules=targets)
    if case.base.startswith("nf4"):
        stand_ins = importlib.import_module("bench.memory_stand_ins")
        model = stand_ins.in_four_bits(model, double=case.base == "nf4-double")
        config.target_modules = [
            name
            for name, module in model.named_modules()
            if isinstance(module, stand_ins.FourBitLinear)
            and (case.lora == "all-linear" or name.endswith(tuple(targets)))
        ]
        config._register_custom_module({stand_ins.FourBitLinear: stand_ins.LoraFourBit})
    return peft.get_peft_model(model, config)


def _give_storage(model: Any) -> None:
    """Replace what is on the meta device by fake tensors on the CPU; ties stay ties."""
    import torch

    made: dict[int, Any] = {}
    for module in model.modules():
        for held in (module._parameters, module._buffers):
            for name, tensor in held.items():
                if tensor is None:
                    continue
                if id(tensor) not in made:
                    empty = torch.empty(tensor.shape, dtype=tensor.dtype)
                    if isinstance(tensor, torch.nn.Parameter):
                        empty = torch.nn.Parameter(empty, requires_grad=tensor.requires_grad)
                    made[id(tensor)] = (empty, tensor)
                held[name] = made[id(tensor)][0]


def _optimizer(case: Case, model: Any) -> Any:
    import torch

    parameters = [p for p in model.parameters() if p.requires_grad]
    how = {"foreach": case.step == "foreach", "fused": case.step == "fused"}
    if case.optimizer == "adamw":
        return torch.optim.AdamW(parameters, **how)
    if case.optimizer == "adafactor":  # as Trainer makes it
        adafactor = importlib.import_module("transformers").Adafactor
        return adafactor(parameters, lr=1e-3, scale_parameter=False, relative_step=False)
    if case.optimizer == "adamw-8bit":
        tables = [m.weight for m in model.modules() if isinstance(m, torch.nn.Embedding)]
        return importlib.import_module("bench.memory_stand_ins").EightBitAdamW(parameters, tables)
    return torch.optim.SGD(parameters, momentum=0.9 * (case.optimizer == "momentum"), **how)


def _step(case: Case, model: Any, optimizer: Any, ids: Any) -> None:
    import torch

    inputs = {"input_ids": ids, "labels": ids, "use_cache": False}
    if case.attention == "sdpa-mask":
        inputs["attention_mask"] = torch.ones_like(ids)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=case.precision == "amp"):
        loss = model(**inputs).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def evaluate(case: Case, model: Any, ids: Any, tracker: Any) -> None:
    """Run the evaluation loop of transformers' Trainer, with metrics.

    What goes to the host leaves the device: on a CPU, numpy would share its memory.
    """
    import numpy as np
    from transformers import Trainer, TrainerCallback, TrainingArguments, trainer_pt_utils

    class Reset(TrainerCallback):  # type: ignore[misc]
        def on_prediction_step(self, *_: Any, **__: Any) -> None:
            tracker.reset_mod_stats()

    trainer_pt_utils.nested_numpify = lambda tensors: np.empty((len(tensors), 0))
    arguments = TrainingArguments(
        "unused", use_cpu=True, bf16=case.precision == "amp", report_to=[],
        per_device_eval_batch_size=case.batch,
        eval_accumulation_steps=case.eval_accumulation or None,
    )  # fmt: skip
    model.to = lambda *_, **__: model  # fake tensors cannot move, and are there
    trainer = Trainer(
        model, arguments, compute_metrics=lambda _: {}, callbacks=[Reset], data_collator=dict
    )
    trainer.accelerator.pad_across_processes = lambda tensors, **_: tensors  # one process
    batches = [{"input_ids": ids, "labels": ids}] * case.evaluate
    trainer.evaluation_loop(batches, "Evaluation")


if __name__ == "__main__":
    main()
