"""Settings of `tokmill sft`: how conversations are read, rendered, trained and packed."""

from __future__ import annotations

from dataclasses import dataclass

from tokmill.settings.declare import dataset_setting

SCHEMAS = ("auto", "messages", "conversations", "prompt", "alpaca", "text", "mixed")
PRESETS = (
    "tokmill", "trl", "llamafactory", "torchtune", "nanochat", "minimind", "baby-llama2"
)  # fmt: skip
TRAINED = ("preset", "train", "mask")


@dataclass(frozen=True, slots=True)
class SftSettings:
    """How a conversation becomes a sample, and which of its tokens are trained.

    Settings with the value `preset` follow the setting `preset`.
    """

    schema: str = dataset_setting(
        "auto", "Schema of the records; auto: by the first records; mixed: each by its own keys.",
        choices=SCHEMAS, of_source=True,
    )  # fmt: skip
    fields: tuple[str, ...] = dataset_setting(
        (),
        "Names of keys in the records: messages=dialogue,role=speaker,content=text.",
        is_mapping=True,
        of_source=True,
        metavar="FIELD=KEY,…",
    )
    role_names: tuple[str, ...] = dataset_setting(
        (),
        "Names of roles in the records, in upper or lower case: bot=assistant,client=user.",
        is_mapping=True,
        of_source=True,
        metavar="NAME=ROLE,…",
    )
    ignore_keys: tuple[str, ...] = dataset_setting(
        (), "Keys of records and messages to ignore: label,foo.", of_source=True
    )
    instruction: str = dataset_setting(
        "auto",
        "What joins an Alpaca instruction and its input; stanford: the heading ### Input:; "
        "auto: stanford with template alpaca, else newline.",
        choices=("auto", "newline", "blank-line", "stanford"),
    )
    inline_tags: str = dataset_setting(
        "auto",
        "A <think> block at the start of a reply and <tool_call> blocks at its end; fields: read "
        "as reasoning and tool calls; text: kept as text; auto: by template, tokenizer and preset.",
        choices=("auto", "fields", "text"),
    )
    tool_arguments: str = dataset_setting(
        "parse", "Tool-call arguments that are a string: parse them as JSON, or keep them.",
        choices=("parse", "keep"),
    )  # fmt: skip
    rendered_text: str = dataset_setting(
        "refuse",
        "Texts that are already rendered conversations; parse: use them as they are, with their "
        "control tokens, all trained; text: each becomes a reply; refuse: stop.",
        choices=("refuse", "parse", "text"),
        of_source=True,
    )
    template: str = dataset_setting(
        "auto",
        "chatml, llama3, alpaca, plain, nanochat, baby-llama2, tokenizer (its chat template), a "
        "training template (such as qwen3-training) or a Jinja file; auto: the preset's, or else "
        "the tokenizer's.",
    )
    template_kwargs: str = dataset_setting(
        "", 'Variables of the template, as a JSON object: {"enable_thinking": false}.', is_json=True
    )
    default_system: str = dataset_setting(
        "", "System message for conversations without one, if the template reads default_system."
    )
    date: str = dataset_setting("", "Date (YYYY-MM-DD) for templates that write today's date.")
    append_eos: str = dataset_setting(
        "preset",
        "Add eos after every sample that does not end with it, and every reply that the template "
        "does not end; mask: add it untrained; train: add it trained.",
        choices=("preset", "no", "mask", "train"),
    )
    preset: str = dataset_setting(
        "tokmill",
        "Rules that select the trained tokens: tokmill's own, or those of a framework.",
        choices=PRESETS,
    )
    roles: tuple[str, ...] = dataset_setting(("assistant",), "Roles whose turns are trained.")
    turns: str = dataset_setting(
        "preset",
        "Which turns of the trained roles are trained; everything: all tokens of all roles.",
        choices=("preset", "all", "last", "after-last-user", "everything"),
    )  # fmt: skip
    samples: str = dataset_setting(
        "conversation", "One sample per conversation, or one per assistant turn and all before it.",
        choices=("conversation", "turn"),
    )  # fmt: skip
    eot: str = dataset_setting(
        "preset",
        "Whether to train the token that ends a trained turn; next-role: also the token of the "
        "next role, where a turn has no end of its own (GLM).",
        choices=(*TRAINED, "next-role"),
    )
    suffix: str = dataset_setting(
        "preset",
        "Whether to train text after the end of a turn, such as a newline.",
        choices=TRAINED,
    )
    header: str = dataset_setting(
        "preset",
        "Whether to train the header of a trained turn, which names its role.",
        choices=TRAINED,
    )
    reasoning: str = dataset_setting(
        "preset", "Whether to train reasoning in a trained turn.", choices=TRAINED
    )
    tool_calls: str = dataset_setting(
        "preset", "Whether to train tool calls in a trained turn.", choices=TRAINED
    )
    weights: str = dataset_setting(
        "refuse", "Weights other than 0 and 1: refuse them, or write float32 .weight files.",
        choices=("refuse", "file"),
    )  # fmt: skip
    spans: str = dataset_setting(
        "auto",
        "How to find trained text in the output of a Jinja template: by its generation blocks "
        "(tags), or by rendering prefixes of the chat; auto: tags if the template has them.",
        choices=("auto", "tags", "prefix"),
    )
    boundary: str = dataset_setting(
        "preset",
        "split: trained and untrained text is encoded separately; joint: the text is encoded as "
        "one.",
        choices=("preset", "split", "joint"),
    )
    straddling: str = dataset_setting(
        "train", "With boundary joint: tokens that contain both trained and untrained text.",
        choices=("train", "mask", "reject"),
    )  # fmt: skip
    too_long: str = dataset_setting(
        "drop",
        "Samples of more than max_tokens; drop-turns: leave out the last turns; truncate-right: "
        "cut the end off; truncate-left: cut the beginning off, with the system message; window: "
        "cut into pieces.",
        choices=("drop", "drop-turns", "truncate-left", "truncate-right", "window"),
    )
    window_overlap: int = dataset_setting(
        0,
        "With too-long window: tokens that are repeated, untrained, from the window before.",
        minimum=0,
    )
    packing: int = dataset_setting(
        0,
        "Pack samples into rows of this many tokens; also limits a sample, like max_tokens; "
        "0: no packing.",
        minimum=0,
        unit="context",
    )
    packed_rows: bool = dataset_setting(False, "Also write the packed rows, padded, as shards.")
