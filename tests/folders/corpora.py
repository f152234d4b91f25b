"""Small corpora for whole runs, and what their datasets must hold."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tokenizers import Tokenizer

import tokmill as library
from tests.cli.shapes import alpaca, en, zh

Row = Mapping[str, Any]
N = 6


def lines(path: Path, rows: Sequence[Row], encoding: str = "utf-8") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    path.write_bytes(text.encode(encoding))


def packed(path: Path, rows: Sequence[Row]) -> None:
    text = "".join(json.dumps(row) + "\n" for row in rows).encode()
    gz = path.suffix == ".gz"
    path.write_bytes(gzip.compress(text) if gz else pa.Codec("zstd").compress(text, asbytes=True))


def table(path: Path, rows: Sequence[Row]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(list(rows)), path)


def entry(write: Callable[[int, int], str], i: int, **more: Any) -> dict[str, Any]:
    """Return a record of an encyclopedia: title, summary, one section."""
    section = {"title": write(3, i + 1), "content": write(30, i)}
    return {"title": write(4, i), "summary": write(12, i), "sections": [section], **more}


def formula(row: Row) -> str:
    section = row["sections"][0]
    return f"{row['title']}:{row['summary']}{section['title']}:{section['content']}。"


def article(row: Row) -> str:
    section = row["sections"][0]
    pieces = [row["title"], row["summary"], f"{section['title']}\n{section['content']}"]
    return "\n\n".join(piece for piece in pieces if piece)


def texts(rows: Sequence[Row], key: str = "text") -> list[str]:
    return [row[key] for row in rows]


TEXTS = [{"text": en(12, i)} for i in range(N)]
PAGES = [{**row, "url": f"https://example.org/{i}"} for i, row in enumerate(TEXTS)]
CODE = [
    {"content": f"def f{i}(x):\n    return x + {i}\n" * 3, "path": f"f{i}.py", "lang": "Python"}
    for i in range(N)
]
BODIES = [{"body": en(20, i), "id": i} for i in range(N)]
WIKI = [entry(zh, i) for i in range(N)]
ENGLISH = [entry(en, i) for i in range(N)]


def documents(directory: Path) -> list[str]:
    """Return the decoded documents without their end; nothing of the input is lost."""
    dataset = library.open(directory)
    totals = dataset.manifest["totals"]
    lost = sum(totals["drops"].values()) + sum(totals["rejects"].values())
    assert totals["records"] == len(dataset) + lost
    return [dataset.text(i).removesuffix("<eos>") for i in range(len(dataset))]


def sharegpt(i: int) -> dict[str, Any]:
    turns = [("system", f"RULE {i}"), ("human", en(5, i)), ("gpt", en(6, i))]
    return {"conversations": [{"from": name, "value": value} for name, value in turns]}


def dialogue(i: int, answers: str = "ASSISTANT") -> dict[str, Any]:
    turns = [("USER", en(5, i)), (answers, en(7, i))]
    return {"turns": [{"speaker": name, "utterance": text} for name, text in turns]}


CHATS = {
    "alpaca": ([alpaca(i) for i in range(N)], [alpaca(i)["output"] for i in range(N)]),
    "sharegpt": ([sharegpt(i) for i in range(N)], [en(6, i) for i in range(N)]),
    "dialogue": ([dialogue(i) for i in range(N)], [en(7, i) for i in range(N)]),
}


def trained(directory: Path) -> list[str]:
    """Return the trained text of each sample, without the control token that ends a turn."""
    dataset = library.open(directory)
    tokenizer = Tokenizer.from_file(
        f"{dataset.manifest['config']['tokenizer']['path']}/tokenizer.json"
    )
    return [
        tokenizer.decode(dataset[i][dataset.mask(i) == 1].tolist()) for i in range(len(dataset))
    ]


def chats(folder: Path, **more: Sequence[Row]) -> list[str]:
    for name, (rows, _) in CHATS.items():
        lines(folder / f"{name}.jsonl", rows)
    for name, rows in more.items():
        lines(folder / f"{name}.jsonl", rows)
    return [f"{folder.name}/{name}.jsonl" for name in [*CHATS, *more]]
