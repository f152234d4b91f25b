"""Settings of the bill: which model, trained and served how. They never change a byte of a dataset.

0 and '' mean: not said; what then holds is in the help.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokmill.settings.declare import runtime_setting

FAMILIES = (
    "plain", "gpt2", "gpt_neox", "opt", "bloom", "llama", "mistral", "mixtral", "qwen2",
    "qwen2_moe", "qwen3", "qwen3_moe", "gemma", "gemma2", "gemma3_text", "phi", "phi3", "falcon",
    "olmo2", "gpt_oss", "deepseek_v2", "deepseek_v3", "baichuan", "chatglm", "minimind",
)  # fmt: skip
PRECISIONS = ("fp32", "amp", "pure-16", "mixed-16", "mixed-18", "mixed-20", "bf16-states")
WEIGHTS = ("auto", "fp32", "bf16", "fp16", "fp8", "int8", "int4", "nf4", "nf4-double")
OPTIMIZERS = (
    "adamw", "adam", "sgd", "momentum", "adamw-8bit", "adafactor", "lion", "muon"
)  # fmt: skip
LOADING = ("memmap", "lazy", "read", "concatenate", "int64", "lists", "copies")
LAZY_LOADING = ("lazy", "copies")
"""These open the dataset where the first sample is taken: in each worker."""
LARGEST = 1 << 40
"""No count of layers, tokens or GPUs is above this."""


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """Which model. Numbers that are given win over those of the named model."""

    name: str = runtime_setting(
        "", "config.json, its directory, a built-in name (tokmill memory --models), or a Hub name."
    )
    family: str = runtime_setting(
        "", "Family of a model given by numbers.", choices=("", *FAMILIES)
    )
    layers: int = runtime_setting(0, "Layers.", minimum=0, maximum=LARGEST)
    hidden: int = runtime_setting(0, "Hidden size.", minimum=0, maximum=LARGEST)
    heads: int = runtime_setting(0, "Query heads.", minimum=0, maximum=LARGEST)
    kv_heads: int = runtime_setting(0, "Key-value heads.", minimum=0, maximum=LARGEST)
    head_dim: int = runtime_setting(0, "Size of a head.", minimum=0, maximum=LARGEST)
    ffn: int = runtime_setting(0, "Width of the feed-forward layer.", minimum=0, maximum=LARGEST)
    vocabulary: int = runtime_setting(
        0, "Ids that the embedding holds; of a model by numbers: the dataset's.",
        minimum=0, maximum=LARGEST,
    )  # fmt: skip
    positions: int = runtime_setting(
        0, "Positions, where they are learnt.", minimum=0, maximum=LARGEST
    )
    experts: int = runtime_setting(0, "Experts a layer.", minimum=0, maximum=LARGEST)
    active_experts: int = runtime_setting(0, "Experts a token.", minimum=0, maximum=LARGEST)
    expert_ffn: int = runtime_setting(0, "Width of an expert.", minimum=0, maximum=LARGEST)
    tied: str = runtime_setting(
        "auto", "Head and embedding are one tensor; auto: as the family has it.",
        choices=("auto", "yes", "no"),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    """How the model is trained, on what, and how the dataset is loaded there."""

    gpu: str = runtime_setting("", "GPU by name, or its memory (80GiB).")
    gpus: int = runtime_setting(1, "GPUs in all.", minimum=1, maximum=1 << 24)
    gpus_per_node: int = runtime_setting(
        0, "GPUs of a machine, each with a process; 0: all, 8 at most.", minimum=0, maximum=1 << 10
    )
    precision: str = runtime_setting(
        "amp",
        "Bytes of weight + gradient + AdamW states (and master): fp32 4+4+8; amp (autocast) 4+4+8 "
        "and casts; pure-16 2+2+4; mixed-16 2+2+12; mixed-18 2+4+12; mixed-20 2+2+4+12; "
        "bf16-states 4+4+4.",
        choices=PRECISIONS,
    )
    weights: str = runtime_setting(
        "auto", "Type of weights that are not trained (LoRA's base).", choices=WEIGHTS
    )
    optimizer: str = runtime_setting("adamw", "Optimizer.", choices=OPTIMIZERS)
    optimizer_step: str = runtime_setting(
        "foreach", "How it steps: foreach takes a temporary copy.",
        choices=("foreach", "for-loop", "fused"),
    )  # fmt: skip
    micro_batch: int = runtime_setting(1, "Sequences of a GPU at once.", minimum=1, maximum=1 << 24)
    sequence: int = runtime_setting(
        0, "Tokens of a sequence; 0: the dataset's packing, or 2048 or the positions if fewer.",
        minimum=0, maximum=1 << 30,
    )  # fmt: skip
    accumulation: int = runtime_setting(
        1, "Micro batches before a step.", minimum=1, maximum=1 << 24
    )
    attention: str = runtime_setting(
        "flash",
        "flash (also sdpa) keeps no scores; sdpa-mask, sdpa given a mask of padding, repeats keys "
        "and values for all heads and keeps the mask; eager keeps the scores.",
        choices=("flash", "sdpa-mask", "eager"),
    )
    checkpointing: str = runtime_setting(
        "none",
        "Activations computed again: none; selective (Megatron: attention's scores, else all but "
        "attention's result and every second product); full (layers).",
        choices=("none", "selective", "full"),
    )  # fmt: skip
    loss: str = runtime_setting(
        "full", "Logits of all tokens in fp32, or fused: a chunk at a time.",
        choices=("full", "fused"),
    )  # fmt: skip
    framework: str = runtime_setting(
        "hf", "Whose activations: Hugging Face's modules, or Megatron's.",
        choices=("hf", "megatron"),
    )  # fmt: skip
    sharding: str = runtime_setting(
        "ddp", "Data parallelism: ddp, ZeRO stages, FSDP, or Megatron's distributed optimizer.",
        choices=("ddp", "zero-1", "zero-2", "zero-3", "fsdp", "distributed-optimizer"),
    )  # fmt: skip
    offload: str = runtime_setting(
        "none", "What lives in host RAM: optimizer states, or weights too.",
        choices=("none", "optimizer", "all"),
    )  # fmt: skip
    tensor_parallel: int = runtime_setting(
        1, "GPUs that share each layer.", minimum=1, maximum=4096
    )
    sequence_parallel: bool = runtime_setting(
        False, "Also split activations between matrices across tensor-parallel GPUs."
    )
    pipeline_parallel: int = runtime_setting(1, "Pipeline stages.", minimum=1, maximum=4096)
    virtual_stages: int = runtime_setting(
        1, "Chunks of layers a stage (interleaved).", minimum=1, maximum=4096
    )
    context_parallel: int = runtime_setting(
        1, "GPUs that share a sequence.", minimum=1, maximum=4096
    )
    expert_parallel: int = runtime_setting(
        1, "GPUs that share the experts.", minimum=1, maximum=4096
    )
    adapter: str = runtime_setting(
        "none", "What is trained: all, or low-rank adapters.", choices=("none", "lora", "dora")
    )
    adapter_rank: int = runtime_setting(16, "Rank of the adapters.", minimum=1, maximum=1 << 16)
    adapter_targets: str = runtime_setting(
        "all-linear", "Adapted matrices: all-linear, or ends of names, by comma (q_proj,v_proj)."
    )
    metric_batches: int = runtime_setting(
        0, "Batches of an evaluation whose logits are kept (compute_metrics).",
        minimum=0, maximum=1 << 30,
    )  # fmt: skip
    initialization: str = runtime_setting(
        "full", "Every process makes the model in fp32; meta: none does; rank0: one does.",
        choices=("full", "meta", "rank0"),
    )  # fmt: skip
    loading: str = runtime_setting(
        "memmap",
        "How the dataset gets into memory: mapped at once, or lazily in each worker; read; read "
        "and concatenated; cast to int64; Python lists; read by each worker (copies).",
        choices=LOADING,
    )
    loader_workers: int = runtime_setting(
        0, "DataLoader workers of a process.", minimum=0, maximum=1 << 10
    )
    start_method: str = runtime_setting("fork", "How workers start.", choices=("fork", "spawn"))
    prefetch: int = runtime_setting(2, "Batches a worker holds ready.", minimum=1, maximum=1 << 16)
    pin_memory: bool = runtime_setting(False, "Batches are copied to pinned memory.")
    mfu: float = runtime_setting(
        0.4, "Share of the GPU's peak that training reaches.", minimum=0.001, maximum=1.0
    )
    epochs: float = runtime_setting(1.0, "Times over the dataset.", minimum=0.0, maximum=1e6)
    checkpoints: int = runtime_setting(
        2, "Checkpoints kept on disk, beside the one being written.", minimum=0, maximum=1 << 20
    )


@dataclass(frozen=True, slots=True)
class InferenceSettings:
    """How the model is served."""

    batch: int = runtime_setting(1, "Sequences at once.", minimum=1, maximum=1 << 24)
    context: int = runtime_setting(
        0, "Tokens of each, prompt and answer; 0: training's sequence.",
        minimum=0, maximum=1 << 30,
    )  # fmt: skip
    weight_type: str = runtime_setting("bf16", "Type of the weights.", choices=WEIGHTS[1:])
    kv_type: str = runtime_setting(
        "bf16", "Type of the KV cache.", choices=("fp32", "bf16", "fp16", "fp8", "int8", "int4")
    )
    kv_block: int = runtime_setting(
        0, "Tokens of a block of a paged cache; 0: not paged.", minimum=0, maximum=1 << 20
    )
    mla_cache: str = runtime_setting(
        "compressed", "What MLA keeps: the compressed vector, or keys and values.",
        choices=("compressed", "expanded"),
    )  # fmt: skip
    serving_gpus: int = runtime_setting(
        1, "GPUs that share the model (tensor parallel).", minimum=1, maximum=4096
    )
    logits: str = runtime_setting(
        "last", "Logits of each sequence's last token, or of all tokens (to score text).",
        choices=("last", "all"),
    )  # fmt: skip
