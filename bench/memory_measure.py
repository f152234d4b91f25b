"""Measures one training step without memory: fake tensors on the CPU, torch's MemTracker.

Corrections make the CPU work as a GPU does:

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

import os
import warnings
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from bench.bill_cases import Case, build, optimizer_of, step

CATEGORIES = {
    "Parameter": "weights", "Buffer": "weights", "Gradient": "gradients",
    "Activation": "activations", "Temp": "temporary", "Optstate": "optimizer",
}  # fmt: skip


def measure(case: Case) -> dict[str, Any]:
    """Run two training steps of a case on fake tensors; return the peak, and by category."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    warnings.filterwarnings("ignore")
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.mem_tracker import MemTracker

    torch.set_num_threads(1)
    _correct()
    tracker, training = MemTracker(), case.training
    model = build(case, "meta", contexts=lambda: _contexts(training.checkpointing, tracker))
    if training.adapter != "none" and training.checkpointing != "none":
        model.get_input_embeddings().register_forward_hook(_forget)
    with nullcontext() if case.real else FakeTensorMode(allow_non_fake_inputs=True):
        _give_storage(model)
        optimizer = optimizer_of(case, model)
        ids = torch.zeros(training.micro_batch, training.sequence, dtype=torch.long)
        _track(tracker, model, optimizer, ids)
        with tracker:
            for _ in range(2):
                step(case, model, optimizer, ids)
                tracker.reset_mod_stats()
        if training.metric_batches:
            tracker = MemTracker()
            _track(tracker, model, optimizer, ids)
            with tracker:
                _evaluate(case, model, ids, tracker)
    peak = tracker.get_tracker_snapshot("peak")[torch.device("cpu")]
    found = dict.fromkeys(CATEGORIES.values(), 0)
    for kind, n_bytes in peak.items():
        name = str(getattr(kind, "value", kind))
        if name != "Total":
            found[CATEGORIES.get(name, "temporary")] += n_bytes
    return {"peak": sum(found.values()), "categories": found}


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


def _contexts(checkpointing: str, tracker: Any) -> tuple[Any, Any]:
    """Return the contexts of a layer's forward and of its recomputation."""
    if checkpointing == "full":
        return nullcontext(), _again(tracker, nullcontext())
    from torch.utils.checkpoint import create_selective_checkpoint_contexts

    forward, recompute = create_selective_checkpoint_contexts(_Policy())
    return forward, _again(tracker, recompute)


@contextmanager
def _again(tracker: Any, inner: Any) -> Iterator[None]:
    """Tell the tool that a checkpointed layer runs again, in a module that never ends."""
    tracker._ac_mod, tracker._in_ac = lambda: None, True
    try:  # torch stops a recomputation by an exception
        with inner:
            yield
    finally:
        tracker._ac_mod, tracker._in_ac = None, False


class _Policy:
    """Saves what torchtitan's policy does: attention's result and every second matrix product."""

    def __init__(self) -> None:
        import torch
        from torch.utils.checkpoint import CheckpointPolicy

        names = (
            "_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention",
            "_scaled_dot_product_efficient_attention",
        )  # fmt: skip
        self.kernels = {getattr(torch.ops.aten, name).default for name in names}
        self.products = {torch.ops.aten.mm.default, torch.ops.aten.addmm.default}
        self.policy, self.passed = CheckpointPolicy, {True: 0, False: 0}

    def __call__(self, context: Any, operation: Any, *_: Any, **__: Any) -> Any:
        again = context.is_recompute
        self.passed[again] += operation in self.products
        second = operation in self.products and self.passed[again] % 2
        saved = second or operation in self.kernels
        return self.policy.MUST_SAVE if saved else self.policy.PREFER_RECOMPUTE


def _forget(embedding: Any, _: Any, output: Any) -> None:
    """Free the embedding's output of the step before, which hooks of the tool keep."""
    before, embedding.before = getattr(embedding, "before", None), weakref.ref(output)
    leaf = before() if before else None
    if leaf is not None:
        leaf.data, leaf.grad = leaf.data[:0].clone(), None


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


def _evaluate(case: Case, model: Any, ids: Any, tracker: Any) -> None:
    """Run the evaluation loop of transformers' Trainer, with metrics.

    What goes to the host leaves the device: on a CPU, numpy would share its memory.
    """
    import numpy as np
    from transformers import Trainer, TrainerCallback, TrainingArguments, trainer_pt_utils

    class Reset(TrainerCallback):  # type: ignore[misc]
        def on_prediction_step(self, *_: Any, **__: Any) -> None:
            tracker.reset_mod_stats()

    training = case.training
    trainer_pt_utils.nested_numpify = lambda tensors: np.empty((len(tensors), 0))
    arguments = TrainingArguments(
        "unused", use_cpu=True, bf16=training.precision == "amp", report_to=[],
        per_device_eval_batch_size=training.micro_batch,
        eval_accumulation_steps=training.eval_accumulation or None,
    )  # fmt: skip
    model.to = lambda *_, **__: model  # fake tensors cannot move, and are there
    trainer = Trainer(
        model, arguments, compute_metrics=lambda _: {}, callbacks=[Reset], data_collator=dict
    )
    trainer.accelerator.pad_across_processes = lambda tensors, **_: tensors  # one process
    batches = [{"input_ids": ids, "labels": ids}] * training.metric_batches
    trainer.evaluation_loop(batches, "Evaluation")
