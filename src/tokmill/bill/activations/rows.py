"""The tensors that operations of a layer keep for their backward pass, in bytes per token.

One row is one tensor, as Hugging Face's modules make it (transformers 5.23) and torch's autograd
keeps it. `layers` says which rows a family, a precision and a choice of what is trained give.

Types: x between the layers (the residual), q in products of matrices. Autocast on fp32 weights has
x = 4, q = 2, and every linear layer keeps its own 16-bit copy of a fp32 input.
"""

from __future__ import annotations

from tokmill.bill.formula import Formula

HOOKS = "hooks on saved tensors, transformers 5.23, torch 2.13"
EXACT = "equal to what autograd saves, per token and layer"


def _kept(name: str, expression: str) -> Formula:
    """Return a row that was equal to the saved tensors."""
    return Formula(name, expression, HOOKS, EXACT)


RMS_INPUT = _kept("RMSNorm: input in fp32", "4 * d")
RMS_INVERSE = _kept("RMSNorm: 1/rms in fp32", "4")
RMS_RESIDUAL = _kept("RMSNorm: normalized input, for the gradient of its weight", "x * d")
RMS_FP32 = _kept(
    "RMSNorm with its weight in fp32 (Gemma, OLMo-2): normalized input in fp32", "4 * d"
)
RMS_HEADS = _kept(
    "RMSNorm of each query and key: inputs in fp32, and 1/rms", "4 * (a + k) * h + 4 * (a + k)"
)
RMS_QUERY_KEY = _kept(
    "RMSNorm of all queries and all keys: inputs in fp32, and 1/rms", "4 * (a + k) * h + 8"
)
NORMED_HEADS = _kept("normalized queries and keys", "q * (a + k) * h")
NORMED_HEADS_FP32 = _kept("normalized queries and keys in fp32 (Gemma, OLMo-2)", "4 * (a + k) * h")
LAYER_NORM = _kept("LayerNorm: its input", "x * d")
LAYER_NORM_STATISTICS = Formula(
    "LayerNorm: mean and 1/deviation", "8", HOOKS, "fp32 on a GPU; of the input's type on a CPU"
)

INPUT = _kept("linear layer: its input of width d", "q * d")
ATTENDED = _kept("output layer of attention: its input", "q * a * h")
QUERY = _kept("attention: queries", "q * a * h")
KEY = _kept("attention: keys", "q * k * h")
VALUE = _kept("attention: values", "q * k * h")
REPEATED = _kept("attention: keys and values repeated for every query head", "2 * q * a * h")
FUSED = _kept(
    "attention: queries, keys and values in one tensor (fused projection)", "q * (a + 2 * k) * h"
)
RESULT = _kept("attention: its output", "q * a * h")
LOG_SUM_EXP = _kept("flash attention: log-sum-exp", "4 * a")
MASK = _kept("sdpa with a mask: the mask in the queries' type", "q * s")
SCORES = _kept("eager attention: softmax in fp32", "4 * a * s")
SCORES_CAST = _kept("eager attention: softmax in 16 bit", "q * a * s")
SOFT_CAP = _kept("eager attention: tanh of the capped scores", "q * a * s")
SCORES_DROPOUT = Formula(
    "eager attention: mask of dropout", "a * s", "torch's native_dropout on CUDA: a byte each",
    "formula; a CPU keeps masks of the scores' type",
)  # fmt: skip
SCORES_DROPPED = Formula(
    "eager attention: softmax after dropout in fp32", "4 * a * s", "as SCORES_DROPOUT", "formula"
)

GATED = _kept("gated feed-forward: gate, activated gate, up", "3 * q * f")
ACTIVATION_INPUT = _kept("feed-forward: input of the activation", "q * f")
GELU_NEW = _kept("gelu_new, not fused: four intermediate tensors", "4 * q * f")
GELU_NEW_AUTOCAST = Formula(
    "gelu_new under CUDA's autocast: three of four intermediate tensors in fp32",
    "(12 + q) * f", HOOKS, "CUDA's rule for powers applied on a CPU; 4 * q * f by the CPU's rule",
)  # fmt: skip
DOWN_INPUT = _kept("feed-forward: input of the last matrix", "q * f")
DROPOUT = Formula(
    "dropout: its mask", "d", "torch's native_dropout on CUDA: a byte each",
    "formula; a CPU keeps masks of the input's type",
)  # fmt: skip

ADAPTER_D = _kept("adapter: copy of an input of width d", "y * d")
ADAPTER_AH = _kept("adapter: copy of the attention output", "y * a * h")
ADAPTER_F = _kept("adapter: copy of an input of width f", "y * f")
ADAPTER_RANK = _kept("adapter: its low-rank features", "y * r")

