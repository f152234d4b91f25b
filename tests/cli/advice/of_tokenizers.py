"""Tokenizers that do not say what ends a document, or how text is split."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping

from tests.cli.advice.case import (
    SAMPLES,
    TEXTS,
    Case,
    Step,
)

SAMPLE_TOKENIZER = (SAMPLES / "tokenizer" / "tokenizer.json").read_text(encoding="utf-8")
WORDS = {
    "added_tokens": [
        {
            "id": 0,
            "content": "<eos>",
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
    ],
    "pre_tokenizer": {"type": "WhitespaceSplit"},
    "model": {
        "type": "WordLevel",
        "vocab": {"<eos>": 0, "<unk>": 1, "river": 2},
        "unk_token": "<unk>",
    },
}
_FIRST = {"SpecialToken": {"id": "<bos>", "type_id": 0}}
_TEXT = {"Sequence": {"id": "A", "type_id": 0}}
PUTS_BOS = {
    "type": "TemplateProcessing",
    "single": [_FIRST, _TEXT],
    "pair": [_FIRST, _TEXT],
    "special_tokens": {"<bos>": {"id": "<bos>", "ids": [1], "tokens": ["<bos>"]}},
}
RANKS = "".join(f"{base64.b64encode(bytes([i])).decode()} {i}\n" for i in range(256))


def tokenizer(
    name: str, content: str, config: Mapping[str, str], *steps: str | Step, more: str = ""
) -> Case:
    files = {
        "a.jsonl": TEXTS,
        "tok/tokenizer.json": content,
        "tok/tokenizer_config.json": json.dumps(config),
    }
    return Case(
        name,
        files,
        f"tokmill pretrain a.jsonl -t tok -o out{more}",
        tuple(s if isinstance(s, Step) else Step(s) for s in steps),
    )


TOKENIZERS = (
    tokenizer(
        "one eos",
        SAMPLE_TOKENIZER.replace("<|im_end|>", "<|im_mid|>"),
        {},
        Step("--eos-token", "tokmill pretrain a.jsonl -t tok -o other --eos-token '<eos>'"),
    ),
    tokenizer(
        "two eos",
        SAMPLE_TOKENIZER.replace("<|im_start|>", "</s>"),
        {},
        Step("--eos-token", "--eos-token '</s>'"),
    ),
    tokenizer("unknown eos", SAMPLE_TOKENIZER, {"eos_token": "<end>"}, "--eos-token='<eos>'"),
    tokenizer(
        "wrong eos",
        SAMPLE_TOKENIZER,
        {},
        Step("--eos-token", "tokmill pretrain a.jsonl -t tok -o out --eos-token '<eos>'"),
        more=" --eos-token '<end>'",
    ),
    tokenizer(
        "wrong bos",
        SAMPLE_TOKENIZER,
        {},
        Step(
            "--bos-token",
            "tokmill pretrain a.jsonl -t tok -o out --eos-token '<eos>' --bos-token '<bos>'",
        ),
        more=" --eos-token '<eos>' --bos-token '<start>'",
    ),
    tokenizer(
        "a tokenizer that lacks words",
        json.dumps(WORDS),
        {"eos_token": "<eos>"},
        Step("--max-unknown-fraction", "--max-unknown-fraction 1"),
    ),
    tokenizer(
        "a tokenizer that puts bos before a text",
        json.dumps(json.loads(SAMPLE_TOKENIZER) | {"post_processor": PUTS_BOS}),
        {"eos_token": "<eos>"},
        Step("--bos-token=<bos>", "tokmill pretrain a.jsonl -t tok -o other '--bos-token=<bos>'"),
    ),
    Case(
        "ranks",
        {"a.jsonl": TEXTS, "a.tiktoken": RANKS},
        "tokmill pretrain a.jsonl -t a.tiktoken -o out",
        (Step("--pattern", "--pattern gpt2 --eos-token 0"),),
    ),
    Case(
        "a pattern that means something else",
        {"a.jsonl": TEXTS, "a.tiktoken": RANKS},
        "tokmill pretrain a.jsonl -t a.tiktoken -o out --eos-token 0 --pattern '(?|a|b)'",
        (Step("--pattern", "--pattern gpt2"),),
    ),
    Case(
        "another tokenizer",
        {"a.jsonl": TEXTS},
        "tokmill inspect out --tokenizer CHAT",
        (Step("leave --tokenizer out", "tokmill inspect out"),),
        ("tokmill pretrain a.jsonl -t TOK -o out",),
    ),
    Case(
        "a damaged tokenizer",
        {"a.jsonl": TEXTS},
        "tokmill inspect out",
        (Step("name it with --tokenizer", "tokmill inspect out --tokenizer TOK"),),
        (
            "tokmill pretrain a.jsonl -t TOK -o out",
            "printf x > new && mv -f new out/tokenizer.zst",
        ),
    ),
    Case(
        "a lost tokenizer, and another copy of it",
        {"a.jsonl": TEXTS},
        "tokmill pretrain a.jsonl -t copy -o out",
        (Step("run with --overwrite", "tokmill pretrain a.jsonl -t copy -o out --overwrite"),),
        (
            "tokmill pretrain a.jsonl -t TOK -o out",
            "cp -r $TOK copy",
            "rm -f out/tokenizer.zst",
        ),
    ),
)
