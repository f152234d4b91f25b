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

import importlib
import os
import warnings
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from peft.tuners.lora.layer import Linear

from bench.memory_grid import MODELS, Case
from tokmill.settings.training import TrainingSettings

CATEGORIES = {
    "Parameter": "weights", "Buffer": "weights", "Gradient": "gradients",
    "Activation": "activations", "Temp": "temporary", "Optstate": "optimizer",
}  # fmt: skip


def measure(case: Case) -> dict[str, Any]:
    """Run two training steps of a case on fake tensors; return the peak, and by category."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    warnings.filterwarnings("ignore")
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
        if training.optimizer_step == "backward":
            optimizer = InBackward(model)
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


def measure_on(device: str, case: Case, config: Mapping[str, Any] | None = None) -> dict[str, int]:
    """Run three training steps on a device; return its parameters and peaks (0 on a CPU).

    Optimizer states exist from the end of the first step on; the second is the first whole one.

    Raises:
        SystemExit: there is no such device, or the case is for fake tensors alone.
    """
    is_gpu, training = device == "cuda", case.training
    if is_gpu and not torch.cuda.is_available():
        raise SystemExit("no GPU here: torch.cuda.is_available() is false")
    if training.metric_batches or training.weights.startswith("nf4"):
        raise SystemExit("measured on fake tensors alone")
    torch.manual_seed(0)
    model = build(case, device, config)
    if is_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    optimizer = optimizer_of(case, model)
    shape = (training.micro_batch, training.sequence)
    ids = torch.randint((config or MODELS[case.model])["vocab_size"], shape, device=device)
    for _ in range(3):
        step(case, model, optimizer, ids)
    return {
        "parameters": sum(p.numel() for p in model.parameters()),
        "allocated": torch.cuda.max_memory_allocated() if is_gpu else 0,
        "reserved": torch.cuda.max_memory_reserved() if is_gpu else 0,
    }


def _track(tracker: Any, model: Any, optimizer: Any, ids: Any) -> None:
    for parameter in (p for p in model.parameters() if not p.requires_grad):
        # The tool hooks every parameter's gradient, and frozen ones refuse.
        no_hook = SimpleNamespace(remove=lambda: None)
        tracker._param_to_grad_hook_handles[parameter] = (no_hook, no_hook)
    each = optimizer.each if isinstance(optimizer, InBackward) else (optimizer,)
    tracker.track_external(model, *each, ids)


def _correct() -> None:
    """Make transformers leave the mask out, and autocast make powers fp32 as on CUDA."""
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


# The steps of a case


def build(
    case: Case, device: str, config: Mapping[str, Any] | None = None, contexts: Any = None
) -> Any:
    """Make the model with random weights on a device, as the case has it.

    `config`: another one than the case's. `contexts`: those of checkpointed layers.
    """
    import transformers

    values = dict(config or MODELS[case.model])
    made = transformers.AutoConfig.for_model(
        values.pop("model_type"), **{"pad_token_id": 0, **values}
    )
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
        model = in_four_bits(model, double=training.weights == "nf4-double")
        config.target_modules = [
            name
            for name, module in model.named_modules()
            if isinstance(module, FourBitLinear)
            and (targets == "all-linear" or name.endswith(tuple(targets)))
        ]
        config._register_custom_module({FourBitLinear: LoraFourBit})
    return peft.get_peft_model(model, config)


def optimizer_of(case: Case, model: Any) -> Any:
    """Make the optimizer of a case; on a CPU, 8-bit AdamW is a stand-in."""
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
        return EightBitAdamW(parameters, tables)
    return torch.optim.SGD(parameters, momentum=0.9 * (training.optimizer == "momentum"), **how)


class InBackward:
    """AdamW that steps on each weight when its gradient is made, and then frees it."""

    def __init__(self, model: Any) -> None:
        trained = [p for p in model.parameters() if p.requires_grad]
        self.each = [torch.optim.AdamW([parameter], fused=True) for parameter in trained]
        for parameter, own in zip(trained, self.each, strict=True):
            parameter.register_post_accumulate_grad_hook(partial(self._step, own))

    @staticmethod
    def _step(own: Any, _: Any) -> None:
        own.step()
        own.zero_grad()

    def step(self) -> None:
        """Do nothing: all weights have stepped."""

    def zero_grad(self) -> None:
        """Do nothing: all gradients are freed."""


def step(case: Case, model: Any, optimizer: Any, ids: Any) -> None:
    """Take one step of training."""
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


# Stand-ins for bitsandbytes 0.50: they make the tensors of its CUDA code, in the same order

BLOCK, BLOCK_OF_SCALES = 64, 256
SMALLEST_8BIT, BLOCK_8BIT = 4096, 256


class _MatMulFourBit(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, inputs: Any, layer: Any) -> Any:
        ctx.layer = layer
        return torch.nn.functional.linear(inputs, layer.dequantized(), layer.bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (gradient,) = gradients
        return torch.matmul(gradient, ctx.layer.dequantized().to(gradient.dtype)), None


class FourBitLinear(torch.nn.Module):  # type: ignore[misc]
    """Stands for bitsandbytes' Linear4bit with NF4; `double`: its scales are quantized too.

    The packed weight is dequantized to the input's type in forward, dropped, and dequantized again
    in backward, as autograd's MatMul4Bit does.
    """

    def __init__(self, linear: Any, *, double: bool) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.stored = linear.weight.dtype
        self.bias = linear.bias
        size, self.double = linear.weight.numel(), double
        self.weight = self._frozen(torch.empty(size // 2, 1, dtype=torch.uint8))
        scales = -(-size // BLOCK)
        self.absmax = self._frozen(torch.empty(scales, dtype=torch.uint8 if double else None))
        if double:
            self.absmax2 = self._frozen(torch.empty(-(-scales // BLOCK_OF_SCALES)))

    @staticmethod
    def _frozen(tensor: Any) -> Any:
        return torch.nn.Parameter(tensor, requires_grad=False)

    def dequantized(self) -> Any:
        """Return a new tensor of the weight; its scales, if quantized, become fp32 beside it."""
        scales = torch.empty(self.absmax.shape) if self.double else self.absmax
        return self._made(scales)

    def _made(self, scales: Any) -> Any:
        """Make the weight while its scales are there."""
        assert len(scales)
        return torch.empty(self.out_features, self.in_features, dtype=self.stored)

    def forward(self, inputs: Any) -> Any:
        """Return the product: computed in the stored type, returned in the input's."""
        return _MatMulFourBit.apply(inputs.to(self.stored), self).to(inputs.dtype)