ADAPTER_SUM_F = Formula(
    "adapter in forward: its output of width f, and the same scaled", "2 * y * f",
    "fake tensors, peft 0.21", "within 3 % of a checkpointed layer",
)  # fmt: skip
ADAPTER_CASTS_F = Formula(
    "adapter in forward under autocast: input of width f, and the same in fp32", "(q + 4) * f",
    "fake tensors, peft 0.21", "within 3 % of a layer",
)  # fmt: skip
ADAPTER_SUM_D = Formula(
    "adapter in forward: outputs of base and adapter, and the adapter's scaled", "3 * q * d",
    "fake tensors, peft 0.21", "within 3 % of a layer",
)  # fmt: skip
GRADIENT_ADAPTER = Formula(
    "gradients of the residual and of the last adapter, before a layer is recomputed",
    "x * d + 2 * y * d", "fake tensors, peft 0.21", EXACT,
)  # fmt: skip
NORMED = Formula("output of a norm, not kept", "x * d", "fake tensors, peft 0.21", EXACT)

LATENTS = Formula(
    "MLA: compressed queries, keys and values, and their norms in fp32",
    "(4 + 3 * q) * (r_kv + r_q) + q * r_rope",
    "read from transformers 5.23's DeepSeek-V3", "not measured",
)  # fmt: skip
LATENT_HEADS = Formula(
    "MLA: queries and keys with rotary part, values, and the attention output",
    "2 * q * a * (h_nope + r_rope) + q * a * (h_nope + h_v) + 2 * q * a * h_v",
    "read from transformers 5.23's DeepSeek-V3", "not measured",
)  # fmt: skip
ROUTER = Formula(
    "router: probabilities in fp32; indices, weights and positions of the chosen experts",
    "4 * E + 40 * e + 4", HOOKS, "exact for Mixtral; Qwen's have some bytes less",
)  # fmt: skip
EXPERTS = Formula(
    "active experts: inputs, gate, activated gate, up, product, output",
    "e * (2 * q * d + 4 * q * m)", HOOKS,
    "exact on one GPU; with expert parallelism tokens are taken as spread evenly",
)  # fmt: skip
SHARED_EXPERT = Formula(
    "shared expert: gate, activated gate, up, product", "4 * q * f_shared", HOOKS,
    "some bytes of Qwen2-MoE's are left out",
)  # fmt: skip
SHARED_GATE = _kept("gate of the shared expert: its input", "q * d")

IDS = _kept("token ids and labels", "16")

MASK_HELD = _kept("eager attention, checkpointed: one mask for all layers", "x * s")
MASK_HELD_BOOL = _kept("sdpa with a mask, checkpointed: one mask for all layers", "s")

TORCHTITAN = "torchtitan's policy for operations: attention's result and every second product"
LAYER_INPUT = Formula("selective checkpointing: the layer's input", "x * d", TORCHTITAN)
PRODUCTS_GATED = Formula(
    "selective: products of q, v, gate and down", "q * (a * h + k * h + f + d)", TORCHTITAN,
    "82.4 GiB published for Llama-3.1-8B on 8 GPUs: 15 % below",
)  # fmt: skip
PRODUCTS_PLAIN = Formula(
    "selective: products of q, v and up", "q * (a * h + k * h + f)", TORCHTITAN, "not measured"
)
PRODUCTS_FUSED = Formula(
    "selective: products of qkv and up", "q * ((a + 2 * k) * h + f)", TORCHTITAN, "not measured"
)
PRODUCTS_FUSED_GATED = Formula(
    "selective: products of qkv, and of fused gate and up", "q * ((a + 2 * k) * h + 2 * f)",
    TORCHTITAN, "not measured",
)  # fmt: skip
PRODUCTS_FUSED_QKV = Formula(
    "selective: products of qkv, gate and down", "q * ((a + 2 * k) * h + f + d)", TORCHTITAN,
    "not measured",
)  # fmt: skip

STEPS = "the order of autograd's steps, seen on fake tensors"

GRADIENT_RESIDUAL = Formula("gradient of the residual", "x * d", STEPS, EXACT)
GRADIENT_NORM = Formula("gradients inside an RMSNorm, five in fp32", "20 * d", STEPS, EXACT)
GRADIENT_LAYER_NORM = Formula("gradients before and after a LayerNorm", "2 * x * d", STEPS, EXACT)
GRADIENT_F = Formula("gradient inside the feed-forward layer", "q * f", STEPS, EXACT)
GRADIENT_GELU_NEW = Formula(
    "gradients inside gelu_new under CUDA's autocast", "8 * f", STEPS, "as GELU_NEW_AUTOCAST"
)
GRADIENT_HEADS = Formula(
    "gradients of queries, keys, values and attention output",
    "q * (2 * a + 2 * k) * h",
    STEPS,
    "a kernel may take some more",
)
GRADIENT_SCORES = Formula("gradients before and after softmax in fp32", "8 * a * s", STEPS, EXACT)
GRADIENT_SCORES_Q = Formula("gradients before and after softmax", "2 * q * a * s", STEPS, EXACT)
