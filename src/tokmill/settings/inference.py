"""Settings of the bill: how the model is served.

They never change a byte of a dataset. 0 and '' mean "not given"; the help says what is used then.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokmill.settings.declare import runtime_setting
from tokmill.settings.training import WEIGHTS


@dataclass(frozen=True, slots=True)
class InferenceSettings:
    """How the model is served."""

    batch: int = runtime_setting(1, "Serving: sequences in one batch.", minimum=1, maximum=1 << 24)
    context: int = runtime_setting(
        0, "Serving: tokens per sequence, prompt and answer; default: as in training.",
        minimum=1, maximum=1 << 30, unit="context",
    )  # fmt: skip
    weight_type: str = runtime_setting(
        "auto",
        "Serving: type of the weights; auto: as the model's files have them, by their headers or "
        "quantization_config, else bf16; q4_k_m and the like are GGUF.",
        choices=WEIGHTS,
    )
    kv_type: str = runtime_setting(
        "bf16", "Serving: type of the KV cache.",
        choices=("fp32", "bf16", "fp16", "fp8", "int8", "int4"),
    )  # fmt: skip
    kv_block: int = runtime_setting(
        0,
        "Serving: tokens per block of a paged KV cache; 0: not paged.",
        minimum=0,
        maximum=1 << 20,
    )
    prefill_chunk: int = runtime_setting(
        8192, "Serving: prompt tokens at once (servers: 2,048 to 16,384); 0: all, as in generate.",
        minimum=0, maximum=1 << 30,
    )  # fmt: skip
    serving_gpus: int = runtime_setting(
        1, "Serving: GPUs that share the model (tensor parallel).", minimum=1, maximum=4096
    )
    logits: str = runtime_setting(
        "last", "Serving: logits of the last token of each sequence, or of all (to score text).",
        choices=("last", "all"),
    )  # fmt: skip
