"""Settings: frozen dataclasses with their help, choices and ranges.

Fields whose metadata says `affects_output` decide the bytes of the dataset: they
are kept in the plan, and a run with other values does not continue in the same directory.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tokmill.settings.bill import InferenceSettings, ModelSettings, TrainingSettings
from tokmill.settings.declare import dataset_setting, runtime_setting
from tokmill.tables import ENGINES, FORMATS, RENDERERS

DTYPES = ("auto", "uint16", "uint32")
SCHEMAS = ("auto", "messages", "conversations", "prompt", "alpaca", "text", "mixed")
PRESETS = (
    "tokmill", "trl", "llamafactory", "torchtune", "nanochat", "minimind", "baby-llama2"
)  # fmt: skip
BLAKE3, SHA256 = "blake3", "sha256"
CHECKSUMS = (BLAKE3, SHA256)
PRETRAIN_SECTIONS = ("input", "tokenizer", "render", "output", "limits", "run")
SFT_SECTIONS = ("input", "tokenizer", "sft", "output", "limits", "run")
BILL_SECTIONS = ("model", "training", "inference")
TRAINED = ("preset", "train", "mask")


@dataclass(frozen=True, slots=True)
class InputSettings:
    """Where records come from. The order of `paths` is the order of the dataset."""

    # The plan's slices fix the inputs, and its tokenizer's sha256 the tokenizer; paths do not.
    paths: tuple[str, ...] = runtime_setting(
        (), "Files, globs, directories, hf:NAME, or - (stdin)."
    )
    format: str = dataset_setting("auto", "Format of the input; auto: by ending.", table=FORMATS)
    text_separator: str = dataset_setting(
        "", "What separates documents in plain text; empty: one document per file."
    )
    csv_delimiter: str = dataset_setting(",", "Delimiter of CSV files.")
    hub_config: str = dataset_setting("", "Configuration of a Hub dataset.")
    hub_split: str = dataset_setting("train", "Split of a Hub dataset.")
    hub_revision: str = dataset_setting("", "Revision of a Hub dataset.")
    max_record_bytes: int = dataset_setting(
        64 << 20,
        "A longer record is a reject, never held in memory.",
        minimum=1,
        maximum=1 << 30,
    )


@dataclass(frozen=True, slots=True)
class RenderSettings:
    """How a record becomes a document."""

    renderer: str = dataset_setting(
        "auto",
        "How a record becomes text; auto: by where the first ones have it.",
        table=RENDERERS,
    )
    title_field: str = dataset_setting("title", "Key of the title.")
    summary_field: str = dataset_setting("summary", "Key of the summary.")
    sections_field: str = dataset_setting("sections", "Key of the list of sections.")
    section_title_field: str = dataset_setting("title", "Key of a section's title.")
    section_content_field: str = dataset_setting("content", "Key of a section's content.")
    separator: str = dataset_setting(":", "Between a title and what it titles.")
    terminator: str = dataset_setting("。", "After every section.")
    text_field: str = dataset_setting("text", "Key of the text, for the text renderer.")
    template: str = dataset_setting("", "Format string over keys, such as '{title}\\n{body}'.")


@dataclass(frozen=True, slots=True)
class TokenizerSettings:
    """Which tokenizer, and the tokens placed around documents. Empty means: from its own files."""

    path: str = runtime_setting(
        "", "tokenizer.json, a directory, a SentencePiece .model, a tiktoken file or a Hub name."
    )
    eos_token: str = dataset_setting("", "Token appended to every document; empty: as configured.")
    bos_token: str = dataset_setting("", "Token put before every document; empty: none.")
    pattern: str = dataset_setting("", "Split pattern of a tiktoken file, by name.")
    control_tokens_in_text: str = dataset_setting(
        "text",
        "What a control token's string inside a record becomes.",
        choices=("text", "parse", "reject"),
    )


@dataclass(frozen=True, slots=True)
class OutputSettings:
    """Where the dataset goes, and how it is cut."""

    dir: str = runtime_setting("", "Directory to write the dataset to.")
    dtype: str = dataset_setting(
        "auto", "Type of the ids; auto: uint16 if all fit.", choices=DTYPES
    )
    part_bytes: int = dataset_setting(
        1 << 30, "Input per part, the unit of commit and resume.", minimum=1
    )
    shard_tokens: int = dataset_setting(
        0, "Tokens per shard at most; 0: 1 GiB of tokens.", minimum=0
    )
    val_fraction: float = dataset_setting(
        0.0, "Fraction of documents that go to val shards.", minimum=0.0, maximum=1.0
    )
    checksum: str = runtime_setting(
        BLAKE3, "Sums of the files; sha256: for sha256sum, and slower.", choices=CHECKSUMS
    )


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """What is left out, and when a run that eats the wrong file stops."""

    min_tokens: int = dataset_setting(
        0, "Drop documents of fewer tokens (eos not counted; of chats all).", minimum=0
    )
    max_tokens: int = dataset_setting(
        0, "Drop documents of more tokens (eos not counted; of chats all); 0: no limit.", minimum=0
    )
    on_error: str = runtime_setting("skip", "What a broken record does.", choices=("skip", "fail"))
    on_unread: str = runtime_setting(
        "error",
        "What input does that cannot be read to its end (cut off, corrupt, an open quote, a lost "
        "array): the run does all the rest and fails, or it is left out and counted.",
        choices=("error", "skip"),
    )
    max_reject_fraction: float = runtime_setting(
        0.01, "Stop when more than this fraction is rejected.", minimum=0.0, maximum=1.0
    )


@dataclass(frozen=True, slots=True)
class RunSettings:
    """How the work is done; nothing here changes a byte."""

    engine: str = runtime_setting(
        "auto", "Encoder; auto: the fastest exact one on this corpus.", table=ENGINES
    )
    workers: int = runtime_setting(0, "Worker processes; 0: one.", minimum=0, maximum=256)
    threads: int = runtime_setting(
        0, "Threads in each worker; 0: the cores divided by the workers.", minimum=0, maximum=256
    )
    batch_bytes: int = runtime_setting(4 << 20, "Input per batch.", minimum=1, maximum=256 << 20)
    engine_memory_bytes: int = runtime_setting(
        0,
        "Renew the engine when its caches have grown by this; 0: 200 MiB a thread, or what fits.",
        minimum=0,
    )


@dataclass(frozen=True, slots=True)
class SftSettings:
    """How a conversation becomes a sample, and which of its tokens are trained.

    `preset` fixes what the others leave at `preset`.
    """

    schema: str = dataset_setting(
        "auto", "Shape of the records; auto: by the first ones; mixed: each by its own keys.",
        choices=SCHEMAS,
    )  # fmt: skip
    ignore_keys: tuple[str, ...] = dataset_setting(
        (), "Keys of records and messages that are taken as not there: label,foo.", unsaid=()
    )
    fields: tuple[str, ...] = dataset_setting(
        (),
        "Keys under which records have their fields: messages=dialogue,role=speaker,content=text.",
        is_mapping=True,
        unsaid=(),
    )
    role_names: tuple[str, ...] = dataset_setting(
        (),
        "Who speaks under other names, in any case: bot=assistant,client=user.",
        is_mapping=True,
        unsaid=(),
    )
    preset: str = dataset_setting(
        "tokmill", "Framework whose rule says what is trained.", choices=PRESETS
    )
    template: str = dataset_setting(
        "auto",
        "chatml, llama3, alpaca, plain, nanochat, baby-llama2, tokenizer (its chat template), a "
        "training template (qwen3-training, phi-3-training, phi-4-mini-training, "
        "deepseek-r1-training) or a Jinja file; auto: as the preset has it, or the tokenizer's.",
    )
    template_kwargs: str = dataset_setting(
        "",
        'Variables for the template, as a JSON object: {"enable_thinking": false}.',
        is_json=True,
        unsaid="",
    )
    spans: str = dataset_setting(
        "auto",
        "How trained spans are found in a Jinja template: by its generation tags, or by rendering "
        "prefixes; auto: tags where they stand.",
        choices=("auto", "tags", "prefix"),
    )
    boundary: str = dataset_setting(
        "preset",
        "split: a token boundary where training starts and ends; joint: the text is encoded whole.",
        choices=("preset", "split", "joint"),
    )
    straddling: str = dataset_setting(
        "train", "With joint, a token on both sides of a boundary.",
        choices=("train", "mask", "reject"),
    )  # fmt: skip
    samples: str = dataset_setting(
        "conversation", "A sample per conversation, or per assistant turn with all before it.",
        choices=("conversation", "turn"),
    )  # fmt: skip
    turns: str = dataset_setting(
        "preset",
        "Which turns of the trained roles are trained; everything: all tokens of the sample, "
        "whoever wrote them.",
        choices=("preset", "all", "last", "after-last-user", "everything"),
    )  # fmt: skip
    roles: tuple[str, ...] = dataset_setting(("assistant",), "Roles that are trained.")
    eot: str = dataset_setting("preset", "The token that ends a trained turn.", choices=TRAINED)
    suffix: str = dataset_setting(
        "preset", "What the template puts behind it, such as a newline.", choices=TRAINED
    )
    header: str = dataset_setting("preset", "The header of a trained turn.", choices=TRAINED)
    reasoning: str = dataset_setting("preset", "Reasoning of a trained turn.", choices=TRAINED)
    tool_calls: str = dataset_setting("preset", "Tool calls of a trained turn.", choices=TRAINED)
    inline_tags: str = dataset_setting(
        "auto",
        "A block in <think> tags that begins a reply, and <tool_call> blocks that end one; fields: "
        "they are its reasoning and its calls; text: they are text; auto: as template, tokenizer "
        "and preset know them.",
        choices=("auto", "fields", "text"),
        unsaid="text",
    )
    rendered_text: str = dataset_setting(
        "refuse",
        "Texts that are rendered conversations already; parse: they are taken as they are, with "
        "their control tokens, all trained; text: each becomes a reply; refuse: the run stops.",
        choices=("refuse", "parse", "text"),
        unsaid="text",
    )
    append_eos: str = dataset_setting(
        "preset", "Put eos behind every sample.", choices=("preset", "no", "mask", "train")
    )
    weights: str = dataset_setting(
        "refuse", "Weights other than 0 and 1: refuse, or keep in .weight files of float32.",
        choices=("refuse", "file"),
    )  # fmt: skip
    default_system: str = dataset_setting(
        "", "System message of conversations without one; built-in templates only."
    )
    instruction: str = dataset_setting(
        "auto",
        "How an Alpaca instruction and its input are joined; stanford: by the heading ### Input:; "
        "auto: stanford with template alpaca, else newline.",
        choices=("auto", "newline", "blank-line", "stanford"),
    )
    tool_arguments: str = dataset_setting(
        "parse", "Arguments of a tool call that are a string: parsed as JSON, or kept.",
        choices=("parse", "keep"),
    )  # fmt: skip
    date: str = dataset_setting("", "Date (YYYY-MM-DD) for templates that ask for today's.")
    too_long: str = dataset_setting(
        "drop", "What becomes of samples of more than max_tokens.",
        choices=("drop", "drop-turns", "truncate-left", "truncate-right", "window"),
    )  # fmt: skip
    window_overlap: int = dataset_setting(
        0, "Tokens of the window before, repeated untrained.", minimum=0
    )
    packing: int = dataset_setting(
        0,
        "Pack samples into rows of this many tokens, the longest sample unless max_tokens says "
        "less; 0: no packing.",
        minimum=0,
    )
    packed_rows: bool = dataset_setting(False, "Also write the rows, padded, as shards.")


@dataclass(frozen=True, slots=True)
class Config:
    """All settings of a run; `sft` is None when it makes a dataset for pretraining.

    `model`, `training` and `inference` say what the bill is for; None where nobody said.
    """

    input: InputSettings = field(default_factory=InputSettings)
    tokenizer: TokenizerSettings = field(default_factory=TokenizerSettings)
    render: RenderSettings = field(default_factory=RenderSettings)
    output: OutputSettings = field(default_factory=OutputSettings)
    limits: LimitSettings = field(default_factory=LimitSettings)
    run: RunSettings = field(default_factory=RunSettings)
    sft: SftSettings | None = None
    model: ModelSettings | None = None
    training: TrainingSettings | None = None
    inference: InferenceSettings | None = None
