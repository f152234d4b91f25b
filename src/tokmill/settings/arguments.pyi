"""Keyword arguments of the Python functions; written by `python -m bench.pages`.

An amount is a number, or text such as `"4MiB"`, `"32k"` or `"300B"`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

from tokmill.settings.schema import Source

Amount = int | str
Names = Sequence[str]
Pairs = Mapping[str, str | Sequence[str]] | Sequence[str]

class _Input(TypedDict, total=False):
    """Settings of section [input]."""

    source: Sequence[Source | Mapping[str, Any]] | None
    """Inputs with their own settings of reading, as a table of TOML: 'name = "sgd", paths =
    ["sgd.jsonl"], role_names = {system = "assistant"}'."""
    format: str | None
    """Format of the input; auto: by file ending."""
    text_separator: str | None
    """Separator between documents in plain text; empty: one document per file."""
    csv_delimiter: str | None
    """Delimiter of CSV files."""
    csv_header: str | None
    """Whether the first record of a CSV file names its columns; no: they are column_1,
    column_2, …; auto: it does, and one that looks like data is an error."""
    csv_quote: str | None
    """Character that encloses cells of CSV files, or none; auto: ", and a file that may never
    quote is an error."""
    csv_escape: str | None
    """Character that escapes quotes, delimiters and line breaks in CSV files, such as \\, or
    none; auto: none, and a file that may have backslash escapes is an error."""
    keep: Names | None
    """Fields of the records to keep beside the tokens, such as url,meta.language: a column of
    strings for each in a .meta file beside every shard."""
    where: str | Callable[[dict[str, Any]], bool] | None
    """Keep the records for which a function is true, package.module:function; it gets each
    record as a dict."""
    on_bad_text: str | None
    """Bytes that are not UTF-8, and halves of surrogate pairs, in a field that is read; reject:
    reject the record; replace: write U+FFFD for each, and count them."""
    max_record_bytes: Amount | None
    """Reject longer records; they are never held in memory."""
    max_decompression_ratio: int | None
    """Stop at a compressed file that holds more than this many bytes for each stored byte, once
    that is over 1 GiB; 0: no limit."""

class _Tokenizer(TypedDict, total=False):
    """Settings of section [tokenizer]."""

    eos_token: str | None
    """Token added after every document; empty: the tokenizer's own."""
    bos_token: str | None
    """Token added before every document; empty: none."""
    pattern: str | None
    """Regular expression that splits text for a tiktoken file, or the name of a known one."""
    control_tokens_in_text: str | None
    """Strings of control tokens inside records; text: keep them as text; parse: make them
    control tokens; reject: reject the record."""

class _Render(TypedDict, total=False):
    """Settings of section [render]."""

    renderer: str | Callable[[Any], Any] | None
    """How a record becomes text; auto: by the keys of the first records; sections: encyclopedia
    or article, by the script of each file; encyclopedia:separator=:,terminator=。 names what
    stands behind a title and a section."""
    fields: Pairs | None
    """Keys of title, summary, sections, section_title, section_content and text in the records:
    title=headline,text=body; of a role that is given twice, the first key that is filled."""
    template: str | None
    """Format string over keys, such as '{title}\\n{body}'."""
    strip_end: str | None
    """Leave this string out at the end of each text, such as '<|endoftext|>' in a dump that was
    prepared for a trainer."""

class _Output(TypedDict, total=False):
    """Settings of section [output]."""

    dtype: str | None
    """Type of token ids; auto: uint16 if all ids fit."""
    part_bytes: Amount | None
    """Bytes of input per part, the unit of work and of what a stopped run keeps; 0: 256 MiB, of
    chats 64 MiB, more for an input of over 4,000 parts."""
    shard_tokens: Amount | None
    """Maximum number of tokens in a shard; 0: 1 GiB of tokens. K, M, B, T: 10^3, 10^6, 10^9,
    10^12."""
    val_fraction: float | None
    """Fraction of documents for validation shards; 0: none."""
    packing: Amount | None
    """Pack documents into rows of this many tokens, by an index; longer ones are cut, as by
    tokmill pack. 0: no packing. 32k is 32,768."""
    max_samples_per_row: int | None
    """With packing: samples in a row, at most, so that cu_seqlens can have a fixed length; 0:
    any number."""
    checksum: str | None
    """Checksum of files; sha256 is slower, but sha256sum can check it."""

