"""Settings of `tokmill sft`: how conversations are read, rendered, trained and packed."""

from __future__ import annotations

from dataclasses import dataclass

from tokmill.settings.declare import NAME_OR_PATH, dataset_setting, max_samples_setting

SCHEMAS = (
    "auto", "messages", "conversations", "prompt", "alpaca", "gemini", "responses", "text", "mixed"
)  # fmt: skip
PRESETS = (
    "tokmill", "trl", "llamafactory", "torchtune", "nanochat", "minimind", "baby-llama2"
)  # fmt: skip


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
        "Names of roles in the records, in upper or lower case: bot=assistant,client=user; "
        "note=drop leaves out messages of role note.",
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
        is_path=NAME_OR_PATH,
    )
    template_kwargs: str = dataset_setting(
        "", 'Variables of the template, as a JSON object: {"enable_thinking": false}.', is_json=True
    )
    default_system: str = dataset_setting(
        "", "System message for conversations that do not begin with one."
    )
    date: str = dataset_setting("", "Date (YYYY-MM-DD) for templates that write today's date.")
    preset: str = dataset_setting(
        "tokmill",
        "Rules that select the trained tokens: tokmill's own, or those of a framework.",
        choices=PRESETS,
    )
    roles: tuple[str, ...] = dataset_setting(
        ("assistant",), "Roles whose turns are trained: user,assistant trains both."
    )
    turns: str = dataset_setting(
        "all",
        "Which turns of the trained roles are trained; last: the last one, such as the answer "
        "behind the results of tools; after-last-user: those behind the last user message.",
        choices=("all", "last", "after-last-user"),
    )
    samples: str = dataset_setting(
        "conversation", "One sample per conversation, or one per assistant turn and all before it.",
        choices=("conversation", "turn"),
    )  # fmt: skip
    history_reasoning: str = dataset_setting(
        "keep",
        "The reasoning of replies that a later message of the user follows; drop: leave it out, as "
        "chat programs do, and do not train these replies.",
        choices=("keep", "drop"),
    )
    train: tuple[str, ...] = dataset_setting(
        (),
        "What is trained of a trained turn: content, reasoning, tool-calls, eot (the token that "
        "ends it), suffix (white space behind that), header (which names the role), prompt (what "
        "the model is asked with), empty-reasoning (an empty think block), next-role (the token "
        "of the next role, where it ends a turn: GLM), eos (added to samples, and to replies "
        "without an end), untrained-eos (added, not trained), everything (all tokens of all "
        "roles). Names replace those of the preset; +NAME and -NAME change it.",
        metavar="NAME,…",
    )
    weigh: tuple[str, ...] = dataset_setting(
        (),
        "Weight of text in trained replies that a regular expression matches, times a factor: "
        "'<tool_call>.+?</tool_call>=2.0'. Factors other than 0 and 1 write .weight files.",
        metavar="REGEX=FACTOR",
        keeps_commas=True,
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
        "Tokens where trained text begins or ends; split: text on both sides is encoded apart, as "
        "a model meets it at inference; joint: as one text, and a token with bytes of both sides "
        "is trained (joint-mask: it is not; joint-reject: the record is rejected).",
        choices=("preset", "split", "joint", "joint-mask", "joint-reject"),
    )
    max_prompt_tokens: int = dataset_setting(
        0,
        "Drop samples with more tokens than this before their first trained one, as trainers of "
        "reinforcement learning do; 0: no limit.",
        minimum=0,
        unit="context",
    )
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
        zero_is_value=True,
    )
    packing: int = dataset_setting(
        0,
        "Pack samples into rows of this many tokens; also limits a sample, like max_tokens; "
        "0: no packing.",
        minimum=0,
        unit="context",
    )
    max_samples_per_row: int = max_samples_setting()
    packed_rows: bool = dataset_setting(False, "Also write the packed rows, padded, as shards.")
