"""What a sequence keeps in every layer while it is generated: keys and values, or a fixed state.

Sizes are those of transformers' cache classes (5.23); servers keep the same, in blocks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tokmill.bill.formula import Formula
from tokmill.bill.models.model import Block, BlockKind, Model

PREFILL_NAME = "activations of a layer (prompt)"
KV_CACHE = Formula(
    "KV cache",
    "2 * L_kv * ceil(k / t) * h * tokens * b * q_kv",
    "keys and values of every key-value head; a head is not split over GPUs, so fewer heads than "
    "GPUs are replicated (vLLM, Megatron)",
    "exact for full layers of Hugging Face's cache, which keeps one token less of a window; "
    "servers keep one block more; upper bound: every query head's (Hugging Face's Falcon 40B)",
)
KV_CACHE_WINDOW = Formula(
    "KV cache, sliding layers",
    KV_CACHE.expression,
    "the same; a layer with a sliding window keeps its window and no more (Hugging Face's cache, "
    "vLLM's hybrid manager, llama.cpp without --swa-full)",
    "a server that ignores windows keeps all tokens in every layer",
)
KV_CACHE_CROSS = Formula(
    "KV cache, cross-attention",
    KV_CACHE.expression,
    "a decoder's keys and values of the encoder's tokens (Hugging Face's EncoderDecoderCache)",
    "exact for a source as long as the context",
)
KV_CACHE_MLA = Formula(
    "KV cache, compressed",
    "L_kv * (r_kv + r_rope) * tokens * b * q_kv",
    "DeepSeek-V2, section 2.1: one vector for all heads, not split over GPUs; as in transformers 5 "
    "and vLLM; transformers 4 kept keys and values of every head",
    "exact against transformers' cache",
)
KV_CACHE_INDEXER = Formula(
    "KV cache, keys of the indexer",
    "L_kv * h_i * tokens * b * q_kv",
    "DeepSeek V3.2 and GLM-5: one key for all heads of the indexer (DynamicIndexedLayer)",
    "exact against transformers' cache",
)
KV_CACHE_KEYS = Formula(
    "KV cache, keys that are also values",
    "L_kv * ceil(k / t) * h * tokens * b * q_kv",
    "DeepSeek V4: one tensor of a window, beside the compressed tokens",
    "exact against transformers' cache, which keeps one token less of the window",
)
KV_CACHE_GROUPS = Formula(
    "KV cache, groups of tokens",
    "L_kv * (ceil(tokens / rate) + overlap) * (h + h_i) * b * q_kv",
    "DeepSeek V4: a vector for each group of tokens, another for its indexer, and those of "
    "overlapping groups",
    "exact against transformers' cache, without the tokens of a group that is not full",
)
STATE = "KV cache, fixed state"
STATE_DELTA = Formula(
    STATE,
    "L_kv * b * (4 * a_v * d_k * d_v + q_other * w * (2 * a_k * d_k + a_v * d_v)) / t",
    "transformers' cache of linear attention: an fp32 matrix for each head, and the last inputs "
    "of the convolution; the same for every number of tokens",
    "exact against transformers' cache",
)
STATE_LIGHTNING = Formula(
    STATE, "L_kv * b * q_other * a * h * h / t",
    "MiniMaxCache: keys times values of each head", "exact against transformers' cache",
)  # fmt: skip
STATE_MAMBA_2 = Formula(
    STATE, "L_kv * b * (4 * c * N + q_other * w * (c + 2 * G * N)) / t",
    "transformers' cache of state spaces: fp32 states, and the last inputs of the convolution",
    "exact against transformers' cache",
)  # fmt: skip
STATE_MAMBA_1 = Formula(
    STATE, "L_kv * b * (4 * c * N + q_other * w * c) / t",
    "transformers' cache of state spaces: fp32 states, and the last inputs of the convolution",
    "exact against transformers' cache",
)  # fmt: skip
STATE_RWKV = Formula(
    STATE, "L_kv * b * (4 * a * h * h + 2 * q_other * a * h) / t",
    "flash-linear-attention's cache of RWKV-7: an fp32 matrix for each head, and the last token "
    "of both mixings",
    "by the code",
)  # fmt: skip
STATE_SHORT = Formula(
    STATE, "L_kv * b * q_other * w * c / t",
    "transformers' cache of short convolutions: their last inputs",
    "exact against transformers' cache",
)  # fmt: skip

PREFILL_DELTA = Formula(
    PREFILL_NAME,
    "n_prompt * q_other * (4 * d + (8 * a_k * d_k + 10 * a_v * d_v + a_v * d_k * d_v / 64) / t)",
    "kernels of flash-linear-attention: projections, convolution, states of each 64 tokens",
    "by the code; transformers' operations in torch hold more",
)
PREFILL_MAMBA_2 = Formula(
    PREFILL_NAME,
    "n_prompt * q_other * (4 * d + (8 * c + 6 * G * N + 2 * c * N / s_chunk) / t)",
    "kernels of mamba-ssm: projection, convolution, states of each chunk",
    "by the code; transformers' operations in torch hold more",
)
PREFILL_MAMBA_1 = Formula(
    PREFILL_NAME, "n_prompt * q_other * (4 * d + 6 * c / t)",
    "kernels of mamba-ssm: projection, convolution, step and output", PREFILL_DELTA.error,
)  # fmt: skip
PREFILLS: Mapping[BlockKind, Formula] = {
    "delta": PREFILL_DELTA, "mamba-2": PREFILL_MAMBA_2, "mamba": PREFILL_MAMBA_1,
}  # fmt: skip
"""Activations of the parts that mix tokens without attention."""

OF_TOKENS: Mapping[BlockKind, Formula] = {
    "attention": KV_CACHE, "latent": KV_CACHE_MLA, "cross": KV_CACHE_CROSS,
    "indexer": KV_CACHE_INDEXER, "compressed": KV_CACHE_GROUPS,
}  # fmt: skip
GROWING = frozenset(
    formula.name for formula in (KV_CACHE, KV_CACHE_MLA, KV_CACHE_INDEXER, KV_CACHE_GROUPS)
)
"""Names of what grows with every token, however many there are."""
STATES: Mapping[BlockKind, Formula] = {
    "delta": STATE_DELTA, "lightning": STATE_LIGHTNING, "mamba": STATE_MAMBA_1,
    "mamba-2": STATE_MAMBA_2, "convolution": STATE_SHORT, "rwkv": STATE_RWKV,
}  # fmt: skip


_CELLS = 256
"""Tokens of a cell of llama.cpp's cache."""