class _Limits(TypedDict, total=False):
    """Settings of section [limits]."""

    min_tokens: int | None
    """Drop documents with fewer tokens (eos not counted; in chats all tokens count); 0:
    none."""
    max_tokens: int | None
    """Drop documents with more tokens (eos not counted; for chats see --too-long); 0: no
    limit."""
    on_error: str | None
    """Broken records; skip: count them and continue; fail: stop at the first one."""
    on_unread: str | None
    """Input that cannot be read to its end (cut off, damaged, an open quote or array); error:
    fail after all other input; skip: count the unread bytes and finish."""
    max_reject_fraction: float | None
    """Stop if more than this fraction of records is rejected; of fewer than 1,000 records up to
    10 rejects never stop."""
    max_unknown_fraction: float | None
    """Stop if more than this fraction of the tokens is the unknown token, or of the text is
    characters that the tokenizer leaves out; 1: no limit."""
    max_empty_fraction: float | None
    """Stop if more than this fraction of records has no text; such records are drops. 1: no
    limit."""

class _Run(TypedDict, total=False):
    """Settings of section [run]."""

    engine: str | None
    """Engine that encodes text; auto: the fastest one whose ids equal those of the
    reference."""
    workers: int | None
    """Worker processes; 0: by cores, input and memory."""
    threads: int | None
    """Threads in each worker; 0: cores divided by workers."""
    executor: str | None
    """Where parts are worked on: processes of this machine, or ray: tasks of a Ray cluster at
    ADDRESS (HOST:PORT), by default at RAY_ADDRESS, of this machine, or started here."""
    block_bytes: Amount | None
    """Bytes of input per block."""
    engine_memory_bytes: Amount | None
    """Reload the engine when its caches have grown by this much, but not before it has encoded
    16 MiB of text; 0: 200 MiB per thread, or less if memory is short."""

class _Sft(TypedDict, total=False):
    """Settings of section [sft]."""

    schema: str | None
    """Schema of the records; auto: by the first records; mixed: each by its own keys."""
    fields: Pairs | None
    """Names of keys in the records: messages=dialogue,role=speaker,content=text."""
    role_names: Pairs | None
    """Names of roles in the records, in upper or lower case: bot=assistant,client=user;
    note=drop leaves out messages of role note."""
    ignore_keys: Names | None
    """Keys of records and messages to ignore: label,foo."""
    instruction: str | None
    """What joins an Alpaca instruction and its input; stanford: the heading ### Input:; auto:
    stanford with template alpaca, else newline."""
    inline_tags: str | None
    """A <think> block at the start of a reply and <tool_call> blocks at its end; fields: read
    as reasoning and tool calls; text: kept as text; auto: by template, tokenizer and preset."""
    tool_arguments: str | None
    """Tool-call arguments that are a string: parse them as JSON, or keep them."""
    rendered_text: str | None
    """Texts that are already rendered conversations; parse: use them as they are, with their
    control tokens, all trained; text: each becomes a reply; refuse: stop."""
    template: str | None
    """chatml, llama3, alpaca, plain, nanochat, baby-llama2, tokenizer (its chat template), a
    training template (such as qwen3-training) or a Jinja file; auto: the preset's, or else the
    tokenizer's."""
    template_kwargs: str | Mapping[str, Any] | None
    """Variables of the template, as a JSON object: {"enable_thinking": false}."""
    default_system: str | None
    """System message for conversations that do not begin with one."""
    date: str | None
    """Date (YYYY-MM-DD) for templates that write today's date."""
    preset: str | None
    """Rules that select the trained tokens: tokmill's own, or those of a framework."""
    roles: Names | None
    """Roles whose turns are trained: user,assistant trains both."""
    turns: str | None
    """Which turns of the trained roles are trained; last: the last one, such as the answer
    behind the results of tools; after-last-user: those behind the last user message."""
    samples: str | None
    """One sample per conversation, or one per assistant turn and all before it."""
    history_reasoning: str | None
    """The reasoning of replies that a later message of the user follows; drop: leave it out, as
    chat programs do, and do not train these replies."""
    train: Names | None
    """What is trained of a trained turn: content, reasoning, tool-calls, eot (the token that
    ends it), suffix (white space behind that), header (which names the role), prompt (what the
    model is asked with), empty-reasoning (an empty think block), next-role (the token of the
    next role, where it ends a turn: GLM), eos (added to samples, and to replies without an
    end), untrained-eos (added, not trained), everything (all tokens of all roles). Names
    replace those of the preset; +NAME and -NAME change it."""
    weigh: Names | None
    """Weight of text in trained replies that a regular expression matches, times a factor:
    '<tool_call>.+?</tool_call>=2.0'. Factors other than 0 and 1 write .weight files."""
    weights: str | None
    """Weights other than 0 and 1: refuse them, or write float32 .weight files."""
    spans: str | None
    """How to find trained text in the output of a Jinja template: by its generation blocks
    (tags), or by rendering prefixes of the chat; auto: tags if the template has them."""
    boundary: str | None
    """Tokens where trained text begins or ends; split: text on both sides is encoded apart, as
    a model meets it at inference; joint: as one text, and a token with bytes of both sides is
    trained (joint-mask: it is not; joint-reject: the record is rejected)."""
    max_prompt_tokens: Amount | None
    """Drop samples with more tokens than this before their first trained one, as trainers of
    reinforcement learning do; 0: no limit. 32k is 32,768."""
    too_long: str | None
    """Samples of more than max_tokens; drop-turns: leave out the last turns; truncate-right:
    cut the end off; truncate-left: cut the beginning off, with the system message; window: cut
    into pieces."""
    window_overlap: int | None
    """With too-long window: tokens that are repeated, untrained, from the window before."""
    packing: Amount | None
    """Pack samples into rows of this many tokens; also limits a sample, like max_tokens; 0: no
    packing. 32k is 32,768."""
    max_samples_per_row: int | None
    """With packing: samples in a row, at most, so that cu_seqlens can have a fixed length; 0:
    any number."""
    packed_rows: bool | None
    """Also write the packed rows, padded, as shards."""

