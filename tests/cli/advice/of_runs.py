"""Outputs, plans and limits of a run."""

from __future__ import annotations

from tests.cli.advice.case import (
    TEXTS,
    Case,
    Step,
    pretrain,
)

RUNS = (
    Case(
        "no input",
        {"a.toml": "[input]\npaths = ['a.jsonl']\n", "a.jsonl": TEXTS},
        "tokmill pretrain -t TOK -o out",
        (Step("--config", "--config a.toml"),),
    ),
    Case(
        "no output",
        {"a.jsonl": TEXTS},
        "tokmill pretrain a.jsonl -t TOK",
        (Step("--output", "--output out"),),
    ),
    Case(
        "no tokenizer",
        {"a.jsonl": TEXTS},
        "tokmill pretrain a.jsonl -o out",
        (Step("--tokenizer", "--tokenizer TOK"),),
    ),
    pretrain(
        "other settings",
        {"a.jsonl": TEXTS},
        Step("--output", "--output other"),
        "--overwrite",
        more=" --dtype uint32",
        before=("tokmill pretrain a.jsonl -t TOK -o out",),
    ),
    pretrain(
        "sft there",
        {"a.jsonl": TEXTS},
        Step("--output", "--output other"),
        "--overwrite",
        before=("tokmill sft a.jsonl -t CHAT -o out --schema text",),
    ),
    Case(
        "no plan",
        {"a.jsonl": TEXTS},
        "tokmill run-part out --index 0 --of 1",
        (
            Step(
                "tokmill plan … --output out --write",
                "tokmill plan a.jsonl -t TOK --output out --write",
            ),
        ),
    ),
    pretrain(
        "foreign files",
        {"a.jsonl": TEXTS, "out/manifest.json": "{}"},
        Step("name an empty or new output", "tokmill pretrain a.jsonl -t TOK -o other"),
    ),
    pretrain(
        "rejects",
        {"a.jsonl": TEXTS + "{\n{}\n" * 40},
        Step("--max-reject-fraction", "--max-reject-fraction 1"),
    ),
    pretrain(
        "one broken", {"a.jsonl": TEXTS[:-9] + "\n"}, "--on-error=skip", more=" --on-error fail"
    ),
    pretrain(
        "a file of rejects",
        {"a.jsonl": TEXTS, "b.jsonl": '{"text": 1}\n'},
        "--max-reject-fraction=1",
        more=" b.jsonl",
    ),
    pretrain(
        "export there",
        {"a.jsonl": TEXTS},
        "--overwrite",
        Step("name another output", "--output other"),
        before=(
            "tokmill pretrain a.jsonl -t TOK -o made",
            "tokmill export made --to nanogpt -o out",
        ),
    ),
)
