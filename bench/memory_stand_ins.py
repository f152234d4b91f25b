"""CPU stand-ins for bitsandbytes: 4-bit linear layers and 8-bit AdamW, as its CUDA code allocates.

They hold and make the tensors that bitsandbytes 0.50 does, in the same order; values do not matter.
`FourBitLinear` mirrors nn.Linear4bit and autograd's MatMul4Bit: the packed weight is dequantized
to the input's type in forward, dropped, and dequantized again in backward. `LoraFourBit` mirrors
peft's LoRA layer around it, which clones the base's result. `EightBitAdamW` mirrors AdamW8bit: its
CUDA kernel steps in place.
"""

from __future__ import annotations

from typing import Any

import torch
from peft.tuners.lora.layer import Linear

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
    """Stands for bitsandbytes' Linear4bit with NF4; `double`: its scales are quantized too."""

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
    """Stands for peft's lora.bnb.Linear4bit."""

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
    """Stands for bitsandbytes' AdamW8bit; `tables` are kept in 32 bit, as Trainer asks for."""

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