class _Model(TypedDict, total=False):
    """Settings of section [model]."""

    family: str | None
    """Architecture of a model that is given by numbers."""
    parameters: Amount | None
    """Number of parameters, if nothing else is known about the model. K, M, B, T: 10^3, 10^6,
    10^9, 10^12."""
    layers: int | None
    """Number of layers."""
    hidden: int | None
    """Hidden size."""
    heads: int | None
    """Number of attention (query) heads."""
    kv_heads: int | None
    """Number of key-value heads."""
    head_dim: int | None
    """Size of a head."""
    ffn: int | None
    """Width of the feed-forward layer."""
    vocabulary: int | None
    """Rows of the embedding; default: those of the named model, or of the dataset."""
    positions: Amount | None
    """Number of learned positions. 32k is 32,768."""
    experts: int | None
    """Experts per layer."""
    active_experts: int | None
    """Active experts per token."""
    expert_ffn: int | None
    """Width of an expert's feed-forward layer."""
    tied: str | None
    """Whether output head and embedding share one tensor; auto: by family."""

class _Training(TypedDict, total=False):
    """Settings of section [training]."""

    gpu: str | None
    """Name of the GPU, or its memory (80GiB)."""
    gpus: int | None
    """Number of GPUs."""
    gpus_per_node: int | None
    """GPUs (and processes) per machine; default: all, at most 8."""
    host_ram: Amount | None
    """Host RAM of a machine (512GiB); 0: that of this machine."""
    trainer: str | None
    """Trainer whose defaults hold for what is not set; auto: with qlora activations are
    recomputed, as in most trainers."""
    precision: str | None
    """Types of weights, gradients and states; auto: mixed-16 with ZeRO, mixed-18 with Megatron,
    else amp. Bytes per parameter for weight + gradient + AdamW states (and master weight): fp32
    4+4+8; amp (autocast) 4+4+8 and casts; pure-16 2+2+4; mixed-16 2+2+12; mixed-18 2+4+12;
    mixed-20 2+2+4+12; bf16-states 4+4+4."""
    weights: str | None
    """Type of frozen weights (base model of LoRA); auto: quantization_config of config.json,
    else 16 bit; q4_k_m and the like are GGUF."""
    optimizer: str | None
    """Optimizer. adamw-bf16 and adamw-fp8: Megatron's precision-aware one, by its moments."""
    optimizer_step: str | None
    """Implementation of the optimizer step; foreach needs a temporary copy. backward: the step
    of each weight in the backward pass, whose gradient is then freed (fused)."""
    micro_batch: int | None
    """Sequences per GPU and pass."""
    sequence: Amount | None
    """Tokens per sequence; default: packing of the dataset, else 2048 or all positions. 32k is
    32,768."""
    accumulation: int | None
    """Micro batches per optimizer step."""
    attention: str | None
    """flash (also sdpa) stores no attention scores; sdpa-mask (sdpa with a mask of padding)
    repeats keys and values for all heads and stores the mask; eager stores the scores; auto:
    what transformers takes by itself, sdpa or, where a family has none, eager."""
    checkpointing: str | None
    """Activations recomputed in the backward pass. selective: with Megatron core attention;
    else all but the attention output and every second matrix product; full: all layers."""
    loss: str | None
    """full: logits of all tokens in fp32; kernel: a kernel writes gradients over them (Unsloth,
    Liger's cross entropy), or Megatron's cross_entropy_loss_fusion; fused: one chunk of logits
    at a time."""
    framework: str | None
    """Modules of the model: Hugging Face's or Megatron's."""
    transformers: str | None
    """Major version of transformers: with adapters, 4 keeps more under FSDP1, 5 does not
    quantize experts; auto: the one that needs more."""
    sharding: str | None
    """Data parallelism. ZeRO stages, FSDP1 (fsdp), FSDP2, or Megatron's distributed
    optimizer."""
    offload: str | None
    """Offload to host RAM: optimizer states, or weights too (all)."""
    offload_to: str | None
    """Where offloaded states are: in host RAM (cpu), or on a disk (nvme)."""
    flat_buffer: bool | None
    """All gradients are fused into one fp32 buffer for all-reduce or their norm."""
    activation_offload: bool | None
    """Move activations that wait for the backward pass to host RAM."""
    reference_model: bool | None
    """DPO: also keep a frozen copy of the model (none with adapters). A pair is two sequences
    of the micro batch; with trl 1.16 log-probabilities are taken in chunks: loss fused."""
    tensor_parallel: int | None
    """GPUs that share each layer."""
    sequence_parallel: bool | None
    """Also split activations between matrices across tensor-parallel GPUs."""
    pipeline_parallel: int | None
    """Pipeline stages."""
    virtual_stages: int | None
    """Chunks of layers per stage (interleaved)."""
    context_parallel: int | None
    """GPUs that share a sequence."""
    expert_parallel: int | None
    """GPUs that share the experts."""
    expert_tensor_parallel: int | None
    """GPUs that share each expert (Megatron); 0: as tensor_parallel."""
    adapter: str | None
    """Train low-rank adapters instead of all weights. qlora: lora with weights nf4 if auto."""
    adapter_rank: int | None
    """Rank of the adapters."""
    adapter_targets: str | None
    """Matrices with adapters: all-linear, or ends of names (q_proj,v_proj)."""
    adapter_type: str | None
    """Type of adapters, their gradients and states; auto: fp32, as peft makes them."""
    prepare_kbit: bool | None
    """With qlora on unsharded weights, norms, embedding and head are in fp32, as peft's
    prepare_model_for_kbit_training makes them."""
    metric_batches: int | None
    """Evaluation batches whose logits are kept in memory (compute_metrics)."""
    eval_accumulation: int | None
    """Evaluation batches after which kept logits move from GPU to host RAM; 0: never."""
    initialization: str | None
    """Processes that create the model in fp32: full: all, full-16: all, in 16 bit; rank0: one;
    meta: none; mapped: none, its file is mapped (from_pretrained in the file's type); auto:
    meta with an adapter, mapped for 16-bit weights without ZeRO or Megatron, else full."""
    loading: str | None
    """How the trainer loads the dataset: memory-mapped at once (memmap) or in each worker
    (lazy); read; read and concatenated; cast to int64; as Python lists; read by each worker
    (copies); Hugging Face datasets, which maps its Arrow files."""
    loader_workers: int | None
    """DataLoader workers per process."""
    start_method: str | None
    """How DataLoader workers are started."""
    prefetch: int | None
    """Batches that each worker loads in advance."""
    pin_memory: bool | None
    """Copy batches to pinned memory."""
    fragmentation: float | None
    """Fragmentation of GPU memory at the upper bound, as a fraction of allocated memory; under
    FSDP1 twice that."""
    mfu: float | None
    """Fraction of the GPU's peak FLOP/s that training reaches."""
    epochs: float | None
    """Passes over the dataset."""
    tokens: Amount | None
    """Tokens to train on, all epochs together; 0: epochs times the dataset. K, M, B, T: 10^3,
    10^6, 10^9, 10^12."""
    dataset_bytes: Amount | None
    """Size of the tokens (.bin) where no dataset is given (100GB)."""
    with_masks: bool | None
    """That dataset has a loss mask, a byte per token."""
    price_per_hour: float | None
    """Price of one GPU for one hour."""
    checkpoints: int | None
    """Checkpoints kept on disk, besides the one being written."""

