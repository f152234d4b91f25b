"""Settings of the bill: the model.

They never change a byte of a dataset. The defaults 0 and '' mean "not given", and the help says
what is used then; a number that is given is at least 1.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokmill.settings.declare import runtime_setting

FAMILIES = (
    "plain", "gpt2", "gpt_neox", "opt", "bloom", "llama", "mistral", "mixtral", "qwen2",
    "qwen2_moe", "qwen3", "qwen3_moe", "gemma", "gemma2", "gemma3_text", "phi", "phi3", "falcon",
    "olmo2", "gpt_oss", "deepseek_v2", "deepseek_v3", "baichuan", "chatglm", "minimind", "bert",
    "roberta", "t5", "mt5",
)  # fmt: skip
LARGEST = 1 << 40
"""Upper bound of all counts, such as layers or tokens."""


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """The model. Numbers win over those of a named model."""

    name: str = runtime_setting(
        "",
        "Built-in name (tokmill memory --models), config.json, its directory, safetensors files, "
        "or a Hub name.",
    )
    family: str = runtime_setting(
        "", "Architecture of a model that is given by numbers.", choices=("", *FAMILIES)
    )
    parameters: int = runtime_setting(
        0, "Number of parameters, if nothing else is known about the model.",
        minimum=1, maximum=1 << 50, unit="count",
    )  # fmt: skip
    layers: int = runtime_setting(0, "Number of layers.", minimum=1, maximum=LARGEST)
    hidden: int = runtime_setting(0, "Hidden size.", minimum=1, maximum=LARGEST)
    heads: int = runtime_setting(
        0, "Number of attention (query) heads.", minimum=1, maximum=LARGEST
    )
    kv_heads: int = runtime_setting(0, "Number of key-value heads.", minimum=1, maximum=LARGEST)
    head_dim: int = runtime_setting(0, "Size of a head.", minimum=1, maximum=LARGEST)
    ffn: int = runtime_setting(0, "Width of the feed-forward layer.", minimum=1, maximum=LARGEST)
    vocabulary: int = runtime_setting(
        0, "Rows of the embedding; default: those of the named model, or of the dataset.",
        minimum=1, maximum=LARGEST,
    )  # fmt: skip
    positions: int = runtime_setting(
        0, "Number of learned positions.", minimum=1, maximum=LARGEST, unit="context"
    )
    experts: int = runtime_setting(0, "Experts per layer.", minimum=1, maximum=LARGEST)
    active_experts: int = runtime_setting(
        0, "Active experts per token.", minimum=1, maximum=LARGEST
    )
    expert_ffn: int = runtime_setting(
        0, "Width of an expert's feed-forward layer.", minimum=1, maximum=LARGEST
    )
    tied: str = runtime_setting(
        "auto", "Whether output head and embedding share one tensor; auto: by family.",
        choices=("auto", "yes", "no"),
    )  # fmt: skip
