"""Layers of megatron-core on a CPU: prints the bytes that autograd saves of each for a token.

It takes a list of arguments of `saved_bytes` as JSON. What kernels of a GPU do otherwise is
left out: attention scores, statistics of norms, tables of rotary positions.
"""

from __future__ import annotations

import contextlib
import functools
import json
import socket
import sys
import warnings
from typing import Any
from unittest import mock

import torch

SEQUENCE, BATCH = 48, 2
SMALL = 64
"""Counters and sums are no larger, in bytes."""


def saved_bytes(config: dict[str, Any], *, frozen: bool = False) -> float:
    """Return the bytes of the tensors of a layer that are saved for backward, of each token."""
    layer, hidden = _layer(config), config["hidden_size"]
    layer.requires_grad_(not frozen)
    weights = {parameter.untyped_storage().data_ptr() for parameter in layer.parameters()}
    found: dict[int, tuple[int, torch.Tensor]] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights and _counts(tensor):
            found[storage.data_ptr()] = (storage.nbytes(), tensor)
        return tensor

    states = torch.randn(SEQUENCE, BATCH, hidden, dtype=torch.bfloat16, requires_grad=True)
    mask = torch.triu(torch.ones(1, 1, SEQUENCE, SEQUENCE, dtype=torch.bool), 1)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        layer(states, mask)
    return sum(n_bytes for n_bytes, _ in found.values()) / (SEQUENCE * BATCH)


def _counts(tensor: torch.Tensor) -> bool:
    shape = tuple(tensor.shape)
    scores = shape[-2:] == (SEQUENCE, SEQUENCE)
    statistics = shape == (SEQUENCE, BATCH, 1)
    positions = shape[:3] == (SEQUENCE, 1, 1)
    return not (scores or statistics or positions or tensor.untyped_storage().nbytes() <= SMALL)


def _layer(config: dict[str, Any]) -> torch.nn.Module:
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.transformer import TransformerConfig
    from megatron.core.transformer.spec_utils import build_module
    from megatron.core.transformer.transformer_config import MLATransformerConfig

    latent = config.get("multi_latent_attention", False)
    common = {
        "num_layers": 1, "use_cpu_initialization": True, "bf16": True, "normalization": "LayerNorm",
        "params_dtype": torch.bfloat16, "bias_activation_fusion": True, "bias_dropout_fusion": True,
        "masked_softmax_fusion": False, "moe_token_dispatcher_type": "alltoall",
    }  # fmt: skip
    if config.get("gated_linear_unit"):
        common["activation_func"] = torch.nn.functional.silu
    made = (MLATransformerConfig if latent else TransformerConfig)(**common, **config)
    spec = get_gpt_layer_local_spec(
        num_experts=config.get("num_moe_experts"), moe_grouped_gemm=False,
        multi_latent_attention=latent, qk_layernorm=latent, normalization="LayerNorm",
    )  # fmt: skip
    return build_module(spec, config=made, layer_number=1).to(torch.bfloat16)


def _without_gpu() -> contextlib.ExitStack:
    """Replace what megatron-core asks of CUDA and of Transformer Engine."""
    import megatron.core.tensor_parallel as parallel
    from megatron.core.transformer import dot_product_attention, multi_latent_attention
    from megatron.core.transformer.moe import moe_utils

    attention = dot_product_attention.DotProductAttention
    made = attention.__init__

    def init(self: Any, *args: Any, k_channels: int = 0, v_channels: int = 0, **named: Any) -> None:
        made(self, *args, **named)
        if v_channels:
            self.hidden_size_per_partition = v_channels * named["config"].num_attention_heads

    stack = contextlib.ExitStack()
    for owner, name, value in (
        (torch.cuda, "current_device", lambda: "cpu"),
        (torch.cuda, "current_stream", mock.MagicMock()),
        (torch.cuda, "Stream", mock.MagicMock()),
        (torch.cuda, "stream", mock.MagicMock()),
        (parallel, "get_cuda_rng_tracker", mock.MagicMock()),
        (moe_utils, "te_general_gemm", None),
        (multi_latent_attention, "TELinear", contextlib.nullcontext),
        (multi_latent_attention, "TEColumnParallelLinear", contextlib.nullcontext),
        (attention, "__init__", init),
    ):
        stack.enter_context(mock.patch.object(owner, name, value, create=True))
    return stack


def main() -> None:
    """Print the bytes of each layer in the argument, a list."""
    warnings.simplefilter("ignore")
    # What is saved is decided by partitioning, as under inductor; generating code takes 30 s more.
    torch.compile = functools.partial(torch.compile, backend="aot_eager_decomp_partition")
    from megatron.core import parallel_state

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    store = f"tcp://127.0.0.1:{port}"
    torch.distributed.init_process_group("gloo", init_method=store, rank=0, world_size=1)
    parallel_state.initialize_model_parallel()
    with _without_gpu():
        print(json.dumps([saved_bytes(**layer) for layer in json.loads(sys.argv[1])]))


if __name__ == "__main__":
    main()