class _Inference(TypedDict, total=False):
    """Settings of section [inference]."""

    batch: int | None
    """Serving: users, that is sequences at the same time."""
    context: Amount | None
    """Serving: tokens per sequence, prompt and answer; default: as in training. 32k is
    32,768."""
    prompt: Amount | None
    """Serving: tokens of a prompt; default: of the context all but the answer. 32k is
    32,768."""
    answer: Amount | None
    """Serving: tokens of an answer. 32k is 32,768."""
    server: str | None
    """Program that serves, whose share of the GPU, graphs and chunks are counted; auto: vllm,
    for GGUF llama.cpp, for nf4 and whole prompts transformers."""
    gpu_share: float | None
    """Serving: fraction of the GPU that the server takes; 0: as it does, vllm 0.9, sglang 0.81
    to 0.88, others what they need."""
    graphs: bool | None
    """Serving: the server captures CUDA graphs."""
    host_experts: int | None
    """Serving with llama.cpp: layers whose experts are in host RAM (--n-cpu-moe)."""
    weight_type: str | None
    """Serving: type of the weights; auto: as the model's files have them, by their headers or
    quantization_config, else bf16; q4_k_m and the like are GGUF."""
    kv_type: str | None
    """Serving: type of the KV cache."""
    kv_block: int | None
    """Serving: tokens per block of a paged KV cache; 0: not paged."""
    prefill_chunk: int | None
    """Serving: prompt tokens at once; 0: all, as in generate; default: as the server does, 512
    to 8,192."""
    serving_gpus: int | None
    """Serving: GPUs that share the model (tensor parallel)."""
    logits: str | None
    """Serving: logits of the last token of each sequence, or of all (to score text)."""