class LoraFourBit(Linear):  # type: ignore[misc]
    """Stands for peft's lora.bnb.Linear4bit, which clones the base's result."""

    def forward(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the base's result, cloned, plus the adapter's."""
        result = self.base_layer(x, *args, **kwargs).clone()
        for name in self.active_adapters:
            down, up = self.lora_A[name], self.lora_B[name]
            converted = not torch.is_autocast_enabled("cpu")
            expected = result.dtype
            if converted:
                x = self._cast_input_dtype(x, down.weight.dtype)
            output = up(down(self.lora_dropout[name](x))) * self.scaling[name]
            result = result + (output.to(expected) if converted else output)
        return result


def in_four_bits(model: Any, *, double: bool) -> Any:
    """Replace the linear layers of a model, all but its head."""
    for name, module in list(model.named_modules()):
        if isinstance(module, torch.nn.Linear) and name != "lm_head":
            parent, _, leaf = name.rpartition(".")
            setattr(model.get_submodule(parent), leaf, FourBitLinear(module, double=double))
    return model


class EightBitAdamW(torch.optim.Optimizer):  # type: ignore[misc]
    """Stands for AdamW8bit, which steps in place; `tables` are kept in 32 bit, as in Trainer."""

    def __init__(self, parameters: Any, tables: Any) -> None:
        super().__init__(parameters, {"lr": 1e-3})
        self.tables = {id(table) for table in tables}

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def step(self) -> None:
        """Make the states at the first step, then change them in place."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._step(parameter)

    def _step(self, parameter: Any) -> None:
        state = self.state[parameter]
        if not state:
            small = parameter.numel() < SMALLEST_8BIT or id(parameter) in self.tables
            for name in ("state1", "state2"):
                dtype = torch.float32 if small else torch.uint8
                state[name] = torch.zeros_like(parameter, dtype=dtype)
                if not small:
                    blocks = -(-parameter.numel() // BLOCK_8BIT)
                    state[f"absmax{name[-1]}"] = torch.zeros(blocks)
        for tensor in (*state.values(), parameter):
            tensor.add_(1)
