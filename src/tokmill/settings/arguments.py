"""Keyword arguments of the Python functions: every setting under the name of its option.

Type checkers and editors read them here. The meaning, default and limits of each stand in
`settings.schema`, and for the bill in `settings.model`, `settings.training` and
`settings.inference`; a test compares them. An amount is a number, or text such as `"4MiB"`,
`"32k"` or `"300B"`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

from tokmill.settings.source import Source

Amount = int | str
Names = Sequence[str]
Pairs = Mapping[str, str] | Sequence[str]


class _Input(TypedDict, total=False):
    """Settings of section [input]: where records come from."""

    format: str
    text_separator: str
    csv_delimiter: str
    hub_config: str
    hub_split: str
    hub_revision: str
    max_record_bytes: Amount
    max_decompression_ratio: int
    source: Sequence[Source | Mapping[str, Any]]


class _Tokenizer(TypedDict, total=False):
    """Settings of section [tokenizer]: the tokens around documents."""

    eos_token: str
    bos_token: str
    pattern: str
    control_tokens_in_text: str


class _Render(TypedDict, total=False):
    """Settings of section [render]: how a record becomes a document."""

    renderer: str | Callable[[Any], Any]
    title_field: str
    summary_field: str
    sections_field: str
    section_title_field: str
    section_content_field: str
    separator: str
    terminator: str
    text_field: str
    template: str


class _Output(TypedDict, total=False):
    """Settings of section [output]: how the dataset is divided into files."""

    dtype: str
    part_bytes: Amount
    shard_tokens: Amount
    val_fraction: float
    checksum: str


class _Limits(TypedDict, total=False):
    """Settings of section [limits]: what is left out, and when a run stops."""

    min_tokens: int
    max_tokens: int
    on_error: str
    on_unread: str
    max_reject_fraction: float


class _Run(TypedDict, total=False):
    """Settings of section [run]: how the work is done."""

    engine: str
    workers: int
    threads: int
    executor: str
    ray_address: str
    batch_bytes: Amount
    engine_memory_bytes: Amount


class _Sft(TypedDict, total=False):
    """Settings of section [sft]: how a conversation becomes a sample."""

    schema: str
    ignore_keys: Names
    fields: Pairs
    role_names: Pairs
    preset: str
    template: str
    template_kwargs: str | Mapping[str, Any]
    spans: str
    boundary: str
    straddling: str
    samples: str
    turns: str
    roles: Names
    eot: str
    suffix: str
    header: str
    reasoning: str
    tool_calls: str
    inline_tags: str
    rendered_text: str
    append_eos: str
    weights: str
    default_system: str
    instruction: str
    tool_arguments: str
    date: str
    too_long: str
    window_overlap: int
    packing: Amount
    packed_rows: bool


class _Model(TypedDict, total=False):
    """Settings of section [model]: the model of the bill."""

    family: str
    parameters: int | str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocabulary: int
    positions: Amount
    experts: int
    active_experts: int
    expert_ffn: int
    tied: str


class _Training(TypedDict, total=False):
    """Settings of section [training]: how the model is trained."""

    gpu: str
    gpus: int
    gpus_per_node: int
    nodes: int
    host_ram: Amount
    precision: str
    weights: str
    optimizer: str
    optimizer_step: str
    micro_batch: int
    sequence: Amount
    accumulation: int
    attention: str
    checkpointing: str
    loss: str
    framework: str
    sharding: str
    offload: str
    activation_offload: bool
    reference_model: bool
    flat_buffer: bool
    tensor_parallel: int
    sequence_parallel: bool
    pipeline_parallel: int
    virtual_stages: int
    context_parallel: int
    expert_parallel: int
    expert_tensor_parallel: int
    adapter: str
    adapter_rank: int
    adapter_targets: str
    metric_batches: int
    eval_accumulation: int
    initialization: str
    loading: str
    strategy: str
    loader_workers: int
    start_method: str
    prefetch: int
    pin_memory: bool
    fragmentation: float
    mfu: float
    link_bandwidth: Amount
    throughput: str
    epochs: float
    tokens: Amount
    dataset_bytes: Amount
    price_per_hour: float
    checkpoints: int


class _Inference(TypedDict, total=False):
    """Settings of section [inference]: how the model is served."""

    batch: int
    context: Amount
    weight_type: str
    kv_type: str
    kv_block: int
    mla_cache: str
    serving_gpus: int
    logits: str


class _RunOfBoth(_Input, _Tokenizer, _Output, _Limits, _Run, total=False):
    """What both recipes share; `model` and `gpu` name what the bill is for."""

    model: str
    gpu: str


class PretrainArguments(_RunOfBoth, _Render, total=False):
    """Settings of `tokmill.pretrain`."""


class SftArguments(_RunOfBoth, _Sft, total=False):
    """Settings of `tokmill.sft`."""


class PlanArguments(_RunOfBoth, _Render, _Sft, total=False):
    """Settings of `tokmill.plan`: those of the recipe that is planned."""


class TrainingArguments(_Model, _Training, total=False):
    """Settings of `tokmill.bill.training`, `host` and `disk`, but for `model`."""


class InferenceArguments(_Model, _Inference, total=False):
    """Settings of `tokmill.bill.inference`, but for `model`."""


class BillArguments(TrainingArguments, _Inference, total=False):
    """Settings of `tokmill.bill.of` and `Dataset.bill`, but for `model`."""


class ExportArguments(TypedDict, total=False):
    """Options of an export, see `tokmill.trainers.options`."""

    copy: bool
    merge: bool
    tokens: Sequence[str]
    packing: Amount
    unpacked: bool
    pad_samples_to: int
    eos: str
    file_tokens: Amount
    block_tokens: Amount
