"""Train the sample tokenizer: a byte-level BPE over English and Chinese, with ChatML.

    python data_samples/train_tokenizer.py INPUT.jsonl... --output data_samples/tokenizer

Writes `tokenizer.json` and `tokenizer_config.json`. The same inputs in the same order give
the same files. Records are streamed; what grows with the corpus is the trainer's table of
distinct words. Lines that are not records are skipped and counted on stderr.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, PreTokenizer, Split
from tokenizers.pre_tokenizers import Sequence as PreTokenizers
from tokenizers.trainers import BpeTrainer

# GPT-4's split, spelled as Llama 3 spells it: the fast engines know a pattern by its literal
# text, so an equal pattern spelled differently is slower or refused.
#   contractions | a run of letters with at most one leading mark or space | digits |
#   a run of punctuation with its line ends | line ends | spaces but the last one | spaces
# Digits are cut into groups of at most three: every number is then made of the at most 1,110
# groups that all fit into the vocabulary, instead of one token for 1949 and three for 1948.
# CJK text has no spaces, so a whole clause is one "word" here; MAX_TOKEN_BYTES bounds what BPE
# may glue together in it.
SPLIT_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

# 16 bytes: five Chinese characters, or a blank and a word of fifteen letters. Longer tokens
# would be the corpus's boilerplate, learnt by heart.
MAX_TOKEN_BYTES = 16

PAD, BOS, EOS = "<pad>", "<bos>", "<eos>"
# Ids 0-4. Special: never produced by text when special tokens are encoded as text.
SPECIAL_TOKENS = (PAD, BOS, EOS, "<|im_start|>", "<|im_end|>")
# Ids 5-10. Added but not special: a decoder that skips special tokens still shows them.
MARKUP_TOKENS = (
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
)

MODEL_MAX_LENGTH = 32_768

# ChatML. A turn ends with <|im_end|>; <eos> ends a document and is never part of a turn.
# Every message is rendered without looking at its neighbours' contents, so the rendering of
# the first n messages is a prefix of the rendering of all of them. The one exception is the
# user turn that holds tool results: consecutive results share it, and it closes after the last.
# What the assistant produces, its end-of-turn included, stands inside {% generation %}; the
# header "<|im_start|>assistant\n" and the newline after <|im_end|> are written by the program.
CHAT_TEMPLATE = r"""
{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages and messages[0]['role'] == 'system' %}
        {{- messages[0]['content'] + '\n\n' }}
    {%- endif %}
    {{- '# Tools\n\nYou may call these functions, one JSON Schema per line:\n<tools>' }}
    {%- for tool in tools %}
        {{- '\n' }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- '\n</tools>\n\nTo call a function, answer with its name and arguments as JSON:\n' }}
    {{- '<tool_call>\n{"name": NAME, "arguments": ARGUMENTS}\n</tool_call><|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
    {%- set content = message['content'] or '' %}
    {%- if content is not string %}
        {{- raise_exception('content must be a string or null') }}
    {%- endif %}
    {%- if message['role'] == 'system' %}
        {%- if not (tools and loop.first) %}
            {{- '<|im_start|>system\n' + content + '<|im_end|>\n' }}
        {%- endif %}
    {%- elif message['role'] == 'user' %}
        {{- '<|im_start|>user\n' + content + '<|im_end|>\n' }}
    {%- elif message['role'] == 'assistant' %}
        {{- '<|im_start|>assistant\n' }}
        {%- generation %}
            {%- if message['reasoning_content'] is string and message['reasoning_content'] %}
                {{- '<think>\n' + message['reasoning_content'] + '\n</think>\n\n' }}
            {%- endif %}
            {{- content }}
            {%- for call in message['tool_calls'] or [] %}
                {%- set function = call['function'] if call['function'] else call %}
                {%- if not loop.first or content %}
                    {{- '\n' }}
                {%- endif %}
                {{- '<tool_call>\n{"name": ' }}
                {{- function['name'] | tojson }}
                {{- ', "arguments": ' }}
                {%- if function['arguments'] is string %}
                    {{- function['arguments'] }}
                {%- else %}
                    {{- function['arguments'] | tojson }}
                {%- endif %}
                {{- '}\n</tool_call>' }}
            {%- endfor %}
            {{- '<|im_end|>' }}
        {%- endgeneration %}
        {{- '\n' }}
    {%- elif message['role'] == 'tool' %}
        {%- if loop.first or loop.previtem['role'] != 'tool' %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\n<tool_response>\n' + content + '\n</tool_response>' }}
        {%- if loop.last or loop.nextitem['role'] != 'tool' %}
            {{- '<|im_end|>\n' }}
        {%- endif %}
    {%- else %}
        {{- raise_exception('unknown role: ' + message['role'] | string) }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}
""".strip()


def main() -> int:
    """Train on the named files and write the two files of the tokenizer."""
    arguments = parse_arguments()
    skipped: Counter[str] = Counter()
    tokenizer = train(texts(arguments.inputs, skipped), arguments.vocab_size)
    write(tokenizer, arguments.output)
    for reason, n_lines in sorted(skipped.items()):
        print(f"skipped {n_lines} lines: {reason}", file=sys.stderr)
    print(f"{arguments.output}: {tokenizer.get_vocab_size()} tokens", file=sys.stderr)
    return 0


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Train the sample tokenizer.")
    parser.add_argument("inputs", nargs="+", type=Path, metavar="INPUT.jsonl")
    parser.add_argument("--output", type=Path, required=True, help="folder to write into")
    parser.add_argument("--vocab-size", type=int, default=32_000, help="default: 32000")
    return parser.parse_args()


def texts(paths: Sequence[Path], skipped: Counter[str]) -> Iterator[str]:
    """Yield every text of every record, in order; count what is no record into `skipped`."""
    for path in paths:
        with path.open("rb") as file:
            for line in file:
                if not line.strip():
                    continue
                try:
                    record = json.loads(line)
                except (ValueError, RecursionError):
                    skipped[f"{path}: not JSON"] += 1
                    continue
                if not isinstance(record, dict):
                    skipped[f"{path}: not an object"] += 1
                    continue
                yield from filter(is_text, record_texts(record))


def record_texts(record: dict[str, object]) -> Iterator[object]:
    """Yield the values that hold text: `text`, or title, summary and the sections' two."""
    yield record.get("text")
    yield record.get("title")
    yield record.get("summary")
    sections = record.get("sections")
    for section in sections if isinstance(sections, list) else ():
        if isinstance(section, dict):
            yield section.get("title")
            yield section.get("content")


def is_text(value: object) -> bool:
    """Say whether value is a string that UTF-8 can hold (a lone surrogate cannot be)."""
    if not isinstance(value, str) or not value:
        return False
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def train(texts: Iterator[str], vocab_size: int) -> Tokenizer:
    """Train a tokenizer with exactly vocab_size ids: added tokens, 256 bytes, merges."""
    tokenizer = Tokenizer(BPE())
    split: PreTokenizer = Split(Regex(SPLIT_PATTERN), behavior="isolated")
    to_bytes: PreTokenizer = ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = PreTokenizers([split, to_bytes])
    tokenizer.decoder = ByteLevelDecoder()
    trainer = BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[AddedToken(token, normalized=False) for token in added_tokens()],
        initial_alphabet=sorted(ByteLevel.alphabet()),
        max_token_length=MAX_TOKEN_BYTES + 1,  # the trainer's bound is exclusive
        show_progress=sys.stderr.isatty(),
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer = with_plain_markup(tokenizer)
    check(tokenizer, vocab_size)
    return tokenizer


def added_tokens() -> tuple[str, ...]:
    """Give the added tokens in the order of their ids, which begin at 0."""
    return SPECIAL_TOKENS + MARKUP_TOKENS


def with_plain_markup(tokenizer: Tokenizer) -> Tokenizer:
    """Take the special flag from the markup tokens: the trainer marks all that it is given."""
    layout = json.loads(tokenizer.to_str())
    for token in layout["added_tokens"]:
        token["special"] = token["content"] in SPECIAL_TOKENS
    return Tokenizer.from_str(json.dumps(layout, ensure_ascii=False))


def check(tokenizer: Tokenizer, vocab_size: int) -> None:
    """Raise ValueError unless ids are as promised."""
    if tokenizer.get_vocab_size() != vocab_size:
        raise ValueError(
            f"expected {vocab_size} tokens, found {tokenizer.get_vocab_size()}: "
            "train on more text or ask for a smaller --vocab-size"
        )
    for expected, token in enumerate(added_tokens()):
        if tokenizer.token_to_id(token) != expected:
            raise ValueError(
                f"expected id {expected} for {token}, found {tokenizer.token_to_id(token)}"
            )


def write(tokenizer: Tokenizer, output: Path) -> None:
    """Write tokenizer.json and tokenizer_config.json into the folder output."""
    output.mkdir(parents=True, exist_ok=True)
    config = tokenizer_config(tokenizer)
    (output / "tokenizer.json").write_text(
        tokenizer.to_str(pretty=True) + "\n", encoding="utf-8", newline="\n"
    )
    (output / "tokenizer_config.json").write_text(
        json.dumps(config, ensure_ascii=False, indent=2) + "\n", encoding="utf-8", newline="\n"
    )


def tokenizer_config(tokenizer: Tokenizer) -> dict[str, object]:
    """Give what transformers reads beside tokenizer.json."""
    decoder = {
        str(index): {
            "content": token.content,
            "lstrip": token.lstrip,
            "normalized": token.normalized,
            "rstrip": token.rstrip,
            "single_word": token.single_word,
            "special": token.special,
        }
        for index, token in sorted(tokenizer.get_added_tokens_decoder().items())
    }
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "added_tokens_decoder": decoder,
        "bos_token": BOS,
        "eos_token": EOS,
        "pad_token": PAD,
        "model_max_length": MODEL_MAX_LENGTH,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }


if __name__ == "__main__":
    sys.exit(main())