class _ForTheBill(TypedDict, total=False):
    """The model and the GPU of the bill."""

    model: str | None
    """Built-in name (tokmill memory --models), config.json, its directory, safetensors files,
    or a Hub name."""
    gpu: str | None
    """Name of the GPU, or its memory (80GiB)."""

class _RunOfBoth(_Input, _Tokenizer, _Output, _Limits, _Run, _ForTheBill, total=False):
    """What both recipes share."""

class PretrainArguments(_RunOfBoth, _Render, total=False):
    """Settings of `tokmill.pretrain`."""

class SftArguments(_RunOfBoth, _Sft, total=False):
    """Settings of `tokmill.sft`."""

class PlanArguments(_RunOfBoth, _Render, _Sft, total=False):
    """Settings of `tokmill.plan`: of one recipe."""

class TrainingArguments(_Model, _Training, total=False):
    """Settings of `tokmill.bill.training`, `host` and `disk`."""

class InferenceArguments(_Model, _Inference, total=False):
    """Settings of `tokmill.bill.inference`."""

class BillArguments(_Model, _Training, _Inference, total=False):
    """Settings of `tokmill.bill.of` and `Dataset.bill`."""

class ReadArguments(TypedDict, total=False):
    """Settings of `tokmill.read`."""

    source: Sequence[Source | Mapping[str, Any]] | None
    """Inputs with their own settings of reading, as a table of TOML: 'name = "sgd", paths =
    ["sgd.jsonl"], role_names = {system = "assistant"}'."""
    format: str | None
    """Format of the input; auto: by file ending."""
    text_separator: str | None
    """Separator between documents in plain text; empty: one document per file."""
    csv_delimiter: str | None
    """Delimiter of CSV files."""
    csv_header: str | None
    """Whether the first record of a CSV file names its columns; no: they are column_1,
    column_2, …; auto: it does, and one that looks like data is an error."""
    csv_quote: str | None
    """Character that encloses cells of CSV files, or none; auto: ", and a file that may never
    quote is an error."""
    csv_escape: str | None
    """Character that escapes quotes, delimiters and line breaks in CSV files, such as \\, or
    none; auto: none, and a file that may have backslash escapes is an error."""
    keep: Names | None
    """Fields of the records to keep beside the tokens, such as url,meta.language: a column of
    strings for each in a .meta file beside every shard."""
    where: str | Callable[[dict[str, Any]], bool] | None
    """Keep the records for which a function is true, package.module:function; it gets each
    record as a dict."""
    on_bad_text: str | None
    """Bytes that are not UTF-8, and halves of surrogate pairs, in a field that is read; reject:
    reject the record; replace: write U+FFFD for each, and count them."""
    max_record_bytes: Amount | None
    """Reject longer records; they are never held in memory."""
    max_decompression_ratio: int | None
    """Stop at a compressed file that holds more than this many bytes for each stored byte, once
    that is over 1 GiB; 0: no limit."""
    on_error: str | None
    """Broken records; skip: count them and continue; fail: stop at the first one."""
    on_unread: str | None
    """Input that cannot be read to its end (cut off, damaged, an open quote or array); error:
    fail after all other input; skip: count the unread bytes and finish."""
    max_reject_fraction: float | None
    """Stop if more than this fraction of records is rejected; of fewer than 1,000 records up to
    10 rejects never stop."""

