"""Small files in the shapes that people have: made here, and described in shapes.md."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

STORY = (
    "the river bends twice before it meets the sea and the old ferry still crosses at noon "
    "carrying bread salt letters and a dog that belongs to nobody while the miller counts "
    "sacks by the light of one lamp"
)
WORDS = STORY.split()
SIGNS = (
    "河水在入海以前转了两个弯老渡船仍在正午过江载着面包盐书信和一条没有主人的狗磨坊主在灯下数麻袋"
)


class Shape(NamedTuple):
    """`what` it is, the `file` and its bytes; `is_chat`: the table says what `tokmill sft` does."""

    what: str
    file: str
    make: Callable[[], bytes]
    is_chat: bool = False


def en(n_words: int, i: int) -> str:
    """A text of so many English words, another for each record."""
    words = [WORDS[(i * 7 + k * (1 + i % 5)) % len(WORDS)] for k in range(n_words)]
    return " ".join(words).capitalize() + "."


def zh(n_signs: int, i: int) -> str:
    """A text of so many Chinese characters, with a comma after each twelfth."""
    signs = [SIGNS[(i * 5 + k * (1 + i % 3)) % len(SIGNS)] for k in range(n_signs)]
    return "，".join("".join(signs[k : k + 12]) for k in range(0, n_signs, 12)) + "。"


Record = Callable[[int], Mapping[str, Any]]


def records(record: Record) -> list[Mapping[str, Any]]:
    return [record(i) for i in range(20)]


def jsonl(record: Record, encoding: str = "utf-8") -> Callable[[], bytes]:
    return lambda: "".join(
        json.dumps(row, ensure_ascii=False) + "\n" for row in records(record)
    ).encode(encoding)


def array(record: Record, indent: int | None = None) -> Callable[[], bytes]:
    return lambda: json.dumps(records(record), ensure_ascii=False, indent=indent).encode()


def table(
    record: Record, delimiter: str = ",", encoding: str = "utf-8", *, quoting: int = 0
) -> Callable[[], bytes]:
    def make() -> bytes:
        rows = records(record)
        out = io.StringIO()
        writer = csv.DictWriter(out, list(rows[0]), delimiter=delimiter, quoting=quoting)
        writer.writeheader()
        writer.writerows(rows)
        return out.getvalue().encode(encoding)

    return make


def parquet(record: Record) -> Callable[[], bytes]:
    def make() -> bytes:
        sink = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(records(record)), sink)
        return sink.getvalue()

    return make


def turns(name: str, content: str, speakers: Sequence[str], i: int) -> list[dict[str, str]]:
    return [
        {name: speaker, content: en(8 + 20 * (k % 2), i + k)} for k, speaker in enumerate(speakers)
    ]


def openai(i: int) -> dict[str, Any]:
    return {"messages": turns("role", "content", ("system", "user", "assistant"), i)}


def sharegpt(i: int) -> dict[str, Any]:
    return {"id": f"c_{i}", "conversations": turns("from", "value", ("human", "gpt") * 2, i)}


def alpaca(i: int) -> dict[str, Any]:
    return {"instruction": en(8, i), "input": en(4, i) if i % 3 else "", "output": en(40, i)}


def orca(i: int) -> dict[str, Any]:
    question, response = en(20, i), en(40, i)
    return {"id": f"flan.{i}", "system_prompt": en(6, 1), "question": question,
            "response": response}  # fmt: skip


def reasoning(i: int) -> dict[str, Any]:
    thought = f"<think>\n{en(30, i)}\n</think>\n\n{en(9, i)}"
    return {"messages": [{"role": "user", "content": en(9, i)},
                         {"role": "assistant", "content": thought}]}  # fmt: skip


def wiki(i: int) -> dict[str, Any]:
    return {"id": str(i + 12), "url": f"https://en.wikipedia.org/wiki?curid={i}",
            "title": en(2, i), "text": en(300, i)}  # fmt: skip


def pile(i: int) -> dict[str, Any]:
    return {"text": en(120, i), "meta": {"pile_set_name": "Pile-CC"}}


def fineweb(i: int) -> dict[str, Any]:
    return {"text": en(120, i), "id": f"<urn:uuid:0d8a-{i}>", "dump": "CC-MAIN-2023-06",
            "url": f"https://example.org/{i}", "date": "2023-01-27T05:33:41Z",
            "file_path": "s3://commoncrawl/warc.gz", "language": "en", "language_score": 0.98,
            "token_count": 150}  # fmt: skip


def web_math(i: int) -> dict[str, Any]:
    info = json.dumps({"extraction_info": {"found_math": True, "math score": 0.9}})
    return {"url": f"https://example.org/{i}", "text": en(200, i), "date": "2023-01-27 05:33:41",
            "metadata": info}  # fmt: skip


def news(i: int) -> dict[str, Any]:
    return {"title": en(7, i), "content": en(200, i)}


def encyclopedia(i: int) -> dict[str, Any]:
    parts = [{"title": zh(3, i), "content": zh(60, i)}, {"title": zh(3, 1), "content": zh(40, i)}]
    return {"id": str(i), "url": f"https://baike.example/{i}", "title": zh(4, i),
            "summary": zh(40, i), "sections": parts, "tags": [zh(3, i)]}  # fmt: skip


def baike(i: int) -> dict[str, Any]:
    return {"标题": zh(4, i), "摘要": zh(40, i), "正文": zh(200, i)}


def headings(i: int) -> dict[str, Any]:
    parts = [{"heading": en(2, i), "text": en(60, i)}, {"heading": en(2, 1), "text": en(40, i)}]
    return {"title": en(2, i), "summary": en(20, i), "sections": parts}


def text_and_sections(i: int) -> dict[str, Any]:
    return {"title": en(2, i), "text": en(120, i),
            "sections": [{"title": en(2, i), "content": en(60, i)}]}  # fmt: skip


def paragraphs(i: int) -> dict[str, Any]:
    return {"title": en(2, i), "paragraphs": [en(60, i), en(50, i)]}


def mnbvc(i: int) -> dict[str, Any]:
    lines = [{"行号": k, "是否重复": False, "内容": zh(60, i + k)} for k in range(3)]
    return {"文件名": f"book/{i}.txt", "文件大小": 1200, "段落": lines}


def stack(i: int) -> dict[str, Any]:
    code = f"def f{i}(x):\n    # {en(20, i)}\n    return x + {i}\n" * 3
    return {"hexsha": f"{i:040x}", "size": len(code), "ext": "py", "lang": "Python",
            "max_stars_repo_path": f"src/f{i}.py", "max_stars_repo_licenses": ["MIT"],
            "content": code}  # fmt: skip


def arxiv(i: int) -> dict[str, Any]:
    return {"id": f"0704.{i:04d}", "categories": "hep-ph", "title": en(12, i),
            "abstract": en(100, i)}  # fmt: skip


def question_and_answer(i: int) -> dict[str, Any]:
    return {"title": zh(10, i), "question": zh(30, i), "answer": zh(80, i)}


def stack_exchange(i: int) -> dict[str, Any]:
    return {"qid": i, "question": en(60, i), "date": "2019-01-02",
            "metadata": [f"https://example.org/q/{i}"], "response_j": en(60, i),
            "response_k": en(40, i)}  # fmt: skip


def sheet(i: int) -> dict[str, Any]:
    return {"Unnamed: 0": i, "title": en(6, i), "body text": en(40, i)}


def lists(i: int) -> dict[str, Any]:
    return {"id": i, "text": [en(40, i), en(20, i)]}


def plain(i: int) -> dict[str, Any]:
    return {"text": en(60, i)}


def book() -> bytes:
    return "\n\n".join(en(80, i) for i in range(30)).encode()


def chinese_book() -> bytes:
    return "\n".join(zh(120, i) for i in range(30)).encode("gbk")


def one_object() -> bytes:
    return json.dumps(wiki(3), indent=2).encode()


def wrapped() -> bytes:
    return json.dumps({"version": "1.1", "data": records(wiki)}, indent=2).encode()


SHAPES = (
    Shape("plain text lines", "text.jsonl", jsonl(plain)),
    Shape("Wikipedia dump", "wiki.jsonl", jsonl(wiki)),
    Shape("the Pile", "pile.jsonl", jsonl(pile)),
    Shape("FineWeb", "fineweb.parquet", parquet(fineweb)),
    Shape("OpenWebMath", "math.parquet", parquet(web_math)),
    Shape("encyclopedia with sections", "encyclopedia.jsonl", jsonl(encyclopedia)),
    Shape("Baike with other keys", "baike.jsonl", jsonl(baike)),
    Shape("sections with other keys", "headings.jsonl", jsonl(headings)),
    Shape("a text beside sections", "both.jsonl", jsonl(text_and_sections)),
    Shape("a list of paragraphs", "paragraphs.jsonl", jsonl(paragraphs)),
    Shape("MNBVC", "mnbvc.jsonl", jsonl(mnbvc)),
    Shape("news", "news.jsonl", jsonl(news)),
    Shape("arXiv", "arxiv.jsonl", jsonl(arxiv)),
    Shape("The Stack", "stack.parquet", parquet(stack)),
    Shape("StackExchange pairs", "pairs.jsonl", jsonl(stack_exchange)),
    Shape("spreadsheet saved as CSV", "sheet.csv", table(sheet)),
    Shape("the same with a BOM and quotes", "bom.csv",
          table(wiki, encoding="utf-8-sig", quoting=csv.QUOTE_ALL)),
    Shape("CSV of a German or French Excel", "semicolons.csv", table(sheet, ";")),
    Shape("tab separated", "wiki.tsv", table(wiki, "\t")),
    Shape("tab separated, named .csv", "tabs.csv", table(wiki, "\t")),
    Shape("Parquet with a list column", "lists.parquet", parquet(lists)),
    Shape("book", "book.txt", book),
    Shape("book in GBK", "gbk.txt", chinese_book),
    Shape("lines in GBK", "gbk.jsonl", jsonl(baike, "gbk")),
    Shape("array in .jsonl", "array.jsonl", array(wiki)),
    Shape("pretty-printed array", "pretty.json", array(wiki, 2)),
    Shape("one pretty-printed object", "object.json", one_object),
    Shape("records inside one object", "wrapped.json", wrapped),
    Shape("gzip without .gz", "packed.jsonl", lambda: gzip.compress(jsonl(wiki)())),
    Shape("Parquet named .json", "parquet.json", parquet(wiki)),
    Shape("JSON named .parquet", "json.parquet", jsonl(wiki)),
    Shape("bzip2", "wiki.jsonl.bz2", lambda: bz2.compress(jsonl(wiki)())),
    Shape("OpenAI messages", "messages.jsonl", jsonl(openai), is_chat=True),
    Shape("ShareGPT", "sharegpt.json", array(sharegpt), is_chat=True),
    Shape("Alpaca", "alpaca.json", array(alpaca, 2), is_chat=True),
    Shape("OpenOrca", "orca.parquet", parquet(orca), is_chat=True),
    Shape("reasoning inside replies", "reasoning.jsonl", jsonl(reasoning), is_chat=True),
    Shape("questions and answers", "qa.jsonl", jsonl(question_and_answer), is_chat=True),
)  # fmt: skip
