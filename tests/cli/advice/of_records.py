"""Records whose text stands in other fields, or in none."""

from __future__ import annotations

import gzip
import json

from tests.cli.advice.case import (
    CHATS,
    STORY,
    TEXTS,
    Step,
    lines,
    plan,
    pretrain,
    sft,
)
from tokmill.sources.streams import zstd

HALF = {"title": STORY[:40], "abstract": STORY, "body": STORY}
OWN = """
import pyarrow as pa

from tokmill.sources.streams import zstd

def text(batch):
    return pa.array([str(row) for row in batch.to_pylist()])
"""
RENDERER = Step("--renderer=MODULE:FUNCTION", "--renderer=own:text")
RECORDS = (
    pretrain(
        "several texts",
        {"a.jsonl": lines(HALF, n=3)},
        "--template='{title}\\n{abstract}\\n{body}'",
        "--renderer=text --fields=text=abstract",
    ),
    pretrain(
        "a list", {"a.jsonl": lines({"body": [STORY], "x": "a word"}, n=3), "own.py": OWN}, RENDERER
    ),
    pretrain(
        "a list under text",
        {"a.jsonl": lines({"text": [STORY], "x": "a word"}, n=3), "own.py": OWN},
        Step(
            "--renderer=MODULE:FUNCTION",
            "tokmill pretrain a.jsonl -t TOK -o out --renderer=own:text",
        ),
        more=" --renderer text",
    ),
    pretrain(
        "a path where a key is expected",
        {
            "a.jsonl": lines(
                {"meta": {"title": "Ferry"}, "summary": STORY, "sections": [{"content": STORY}]},
                n=3,
            ),
            "own.py": OWN,
        },
        Step(
            "--renderer=template --template='{meta.title}\\n{summary}'",
            "tokmill pretrain a.jsonl -t TOK -o out --renderer=template "
            "--template='{meta.title}\\n{summary}'",
        ),
        Step(
            "--renderer=MODULE:FUNCTION",
            "tokmill pretrain a.jsonl -t TOK -o out --renderer=own:text",
        ),
        more=" --renderer article --fields title=meta.title",
    ),
    pretrain(
        "one text of several",
        {"a.jsonl": lines({"body": STORY, "meta": {"x": [{"y": STORY}]}}, n=3)},
        "--renderer=text --fields=text=body",
    ),
    pretrain(
        "sections of other names",
        {"a.jsonl": lines({"name": "Ferry", "paragraphs": [{"body": STORY}] * 3}, n=3)},
        "--renderer=article --fields=section_content=body,sections=paragraphs,title=name",
    ),
    pretrain(
        "one record with a list",
        {"a.json": json.dumps({"data": [{"text": STORY}] * 3})},
        "--renderer=article --fields=section_content=text,sections=data",
        "jq -c '.data[]' a.json > NEW_FILE.jsonl",
    ),
    pretrain(
        "one record with a list, gzip",
        {"a.json.gz": gzip.compress(json.dumps({"data": [{"text": STORY}] * 3}).encode())},
        "gzip -dc < a.json.gz | jq -c '.data[]' > NEW_FILE.jsonl",
    ),
    pretrain(
        "one record with a list, zstd",
        {"a.json.zst": zstd.compress(json.dumps({"data": [{"text": STORY}] * 3}).encode())},
        "zstd -dc < a.json.zst | jq -c '.data[]' > NEW_FILE.jsonl",
    ),
    pretrain(
        "sections and a text",
        {
            "a.jsonl": lines(
                {
                    "title": "Ferry",
                    "text": STORY * 2,
                    "sections": [{"title": "x", "content": STORY}],
                },
                n=3,
            )
        },
        "--renderer=sections",
        "--template='{title}\\n{text}'",
    ),
    pretrain(
        "an end of pieces",
        {
            "a.jsonl": TEXTS,
            "placing.py": "import tokmill\n\n"
            "def render(batch):\n"
            "    return [[tokmill.ControlToken('<eos>'), 'dog'] for _ in range(batch.num_rows)]\n",
        },
        Step("leave it out", "tokmill pretrain a.jsonl -t TOK -o new --renderer placing:render"),
        Step("--strip-end", "tokmill pretrain a.jsonl -t TOK -o new --strip-end x"),
        more=" --renderer placing:render --strip-end dog",
    ),
    pretrain(
        "labels",
        {"a.jsonl": lines({"id": 1, "kind": "dog"}, {"id": 2, "kind": "cat"}, n=20)},
        "--renderer=text --fields=text=kind",
    ),
    pretrain(
        "chats",
        {"a.jsonl": CHATS},
        Step("tokmill sft", "tokmill sft a.jsonl -t CHAT -o out"),
        Step(
            "tokmill pretrain reads text",
            "tokmill pretrain a.jsonl -t TOK -o out --renderer=article "
            "--fields=section_title=role,sections=messages",
        ),
    ),
    pretrain(
        "questions",
        {"a.jsonl": lines({"prompt": "Who is there?", "completion": STORY}, n=3)},
        Step("tokmill sft", "tokmill sft a.jsonl -t CHAT -o out"),
        "--template='{prompt}\\n{completion}'",
    ),
    sft(
        "documents",
        {"a.jsonl": lines({"title": "Ferry", "summary": STORY, "sections": []}, n=3)},
        Step("tokmill pretrain", "tokmill pretrain a.jsonl -t TOK -o out"),
    ),
    pretrain(
        "no template",
        {"a.jsonl": TEXTS},
        Step("--template such as '{title}\\n{body}'", "--template '{text}'"),
        more=" --renderer template",
    ),
    plan(
        "no such field",
        {"a.jsonl": TEXTS},
        Step("--keep=ulr", "tokmill plan a.jsonl -t TOK --keep text"),
        more=" --keep ulr",
    ),
    pretrain(
        "no text",
        {"a.jsonl": lines({"text": "", "body": STORY}, n=20)},
        Step("(--fields)", "--fields text=body"),
        more=" --renderer text",
    ),
    pretrain(
        "often no text",
        {"a.jsonl": TEXTS + lines({"text": ""}, n=20)},
        Step("--max-empty-fraction", "--max-empty-fraction 1"),
        more=" --max-empty-fraction 0.1",
    ),
    pretrain(
        "most is left out",
        {
            "a.jsonl": lines({"text": STORY}, n=300)
            + lines({"text": "a word", "body": STORY * 9}, n=3000)
        },
        "--renderer=text --fields=text=text",
        Step("--template", "--template '{text}\\n{body}'"),
    ),
)