class EncodeArguments(TypedDict, total=False):
    """Settings of `tokmill.encode` and `tokmill.Encoder`."""

    eos_token: str | None
    """Token added after every document; empty: the tokenizer's own."""
    bos_token: str | None
    """Token added before every document; empty: none."""
    pattern: str | None
    """Regular expression that splits text for a tiktoken file, or the name of a known one."""
    control_tokens_in_text: str | None
    """Strings of control tokens inside records; text: keep them as text; parse: make them
    control tokens; reject: reject the record."""
    dtype: str | None
    """Type of token ids; auto: uint16 if all ids fit."""
    engine: str | None
    """Engine that encodes text; auto: the fastest one whose ids equal those of the
    reference."""
    threads: int | None
    """Threads in each worker; 0: cores divided by workers."""

class SourceArguments(TypedDict, total=False):
    """Settings of a `tokmill.Source`."""

    format: str | None
    """Format of the input; auto: by file ending."""
    text_separator: str | None
    """Separator between documents in plain text; empty: one document per file."""
    csv_delimiter: str | None
    """Delimiter of CSV files."""
    csv_header: str | None
    """Whether the first record of a CSV file names its columns; no: they are column_1,
    column_2, …; auto: it does, and one that looks like data is an error."""
    csv_quote: str | None
    """Character that encloses cells of CSV files, or none; auto: ", and a file that may never
    quote is an error."""
    csv_escape: str | None
    """Character that escapes quotes, delimiters and line breaks in CSV files, such as \\, or
    none; auto: none, and a file that may have backslash escapes is an error."""
    where: str | Callable[[dict[str, Any]], bool] | None
    """Keep the records for which a function is true, package.module:function; it gets each
    record as a dict."""
    on_bad_text: str | None
    """Bytes that are not UTF-8, and halves of surrogate pairs, in a field that is read; reject:
    reject the record; replace: write U+FFFD for each, and count them."""
    renderer: str | Callable[[Any], Any] | None
    """How a record becomes text; auto: by the keys of the first records; sections: encyclopedia
    or article, by the script of each file; encyclopedia:separator=:,terminator=。 names what
    stands behind a title and a section."""
    fields: Pairs | None
    """Names of keys in the records: messages=dialogue,role=speaker,content=text."""
    template: str | None
    """Format string over keys, such as '{title}\\n{body}'."""
    schema: str | None
    """Schema of the records; auto: by the first records; mixed: each by its own keys."""
    role_names: Pairs | None
    """Names of roles in the records, in upper or lower case: bot=assistant,client=user;
    note=drop leaves out messages of role note."""
    ignore_keys: Names | None
    """Keys of records and messages to ignore: label,foo."""
    rendered_text: str | None
    """Texts that are already rendered conversations; parse: use them as they are, with their
    control tokens, all trained; text: each becomes a reply; refuse: stop."""

