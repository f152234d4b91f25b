"""Settings of the bill: the model, how it is trained and on which machines, how it is served.

They never change a byte of a dataset. 0 and '' mean "not given", and the help says what is used
then; a number that is given is at least 1.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokmill.settings.declare import NAME_OR_PATH, runtime_setting

PRECISIONS = ("auto", "fp32", "amp", "pure-16", "mixed-16", "mixed-18", "mixed-20", "bf16-states")
WEIGHTS = (
    "auto", "fp32", "bf16", "fp16", "fp8", "int8", "int4", "nf4", "nf4-double", "mxfp4",
    "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k_m", "q4_k_s", "q4_k_m", "q5_k_s",
    "q5_k_m", "q6_k",
)  # fmt: skip
OPTIMIZERS = (
    "adamw", "adam", "sgd", "momentum", "adamw-8bit", "adamw-bf16", "adamw-fp8", "adafactor",
    "lion", "muon",
)  # fmt: skip
LOADING = ("memmap", "lazy", "read", "concatenate", "int64", "lists", "copies")
LAZY_LOADING = ("lazy", "copies")
"""Each worker opens the dataset, when it reads its first sample."""


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    """How the model is trained, on which GPUs, and how the trainer loads the dataset."""

    gpu: str = runtime_setting("", "Name of the GPU, or its memory (80GiB).")
    gpus: int = runtime_setting(1, "Number of GPUs.", minimum=1, maximum=1 << 24)
    gpus_per_node: int = runtime_setting(
        0, "GPUs (and processes) per machine; default: all, at most 8.", minimum=1, maximum=1 << 10
    )
    host_ram: int = runtime_setting(
        0, "Host RAM of a machine (512GiB); 0: that of this machine.",
        minimum=0, maximum=1 << 50, unit="bytes",
    )  # fmt: skip
    trainer: str = runtime_setting(
        "auto",
        "Trainer whose defaults hold for what is not set; auto: with qlora activations are "
        "recomputed, as in most trainers.",
        choices=(
            "auto", "trl", "axolotl", "ms-swift", "unsloth", "torchtune", "megatron", "deepspeed",
        ),
    )  # fmt: skip
    precision: str = runtime_setting(
        "auto",
        "Types of weights, gradients and states; auto: mixed-16 with ZeRO, mixed-18 with "
        "Megatron, else amp. Bytes per parameter for weight + gradient + AdamW states (and master "
        "weight): fp32 4+4+8; amp (autocast) 4+4+8 and casts; pure-16 2+2+4; mixed-16 2+2+12; "
        "mixed-18 2+4+12; mixed-20 2+2+4+12; bf16-states 4+4+4.",
        choices=PRECISIONS,
    )
    weights: str = runtime_setting(
        "auto",
        "Type of frozen weights (base model of LoRA); auto: quantization_config of config.json, "
        "else 16 bit; q4_k_m and the like are GGUF.",
        choices=WEIGHTS,
    )
    optimizer: str = runtime_setting(
        "adamw",
        "Optimizer. adamw-bf16 and adamw-fp8: Megatron's precision-aware one, by its moments.",
        choices=OPTIMIZERS,
    )
    optimizer_step: str = runtime_setting(
        "foreach",
        "Implementation of the optimizer step; foreach needs a temporary copy. backward: the step "
        "of each weight in the backward pass, whose gradient is then freed (fused).",
        choices=("foreach", "for-loop", "fused", "backward"),
    )
    micro_batch: int = runtime_setting(1, "Sequences per GPU and pass.", minimum=1, maximum=1 << 24)
    sequence: int = runtime_setting(
        0, "Tokens per sequence; default: packing of the dataset, else 2048 or all positions.",
        minimum=1, maximum=1 << 30, unit="context",
    )  # fmt: skip
    accumulation: int = runtime_setting(
        1, "Micro batches per optimizer step.", minimum=1, maximum=1 << 24
    )
    attention: str = runtime_setting(
        "auto",
        "flash (also sdpa) stores no attention scores; sdpa-mask (sdpa with a mask of padding) "
        "repeats keys and values for all heads and stores the mask; eager stores the scores; auto: "
        "what transformers takes by itself, sdpa or, where a family has none, eager.",
        choices=("auto", "flash", "sdpa-mask", "eager"),
    )
    checkpointing: str = runtime_setting(
        "none",
        "Activations recomputed in the backward pass. selective: with Megatron core attention; "
        "else all but the attention output and every second matrix product; full: all layers.",
        choices=("none", "selective", "full"),
    )  # fmt: skip
    loss: str = runtime_setting(
        "full",
        "full: logits of all tokens in fp32; kernel: a kernel writes gradients over them (Unsloth, "
        "Liger's cross entropy), or Megatron's cross_entropy_loss_fusion; fused: one chunk of "
        "logits at a time.",
        choices=("full", "kernel", "fused"),
    )  # fmt: skip
    framework: str = runtime_setting(
        "hf", "Modules of the model: Hugging Face's or Megatron's.",
        choices=("hf", "megatron"),
    )  # fmt: skip
    transformers: str = runtime_setting(
        "auto",
        "Major version of transformers: with adapters, 4 keeps more under FSDP1, 5 does not "
        "quantize experts; auto: the one that needs more.",
        choices=("auto", "4", "5"),
    )
    sharding: str = runtime_setting(
        "ddp",
        "Data parallelism. ZeRO stages, FSDP1 (fsdp), FSDP2, or Megatron's distributed optimizer.",
        choices=("ddp", "zero-1", "zero-2", "zero-3", "fsdp", "fsdp2", "distributed-optimizer"),
    )
    offload: str = runtime_setting(
        "none", "Offload to host RAM: optimizer states, or weights too (all).",
        choices=("none", "optimizer", "all"),
    )  # fmt: skip
    offload_to: str = runtime_setting(
        "cpu", "Where offloaded states are: in host RAM (cpu), or on a disk (nvme).",
        choices=("cpu", "nvme"),
    )  # fmt: skip
    flat_buffer: bool = runtime_setting(
        False, "All gradients are fused into one fp32 buffer for all-reduce or their norm."
    )
    activation_offload: bool = runtime_setting(
        False, "Move activations that wait for the backward pass to host RAM."
    )
    reference_model: bool = runtime_setting(
        False,
        "DPO: also keep a frozen copy of the model (none with adapters). A pair is two sequences "
        "of the micro batch; with trl 1.16 log-probabilities are taken in chunks: loss fused.",
    )
    tensor_parallel: int = runtime_setting(
        1, "GPUs that share each layer.", minimum=1, maximum=4096
    )
    sequence_parallel: bool = runtime_setting(
        False, "Also split activations between matrices across tensor-parallel GPUs."
    )
    pipeline_parallel: int = runtime_setting(1, "Pipeline stages.", minimum=1, maximum=4096)
    virtual_stages: int = runtime_setting(
        1, "Chunks of layers per stage (interleaved).", minimum=1, maximum=4096
    )
    context_parallel: int = runtime_setting(
        1, "GPUs that share a sequence.", minimum=1, maximum=4096
    )
    expert_parallel: int = runtime_setting(
        1, "GPUs that share the experts.", minimum=1, maximum=4096
    )
    expert_tensor_parallel: int = runtime_setting(
        0, "GPUs that share each expert (Megatron); 0: as tensor_parallel.",
        minimum=0, maximum=4096,
    )  # fmt: skip
    adapter: str = runtime_setting(
        "none",
        "Train low-rank adapters instead of all weights. qlora: lora with weights nf4 if auto.",
        choices=("none", "lora", "qlora", "dora"),
    )
    adapter_rank: int = runtime_setting(16, "Rank of the adapters.", minimum=1, maximum=1 << 16)
    adapter_targets: str = runtime_setting(
        "all-linear", "Matrices with adapters: all-linear, or ends of names (q_proj,v_proj)."
    )
    adapter_type: str = runtime_setting(
        "auto",
        "Type of adapters, their gradients and states; auto: fp32, as peft makes them.",
        choices=("auto", "fp32", "bf16"),
    )
    prepare_kbit: bool = runtime_setting(
        True,
        "With qlora on unsharded weights, norms, embedding and head are in fp32, as peft's "
        "prepare_model_for_kbit_training makes them.",
    )
    metric_batches: int = runtime_setting(
        0, "Evaluation batches whose logits are kept in memory (compute_metrics).",
        minimum=0, maximum=1 << 30,
        zero_is_value=True,
    )  # fmt: skip
    eval_accumulation: int = runtime_setting(
        0, "Evaluation batches after which kept logits move from GPU to host RAM; 0: never.",
        minimum=0, maximum=1 << 30,
    )  # fmt: skip
    initialization: str = runtime_setting(
        "auto",
        "Processes that create the model in fp32: full: all, full-16: all, in 16 bit; rank0: one; "
        "meta: none; mapped: none, its file is mapped (from_pretrained in the file's type); auto: "
        "meta with an adapter, mapped for 16-bit weights without ZeRO or Megatron, else full.",
        choices=("auto", "full", "full-16", "meta", "rank0", "mapped"),
    )  # fmt: skip
    loading: str = runtime_setting(
        "memmap",
        "How the trainer loads the dataset: memory-mapped at once (memmap) or in each worker "
        "(lazy); read; read and concatenated; cast to int64; as Python lists; read by each worker "
        "(copies); Hugging Face datasets, which maps its Arrow files.",
        choices=(*LOADING, "datasets"),
    )
    loader_workers: int = runtime_setting(
        0,
        "DataLoader workers per process.",
        minimum=0,
        maximum=1 << 10,
        zero_is_value=True,
    )
    start_method: str = runtime_setting(
        "fork", "How DataLoader workers are started.", choices=("fork", "spawn")
    )
    prefetch: int = runtime_setting(
        2, "Batches that each worker loads in advance.", minimum=1, maximum=1 << 16
    )
    pin_memory: bool = runtime_setting(False, "Copy batches to pinned memory.")
    fragmentation: float = runtime_setting(
        0.3,
        "Fragmentation of GPU memory at the upper bound, as a fraction of allocated memory; under "
        "FSDP1 twice that.",
        minimum=0.0, maximum=1.0,
    )  # fmt: skip
    mfu: float = runtime_setting(
        0.4, "Fraction of the GPU's peak FLOP/s that training reaches.", minimum=0.001, maximum=1.0
    )
    epochs: float = runtime_setting(1.0, "Passes over the dataset.", minimum=0.0, maximum=1e6)
    tokens: int = runtime_setting(
        0, "Tokens to train on, all epochs together; 0: epochs times the dataset.",
        minimum=0, maximum=1 << 60, unit="count",
    )  # fmt: skip
    dataset_bytes: int = runtime_setting(
        0, "Size of the tokens (.bin) where no dataset is given (100GB).",
        minimum=0, maximum=1 << 60, unit="bytes",
    )  # fmt: skip
    with_masks: bool = runtime_setting(False, "That dataset has a loss mask, a byte per token.")
    price_per_hour: float = runtime_setting(
        0.0, "Price of one GPU for one hour.", minimum=0.0, maximum=1e6
    )
    checkpoints: int = runtime_setting(
        2, "Checkpoints kept on disk, besides the one being written.", minimum=0, maximum=1 << 20
    )


FAMILIES = (
    "plain", "gpt2", "gpt_neox", "opt", "bloom", "llama", "mistral", "mixtral", "qwen2",
    "qwen2_moe", "qwen3", "qwen3_moe", "gemma", "gemma2", "gemma3_text", "phi", "phi3", "falcon",
    "olmo2", "gpt_oss", "deepseek_v2", "deepseek_v3", "baichuan", "chatglm", "minimind", "bert",
    "roberta", "t5", "mt5",
)  # fmt: skip
LARGEST = 1 << 40
"""Upper bound of all counts, such as layers or tokens."""
BY_SERVER = 1 << 30
"""A chunk of prompts that is not set: the server's."""


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """The model. Numbers win over those of a named model."""

    name: str = runtime_setting(
        "",
        "Built-in name (tokmill memory --models), config.json, its directory, safetensors files, "
        "or a Hub name.",
        is_path=NAME_OR_PATH,
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


@dataclass(frozen=True, slots=True)
class InferenceSettings:
    """How the model is served."""

    batch: int = runtime_setting(
        1, "Serving: users, that is sequences at the same time.", minimum=1, maximum=1 << 24
    )
    context: int = runtime_setting(
        0, "Serving: tokens per sequence, prompt and answer; default: as in training.",
        minimum=1, maximum=1 << 30, unit="context",
    )  # fmt: skip
    prompt: int = runtime_setting(
        0, "Serving: tokens of a prompt; default: of the context all but the answer.",
        minimum=1, maximum=1 << 30, unit="context",
    )  # fmt: skip
    answer: int = runtime_setting(
        0, "Serving: tokens of an answer.", minimum=1, maximum=1 << 30, unit="context"
    )
    server: str = runtime_setting(
        "auto",
        "Program that serves, whose share of the GPU, graphs and chunks are counted; auto: vllm, "
        "for GGUF llama.cpp, for nf4 and whole prompts transformers.",
        choices=("auto", "vllm", "sglang", "transformers", "llama.cpp"),
    )
    gpu_share: float = runtime_setting(
        0.0,
        "Serving: fraction of the GPU that the server takes; 0: as it does, vllm 0.9, sglang 0.81 "
        "to 0.88, others what they need.",
        minimum=0.0,
        maximum=1.0,
    )
    graphs: bool = runtime_setting(True, "Serving: the server captures CUDA graphs.")
    host_experts: int = runtime_setting(
        0, "Serving with llama.cpp: layers whose experts are in host RAM (--n-cpu-moe).",
        minimum=0, maximum=LARGEST,
        zero_is_value=True,
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
        zero_is_value=True,
    )
    prefill_chunk: int = runtime_setting(
        BY_SERVER,
        "Serving: prompt tokens at once; 0: all, as in generate; default: as the server does, "
        "512 to 8,192.",
        minimum=0, maximum=BY_SERVER,
    )  # fmt: skip
    serving_gpus: int = runtime_setting(
        1, "Serving: GPUs that share the model (tensor parallel).", minimum=1, maximum=4096
    )
    logits: str = runtime_setting(
        "last", "Serving: logits of the last token of each sequence, or of all (to score text).",
        choices=("last", "all"),
    )  # fmt: skip