@dataclass(frozen=True, slots=True)
class Cache:
    """What `layers` layers keep alike: a formula, and the values of its symbols."""

    formula: Formula
    layers: int
    sizes: Mapping[str, float]

    @property
    def is_split(self) -> bool:
        """Whether tensor-parallel GPUs share its key-value heads."""
        return "ceil(k / t)" in self.formula.expression


def caches(model: Model, context: int, block: int = 1, ahead: int = 0) -> Iterator[Cache]:
    """Yield what the layers of a model keep for a sequence of `context` tokens.

    A sliding layer keeps its window; a paged cache keeps full blocks of `block` tokens, and a
    server that reads `ahead` so many tokens of a prompt at once keeps whole cells of them. Encoder
    layers keep nothing; decoder layers that attend to them also keep keys and values of the
    encoder's tokens. Layers that use the keys and values of others keep none.
    """
    found: Counter[tuple[Formula, tuple[tuple[str, float], ...]]] = Counter()
    for part in model.blocks:
        layers = [layer for layer in part.layers if layer >= model.encoder_layers]
        formula, sizes = _kept(part, context, block, ahead)
        if formula and layers:
            found[formula, tuple(sizes.items())] += len(layers)
    for (formula, values), count in sorted(found.items(), key=lambda one: _tokens(one[0][1])):
        yield Cache(formula, count, dict(values))


def _kept(
    part: Block, context: int, block: int, ahead: int
) -> tuple[Formula | None, Mapping[str, float]]:
    """Return the formula of what a layer keeps of a part, and its symbols; None for nothing."""
    if part.kind in STATES:
        return STATES[part.kind], part.sizes
    if part.kind not in OF_TOKENS or "shared" in part.traits:
        return None, {}
    kept = min(_cells(part.window, ahead) if part.window else context, context)
    tokens = -(-kept // block) * block
    formula = OF_TOKENS[part.kind]
    if "keys" in part.traits:
        formula = KV_CACHE_KEYS
    elif part.kind == "attention" and tokens < context:
        formula = KV_CACHE_WINDOW
    return formula, {**part.sizes, "tokens": tokens}


def _cells(window: int, ahead: int) -> int:
    """Return the tokens that a layer with a window keeps: llama.cpp rounds them up."""
    return -(-(window + ahead) // _CELLS) * _CELLS if ahead else window


def _tokens(sizes: tuple[tuple[str, float], ...]) -> float:
    return dict(sizes).get("tokens", 0)