class ExportArguments(TypedDict, total=False):
    """Options of `Dataset.export`."""

    copy: bool | None
    """Copy files of the dataset, in place of hard links to them."""
    drop_weights: bool | None
    """Leave weights in the loss out: every trained token counts as 1."""
    merge: bool | None
    """megatron, automodel, torchtitan: write one file for each split, not one for each
    shard."""
    tokens: Names | None
    """megatron, automodel: blend; train on so many tokens of SOURCE, a directory of a dataset.
    Once for each SOURCE, such as wiki=60B."""
    packing: Amount | None
    """trl, unsloth, llamafactory, ms-swift, megatron-bridge: pack chats into rows of this many
    tokens; 0: the dataset's own packs, if it has any. 32k is 32,768."""
    unpacked: bool | None
    """trl, unsloth, llamafactory, ms-swift, datasets: write a row for each document, even of a
    packed dataset."""
    pad_samples_to: Amount | None
    """megatron-bridge: pad each chat of a pack to a multiple of this many tokens, as context
    parallelism needs (2 x its GPUs). K, M, B, T: 10^3, 10^6, 10^9, 10^12."""
    eos: str | None
    """llm.c, modded-nanogpt: place of eos; first: before every document; last: after it."""
    file_tokens: Amount | None
    """llm.c, modded-nanogpt, litdata, litgpt: maximum number of tokens in a file. K, M, B, T:
    10^3, 10^6, 10^9, 10^12."""
    block_tokens: Amount | None
    """litdata, litgpt: tokens that the reader returns at once (block_size; in litgpt
    max_seq_length + 1). Chunks end at a multiple, so that only the last block of a split can be
    incomplete. K, M, B, T: 10^3, 10^6, 10^9, 10^12."""

class MixArguments(TypedDict, total=False):
    """Settings of `tokmill.mix`."""

    tokens: Amount | None
    """Write at most this many tokens of train; 0: as many as need no document twice. K, M, B,
    T: 10^3, 10^6, 10^9, 10^12."""
    count: str | None
    """Tokens that shares and --tokens count; trained: those that the masks of chats train."""
    shuffle: bool | int | None
    """Seed of a shuffled order of all documents; without it they keep the order of the
    inputs."""
    dedup: bool | str | None
    """Documents whose ids are those of one before, in val or train; drop: leave them out; mark:
    keep them, and list them in duplicates-train.bin."""
    drop: Names | None
    """JSON Lines of documents to leave out: {"source": "a.jsonl", "record": 7}, or {"hash":
    "…"}. Once for each file."""
    against: Names | None
    """Held-out texts, such as benchmarks: files, folders or datasets. Documents that share
    --ngram tokens in a row with one are marked in contaminated-train.bin."""
    against_fields: Names | None
    """Fields of held-out records to look for, such as question; none: all that hold text."""
    ngram: int | None
    """Tokens, or words, in a row that a document and a held-out text share."""
    ngram_unit: str | None
    """What --ngram counts; words: those of the text, without case, punctuation and blanks, for
    which all documents are decoded."""
    drop_contaminated: bool | None
    """Leave out the documents that share tokens with held-out texts."""
    report: str | None
    """JSON Lines to write: what each document shares with held-out texts, and which of these
    are too short; with --plan nothing else is written."""
    min_tokens: Amount | None
    """Leave out documents with fewer tokens, eos included. K, M, B, T: 10^3, 10^6, 10^9,
    10^12."""
    max_tokens: Amount | None
    """Leave out longer documents; 0: no limit. K, M, B, T: 10^3, 10^6, 10^9, 10^12."""
    where: str | None
    """Keep the documents for which a function is true, package.module:function; it gets ids,
    lengths and origins of a batch."""
    shard_tokens: Amount | None
    """Maximum number of tokens in a shard; 0: 1 GiB of tokens. K, M, B, T: 10^3, 10^6, 10^9,
    10^12."""
    dtype: str | None
    """uint32: also accept datasets of uint16, and widen their ids."""
    workers: int | None
    """Worker processes; 0: one for each core, if they have work."""
